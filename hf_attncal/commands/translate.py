"""`attncal translate`: one line out for each line in, with scores and word links where they are asked for."""

import argparse
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import BinaryIO

from hf_attncal.alignment.opening import open_aligner, try_aligner
from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import BATCHES_PER_WINDOW, check_files, input_lines, json_line, output_lines, write_lines
from hf_attncal.errors import CommandError
from hf_attncal.inference.answers import answer_lines, named_lines
from hf_attncal.inference.opening import load_errors, load_model

from .check import open_checker
from .common import add_file_options, add_model_options, between, positive


def add_translate(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `translate`."""
    parser = commands.add_parser(
        "translate",
        help="translate text, line by line",
        description="Translate standard input to standard output, or files: exactly one line out for each line in, in "
        "the same order, written as the input arrives. An empty line gives an empty line.",
        epilog="examples:\n  attncal translate MODEL < source.txt > translations.txt\n"
        "  attncal translate MODEL --input source.txt --output translations.txt --alignments links.align",
    )
    files = add_file_options(parser, "text, one sentence a line")
    files.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json: one object a line, with source, translation, score, tokens, their scores, and the alignment where "
        "one is asked for",
    )
    files.add_argument(
        "--scores",
        action="store_true",
        help="text: write `score TAB translation`; the score is the log-probability / length ** PENALTY, with four "
        "decimals",
    )
    links = parser.add_argument_group("word links of each translation with its source")
    links.add_argument(
        "--alignments",
        nargs="?",
        const="",
        metavar="FILE",
        help="write them to FILE, `i-j i-j` for each line, counted from 0; FILE can be left out where json has them; "
        "without it, none",
    )
    links.add_argument(
        "--aligner",
        metavar="NAME",
        help="folder or Hub name of a word aligner; without it, the attention of MODEL that `attncal align select` "
        "chose",
    )
    checks = parser.add_argument_group("what each translation left out and made up")
    checks.add_argument(
        "--check",
        metavar="NAME",
        help="folder or Hub name of a word aligner for which `attncal check` has learned what good pairs look like; "
        "text: before each translation what is flagged, or `-`, and a TAB; json: the whole verdict; without it, none",
    )
    checks.add_argument(
        "--candidates",
        type=positive,
        default=1,
        metavar="N",
        help="with --check, how many translations of the search are checked, at most --beams: a flagged one gives way "
        "to that in which a fault is least probable",
    )
    search = parser.add_argument_group("search")
    search.add_argument("--beams", type=positive, default=4, help="beam size; 1 is greedy")
    search.add_argument(
        "--length-penalty",
        type=between(-5, 5),  # beyond, powers of lengths are no numbers that a score can be divided by
        default=1.0,
        help="beam score = log-probability / length ** X; larger values favour longer translations",
    )
    search.add_argument(
        "--max-new-tokens",
        type=positive,
        help="longest translation in tokens; without it, twice the longest source of a batch plus 10",
    )
    search.add_argument(
        "--too-long",
        choices=("error", "truncate"),
        default="error",
        help="what to do with a line of more tokens than the model has positions, or longer than --longest-line",
    )
    running = add_model_options(parser, "folder or Hub name of an encoder-decoder, or of an adapter", lines=True)
    running.add_argument("--batch-size", type=positive, default=32, help="sentences translated at once")
    parser.set_defaults(run=_run_translate)


def _run_translate(options: argparse.Namespace) -> None:
    _check_options(options)
    model, tokenizer = load_model(options.model, running_of(options), getattr(options, "beams", None) or 2)
    aligner = None
    if options.aligner is not None:
        aligner = open_aligner(options.aligner, running_of(options))
    elif options.alignments is not None:
        aligner = _own_aligner(options, model, tokenizer)
    checker = None if options.check is None else open_checker(options.check, options)
    with ExitStack() as stack:
        lines = stack.enter_context(input_lines(options.input, BATCHES_PER_WINDOW * options.batch_size))
        target = stack.enter_context(output_lines(options.output))
        links = stack.enter_context(output_lines(options.alignments, "--alignments")) if options.alignments else None
        translate_stream(model, tokenizer, lines, target, options, aligner, links, checker)


def _check_options(options: argparse.Namespace) -> None:
    """Check files and options before the model is loaded."""
    aligned = options.alignments is not None or options.aligner is not None
    if aligned and not options.alignments and options.format == "text":
        raise CommandError("Links need a file beside the text: give --alignments FILE, or --format json.")
    if aligned and options.aligner is None and options.too_long == "truncate":
        raise CommandError(
            "With --too-long truncate, links need a word aligner (--aligner): the attention of MODEL cannot align a "
            "line that it does not read to its end."
        )
    if options.candidates > 1 and options.check is None:
        raise CommandError("--candidates chooses by a verdict: give --check NAME.")
    if options.candidates > options.beams:
        raise CommandError(
            f"--candidates {options.candidates} needs as many beams: give --beams {options.candidates}, or fewer "
            "candidates."
        )
    inputs = [] if options.input is None else [options.input]
    check_files(inputs, {"--output": options.output, "--alignments": options.alignments or None})


def _own_aligner(options: argparse.Namespace, model, tokenizer):
    """Return the `WordAligner` that reads the model itself, as `attncal align run` does; only JSON has link scores.

    Raises:
        CommandError: files of `align select` or `align calibrate` cannot be used, or the model cannot align.
    """
    from hf_attncal.alignment import WordAligner
    from hf_attncal.alignment.probabilities import saved_probabilities
    from hf_attncal.alignment.sources import saved_settings

    name = options.model
    with load_errors(name):
        probabilities = saved_probabilities(name) if options.format == "json" else None
        aligner = WordAligner(model, tokenizer, saved_settings(name), probabilities)
    try_aligner(name, aligner)
    return aligner


def translate_stream(
    model,
    tokenizer,
    lines: tuple[BinaryIO, int, str],
    target: BinaryIO,
    options: argparse.Namespace,
    aligner=None,
    links: BinaryIO | None = None,
    checker=None,
) -> None:
    """Translate line by line, a window of lines at a time.

    Args:
        model: an encoder-decoder, on its device.
        tokenizer: its tokenizer.
        lines: the input, the number of lines of a window, and the input's name in messages (`input_lines`).
        target: output with a line for each line, flushed after every window.
        options: options of `attncal translate`.
        aligner: a `WordAligner` for the links of each line with its translation.
        links: output for the links, if there is an aligner.
        checker: a `Checker` for a verdict on each translation.

    Raises:
        CommandError: a line that `answer_lines` refuses, or that cannot be aligned with its translation.

    Warns:
        UserWarning: lines have no links, because their translation, split into tokens again, has more tokens than the
            aligner has positions.
    """
    from hf_attncal.data.piecewise import until_failure
    from hf_attncal.inference.reading import PairTooLongError
    from hf_attncal.inference.translation import translate_lines

    translate = partial(
        translate_lines,
        model,
        tokenizer,
        batch_size=options.batch_size,
        num_beams=options.beams,
        length_penalty=options.length_penalty,
        max_new_tokens=options.max_new_tokens,
        too_long=options.too_long,
        scores=options.scores or options.format == "json",
    )
    if checker is not None:
        from hf_attncal.checking.checked_translation import translate_checked

        translate = partial(
            translate_checked, *translate.args, checker=checker, candidates=options.candidates, **translate.keywords
        )
    align = None if aligner is None else partial(aligner.align, batch_size=options.batch_size)

    def answer(texts: Sequence[str]):
        translations, failure = until_failure(translate, texts)
        verdicts: list = [None] * len(translations)
        if checker is not None:
            verdicts = [verdict for _, verdict in translations]
            translations = [translation for translation, _ in translations]
        problem = "translated" if checker is None else "translated and checked"
        alignments: list = [None] * (0 if align else len(translations))
        pairs = [(text, translation.text) for text, translation in zip(texts, translations, strict=False)]
        while len(alignments) < len(pairs):
            aligned, unaligned = until_failure(align, pairs[len(alignments) :])
            alignments += aligned
            if isinstance(unaligned, PairTooLongError):
                alignments.append(None)
            elif unaligned is not None:
                failure, problem = unaligned, "aligned with its translation"
                break
        rows = list(zip(texts, translations, alignments, verdicts, strict=False))  # up to the first without
        return rows, failure, problem

    written, unlinked = 0, []

    def write(rows) -> None:
        nonlocal written
        write_lines(target, (_line(*row, align is not None, options) for row in rows))
        if links is not None:
            write_lines(links, ("" if alignment is None else alignment.pharaoh() for _, _, alignment, _ in rows))
        if align is not None:
            unlinked.extend(n for n, row in enumerate(rows, start=written + 1) if row[2] is None)
        written += len(rows)

    try:
        answer_lines(model, tokenizer, lines, options, "translated", answer, write)
    finally:
        if unlinked:
            warnings.warn(
                f"{len(unlinked)} of {written} lines of {lines[2]} have no links: their translation, split into "
                f"tokens again, has more than the aligner has positions ({named_lines(unlinked)}).",
                stacklevel=2,
            )


def _line(source: str, translation, alignment, verdict, aligned: bool, options: argparse.Namespace) -> str:
    """Format the output line for a source line and its `Generated` translation, with links or null if `aligned`."""
    if options.format == "text":
        columns = [translation.text]
        if verdict is not None:
            columns.insert(0, ",".join(verdict.flagged) or "-")
        if options.scores:
            columns.insert(0, "" if translation.score is None else f"{translation.score:.4f}")
        return "\t".join(columns)
    values = {
        "source": source,
        "translation": translation.text,
        "score": translation.score,
        "tokens": translation.tokens,
        "token_scores": translation.token_scores,
    }
    if aligned:
        values["alignment"] = alignment and alignment.to_dict()
    if verdict is not None:
        values["check"] = {
            name: value for name, value in verdict.to_dict().items() if name not in ("source", "target")
        }
    return json_line(values)
