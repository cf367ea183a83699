"""`attncal show`: a page on a few sentences, opened in the browser."""

import os
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.opening import check_loadable, fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors
from hf_attncal.io.files import check_readable, decoded, lines_of
from hf_attncal.io.streams import check_files, files_among, standard_input

from .kinds import Model, Showing, Text, Written

if TYPE_CHECKING:
    from hf_attncal.report.figures.contents import Report


def show(
    model: Model,
    /,
    *sentences: str,
    source: Text | None = None,
    aligner: Model | None = None,
    beams: int = 4,
    output: Written | None = None,
    running: Showing = Running(),
) -> "Report":
    """Show the translation and attention of a few sentences in the browser.

    Write one page and open it: each sentence with its translation, the word links by attention and attribution
    methods, and the translation without the most important source word. The page is the sentence browser of `attncal
    analyze` and needs no network.

    Examples:
        attncal show MODEL "The old man sold his house."
        attncal show MODEL --source test.en --output test.html

        >>> hf_attncal.show("model", "The old man sold his house.", output="page.html")

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter
        sentences: sentences, at most 200; a translation of your own follows a tab or ` ||| `
        source: file of sentences, one per line [default: SENTENCES, or else standard input]
        aligner: word aligner whose links are drawn [default: none]
        beams: beam size
        output: file for the page, which is then not opened [default: show.html, opened in the browser]
        running: device, precision and limits of the run

    Returns:
        The report; printed, the verdict on the attention, and the place of the page.

    Raises:
        CommandError: there is no sentence or there are too many, or a model cannot be loaded.
    """
    check_range("--beams", beams, 1)
    if sentences and source is not None:
        raise CommandError("Give sentences or --source, not both.")
    files = files_among(source)
    check_readable(*files)
    page = "show.html" if output is None else output
    check_files(files, {"--output": page})
    with user_errors():
        lines = list(sentences) or (_standard_lines() if source is None else lines_of(source))
    model = fetched(model, running)
    check_loadable(model, aligner)
    translator, tokenizer = load_model(model, running, beams)
    from hf_attncal.alignment.aligner_opening import open_aligner
    from hf_attncal.report.figures.report_files import write_page
    from hf_attncal.report.pairs import report_on_sentences

    align = None
    if aligner is not None:
        align = open_aligner(os.fspath(aligner), replace(running, revision=None, languages=None)).align
    title = Path(model).resolve().name
    with user_errors():
        report = report_on_sentences(translator, tokenizer, lines, title, align=align, beams=beams)
        write_page(report, page, "--output")
    if output is None:
        webbrowser.open(Path(page).resolve().as_uri())
    return replace(report, written={"Page": str(page)})


def _standard_lines() -> list[str]:
    return decoded(standard_input().read(), "the input").splitlines()
