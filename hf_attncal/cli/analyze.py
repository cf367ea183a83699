"""`attncal analyze`: when the attention of a model can be believed, as text, files and one page."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from .common import CommandError, add_model_options, at_least, check_folder, check_readable, positive
from .generation import load_model
from .messages import LOG, job_progress
from .streams import check_files

_LOOKED_AT = 500  # pairs of a text that is a probe's, too
_LITTLE = 2000  # pairs from which a probe learns little


def add_analyze(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `analyze`."""
    parser = commands.add_parser(
        "analyze",
        help="when the attention of a model can be believed: figures, numbers, a page",
        description="Read a translation model (or summariser) on sentence pairs and say what its cross-attention, and "
        "other methods of attribution, tell of it: how often the most attended token is the one that matters, by "
        "layer, head, entropy and part of speech; which method names the words that the model uses; and each pair to "
        "look at. A model without masks gets a probe first, trained in minutes, which leaves what it writes as it is.",
        epilog="examples:\n"
        "  attncal analyze MODEL --source test.en --target test.de --report report.html\n"
        "  attncal analyze Helsinki-NLP/opus-mt-en-de --source test.en --target test.de \\\n"
        "      --probe-source train.en --probe-target train.de --figures figures\n"
        "  attncal analyze --self-test",
    )
    model = "folder or Hub name of an encoder-decoder, or of an adapter"
    running = add_model_options(parser, model, optional=True)
    running.add_argument("--batch-size", type=positive, default=32, help="pairs read at once")
    running.add_argument("--seed", type=at_least(0), default=1, help="of draws, resamples and the probe")
    text = parser.add_argument_group("text (plain, .gz or .xz)")
    text.add_argument("--source", metavar="FILE", help="source sentences, one in a line")
    text.add_argument(
        "--target", metavar="FILE", help="their translations; without it, what MODEL writes, with 4 beams"
    )
    text.add_argument("--pairs", type=positive, help="look at the first N pairs alone")
    text.add_argument("--tags", metavar="FILE", help="parts of speech: a tag for each word of --target, as many lines")
    text.add_argument("--gold", metavar="FILE", help="word links of each pair: i-j sure, ipj possible, from 0")
    probe = parser.add_argument_group("probe (for a MODEL without masks)")
    probe.add_argument(
        "--probe-source",
        metavar="FILE",
        help=f"text to learn from; without it, all pairs of --source but the first {_LOOKED_AT} (at most a fifth), "
        "which are looked at",
    )
    probe.add_argument("--probe-target", metavar="FILE", help="as many lines")
    probe.add_argument("--probe", metavar="FOLDER", help="keep it here, or go on with the one that is here")
    probe.add_argument("--probe-steps", type=positive, help="optimiser steps; without it, as many as fit the text")
    probe.add_argument("--no-probe", action="store_true", help="do without, and so without contributions")
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--methods", metavar="NAMES", help="methods of attribution, by commas; without it, those that take seconds"
    )
    what.add_argument("--measured", type=at_least(0), default=30, help="pairs on which faithfulness is; 0: on none")
    what.add_argument("--browse", type=at_least(0), default=100, help="pairs that the page shows")
    what.add_argument(
        "--self-test",
        action="store_true",
        help="no MODEL: train a small one on planted links, and say which methods find them",
    )
    results = parser.add_argument_group("results (besides the summary on standard output)")
    results.add_argument("--report", metavar="FILE", help="a page to look at offline, .html")
    results.add_argument("--figures", metavar="FOLDER", help="every figure as PNG, SVG, JSON and CSV")
    parser.set_defaults(run=_run_analyze)


def _run_analyze(options: argparse.Namespace) -> None:
    _check(options)
    with ExitStack() as stack:
        report = _self_test(options, stack) if options.self_test else _of_model(options, stack)
        _write(report, options)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not belong together and files that cannot be what they are, before anything is loaded.

    Raises:
        CommandError: which.
    """
    given = [name for name in ("source", "target", "tags", "gold", "probe_source", "probe_target")]
    files = [getattr(options, name) for name in given]
    if options.self_test:
        if options.model or any(files):
            raise CommandError("--self-test makes its model and text itself: leave out MODEL and files of text.")
    elif not options.model or not options.source:
        raise CommandError("MODEL and --source must be given, or --self-test.")
    if bool(options.probe_source) != bool(options.probe_target):
        raise CommandError("--probe-source and --probe-target belong together: give both or none.")
    if options.no_probe and (options.probe or options.probe_source or options.probe_steps):
        raise CommandError("--no-probe leaves nothing for --probe, --probe-source and --probe-steps: leave them out.")
    check_readable(*files)
    check_files([file for file in files if file], {"--report": options.report})
    for folder in filter(None, (options.figures, options.probe)):
        check_folder(folder)


def _self_test(options: argparse.Namespace, stack: ExitStack):
    from hf_attncal.report.self_test import self_test_report

    folder = stack.enter_context(TemporaryDirectory(prefix="attncal-self-test-"))
    with job_progress():
        return self_test_report(folder, seed=options.seed)


def _of_model(options: argparse.Namespace, stack: ExitStack):
    from hf_attncal.report.analyze import Corpus, analyze, chosen_methods

    model, tokenizer = load_model(options)
    try:
        methods = None if options.methods is None else chosen_methods(model, options.methods.split(","))
        corpus, rest = Corpus.read(options.source, options.target, options.gold, options.tags), None
        if not _has_masks(model) and not options.no_probe:
            corpus, rest = _for_probe(corpus, options)
        if options.pairs is not None:
            corpus = corpus.first(options.pairs)
        if corpus.targets is None:
            corpus = corpus.written_by(model, tokenizer, options.batch_size)
        facts = {}
        if rest is not None:
            model, tokenizer, facts = _with_probe(options, rest, stack)
        return analyze(
            model,
            tokenizer,
            corpus,
            title=Path(options.model).name,
            methods=methods,
            measured=options.measured,
            browsed=options.browse if options.report else 0,
            batch_size=options.batch_size,
            seed=options.seed,
            facts=facts,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
