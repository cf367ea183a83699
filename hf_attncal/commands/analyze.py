"""`attncal analyze`: when the attention of a model can be believed, as text, files and one page."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.opening import fetched, load_errors
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable
from hf_attncal.io.messages import half_minutes, job_progress
from hf_attncal.io.streams import check_files, files_among

from .kinds import Files, Model, Places, Text, file_names

if TYPE_CHECKING:
    from hf_attncal.report.figures.contents import Report

GROUPS = {"The probe of a model without masks": ("probe", "probe_text")}


def analyze(
    model: Model,
    /,
    source: Text,
    target: Text | None = None,
    *,
    gold: Text | None = None,
    tags: Text | None = None,
    methods: Sequence[str] = (),
    report: Places = (),
    probe: bool = True,
    probe_text: Files | None = None,
    running: Running = Running(),
) -> "Report":
    """Say when the attention of a model can be believed.

    Read a translation model or summariser on sentence pairs, and say what its cross-attention and other methods of
    attribution tell of it: how often the most attended token is the one that matters, by layer, head, entropy and part
    of speech; which method names the words that the model uses; and each pair to look at. A model without masks gets a
    probe first, trained in minutes, which leaves what it writes as it is.

    Examples:
        attncal analyze MODEL --source test.en --target test.de --report report.html figures
        attncal analyze Helsinki-NLP/opus-mt-en-de --source test.en --no-probe
        attncal analyze MODEL --source test.en --target test.de --probe-text train.en train.de

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter
        source: source sentences, one a line; plain, .gz, .xz or .zst
        target: their translations; without it, what the model writes, with 4 beams
        gold: word links that people have drawn, i-j sure and ipj possible, counted from 0; without it, methods are not
            compared with such links
        tags: parts of speech, a tag for each target word, as many lines; without it, no results by part of speech
        methods: methods of attribution to compare; without it, all that work on the model
        report: where to write it: a name that ends in .html is one page to look at offline, any other a folder for
            every figure as PNG, SVG, JSON and CSV; without it, nothing is written
        probe: train a probe for a model without masks; with --no-probe, there are no contributions
        probe_text: SOURCE and TARGET that the probe learns from; without it, all pairs but the first 500 (at most a
            fifth), which are looked at
        running: how the model runs

    Returns:
        The report; printed, it has the findings and what they do not say.

    Raises:
        CommandError: options that do not go together, or a model, text or probe that cannot be used.
    """
    methods = [name for names in methods for name in names.replace(",", " ").split()]
    places, learned = file_names(report), file_names(probe_text)
    if probe_text is not None and len(learned) != 2:
        raise CommandError("--probe-text takes two texts, SOURCE and TARGET.")
    if learned and not probe:
        raise CommandError("--no-probe leaves nothing for --probe-text: leave it out.")
    files = files_among(source, target, gold, tags, *learned)
    check_readable(*files)
    for place in places:
        if place.endswith(".html"):
            check_files(files, {"--report": place})
    with (
        redirect_stdout(sys.stderr),
        job_progress(),
        half_minutes("analyze") as step,
    ):  # what a training says on its way is no result
        model = fetched(model, running)
        with load_errors(model):  # what is wrong with the name is told before torch is imported
            from hf_attncal.report.analysis import analyze_corpus
            from hf_attncal.report.corpus import Corpus
        with user_errors():
            analysis = analyze_corpus(
                model,
                Corpus.read(source, target, gold, tags),
                methods=methods or None,
                probe=probe,
                probe_text=Corpus.read(*learned) if learned else None,
                batch_size=running.batch_size or 32,
                step=step,
                load=lambda name: load_model(name, running, 2 if target is None else None),
            )
    if not places:
        return analysis
    from hf_attncal.report.figures.report_files import write_report

    return write_report(analysis, places)
