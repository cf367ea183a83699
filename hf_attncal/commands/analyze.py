"""`attncal analyze`: when the attention of a model can be believed, as text, files and one page."""

import argparse
import sys
import textwrap
from contextlib import redirect_stdout
from tempfile import TemporaryDirectory

from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import check_files, check_folder, check_readable
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.inference.opening import load_errors, load_model
from hf_attncal.messages import job_progress

from .common import add_model_options, at_least, positive


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
        "  attncal analyze Helsinki-NLP/opus-mt-en-de --source test.en --no-probe\n"
        "  attncal analyze MODEL --source test.en --target test.de --probe-source train.en --probe-target train.de\n"
        "  attncal analyze --self-test",
    )
    model = "folder or Hub name of an encoder-decoder, or of an adapter"
    running = add_model_options(parser, model, optional=True)
    running.add_argument("--batch-size", type=positive, default=32, help="pairs read at once")
    running.add_argument("--seed", type=at_least(0), default=1, help="of draws, resamples and the probe")
    text = parser.add_argument_group("text (plain, .gz, .xz or .zst)")
    text.add_argument("--source", metavar="FILE", help="source sentences, one in a line; without it only --self-test")
    text.add_argument(
        "--target", metavar="FILE", help="their translations; without it, what MODEL writes, with 4 beams"
    )
    text.add_argument("--pairs", type=positive, help="look at the first N pairs alone; without it, at all")
    text.add_argument(
        "--tags",
        metavar="FILE",
        help="parts of speech: a tag for each word of --target, as many lines; or spacy:NAME, a pipeline of spaCy "
        "that is installed; without it, no results by part of speech",
    )
    text.add_argument(
        "--gold",
        metavar="FILE",
        help="word links of each pair that people have drawn: i-j sure, ipj possible, from 0; without it, methods are "
        "not compared with such links",
    )
    probe = parser.add_argument_group("probe (for a MODEL without masks)")
    probe.add_argument(
        "--probe-source",
        metavar="FILE",
        help="text to learn from; without it, all pairs of --source but the first 500 (at most a fifth), which are "
        "looked at",
    )
    probe.add_argument("--probe-target", metavar="FILE", help="as many lines; not without --probe-source")
    probe.add_argument(
        "--probe", metavar="FOLDER", help="keep it here, or take the one that is here; without it, it is not kept"
    )
    probe.add_argument("--probe-steps", type=positive, help="optimiser steps; without it, as many as fit the text")
    probe.add_argument("--no-probe", action="store_true", help="do without, and so without contributions")
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--methods",
        metavar="NAME",
        help="methods of attribution, with commas between; without it, those that take seconds",
    )
    what.add_argument("--measured", type=at_least(0), default=30, help="pairs on which faithfulness is; 0: on none")
    what.add_argument("--browse", type=at_least(0), default=100, help="pairs that the page shows")
    what.add_argument(
        "--self-test",
        action="store_true",
        help="no MODEL: train a small one on planted links, and say which methods find them",
    )
    results = parser.add_argument_group("results (besides the summary on standard output)")
    results.add_argument("--report", metavar="FILE", help="a page to look at offline, .html; without it, none")
    results.add_argument(
        "--figures", metavar="FOLDER", help="every figure as PNG, SVG, JSON and CSV; without it, none"
    )
    parser.set_defaults(run=_run_analyze)


def _run_analyze(options: argparse.Namespace) -> None:
    _check(options)
    # What a training says on its way is no result.
    with redirect_stdout(sys.stderr), job_progress():
        report = _self_test(options) if options.self_test else _of_model(options)
    if options.figures:
        from hf_attncal.report.figures.chart_files import write_files

        write_files(report, options.figures)
    if options.report:
        from hf_attncal.report.figures.page import write_page

        write_page(report, options.report)
    for title, sentences in (("", report.summary), ("What this does not say:", report.caveats)):
        if title:
            print(f"\n{title}")
        for sentence in sentences:
            print(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  "))
    for title, path in (("Figures", options.figures), ("Page", options.report)):
        if path:
            print(f"\n{title}: {path}")


def _check(options: argparse.Namespace) -> None:
    """Raise CommandError, before anything is loaded, for options that do not belong together and impossible files."""
    texts = (options.source, options.target, options.gold, options.tags, options.probe_source, options.probe_target)
    files = [file for file in texts if file and not file.startswith("spacy:")]
    if options.self_test:
        if options.model or files:
            raise CommandError("--self-test makes its model and text itself: leave out MODEL and files of text.")
    elif not options.model or not options.source:
        raise CommandError("MODEL and --source must be given, or --self-test.")
    if bool(options.probe_source) != bool(options.probe_target):
        raise CommandError("--probe-source and --probe-target belong together: give both or none.")
    if options.no_probe and (options.probe or options.probe_source or options.probe_steps):
        raise CommandError("--no-probe leaves nothing for --probe, --probe-source and --probe-steps: leave them out.")
    check_readable(*files)
    check_files(files, {"--report": options.report})
    for option, folder in {"--figures": options.figures, "--probe": options.probe}.items():
        if folder:
            check_folder(folder, option)


def _self_test(options: argparse.Namespace):
    from hf_attncal.report.self_test import self_test_report

    with TemporaryDirectory(prefix="attncal-self-test-") as folder:
        return self_test_report(folder, seed=options.seed)


def _of_model(options: argparse.Namespace):
    def load(name: str):
        return load_model(name, running_of(options), 2 if options.target is None else None)

    with load_errors(options.model):  # what is wrong with the name is told before torch is imported
        from hf_attncal.report.analyze import analyze
        from hf_attncal.report.probe import Probe
        from hf_attncal.report.text import Corpus

    with user_errors():
        probe = None
        if not options.no_probe:
            learned = Corpus.read(options.probe_source, options.probe_target) if options.probe_source else None
            probe = Probe(learned, options.probe, options.probe_steps)
        return analyze(
            options.model,
            Corpus.read(options.source, options.target, options.gold, options.tags),
            methods=None if options.methods is None else [name.strip() for name in options.methods.split(",")],
            probe=probe,
            most=options.pairs,
            measured=options.measured,
            browsed=options.browse if options.report else 0,
            batch_size=options.batch_size,
            seed=options.seed,
            load=load,
        )
