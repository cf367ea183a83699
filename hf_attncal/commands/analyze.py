"""`attncal analyze`: report when the attention of a model can be trusted, as text, files and one page."""

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.opening import fetched, load_errors
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable
from hf_attncal.io.messages import progress_reports, silenced_if_quiet
from hf_attncal.io.streams import check_files, files_among

from .kinds import Analysing, Files, Methods, Model, Places, Text, file_names

if TYPE_CHECKING:
    from hf_attncal.report.figures.contents import Report

GROUPS = {"Probe of a model without calibration masks": ("probe", "probe_text")}


def analyze(
    model: Model,
    /,
    source: Text,
    target: Text | None = None,
    *,
    gold: Text | None = None,
    tags: Text | None = None,
    methods: Methods = (),
    faithfulness: int = 0,
    report: Places = (),
    probe: bool = True,
    probe_text: Files | None = None,
    running: Analysing = Running(),
) -> "Report":
    """Report when the attention of a model can be trusted.

    Run a translation model or summariser on sentence pairs, and compare its cross-attention with contributions: how
    much the prediction depends on each source token. The report shows how often the token with the most attention also
    contributes most, by layer, head, entropy and part of speech, and the attention of each pair. With --faithfulness
    it shows which attribution method finds the words that the model uses.

    Contributions are measured with calibration masks: a small network learns where the prediction suffers if the
    attention is blurred. A model trained with calibration has this network. For any other model, a probe is trained
    first: an adapter that learns the masks in minutes. It does not change the translations, and is not saved.

    Examples:
        attncal analyze MODEL test.en test.de --report report.html figures
        attncal analyze Helsinki-NLP/opus-mt-en-de test.en --no-probe
        attncal analyze MODEL test.en test.de --probe-text train.en train.de
        attncal analyze MODEL test.en test.de --methods all --faithfulness 30 --report report.html

        >>> report = hf_attncal.analyze("model", "test.en", "test.de", report="report.html")

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter
        source: source sentences, one per line; plain or .gz
        target: their translations, one per line [default: the model's own translations, with 4 beams]
        gold: annotated word links, to score the methods: `i-j` sure, `ipj` possible, counted from 0 [default: none]
        tags: parts of speech of the target words: one line per sentence, one tag per word, separated by spaces
            [default: none]
        methods: attribution methods to compare: attention, contribution, alti (contributions followed through all
            layers), occlusion, and the controls random and diagonal; or `all` [default: all that work on the model,
            except alti and occlusion, which are slow]
        faithfulness: number of pairs on which the methods are compared by removing words; 30 pairs take minutes for a
            small model [default: 0, they are not compared]
        report: names of outputs. NAME.html is one page for reading offline; any other name is a folder for each figure
            as PNG, SVG, JSON and CSV [default: none, the findings are only printed]
        probe: train a probe for a model without calibration masks. With --no-probe, contributions of such a model are
            not measured
        probe_text: SOURCE and TARGET to train the probe on [default: a part of the text. Only the first 500 pairs are
            then analysed (of fewer than 2,500, the first fifth), and the others train the probe]
        running: device, precision and limits of the run

    Returns:
        The report; printed, the findings and their limits.

    Raises:
        CommandError: options that do not go together, or a model, text or probe that cannot be used.
    """
    methods = " ".join([methods] if isinstance(methods, str) else methods).replace(",", " ").split()
    outputs, learned = file_names(report), file_names(probe_text)
    if probe_text is not None and len(learned) != 2:
        raise CommandError(f"--probe-text must be two texts, SOURCE and TARGET, got {len(learned)}.")
    if learned and not probe:
        raise CommandError("--probe-text trains a probe, and --no-probe forbids one. Leave one out.")
    if faithfulness < 0:
        raise CommandError(f"--faithfulness must be a number of pairs, 0 or more, got {faithfulness}.")
    files = files_among(source, target, gold, tags, *learned)
    check_readable(*files)
    for output in outputs:
        if output.endswith(".html"):
            check_files(files, {"--report": output})
    # Progress of the probe's training is no result, so it goes to standard error.
    with redirect_stdout(sys.stderr), silenced_if_quiet(), progress_reports("analyze") as step:
        model = fetched(model, running)
        with load_errors(model):  # a wrong name is reported before torch is imported
            from hf_attncal.report.analysis import analyze_corpus
            from hf_attncal.report.corpus import Corpus
        with user_errors():
            analysis = analyze_corpus(
                model,
                Corpus.read(source, target, gold, tags),
                methods=methods or None,
                probe=probe,
                probe_text=Corpus.read(*learned) if learned else None,
                measured=faithfulness,
                batch_size=running.batch_size or 32,
                step=step,
                load=lambda name: load_model(name, running, 2 if target is None else None),
            )
    if not outputs:
        return analysis
    from hf_attncal.report.figures.report_files import write_report

    return write_report(analysis, outputs)
