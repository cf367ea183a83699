"""Check a bilingual file or two documents: read them, pair their segments, and return the findings."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hf_attncal.alignment.ready import ready_languages
from hf_attncal.drawing.page import text_table
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, LineError, piecewise, user_errors
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import LONGEST_LINE, json_line, line_error

from ..alarms import TextAlarms
from ..check_page import PageRow, check_page
from ..checked_text import tab_separated
from ..checker import Checker, JudgedPair
from ..copies import language_of_texts
from ..evidence import Both, both
from ..number_values import LANGUAGES
from ..rules import UNTRANSLATED
from ..verdicts import VERDICTS, PairVerdict
from .document_formats import LINES, Format, format_of, noted, read_document
from .findings import (
    DocumentFinding,
    SegmentSide,
    document_findings,
    finding_lines,
    kept_part_findings,
    notes_of,
    sarif,
    whole_segment,
)
from .pairing import Bead, belong_together, have_same_times, pair_by_key, pair_by_time, pair_segments
from .segments import CODE, Document, Segment
from .short_segments import is_short, sentence_findings, short_findings

_WORD = re.compile(r"[^\W\d_]{2,}")
_FEWEST_MARKED = {"omission": 2, "addition": 3}  # words
_FEWEST_WORDS = 4  # words that are on only one side
_SURE_LANGUAGE = 0.9  # alarm for an untranslated segment that is not a copy
_COPY = 0.8  # share of the words of a copy that are in the source
_FEWEST = 6  # segments below which the language of a document is not tested
_MOST_CUES = 6  # cues in one sentence
_SENTENCE_END = re.compile(r"""[.!?…。！？:;]["'”»«“)\]]*$""")


class Unit(NamedTuple):
    """Segments of both sides that are checked together; `near` is the next target segment."""

    source: SegmentSide
    target: SegmentSide
    near: Segment | None = None

    @property
    def texts(self) -> Both[str]:
        return self.source.text, self.target.text

    @property
    def place(self) -> str:
        """Positions of both sides, or of the only one."""
        return " → ".join(dict.fromkeys(str(side) for side in self[:2] if side.segments))


@dataclass(frozen=True)
class DocumentCheck:
    """Result of a check of a document.

    Args:
        units: Paired segments, in order.
        verdicts: Verdict on each unit that is not code; `line` is a line of the target.
        findings: Findings, in the order of the file or the most probable first.
        clean: Numbers of the judged units without a finding, from 0; empty if only the worst findings are wanted.
        document: Document that notes are written into.
        row: Format of the document.
        names: Names of source and target.
        alarms: Alarms of the document.
    """

    units: tuple[Unit, ...]
    verdicts: tuple[PairVerdict, ...]
    findings: tuple[DocumentFinding, ...]
    clean: frozenset[int]
    document: Document
    row: Format
    names: tuple[str, str]
    alarms: TextAlarms

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages on text that was not checked, and on choices of the reader."""
        return self.document.notices

    def __iter__(self) -> Iterator[DocumentFinding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        return "\n".join([*map(str, self), "", self._counts()]).lstrip()

    def _counts(self) -> str:
        return f"Findings: {len(self)}, in {len(self.verdicts)} segments; {self.alarms}."

    def summary(self) -> str:
        """Return the number of findings of each kind, and the mean probability that a segment is wrong."""
        kinds = Counter(one.kind for one in self)
        rows = {"": ["segments", "findings", *kinds], "number": [str(len(self.verdicts)), str(len(self.findings)),
                                                              *map(str, kinds.values())]}  # fmt: skip
        wrong = [verdict.wrong for verdict in self.verdicts]
        mean = f"Mean probability that a segment is wrong: {100 * float(np.mean(wrong or [0])):.1f} %."
        return "\n".join([*text_table(rows), "", self._counts(), mean])

    def form(self, name: str) -> bytes:
        """Return the findings in an output format of `--format`.

        Raises:
            CommandError: The format of the document has no notes.
        """
        if name == "notes":
            check_notes(self.row, self.document.name)
            with user_errors():
                return noted(self.document, self.row, notes_of(self))
        return "".join(f"{line}\n" for line in _FORMS[name](self)).encode()

    def _kept(self) -> Iterator[str]:
        pairs = (self.units[number] for number in sorted(self.clean))
        return (tab_separated(*pair.texts) for pair in pairs if all(pair.texts))

    def _page(self) -> Iterator[str]:
        title = " and ".join(dict.fromkeys(map(os.path.basename, self.names)))
        more = f"To dismiss a finding that is right, copy its id into the file of --dismiss. {self._counts()}"
        return check_page(self._page_rows(), title, "segment", more)

    def _page_rows(self) -> Iterator[PageRow]:
        findings: dict[int, list[DocumentFinding]] = {number: [] for number in self.clean}
        for finding in self:
            findings.setdefault(finding.unit, []).append(finding)
        for number in sorted(findings) if self.clean else findings:
            unit, of_unit = self.units[number], findings[number]
            source, target = (
                sorted((span for side in sides if side for span in side.spans), key=lambda span: span.characters)
                for sides in ([one.source for one in of_unit], [one.target for one in of_unit])
            )
            faults = [(one.message, one.probability, one.id) for one in of_unit]
            yield PageRow(unit.place, unit.texts, (source, target), faults, [one.kind for one in of_unit])


# Form -> its lines.
_FORMS: dict[str, Callable[[DocumentCheck], Iterable[str]]] = {
    "marked": lambda check: [str(check)],
    "html": DocumentCheck._page,
    "kept": DocumentCheck._kept,
    "summary": lambda check: [check.summary()],
    "sarif": lambda check: [sarif(check)],
    "tsv": finding_lines,
    "json": lambda check: (json_line(one.to_dict()) for one in check),
}


def check_notes(row: Format, name: str) -> None:
    """Raise CommandError if a format has no notes."""
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
    columns: str | None = None,
) -> DocumentCheck:
    """Check a bilingual file, or two documents in one format.

    Args:
        checker: Checker of their languages.
        source: Name of the bilingual file, or of the source document.
        target: Name of the target document; None for a bilingual file.
        running: Longest line.
        worst: Number of findings, the most probable first. Default: None, all in the order of the file.
        dismissed: Ids of dismissed findings. Default: none.
        columns: Columns of source and translation in a table, separated by a comma. Default: None, by their names.

    Raises:
        CommandError: A file cannot be read, or the documents are not translations of each other.
    """
    source = os.fspath(source)
    row, document, units = _units(checker, source, None if target is None else os.fspath(target), columns)
    _use_languages(checker, document, row)
    _check_lengths(units, running.longest_line or LONGEST_LINE)
    checked = [number for number, unit in enumerate(units) if not _is_code_unit(unit)]
    pairs = [units[number].texts for number in checked]
    try:
        judged = list(piecewise(checker.judged, pairs))
    except LineError as error:
        raise line_error(error.number, "cannot be checked", error.error) from error
    if checker.aligner is None and checker.encoder is not None and not checker.encoder.covers_languages:
        raise CommandError(f"No segment gets a verdict: {checker.encoder.coverage_message()}. "
                           "Give MODEL, an aligner for them.")  # fmt: skip
    _check_language(judged, source, os.fspath(target or source))
    alarms = checker.text_alarms(judged, document=True)
    verdicts = checker.verdicts(judged, alarms=alarms)
    LOG.info("%s.", alarms)
    by_unit = dict(zip(checked, verdicts, strict=True))
    sides = {number: units[number][:2] for number in checked}
    by_document: dict[int, list[DocumentFinding]] = defaultdict(list)
    of_sentences = sentence_findings(sides, alarms, dict(zip(checked, judged, strict=True)))
    for finding in (*short_findings(checker, sides), *of_sentences):
        by_document[finding.unit].append(finding)
    findings: list[DocumentFinding] = []
    for number, unit in enumerate(units):
        if not all(side.segments for side in unit[:2]):
            findings.append(whole_segment(*unit, number))
            continue
        findings += kept_part_findings(*unit[:2], number)
        if number not in by_unit:
            continue
        verdict = by_unit[number]
        weak = is_short(unit.source.text) or _has_few_words(unit) or _marks_few_words(verdict)
        if weak or (_shares_words(verdict) and verdict.wrong <= _SURE_LANGUAGE):
            by_unit[number] = verdict = verdict.by_rules()
        of_unit = list(document_findings(verdict, *unit[:2], number))
        kinds = {finding.kind for finding in of_unit}
        findings += of_unit + [finding for finding in by_document[number] if finding.kind not in kinds]
    numbered = tuple(
        replace(verdict, line=(units[number].target.segments or units[number].source.segments)[0].line)
        for number, verdict in by_unit.items()
    )
    findings = [finding for finding in findings if finding.id not in dismissed]
    clean = frozenset(by_unit) - {finding.unit for finding in findings}
    if worst is not None:
        findings, clean = sorted(findings, key=lambda item: -item.probability)[:worst], frozenset()
    names = source, source if target is None else os.fspath(target)
    return DocumentCheck(tuple(units), numbered, tuple(findings), clean, document, row, names, alarms)


def _use_languages(checker: Checker, document: Document, row: Format) -> None:
    """Use the languages of a document for the encoder; raise CommandError if an aligner is for other languages.

    The languages of an aligner that is not in the package are recognised by its number words, so a language without
    known ones is not compared.
    """
    languages = both(name and name.split("-")[0] for name in document.languages)
    if checker.encoder is not None:
        usual = "en" if row.name == "PO" else None  # the source of messages without a language in their header
        checker.encoder.languages = both(
            name if name in LANGUAGES else None for name in (languages[0] or usual, languages[1])
        )
    if checker.aligner is None:
        return
    ready = ready_languages(getattr(checker.aligner.model.config, "name_or_path", ""))
    expected = ready or checker.model.vocabulary.languages
    for side, language, own in zip(("source", "translation"), languages, expected, strict=True):
        if language and own and language != own and (ready or language in LANGUAGES):
            raise CommandError(f"The {side} of {document.name} is in {language}, and the aligner is for {own}. "
                               "An encoder checks any language: leave out MODEL, give --encoder auto.")  # fmt: skip


def _check_lengths(units: Iterable[Unit], longest: int) -> None:
    """Raise CommandError if a text has more than `longest` bytes."""
    for side in (side for unit in units for side in (unit.source, unit.target)):
        if len(side.text.encode()) > longest:
            raise CommandError(f"line {side.segments[0].line} of {side.file} begins a text of more than {longest} "
                               "bytes. Split it, or raise --longest-line.")  # fmt: skip


def _has_few_words(unit: Unit) -> bool:
    """Return whether a pair has hardly any word on only one side (code, `Tip` and `Tipp`)."""
    sides = [set(_WORD.findall(text.lower())) for text in unit.texts]
    return len(sides[0] ^ sides[1]) < _FEWEST_WORDS


def _marks_few_words(verdict: PairVerdict) -> bool:
    """Return whether an omission or addition is at most some words, as free translations have everywhere."""
    causes = [name for name in VERDICTS if name != "changed"]  # in a document, a broken rule
    cause = max(causes, key=lambda name: getattr(verdict, name))
    if cause not in _FEWEST_MARKED:
        return False
    spans = getattr(verdict, f"{cause}_spans")
    return 0 < sum(span.words[1] - span.words[0] for span in spans) < _FEWEST_MARKED[cause]


def _shares_words(verdict: PairVerdict) -> bool:
    """Return whether a segment looks untranslated but is not a copy: it may share code, names and loanwords."""
    if not {"untranslated", "wrong language"} & set(verdict.names):
        return False
    sides = [_WORD.findall(text.lower()) for text in (verdict.source, verdict.target)]
    return sum(word in sides[0] for word in sides[1]) < _COPY * len(sides[1])


def _check_language(judged: Sequence[JudgedPair], source: str, target: str) -> None:
    """Raise CommandError if most segments are in the language of the other side, and not copies."""
    if len(judged) < _FEWEST:
        return
    copies = sum(pair.rules.get(UNTRANSLATED) is not None for pair in judged)
    languages = {language_of_texts(pair.sides[side].text for pair in judged) for side in (0, 1)}
    if len(languages) == 1 and None not in languages and copies <= len(judged) / 2:
        raise CommandError(
            f"Source and translation in {target} are both in the language {languages.pop()!r}. Name a source in the "
            "language that is translated from."
        )
    wrong = sum(
        pair.causes.get("untranslated", 0) > 0.5 and pair.sides[0].text.split() != pair.sides[1].text.split()
        for pair in judged
    )
    if source != target and wrong > len(judged) / 2:
        raise CommandError(
            f"{wrong} of {len(judged)} segments of {target} are not in the language that the aligner translates "
            f"into. Name {target} first, or train an aligner from {source} to it."
        )


def _is_code_unit(unit: Unit) -> bool:
    """Return whether a unit is code, which is not checked."""
    return all(one.kind == CODE for side in unit[:2] for one in side.segments)


def _units(
    checker: Checker, source: str, target: str | None, columns: str | None
) -> tuple[Format, Document, list[Unit]]:
    """Read one bilingual file or two documents, and return the units to check."""
    row = format_of(source) or LINES
    if target is None:
        if not row.bilingual:
            raise CommandError(f"{source} is in one language: also name its translation.")
        document = read_document(source, row, columns)
        return row, document, [
            Unit(_side(source, pair.source), _side(source, pair.target), pair.source) for pair in document.pairs
        ]  # fmt: skip
    target_row = format_of(target) or LINES
    for name, one in ((source, row), (target, target_row)):
        if one.bilingual:
            raise CommandError(f"{name} has both languages ({one.name}): name only this file.")
    if row is not target_row:
        raise CommandError(
            f"{source} is {row.name} and {target} is {target_row.name}: name two documents in one format."
        )
    first, second = (read_document(name, row, columns) for name in (source, target))
    source_segments, target_segments = first.segments, second.segments
    languages = first.languages[0], second.languages[0]
    document = second._replace(notices=first.notices + second.notices, languages=languages)
    if row is LINES:
        if len(source_segments) != len(target_segments):
            raise CommandError(f"{source} has {len(source_segments)} lines, and {target} has {len(target_segments)}.")
        lines = zip(source_segments, target_segments, strict=True)
        return row, document, [Unit(_side(source, first), _side(target, second), second) for first, second in lines]
    if row.has_keys:
        beads = list(pair_by_key(source_segments, target_segments))
        if not any(map(all, beads)):
            raise CommandError(f"{source} and {target} have no key in common. Are they versions of the same texts?")
    elif have_same_times(source_segments, target_segments):
        beads = list(pair_by_time(source_segments, target_segments))
    else:
        scored = list(pair_segments(checker, source_segments, target_segments))
        beads = [bead for bead, _ in scored]
        if not belong_together(checker, source_segments, target_segments, scored):
            raise CommandError(
                f"{source} and {target} do not belong together: most of their segments are not translations of each "
                "other. Are they versions of the same text?"
            )
    return row, document, list(_joined(beads, source_segments, target_segments, source, target))


def _side(file: str, segment: Segment | None) -> SegmentSide:
    return SegmentSide(file, () if segment is None else (segment,))


def _joined(
    beads: Sequence[Bead],
    source_segments: Sequence[Segment],
    target_segments: Sequence[Segment],
    source: str,
    target: str,
) -> Iterator[Unit]:
    """Yield a unit per bead, or per sentence of cues."""
    done = 0
    sides: tuple[list[Segment], list[Segment]] = ([], [])

    def unit() -> Unit:
        near = target_segments[min(done, len(target_segments) - 1)] if target_segments else None
        joined = Unit(SegmentSide(source, tuple(sides[0])), SegmentSide(target, tuple(sides[1])), near)
        for side in sides:
            side.clear()
        return joined

    for of_source, of_target in beads:
        unpaired = not of_source or not of_target
        if unpaired and any(sides):
            yield unit()
        sides[0].extend(source_segments[number] for number in of_source)
        sides[1].extend(target_segments[number] for number in of_target)
        if of_target:
            done = max(done, of_target[-1] + 1)
        goes_on = (
            not unpaired
            and sides[0][0].kind == "cue"
            and len(sides[0]) < _MOST_CUES
            and not all(_SENTENCE_END.search(side[-1].text) for side in sides)
        )
        if not goes_on:
            yield unit()
    if any(sides):
        yield unit()
