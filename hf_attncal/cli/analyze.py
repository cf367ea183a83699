"""`attncal analyze`: when the attention of a model can be believed, as text, files and one page."""

import argparse
import os
import sys
import textwrap
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from .common import CommandError, add_model_options, at_least, check_folder, check_readable, positive
from .generation import load_model
from .messages import job_progress
from .streams import check_files

_LOOKED_AT = 500  # pairs of a text that is a probe's, too
_LEAST = 500  # pairs that a probe learns from


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
        "that is installed; without it, nothing is told by part of speech",
    )
    text.add_argument(
        "--gold",
        metavar="FILE",
        help="word links of each pair that people have drawn: i-j sure, ipj possible, from 0; without it, methods are "
        "not held against any",
    )
    probe = parser.add_argument_group("probe (for a MODEL without masks)")
    probe.add_argument(
        "--probe-source",
        metavar="FILE",
        help=f"text to learn from; without it, all pairs of --source but the first {_LOOKED_AT} (at most a fifth), "
        "which are looked at",
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
    with ExitStack() as stack:
        report = _self_test(options, stack) if options.self_test else _of_model(options, stack)
        _write(report, options)


def _check(options: argparse.Namespace) -> None:
    """Refuse options that do not belong together and files that cannot be what they are, before anything is loaded.

    Raises:
        CommandError: which.
    """
    files = [*_texts(options).values()]
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


def _texts(options: argparse.Namespace) -> dict[str, str]:
    """The files that are read, by what they are; tags may be those of a tagger."""
    named = ("source", "target", "gold", "tags", "probe_source", "probe_target")
    given = {name: getattr(options, name) for name in named}
    return {name: file for name, file in given.items() if file and not file.startswith("spacy:")}


def _self_test(options: argparse.Namespace, stack: ExitStack):
    from hf_attncal.report.self_test import self_test_report

    folder = stack.enter_context(TemporaryDirectory(prefix="attncal-self-test-"))
    with redirect_stdout(sys.stderr), job_progress():
        return self_test_report(folder, seed=options.seed)


def _of_model(options: argparse.Namespace, stack: ExitStack):
    model, tokenizer = load_model(options)

    from hf_attncal.analysis.attribution import works_on
    from hf_attncal.hub import read_model_card
    from hf_attncal.report.analyze import Corpus, analyze, chosen_methods
    from hf_attncal.report.probe import KeptProbe, check_can_have_probe

    card = read_model_card(options.model)
    try:
        names = None if options.methods is None else [name.strip() for name in options.methods.split(",")]
        corpus, probe_pairs = Corpus.read(options.source, options.target, options.gold, options.tags), None
        needs_probe = "contribution" not in works_on(model) and not options.no_probe
        # What is wrong is told before a probe is trained.
        if names:
            chosen_methods(model, [name for name in names if not (needs_probe and name == "contribution")])
        if needs_probe:
            check_can_have_probe(model)
            kept = KeptProbe.find(options.probe, options.model) if options.probe else None
            corpus, text = _parted(corpus, options, kept)
        if options.pairs is not None:
            corpus = corpus.first(options.pairs)
        if corpus.targets is None:
            corpus = corpus.written_by(model, tokenizer, options.batch_size)  # with a probe it would write the same
        if needs_probe:
            corpus.check(options.measured)
            corpus.check_lengths(model, tokenizer)
            if kept is None and text.targets is None:
                text = text.written_by(model, tokenizer, options.batch_size)
            adapter, probe_pairs = kept.adapter if kept else _trained_probe(options, text, stack), len(text.sources)
            model, tokenizer = load_model(argparse.Namespace(**{**vars(options), "model": adapter}))
        return analyze(
            model,
            tokenizer,
            corpus,
            title=card.name or Path(options.model).resolve().name,
            methods=names,
            measured=options.measured,
            browsed=options.browse if options.report else 0,
            batch_size=options.batch_size,
            seed=options.seed,
            probe_pairs=probe_pairs,
            about=card.facts,
            # A pipe has been read, and is read once.
            files={name: Path(file) for name, file in _texts(options).items() if os.path.isfile(file)},
        )
    except ValueError as error:
        raise CommandError(str(error)) from error


def _parted(corpus, options: argparse.Namespace, kept=None):
    """What is looked at, and what a probe learns from, or has learned from if it was kept.

    Raises:
        CommandError, ValueError: too little for both; a kept probe of other text than is asked for.
    """
    from hf_attncal.report.analyze import Corpus
    from hf_attncal.report.probe import check_others

    few = min(_LOOKED_AT, max(1, len(corpus.sources) // 5))
    text = Corpus.read(options.probe_source, options.probe_target) if options.probe_source else None
    if kept is not None:
        kept.check_asked(None if text is None else (text.sources, text.targets), options.probe_steps)
        if text is None and list(corpus.sources[few:]) == list(kept.sources):
            return corpus.first(few), Corpus(kept.sources, kept.targets)  # as when it was trained
        text = Corpus(kept.sources, kept.targets)
    if text is not None:
        check_others(corpus.sources, text.sources)
        return corpus, text
    if options.gold or options.tags:
        raise CommandError(
            f"{options.model} has no masks, and a probe must learn from other text than that with --gold or --tags: "
            "give --probe-source and --probe-target, or --no-probe."
        )
    if len(corpus.sources) - few < _LEAST:
        raise CommandError(
            f"{options.source} has {len(corpus.sources)} lines, too few to train a probe on most and to look at the "
            "others: give --probe-source and --probe-target, some thousand pairs, or --no-probe."
        )
    return corpus.first(few), corpus.rest(few)


def _trained_probe(options: argparse.Namespace, text, stack: ExitStack) -> str:
    """The folder of a probe that has learned from the text."""
    from hf_attncal.report.probe import train_probe

    folder = options.probe or stack.enter_context(TemporaryDirectory(prefix="attncal-probe-"))
    with redirect_stdout(sys.stderr), job_progress():  # what it tells of itself is no result
        train_probe(options.model, text.sources, text.targets, folder, steps=options.probe_steps, seed=options.seed)
    return os.path.join(folder, "adapter")


def _write(report, options: argparse.Namespace) -> None:
    """The files that were asked for, and the summary."""
    if options.figures:
        from hf_attncal.report.files import write_files

        write_files(report, options.figures)
    if options.report:
        from hf_attncal.report.page import write_page

        write_page(report, options.report)
    for title, sentences in (("", report.summary), ("What this does not say:", report.caveats)):
        if title:
            print(f"\n{title}")
        for sentence in sentences:
            print(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  "))
    for told, path in (("Figures", options.figures), ("Page", options.report)):
        if path:
            print(f"\n{told}: {path}")
