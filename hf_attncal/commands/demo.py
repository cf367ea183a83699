"""`attncal demo`: four translations, aligned and checked by the aligner of the package."""

from pathlib import Path
from typing import TYPE_CHECKING

from .kinds import NewFolder

if TYPE_CHECKING:
    from hf_attncal.alignment import WordAligner
    from hf_attncal.checking.verdicts import PairVerdict

NAME = "deen"
# The first is right; the others have an omitted clause, a wrong number and an added clause.
PAGE = (
    ("Gestern habe ich meiner Schwester das alte Buch gegeben.", "Yesterday I gave the old book to my sister."),
    (
        "Der Zug fährt um acht Uhr ab, aber wir müssen vorher noch Fahrkarten kaufen.",
        "The train leaves at eight o'clock.",
    ),
    (
        "Meine Großmutter ist 87 Jahre alt und wohnt allein in einem kleinen Dorf.",
        "My grandmother is 78 years old and lives alone in a small village.",
    ),
    (
        "Er trinkt jeden Morgen eine Tasse Kaffee.",
        "He drinks a cup of coffee every morning and then he goes to the doctor.",
    ),
)
_NEXT = """
Next, with your own texts, one sentence per line, German in text.de and English in text.en:
  {attncal} align run deen --source text.de --target text.en --output pairs.html --format html
  {attncal} check deen text.de text.en --format marked
Other languages, or a translation model with calibrated attention (the notebooks of examples/ explain one):
  {attncal} align train --source text.fr --target text.en --output aligner
  {attncal} train --source text.fr --target text.en --output model --model gated --minutes 30"""


def demo(*, output: NewFolder = "demo") -> None:
    """Align and check four translations.

    The German-English aligner of the package aligns four translations, in seconds, and reports the omissions,
    additions and changes in three of them.

    Examples:
        attncal demo --output demo

        >>> hf_attncal.demo(output="demo")

    Args:
        output: folder for the pages of the links and of the check

    Returns:
        None; the links and findings are printed.

    Raises:
        CommandError: the folder cannot be made.
    """
    from hf_attncal.io.files import writing
    from hf_attncal.io.messages import command_prefix

    with writing(output):
        Path(output).mkdir(parents=True, exist_ok=True)
        show_ready(Path(output))
    print(_NEXT.format(attncal=command_prefix()))


def show_ready(folder: Path) -> "list[PairVerdict]":
    """Print the links of the first pair and a verdict per pair; write `alignment.html` and `checked.html`.

    Args:
        folder: existing folder for the two files.
    """
    from hf_attncal.alignment.pictures import PAGE_FOOT, page_head, page_pair
    from hf_attncal.alignment.ready import ready_or_named
    from hf_attncal.checking.checked_text import lines_of_verdicts
    from hf_attncal.checking.checker import Checker, saved_check
    from hf_attncal.data.segmentation import segment
    from hf_attncal.io.files import write_text

    aligner = packaged_aligner()
    checker = Checker(aligner, saved_check(ready_or_named(NAME)))
    print(f"{PAGE[0][0]}\n{PAGE[0][1]}")
    german, english = (segment(side).words for side in PAGE[0])
    (first,) = aligner.align([(german, english)], tokenize=False)
    links = (f"{first.source[i]}={first.target[j]}" for i, j in first.links if first.source[i].isalnum())
    print(f"  word links: {' '.join(links)}\n")
    verdicts = checker.check(PAGE)
    for number, verdict in enumerate(verdicts, 1):
        findings = ", ".join(name.replace("_", " ") for name in (*verdict.flagged, *verdict.names))
        findings = f"{findings} ({verdict.wrong:.0%} sure)" if findings else "fine"
        source, target = verdict.marked()
        print(f"{number}. {findings}\n  {source}\n  {target}", flush=True)
    lines = lines_of_verdicts(verdicts, "html", ("German", "English"))
    write_text("\n".join([*lines, ""]), folder / "checked.html")
    pictures = (page_pair(number, pair) for number, pair in enumerate(aligner.align(PAGE), 1))
    write_text("\n".join([page_head(NAME), *pictures, PAGE_FOOT, ""]), folder / "alignment.html")
    print(
        f"\n[-omission-] {{+addition+}}. As a page: {folder / 'checked.html'}. The links, drawn: "
        f"{folder / 'alignment.html'}",
        flush=True,
    )
    return verdicts


def packaged_aligner() -> "WordAligner":
    """Return the packaged German-English aligner."""
    from hf_attncal.alignment.ready import ready_or_named
    from hf_attncal.alignment.statistical import plain_aligner

    aligner = plain_aligner(ready_or_named(NAME))
    assert aligner is not None  # the packaged aligner is statistical
    return aligner
