"""Check a bilingual file, or two documents: read them, pair their segments, and tell what was left out or made up."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hf_attncal.drawing.page import text_table
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, LineError, user_errors
from hf_attncal.io.streams import LONGEST_LINE, json_line, line_error

from ..checked_text import lines_of_verdicts
from ..checker import Checker, SharedTargets
from ..logistic import log_odds, sigmoid
from ..verdicts import PairVerdict
from .document_formats import LINES, Format, format_of, noted, read_document
from .findings import (
    DocumentFinding,
    SegmentSide,
    document_findings,
    finding_lines,
    notes_of,
    sarif,
    whole_segment,
)
from .pairing import Bead, have_same_times, look_alike, pair_by_time, pair_segments
from .segments import CODE, Document, Segment

_WORD = re.compile(r"[^\W\d_]{2,}")
_FEWEST_WORDS = 4  # of both sides together, without those of both
_HIGHEST_ALARM, _LEAST = 0.97, 1e-6  # probabilities
_LONG = 50  # segments of a document that has its own alarm
_SURE_LANGUAGE = 0.9  # probability from which on a segment that is no copy is in the wrong language
_COPY = 0.8  # share of words of a copy that stand in the source
_FEWEST = 6  # segments of documents that can be told not to belong together
_MOST_CUES = 6  # that are one sentence
_SENTENCE_END = re.compile(r"""[.!?…。！？:;]["'”»«“)\]]*$""")


class Unit(NamedTuple):
    """Segments of both sides that are checked together; `near` is the segment of the target that follows."""

    source: SegmentSide
    target: SegmentSide
    near: Segment | None = None


@dataclass(frozen=True)
class DocumentCheck:
    """What the check says of a document.

    Args:
        units: segments that belong together, in order. verdicts: on each; `line` is that of the target.
        findings: what looks wrong, in the order of the file.
        document: the file that notes go into. row: its format.
        names: of source and target.
        alarm: probability above which a segment is flagged: that of the check, or a higher one where the document is
            unlike the clean text.
    """

    units: tuple[Unit, ...]
    verdicts: tuple[PairVerdict, ...]
    findings: tuple[DocumentFinding, ...]
    document: Document
    row: Format
    names: tuple[str, str]
    alarm: float = 0.5

    def __str__(self) -> str:
        return "\n".join(finding_lines(self.findings))

    def summary(self) -> str:
        """Return how many findings of each kind there are, and the mean probability that a segment is wrong."""
        kinds = Counter(one.kind for one in self.findings)
        rows = {"": ["segments", "findings", *kinds], "number": [str(len(self.units)), str(len(self.findings)),
                                                              *map(str, kinds.values())]}  # fmt: skip
        wrong = [verdict.wrong for verdict in self.verdicts]
        mean = f"Mean probability that a segment is wrong: {100 * float(np.mean(wrong or [0])):.1f} %."
        return "\n".join([*text_table(rows), "", mean])

    def form(self, name: str) -> bytes:
        """Return the findings in a form, as `--format` of the command names it.

        Raises:
            CommandError: the format of the document takes no notes.
        """
        if name == "notes":
            check_notes(self.row, self.document.name)
            with user_errors():
                return noted(self.document, self.row, notes_of(self.findings))
        if name in _FORMS:
            lines = _FORMS[name](self)
        else:
            verdicts = (one for one in self.verdicts if name != "kept" or not one.flagged)
            lines = lines_of_verdicts(verdicts, name, self.names)
        return "".join(f"{line}\n" for line in lines).encode()


# Form -> its lines, of the forms that have findings and no verdicts.
_FORMS: dict[str, Callable[[DocumentCheck], Iterable[str]]] = {
    "summary": lambda check: [check.summary()],
    "sarif": lambda check: [sarif(check.findings)],
    "tsv": lambda check: finding_lines(check.findings),
    "json": lambda check: (json_line(one.to_dict()) for one in check.findings),
}


def check_notes(row: Format, name: str) -> None:
    """Raise CommandError for a format that takes no notes."""
    if not row.note:
        raise CommandError(f"--format notes writes into PO, XLIFF and VTT, and {name} is {row.name}. "
                           "Ask for json, sarif or html.")  # fmt: skip


def check_documents(
    checker: Checker,
    source: str,
    target: str | None,
    running: Running,
    *,
    worst: int | None = None,
    dismissed: frozenset[str] = frozenset(),
) -> DocumentCheck:
    """Check a bilingual file, or two documents in one format.

    Args:
        checker: of their languages.
        source: name of the bilingual file, or of the document in the language of the source.
        target: name of the other; None for a bilingual file.
        running: its longest line.
        worst: so many findings, the most probable first; None for all in the order of the file.
        dismissed: ids of findings that a person called right.

    Raises:
        CommandError: a file cannot be read, or the two do not belong together.
    """
    source = os.fspath(source)
    row, document, units = _units(checker, source, None if target is None else os.fspath(target))
    _check_lengths(units, running.longest_line or LONGEST_LINE)
    checked = [unit for unit in units if not _unread(unit)]
    pairs = [(unit.source.text, unit.target.text) for unit in checked]
    try:
        verdicts = list(checker.stream(pairs, shared=SharedTargets([pair for pair in pairs if all(pair)])))
    except LineError as error:
        raise line_error(error.number, "cannot be checked", error.error) from error
    telling = [verdict.wrong for unit, verdict in zip(checked, verdicts, strict=True) if not _says_nothing(unit)]
    alarm = document_alarm(telling, checker.alarm)
    found: list[DocumentFinding] = []
    read, kept_verdicts = iter(verdicts), []
    for unit in units:
        whole = bool(unit.source.segments and unit.target.segments)
        if not whole:
            found.append(whole_segment(*unit))
        if _unread(unit):
            continue
        verdict = next(read)
        if whole:
            verdict = _flagged_above(alarm, unit, verdict)
            found += document_findings(verdict, unit.source, unit.target)
        kept_verdicts.append(replace(verdict, line=(unit.target.segments or unit.source.segments)[0].line))
    if target is not None:
        _check_language(verdicts, source, os.fspath(target))
    found = [finding for finding in found if finding.id not in dismissed] if dismissed else found
    if worst is not None:
        found = sorted(found, key=lambda one: -one.probability)[:worst]
    names = source, source if target is None else os.fspath(target)
    return DocumentCheck(tuple(checked), tuple(kept_verdicts), tuple(found), document, row, names, alarm)


def _check_lengths(units: Iterable[Unit], longest: int) -> None:
    """Raise CommandError for a text of more than `longest` bytes."""
    for side in (side for unit in units for side in (unit.source, unit.target)):
        if len(side.text.encode()) > longest:
            raise CommandError(f"line {side.segments[0].line} of {side.file} begins a text of more than {longest} "
                               "bytes. Split it, or raise --longest-line.")  # fmt: skip


def _flagged_above(alarm: float, unit: Unit, verdict: PairVerdict) -> PairVerdict:
    """Return the verdict on a pair; below the alarm of the document without marks."""
    bar = max(alarm, _SURE_LANGUAGE) if _shares_words(verdict) else alarm
    if verdict.wrong > bar and not _says_nothing(unit):
        return verdict
    return replace(verdict, flagged=(), names=(), omission_spans=(), addition_spans=())


def document_alarm(wrong: Sequence[float], alarm: float) -> float:
    """Return the probability above which segments of a document are flagged.

    An alarm is set on clean text, and 1 in 100 lines is above it. A document of another field lies higher as a whole.
    Most of it is held to be right: above the median, log-odds fall off exponentially, as fast as its ninth decile
    says, and 1 in 100 right segments is above the alarm. Up to a tenth of it may be wrong. The fewer segments, the
    nearer it stays to the alarm of clean text: a short document tells little of itself, and may be full of faults.

    Args:
        wrong: of each segment with a partner. alarm: of the check, below which nothing is flagged.
    """
    if len(wrong) < _FEWEST:
        return alarm
    middle, high = np.quantile(log_odds(np.clip(wrong, _LEAST, 1 - _LEAST)), (0.5, 0.9))
    own, clean = middle + (high - middle) * np.log(50) / np.log(5), log_odds(np.array(alarm))
    found = float(sigmoid(clean + min(1.0, len(wrong) / _LONG) * (own - clean)))
    return max(alarm, min(found, _HIGHEST_ALARM))


def _says_nothing(unit: Unit) -> bool:
    """Return whether a pair has a side without text, or hardly a word that is not on both: code, `Tip` and `Tipp`."""
    if not (unit.source.segments and unit.target.segments):
        return True
    sides = [set(_WORD.findall(side.text.lower())) for side in unit[:2]]
    return len(sides[0] ^ sides[1]) < _FEWEST_WORDS


def _shares_words(verdict: PairVerdict) -> bool:
    """Return whether a segment looks untranslated that is no copy: documents share code, names and loanwords."""
    if not {"untranslated", "wrong language"} & set(verdict.names):
        return False
    sides = [_WORD.findall(text.lower()) for text in (verdict.source, verdict.target)]
    return sum(word in sides[0] for word in sides[1]) < _COPY * len(sides[1])


def _check_language(verdicts: Sequence[PairVerdict], source: str, target: str) -> None:
    """Refuse two documents most of whose segments are in the language of the other side."""
    wrong = sum("wrong language" in verdict.names for verdict in verdicts)
    if len(verdicts) >= _FEWEST and wrong > len(verdicts) / 2:
        raise CommandError(
            f"{wrong} of {len(verdicts)} segments of {target} are not in the language that the aligner translates "
            f"into. Name {target} first, or train an aligner from {source} to it."
        )


def _unread(unit: Unit) -> bool:
    """Return whether a unit is code, of which an aligner says nothing."""
    return all(one.kind == CODE for side in unit[:2] for one in side.segments)


def _units(checker: Checker, source: str, target: str | None) -> tuple[Format, Document, list[Unit]]:
    """Read one bilingual file, or two documents, and return the units to check."""
    row = format_of(source) or LINES
    if target is None:
        if not row.bilingual:
            raise CommandError(f"{source} is in one language: name its translation, too.")
        document = read_document(source, row)
        return row, document, [
            Unit(_side(source, pair.source), _side(source, pair.target), pair.source) for pair in document.pairs
        ]  # fmt: skip
    other = format_of(target) or LINES
    for name, one in ((source, row), (target, other)):
        if one.bilingual:
            raise CommandError(f"{name} has both languages ({one.name}): name it alone.")
    if row is not other:
        raise CommandError(f"{source} is {row.name} and {target} is {other.name}: name two documents in one format.")
    ours, document = read_document(source, row).segments, read_document(target, row)
    theirs = document.segments
    if row is LINES:
        if len(ours) != len(theirs):
            raise CommandError(f"{source} has {len(ours)} lines, and {target} has {len(theirs)}.")
        lines = zip(ours, theirs, strict=True)
        return row, document, [Unit(_side(source, one), _side(target, two), two) for one, two in lines]
    if have_same_times(ours, theirs):
        beads = list(pair_by_time(ours, theirs))
    else:
        scored = list(pair_segments(checker.aligner, ours, theirs))
        beads = [bead for bead, _ in scored]
        if not look_alike(checker.aligner, ours, theirs, scored):
            raise CommandError(
                f"{source} and {target} do not belong together: most of their segments are no translations of each "
                "other. Are they versions of the same text?"
            )
    return row, document, list(_joined(beads, ours, theirs, source, target))


def _side(file: str, segment: Segment | None) -> SegmentSide:
    return SegmentSide(file, () if segment is None else (segment,))


def _joined(
    beads: Sequence[Bead], ours: Sequence[Segment], theirs: Sequence[Segment], source: str, target: str
) -> Iterator[Unit]:
    """Yield units: a bead, or cues that are one sentence."""
    done = 0
    sides: tuple[list[Segment], list[Segment]] = ([], [])

    def unit() -> Unit:
        near = theirs[min(done, len(theirs) - 1)] if theirs else None
        found = Unit(SegmentSide(source, tuple(sides[0])), SegmentSide(target, tuple(sides[1])), near)
        for side in sides:
            side.clear()
        return found

    for of_source, of_target in beads:
        alone = not of_source or not of_target
        if alone and any(sides):
            yield unit()
        sides[0].extend(ours[number] for number in of_source)
        sides[1].extend(theirs[number] for number in of_target)
        if of_target:
            done = max(done, of_target[-1] + 1)
        goes_on = (
            not alone
            and sides[0][0].kind == "cue"
            and len(sides[0]) < _MOST_CUES
            and not all(_SENTENCE_END.search(side[-1].text) for side in sides)
        )
        if not goes_on:
            yield unit()
    if any(sides):
        yield unit()
