"""`attncal align quick`: align two files by what they say themselves."""

import argparse
from contextlib import ExitStack

from hf_attncal.data.streams import check_files, output_lines
from hf_attncal.errors import CommandError

from .align import add_linking, align_stream, check_format, page
from .common import add_longest_line, add_output_option, add_pair_files, check_longest_lines, positive


def add_quick(actions: argparse._SubParsersAction) -> None:
    """Add the action `quick`."""
    parser = actions.add_parser(
        "quick",
        help="align two files without a model",
        description="Align the words of two files by counting them, and nothing else: no model, no folder. What is "
        "learned is forgotten; `attncal align train` keeps it.",
        epilog="examples:\n"
        "  attncal align quick --source text.en --target text.de --output links.align\n"
        "  attncal align quick --source new.en --target new.de --with-source known.en --with-target known.de\n"
        "  attncal align quick --source raw.en --target raw.ja --tokenize --offsets --output spans.txt",
    )
    files = parser.add_argument_group("input and output")
    add_pair_files(files)
    for side in ("source", "target"):
        files.add_argument(
            f"--with-{side}",
            metavar="FILE",
            help=f"{side} sentences of other text of the two languages, which is counted and not aligned; without it, "
            "the text is alone",
        )
    add_output_option(files)
    links = add_linking(parser, files, own="that of counts")
    links.add_argument(
        "--fold",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="look words up without regard to case, kinds of quotes and dashes, width, and white space inside a word",
    )
    running = parser.add_argument_group("running")
    running.add_argument("--threads", type=positive, help="threads of PyTorch; without it, as PyTorch chooses")
    add_longest_line(running)
    running.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="count lines on standard error; without it, if that is a terminal",
    )
    unasked = {"least_probability": None, "batch_size": 256, "batch_tokens": 4096, "adapt": False}
    parser.set_defaults(run=_run_quick, **unasked)


def _run_quick(options: argparse.Namespace) -> None:
    check_format(options)
    if (options.with_source is None) != (options.with_target is None):
        raise CommandError("--with-source and --with-target go together: give both files.")
    beside = [] if options.with_source is None else [options.with_source, options.with_target]
    check_files([options.source, options.target, *beside], {"--output": options.output})
    import torch

    from hf_attncal.alignment.quick import quick_aligner
    from hf_attncal.files import read_pairs

    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        sides = read_pairs(options.source, options.target)
        check_longest_lines(options, *sides)
        pairs = list(zip(*sides, strict=True))
        others = list(zip(*read_pairs(*beside), strict=True)) if beside else []
        how = {"tokenize": bool(options.tokenize), "fold_words": options.fold, "words": options.words}
        aligner = quick_aligner([*pairs, *others], **how)
    except ValueError as error:
        raise CommandError(str(error)) from error
    with ExitStack() as stack:
        target = stack.enter_context(output_lines(options.output))
        if options.format == "html":
            stack.enter_context(page(target, "counts of this text"))
        align_stream(aligner, iter([(pairs, None)]), target, options)
