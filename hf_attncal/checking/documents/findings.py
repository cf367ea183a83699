"""What the check found in a document: each finding with its kind, place, words, reason and probability.

Its forms are lines, JSON, SARIF and notes in the file.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import read_lines

from ..rules import placeholders_of
from ..verdicts import PairVerdict
from .segments import Segment

# Kind of a finding -> what it says in general.
FINDING_KINDS = {
    "missing": "A whole segment of the source has no translation.",
    "added": "A whole segment of the translation has no source.",
    "omission": "The translation leaves out words of the source.",
    "addition": "The translation says what the source does not.",
    "repeats": "The translation repeats itself.",
    "unrelated": "The translation is none of this source.",
    "changed": "A number, a name, a negation, a placeholder or an address is not that of the source.",
}
# How probable it is that a finding of these kinds is right, on documents in which nothing was left out on purpose.
_SURE = {"missing": 0.95, "added": 0.95, "placeholders": 0.97}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLUMNS = ("id", "probability", "kind", "source", "target", "reason")
_ERROR_ABOVE = 0.9  # probability from which on SARIF calls a finding an error
_ERROR_STATUS = 2  # exit status of an error, where 1 means findings
_SHOWN = 80  # characters of a text in a reason


@dataclass(frozen=True, slots=True)
class Place:
    """Where one side of a finding is.

    Args:
        file: name of the file. line: in it, from 1. key: of the segment; "" for none.
        text: of the segment.
        span: characters of the text that it is about; None for all of it.
    """

    file: str
    line: int
    key: str
    text: str
    span: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class DocumentFinding:
    """Something that looks wrong.

    Args:
        kind: one of `FINDING_KINDS`.
        reason: what is wrong, in words.
        probability: that it is.
        source, target: where; None for a side that is not there.
        at: segment whose note it is.
    """

    kind: str
    reason: str
    probability: float
    source: Place | None
    target: Place | None
    at: Segment | None = None

    @property
    def id(self) -> str:
        """Name of it by its kind and texts, so that it stays when lines move."""
        sides = (" ".join(side.text.split()) if side else "" for side in (self.source, self.target))
        return hashlib.sha256("\0".join((self.kind, *sides)).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        found: dict[str, Any] = {"id": self.id, "kind": self.kind, "probability": round(self.probability, 4)}
        found["reason"] = self.reason
        for name in ("source", "target"):
            place = getattr(self, name)
            if place is not None:
                told = {"file": place.file, "line": place.line, "key": place.key}
                found[name] = {key: value for key, value in told.items() if value} | {"text": place.text}
                if place.span is not None:
                    found[name]["span"] = list(place.span)
        return found


@dataclass(frozen=True, slots=True)
class SegmentSide:
    """Segments of one document that are checked together.

    Args:
        file: name of the document.
        segments: of it, in order; their texts are joined by a space.
    """

    file: str
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return " ".join(one.text for one in self.segments)

    def place(self, span: tuple[int, int] | None = None) -> Place:
        """Return the place of characters of the joined text: the segment in which they begin; there must be one."""
        begin, one = 0, self.segments[0]
        for one in self.segments:
            if span is None or span[0] < begin + len(one.text) + 1:
                break
            begin += len(one.text) + 1
        if span is not None:
            span = max(0, span[0] - begin), min(len(one.text), span[1] - begin)
        return Place(self.file, one.line, one.key, one.text, span)


def document_findings(verdict: PairVerdict, source: SegmentSide, target: SegmentSide) -> Iterator[DocumentFinding]:
    """Yield what is wrong with segments that were paired: their placeholders, and what the verdict says, as one."""
    wrong = _other_placeholders(source, target)
    if wrong is not None:
        at = target.segments[0]
        yield DocumentFinding("changed", wrong, _SURE["placeholders"], source.place(), target.place(), at)
    told = [one for one in verdict.findings if not (wrong and one.kind == "wrong placeholders")]
    if not told:
        return
    kind = max(verdict.flagged, key=lambda cause: getattr(verdict, cause))
    omission = next((one.source.characters for one in told if one.source), None)
    addition = next((one.target.characters for one in told if one.target), None)
    places = source.place(omission), target.place(addition)
    reasons = []
    for one in told[:4]:
        span, side = (one.source, source) if one.source else (one.target, target)
        words = _quoted(side.text[slice(*span.characters)]) if span else ""
        reasons.append(f"{one.kind} {words}: {one.reason}" if words else one.reason)
    segment = next((one for one in target.segments if one.line == places[1].line), target.segments[0])
    yield DocumentFinding(kind, "; ".join(reasons), verdict.wrong, *places, segment)


def whole_segment(source: SegmentSide, target: SegmentSide, near: Segment | None) -> DocumentFinding:
    """Return the finding on segments that only one document has; `near` is the next of the target."""
    if not source.segments:
        one = target.segments[0]
        reason = f"added: the source has no {one.kind} {_quoted(target.text)}"
        return DocumentFinding("added", reason, _SURE["added"], None, target.place(), one)
    one = source.segments[0]
    reason = f"left out: the whole {one.kind} {_quoted(source.text)}"
    place = Place(target.file, near.line if near else 1, one.key, "")
    return DocumentFinding("missing", reason, _SURE["missing"], source.place(), place, near)


def _quoted(text: str) -> str:
    return f"“{text}”" if len(text) <= _SHOWN else f"“{text[:_SHOWN].rstrip()}…”"


def _other_placeholders(source: SegmentSide, target: SegmentSide) -> str | None:
    """Say which placeholders and tags of a bilingual file differ; None where none do."""
    if not any(one.kind == "entry" for one in source.segments) or not target.segments:
        return None
    ours, theirs = (
        sum((placeholders_of(one.raw or one.text) for one in side.segments), start=placeholders_of(""))
        for side in (source, target)
    )
    lost, new = (list((one - other).elements())[:3] for one, other in ((ours, theirs), (theirs, ours)))
    if not lost and not new:
        return None
    told = [f"{' '.join(lost)} is missing" if lost else "", f"{' '.join(new)} is not in the source" if new else ""]
    return f"wrong placeholders: {', and '.join(filter(None, told))}"


# ---- forms ----


def finding_lines(findings: Iterable[DocumentFinding]) -> Iterator[str]:
    """Yield a head, and a line for each finding, with tabs between the columns."""
    yield "\t".join(_COLUMNS)
    for one in findings:
        sides = (str(side) if side else "-" for side in (one.source, one.target))
        row = one.id, f"{one.probability:.4f}", one.kind, *sides, one.reason
        yield "\t".join(" ".join(cell.split()) for cell in row)


def sarif(findings: Iterable[DocumentFinding]) -> str:
    """Return findings as SARIF 2.1.0, with what code scanning of GitHub needs
    (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
    """
    from hf_attncal._version import __version__

    rules = [
        {
            "id": name,
            "name": "".join(part.title() for part in name.split("_")),
            "shortDescription": {"text": text},
            "fullDescription": {"text": text},
            "help": {
                "text": f"{text} If it is right all the same, put the line of the finding into the file of --dismiss."
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


def _result(one: DocumentFinding, rule: int) -> dict[str, Any]:
    places = [place for place in (one.target, one.source) if place is not None]
    found: dict[str, Any] = {
        "ruleId": one.kind,
        "ruleIndex": rule,
        "level": "error" if one.probability >= _ERROR_ABOVE else "warning",
        "message": {"text": one.reason},
        "locations": [_location(places[0])],
        "partialFingerprints": {"attncal/v1": one.id},
        "rank": round(100 * one.probability, 1),
        "properties": {"probability": round(one.probability, 4)},
    }
    if len(places) > 1:
        found["relatedLocations"] = [{"id": 1, "message": {"text": "the source"}} | _location(places[1])]
    return found


def _location(place: Place) -> dict[str, Any]:
    uri = quote(os.path.relpath(place.file) if os.path.isabs(place.file) else place.file)
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": place.line}}
    return {"physicalLocation": physical} | ({"logicalLocations": [{"name": place.key}]} if place.key else {})


def notes_of(findings: Iterable[DocumentFinding]) -> list[tuple[int, list[str]]]:
    """Return `(byte, lines)` for the notes of findings, in the order of the file."""
    found: dict[int, list[str]] = defaultdict(list)
    for one in findings:
        if one.at is not None:
            found[one.at.at].append(f"attncal {one.id}: {' '.join(one.reason.split())} ({one.probability:.2f})")
    return sorted(found.items())


# ---- what a person called right ----


def dismissed_ids(file: str | Path) -> frozenset[str]:
    """Read which findings a person called right: lines that begin with an id, or are objects with one.

    Lines of `--format tsv` and `--format json` are such lines. Empty lines and those that begin with # say nothing.

    Raises:
        CommandError: a line has no id.
    """
    found = set()
    for number, line in enumerate(read_lines(file), start=1):
        line = line.strip()
        if not line or line.startswith(("#", "id\t")):
            continue
        try:
            name = json.loads(line)["id"] if line.startswith("{") else line.split()[0]
        except (ValueError, KeyError, TypeError):
            name = ""
        if not (isinstance(name, str) and len(name) == 12 and set(name) <= set("0123456789abcdef")):
            raise CommandError(
                f"line {number} of {file} has no id of a finding, such as 3f0c9a1b22de: "
                "copy lines of --format tsv or json into it."
            )
        found.add(name)
    return frozenset(found)


# ---- the exit status of continuous integration ----


class FoundError(CommandError):
    """There are findings above the bar.

    Args:
        message: number of the findings, and the first.
        findings: the findings.
    """

    exit_status = 1

    def __init__(self, message: str, findings: tuple[DocumentFinding, ...]):
        super().__init__(message)
        self.findings = findings


def raise_above(findings: Iterable[DocumentFinding], bar: float | None) -> None:
    """Raise FoundError for findings that are more probable than a bar, if there is one."""
    above = () if bar is None else tuple(one for one in findings if one.probability > bar)
    if above:
        first = above[0]
        raise FoundError(
            f"{len(above)} finding{'s' * (len(above) > 1)} above {bar}, the first at "
            f"{first.target or first.source}: {first.reason}",
            above,
        )


@contextmanager
def errors_exit_apart(bar: float | None) -> Iterator[None]:
    """Give errors another exit status than findings, where findings have one."""
    try:
        yield
    except Exception as error:
        if bar is not None and not isinstance(error, FoundError):
            vars(error)["exit_status"] = _ERROR_STATUS
        raise
