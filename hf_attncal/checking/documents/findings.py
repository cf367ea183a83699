"""Findings in a document, with kind, position, reason and probability, as text, lines, JSON, SARIF or notes."""

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import read_lines

from ..checked_text import tab_separated
from ..placeholders import compare_placeholders
from ..rules import REPETITIONS, WRONG_PLACEHOLDERS
from ..verdicts import FINDING_KINDS, VERDICTS, Finding, FlaggedSpan, PairVerdict, kind_id, marked_text, quoted
from .segments import Segment, changed_parts

MOST_SURE = 0.85  # highest probability of a finding on a pair that is translated, as right translations may be free
# Probability that a finding of these kinds is right, measured on unchanged documents.
_SURE = {"missing": 0.95, "added": 0.95, WRONG_PLACEHOLDERS: MOST_SURE, "changed code": 0.8}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLUMNS = ("id", "probability", "kind", "source", "target", "reason", "source_text", "target_text")
_ERROR_ABOVE = 0.8  # probability above which a finding is an error in SARIF
_ERROR_STATUS = 2  # exit status of an error, if 1 means findings


@dataclass(frozen=True, slots=True)
class SegmentSide:
    """Segments of one document that are checked together.

    Args:
        file: Name of the document.
        segments: Segments in order; their texts are joined by spaces.
        spans: Marked spans of the joined text. Default: (), a finding has no place in the text.
    """

    file: str
    segments: tuple[Segment, ...]
    spans: tuple[FlaggedSpan, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def line(self) -> int:
        return self.segment.line

    @property
    def key(self) -> str:
        return self.segment.key

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.segments)

    @property
    def segment(self) -> Segment:
        """Segment in which the spans begin; the first one without spans."""
        begin, segment = 0, self.segments[0]
        for segment in self.segments:
            begin += len(segment.text) + 1
            if not self.spans or self.spans[0].characters[0] < begin:
                break
        return segment


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """Finding in a document.

    Args:
        kind: Kind, one of `FINDING_KINDS`.
        reason: Reason in words.
        probability: Probability that it is an error.
        source, target: Position on each side; None for a missing side.
        at: Segment before which its note is written. Default: None.
        unit: Number of the checked unit, from 0. Default: 0.
    """

    kind: str
    reason: str
    probability: float
    source: SegmentSide | None
    target: SegmentSide | None
    at: Segment | None = None
    unit: int = 0

    @property
    def id(self) -> str:
        """Identifier from the kind and the texts, which does not change when lines move."""
        sides = (" ".join(side.text.split()) if side else "" for side in (self.source, self.target))
        return hashlib.sha256("\0".join((self.kind, *sides)).encode()).hexdigest()[:12]

    @property
    def message(self) -> str:
        """Kind and reason in one line."""
        return " ".join(": ".join(filter(None, (self.kind, self.reason))).split())

    @property
    def place(self) -> str:
        """Positions on both sides, or the only one."""
        return " → ".join(dict.fromkeys(str(side) for side in (self.source, self.target) if side))

    def __str__(self) -> str:
        texts = (
            marked_text(side.text, side.spans, *signs) if side and side.text else "-"
            for side, signs in ((self.source, ("[-", "-]")), (self.target, ("{+", "+}")))
        )
        head = f"{self.id}  {self.place}  {100 * self.probability:.0f} %  {self.message}"
        return "\n".join([head, *(f"    {' '.join(text.split())}" for text in texts)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        values: dict[str, Any] = {"id": self.id, "kind": self.kind, "probability": round(self.probability, 4)}
        values["reason"] = self.reason
        for name in ("source", "target"):
            side = getattr(self, name)
            if side is not None:
                fields = {"file": side.file, "line": side.line, "key": side.key}
                values[name] = {key: item for key, item in fields.items() if item} | {"text": side.text}
                if side.spans:
                    values[name]["span"] = list(side.spans[0].characters)
        return values


def kept_part_findings(source: SegmentSide, target: SegmentSide, unit: int) -> Iterator[DocumentFinding]:
    """Yield the finding on code, addresses and formulas that a translation changed."""
    reason = changed_parts(source.segments, target.segments)
    if reason:
        yield DocumentFinding("changed code", reason, _SURE["changed code"], source, target, target.segments[0], unit)


def document_findings(
    verdict: PairVerdict, source: SegmentSide, target: SegmentSide, unit: int
) -> Iterator[DocumentFinding]:
    """Yield the findings on paired segments: wrong placeholders, and the findings of the verdict."""
    wrong = _other_placeholders(source, target)
    findings = [one for one in verdict.findings if one.kind not in REPETITIONS or _is_in_one_paragraph(one, target)]
    if wrong is not None:
        findings = [finding for finding in findings if finding.kind != WRONG_PLACEHOLDERS]
        findings.insert(0, Finding(WRONG_PLACEHOLDERS, (), (), wrong, _SURE[WRONG_PLACEHOLDERS]))
    for kind, source_spans, target_spans, reason, probability in findings:
        sides = replace(source, spans=source_spans), replace(target, spans=target_spans)
        probability = min(probability, MOST_SURE) if kind in VERDICTS else probability
        yield DocumentFinding(kind, reason, probability, *sides, sides[1].segment, unit)


def whole_segment(source: SegmentSide, target: SegmentSide, near: Segment | None, unit: int) -> DocumentFinding:
    """Return the finding on segments that only one document has; `near` is the next target segment."""
    kind, side = ("missing", source) if source.segments else ("added", target)
    segment, missing_from = side.segments[0], "translation" if source.segments else "source"
    reason = f"the whole {segment.kind} {quoted(side.text)} is not in the {missing_from}"
    side = replace(side, spans=(FlaggedSpan((0, 0), (0, len(side.text)), reason, _SURE[kind]),))
    if not source.segments:
        return DocumentFinding(kind, reason, _SURE[kind], None, side, segment, unit)
    nearby = SegmentSide(target.file, (Segment("", segment.kind, near.line if near else 1, segment.key),))
    return DocumentFinding(kind, reason, _SURE[kind], side, nearby, near, unit)


def _is_in_one_paragraph(finding: Finding, side: SegmentSide) -> bool:
    """Return whether the marked words are without a tab or an empty line between them in the file."""
    words = side.text[slice(*finding.target[0].characters)].split()
    raw = " ".join(one.raw or one.text for one in side.segments)
    return re.search(r"(?: |[ ]*\n[ \t]*)".join(map(re.escape, words)), raw) is not None


def _other_placeholders(source: SegmentSide, target: SegmentSide) -> str | None:
    """Return a reason with the placeholders and tags that differ in a bilingual file; None if all match."""
    if not any(one.kind == "entry" for one in source.segments) or not target.segments:
        return None
    texts = (" ".join(one.raw or one.text for one in side.segments) for side in (source, target))
    difference = compare_placeholders(*texts)
    if difference is None:
        return None
    lost, new = difference
    messages = [f"{lost[0]} is missing" if lost else "", f"{new[0]} is not in the source" if new else ""]
    return ", and ".join(filter(None, messages))


# ---- forms ----


def finding_lines(findings: Iterable[DocumentFinding]) -> Iterator[str]:
    """Yield a header and a line per finding, with tabs between the columns."""
    yield tab_separated(*_COLUMNS)
    for finding in findings:
        sides = finding.source, finding.target
        places = (str(side) if side else "-" for side in sides)
        texts = (side.text if side else "" for side in sides)
        yield tab_separated(finding.id, f"{finding.probability:.4f}", finding.kind, *places, finding.reason, *texts)


def sarif(findings: Iterable[DocumentFinding]) -> str:
    """Return findings as SARIF 2.1.0, with the fields that GitHub code scanning needs
    (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
    """
    from hf_attncal._version import __version__

    rules = [
        {
            "id": kind_id(name),
            "name": "".join(part.title() for part in name.split()),
            "shortDescription": {"text": text},
            "fullDescription": {"text": text},
            "help": {
                "text": f"{text} If the translation is right, add the id of the finding to the file of --dismiss."
            },
            "defaultConfiguration": {"level": "warning"},
            "properties": {"precision": "high" if name in ("missing", "added") else "medium", "tags": ["translation"]},
        }
        for name, text in FINDING_KINDS.items()
    ]
    driver = {"name": "attncal", "version": __version__, "semanticVersion": __version__, "rules": rules}
    results = [_result(one, list(FINDING_KINDS).index(one.kind)) for one in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=1)


def _result(finding: DocumentFinding, rule: int) -> dict[str, Any]:
    places = [place for place in (finding.target, finding.source) if place is not None]
    result: dict[str, Any] = {
        "ruleId": kind_id(finding.kind),
        "ruleIndex": rule,
        "level": "error" if finding.probability >= _ERROR_ABOVE else "warning",
        "message": {"text": f"{finding.message} (id {finding.id})"},
        "locations": [_location(places[0])],
        "partialFingerprints": {"attncal/v1": finding.id},
        "rank": round(100 * finding.probability, 1),
        "properties": finding.to_dict(),
    }
    if len(places) > 1:
        result["relatedLocations"] = [{"id": 1, "message": {"text": "the source"}} | _location(places[1])]
    return result


def _location(side: SegmentSide) -> dict[str, Any]:
    uri = quote(os.path.relpath(side.file) if os.path.isabs(side.file) else side.file)
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": side.line}}
    return {"physicalLocation": physical} | ({"logicalLocations": [{"name": side.key}]} if side.key else {})


def notes_of(findings: Iterable[DocumentFinding]) -> list[tuple[int, list[str]]]:
    """Return the notes of findings as `(byte, lines)`, in the order of the file."""
    notes: dict[int, list[str]] = defaultdict(list)
    for finding in findings:
        if finding.at is not None:
            notes[finding.at.at].append(f"attncal {finding.id}: {finding.message} ({finding.probability:.2f})")
    return sorted(notes.items())


# ---- dismissed findings ----


def dismissed_ids(file: str | Path) -> frozenset[str]:
    """Read the ids of dismissed findings: each line begins with one, or is one of `--format json`.

    Empty lines, lines that begin with #, the last line of a run, and indented lines, the texts below a finding, are
    skipped.

    Raises:
        CommandError: A line has no id.
    """
    ids = set()
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip() or line.startswith(("#", "id\t", " ", "Findings: ")):
            continue
        try:
            name = json.loads(line)["id"] if line.startswith("{") else line.split()[0]
        except (ValueError, KeyError, TypeError):
            name = ""
        if not (isinstance(name, str) and len(name) == 12 and set(name) <= set("0123456789abcdef")):
            raise CommandError(
                f"line {number} of {file} has no id of a finding, such as 3f0c9a1b22de. "
                "Copy ids or lines of an earlier run into it."
            )
        ids.add(name)
    return frozenset(ids)


# ---- exit status for continuous integration ----


class FindingsError(CommandError):
    """Error for findings above the bar.

    Args:
        message: Number of the findings, and the first one.
        findings: The findings.
    """

    exit_status = 1

    def __init__(self, message: str, findings: tuple[DocumentFinding, ...]):
        super().__init__(message)
        self.findings = findings


def raise_above(findings: Iterable[DocumentFinding], bar: float | None) -> None:
    """Raise FindingsError if a finding is more probable than the bar; None for no bar."""
    above = () if bar is None else tuple(one for one in findings if one.probability > bar)
    if above:
        first = above[0]
        raise FindingsError(
            f"{len(above)} finding{'s' * (len(above) > 1)} above {bar}, the first at "
            f"{first.target or first.source}: {first.message}",
            above,
        )


@contextmanager
def errors_exit_apart(bar: float | None) -> Iterator[None]:
    """Set the exit status of errors to 2 if findings have the status 1."""
    try:
        yield
    except Exception as error:
        if bar is not None and not isinstance(error, FindingsError):
            vars(error)["exit_status"] = _ERROR_STATUS
        raise
