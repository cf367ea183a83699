"""First part of `attncal demo`: four translations aligned and checked by the packaged aligner, in seconds."""

from pathlib import Path

from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.pictures import PAGE_FOOT, page_head, page_pair
from hf_attncal.alignment.ready import ready_or_named
from hf_attncal.alignment.statistical import plain_aligner
from hf_attncal.checking.checked_text import lines_of_verdicts
from hf_attncal.checking.checker import Checker, saved_check
from hf_attncal.checking.verdicts import PairVerdict
from hf_attncal.data.segmentation import segment
from hf_attncal.io.files import write_text

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


def show_ready(folder: Path) -> list[PairVerdict]:
    """Print the links of the first pair and a verdict per pair; write `alignment.html` and `checked.html`.

    Args:
        folder: existing folder for the two files.
    """
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
    print(f"\n[-omission-] {{+addition+}}. As a page: {folder / 'checked.html'}. The links, drawn: "
          f"{folder / 'alignment.html'}", flush=True)  # fmt: skip
    return verdicts


def packaged_aligner() -> WordAligner:
    """Return the packaged German-English aligner."""
    aligner = plain_aligner(ready_or_named(NAME))
    assert aligner is not None  # the packaged aligner is statistical
    return aligner
