"""Findings in the forms that others read: lines, JSON, SARIF, notes in the file."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from hf_attncal.data.streams import json_line

from .findings import FINDING_KINDS, DocumentFinding
from .segments import Segment

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COLUMNS = ("id", "probability", "kind", "source", "target", "reason")
_ERROR_ABOVE = 0.9  # probability from which on SARIF calls a finding an error


def finding_lines(findings: Iterable[DocumentFinding]) -> Iterator[str]:
    """Yield a head, and a line for each finding, with tabs between the columns."""
    yield "\t".join(_COLUMNS)
    for one in findings:
        sides = (str(side) if side else "-" for side in (one.source, one.target))
        row = one.id, f"{one.probability:.4f}", one.kind, *sides, one.reason
        yield "\t".join(" ".join(cell.split()) for cell in row)


def finding_objects(findings: Iterable[DocumentFinding]) -> Iterator[str]:
    """Yield an object of JSON for each finding."""
    return (json_line(one.to_dict()) for one in findings)


def sarif(findings: Iterable[DocumentFinding]) -> str:
    """Return findings as SARIF 2.1.0, with what code scanning of GitHub needs
    (https://docs.github.com/en/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning).
    """
    from hf_attncal import __version__

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


def _result(one: DocumentFinding, rule: int) -> dict:
    places = [place for place in (one.target, one.source) if place is not None]
    found = {
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


def _location(place) -> dict:
    uri = quote(os.path.relpath(place.file) if os.path.isabs(place.file) else place.file)
    region = {"startLine": place.line}
    location = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
    if place.key or place.part:
        location["logicalLocations"] = [{"name": place.key or place.part}]
    return location


def notes_of(findings: Iterable[DocumentFinding]) -> list[tuple[int, list[str]]]:
    """Return `(byte, lines)` for the notes of findings, in the order of the file."""
    found: dict[int, list[str]] = defaultdict(list)
    for one in findings:
        place: Segment | None = one.at
        if place is not None:
            found[place.at].append(f"attncal {one.id}: {' '.join(one.reason.split())} ({one.probability:.2f})")
    return sorted(found.items())
