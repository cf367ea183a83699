"""Measure `attncal check` on real documents: is a removed paragraph, item, row or cue found, and what is said of them
as they are?

    python experiments/documents.py --model MODEL --repos DIR --output results/check --part test

DIR holds clones of the repositories below, as `owner+name/repo`; documents are read from their commits. Only pairs of
documents are taken that have the same kinds of segments in the same order: what is left out there, we left out.
"""

import argparse
import hashlib
import json
import random
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hf_attncal.checking.checker import Checker
from hf_attncal.checking.documents.check_documents import check_documents
from hf_attncal.checking.documents.document_formats import format_of, read_document
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import write_json
from hf_attncal.metrics.records import record

FEWEST, MOST = 10, 500  # segments of a document
SEED = 1


class Remembering(Checker):
    """A checker that reads no pair twice: a document differs little from itself with one segment less."""

    def __init__(self, checker: Checker):
        super().__init__(checker.aligner, checker.model)
        self.known: dict = {}

    def stream(self, pairs, *, shared=None, window=1024):
        pairs = list(pairs)
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self.known]
        self.known |= zip(new, super().stream(new, shared=shared, window=window), strict=True)
        return (self.known[pair] for pair in pairs)


class Source(NamedTuple):
    """Documents of a project: where the translation is, where its source, and how many are taken for each part."""

    repo: str
    target: str  # regular expression of the path of the translation
    source: str  # template of the path of the source; "" for a bilingual file
    test: int
    dev: int


SOURCES = (
    Source("fastapi+fastapi", r"docs/de/docs/(.*)\.md", r"docs/en/docs/\1.md", 58, 20),
    Source("github+opensource.guide", r"_articles/de/(.*)\.md", r"_articles/\1.md", 7, 4),
    Source("tldr-pages+tldr", r"pages\.de/(.*)\.md", r"pages/\1.md", 14, 4),
    Source("3b1b+captions", r"(.*)/german/(?:community|auto_generated)\.srt", r"\1/english/captions.srt", 18, 6),
    Source("GNOME+gnome-user-docs", r"(.*)/de/de\.po", "", 1, 0),
    Source("GNOME+evince", r"help/de/de\.po", "", 1, 0),
    Source("neos+neos-development-collection", r".*/Resources/Private/Translations/de/.*\.xlf", "", 7, 3),
    Source("symfony+symfony", r"src/.*/(?:Form|Validator)/.*\.de\.xlf", "", 2, 0),
)


def git(repo: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, check=True).stdout


def documents(repos: Path, folder: Path, part: str) -> Iterator[tuple[str, str, Path, Path | None]]:
    """Write documents to a folder; yield project, name, source and target, of one project after the other in turn."""
    waiting = [of_project(repos, project, folder / str(number), part) for number, project in enumerate(SOURCES)]
    while waiting:
        for one in tuple(waiting):
            found = next(one, None)
            if found is None:
                waiting.remove(one)
            else:
                yield found


def of_project(repos: Path, project: Source, folder: Path, part: str) -> Iterator[tuple[str, str, Path, Path | None]]:
    """Yield as many documents of a project as are wanted; no target for a bilingual file."""
    repo = repos / project.repo / "repo"
    listed = git(repo, "ls-tree", "-r", "--name-only", "HEAD").decode().split("\n")
    found = single(repo, project, [name for name in listed if re.fullmatch(project.target, name)], folder, part)
    usable_ones = ((project.repo, *one) for one in found if usable(*one[1:]))
    yield from islice(usable_ones, project.test if part == "test" else project.dev)


def part_of(name: str) -> str:
    """Return the part of a document: two in three may be taken for the test."""
    return "dev" if hashlib.sha256(name.encode()).digest()[0] % 3 == 0 else "test"


def single(repo: Path, project: Source, names: list[str], folder: Path, part: str):
    random.Random(SEED).shuffle(names)
    folder.mkdir()
    for number, name in enumerate(names):
        if project.dev and part_of(name) != part:
            continue
        suffix = Path(name).suffix
        target = folder / f"{number}.de{suffix}"
        target.write_bytes(git(repo, "show", f"HEAD:{name}"))
        if not project.source:
            yield name, target, None
            continue
        source = folder / f"{number}.en{suffix}"
        try:
            source.write_bytes(git(repo, "show", f"HEAD:{re.sub(project.target, project.source, name)}"))
        except subprocess.CalledProcessError:
            continue
        yield name, source, target


def usable(source: Path, target: Path | None) -> bool:
    """Return whether a pair has the same structure on both sides, and is neither tiny nor huge."""
    try:
        read = [read_document(str(name), format_of(name)) for name in (source, target) if name is not None]
    except CommandError:
        return False
    if target is None:
        return FEWEST <= len(read[0].pairs) <= 1500 and sum(pair.target is not None for pair in read[0].pairs) > 0
    ours, theirs = (document.segments for document in read)
    if not FEWEST <= len(theirs) <= MOST or max(len(one.text.encode()) for one in (*ours, *theirs)) > 10_000:
        return False
    if ours[0].kind == "cue":
        return 0.8 < len(ours) / len(theirs) < 1.25 and theirs[-1].time[0] < ours[-1].time[1] + 5
    return [one.kind for one in ours] == [one.kind for one in theirs]


# ---- removing ----


def removable(target: Path) -> dict[str, list[tuple[int, int]]]:
    """Return for each kind the lines [first, after the last) of segments of at least four words."""
    data = target.read_text(encoding="utf-8-sig")
    lines = data.split("\n")
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    if target.suffix == ".md":
        from markdown_it import MarkdownIt

        tokens = MarkdownIt("commonmark").enable("table").parse(data)
        for place, token in enumerate(tokens):
            inline = tokens[place + 1] if place + 1 < len(tokens) else None
            if token.type == "paragraph_open" and token.level == 0 and _long(inline.content):
                found["paragraph"].append(tuple(token.map))
            elif token.type == "list_item_open":
                inside = tokens[place + 1 :]
                end = next(k for k, other in enumerate(inside) if other.type == "list_item_close" and
                           other.level == token.level)  # fmt: skip
                texts = [other for other in inside[:end] if other.type == "inline"]
                if len(texts) == 1 and _long(texts[0].content):
                    found["list item"].append(tuple(token.map))
            elif token.type == "tr_open" and tokens[place - 1].type != "thead_open":
                found["table row"].append(tuple(token.map))
    elif target.suffix == ".srt":
        begin = 0
        for number, line in enumerate([*lines, ""]):
            if not line.strip():
                if number > begin and _long(" ".join(lines[begin + 2 : number])):
                    found["cue"].append((begin, number + 1))
                begin = number + 1
    return found


def _long(text: str) -> bool:
    return len(re.findall(r"[^\W\d_]{2,}", text)) >= 4 and not text.startswith(("///", "{*", "<", "!["))


def removed_lines(target: Path, first: int, last: int) -> bytes:
    lines = target.read_bytes().split(b"\n")
    return b"\n".join([*lines[:first], *lines[last:]])


def removed_entry(file: Path, rng: random.Random) -> tuple[bytes, str]:
    """Return a bilingual file in which one translation is empty, and its source."""
    data = file.read_text(encoding="utf-8")
    pattern = (r'(?<=\n)msgid "(?P<source>.{30,})"\nmsgstr "(?P<text>.{20,})"\n(?=\n)' if file.suffix == ".po" else
               r"<source>(?P<source>[^<]{25,})</source>\s*<target[^>]*>(?P<text>[^<]{20,})</target>")  # fmt: skip
    matches = list(re.finditer(pattern, data))
    chosen = rng.choice(matches)
    return (data[: chosen.start("text")] + data[chosen.end("text") :]).encode(), chosen["source"]


# ---- measuring ----


def measure(checker: Checker, project: str, name: str, source: Path, target: Path | None) -> dict:
    """Check a document as it is, and with one segment of each kind removed."""
    rng = random.Random(f"{SEED} {name}")
    clean = check_documents(checker, str(source), target and str(target), Running())
    segments = clean.document.segments or clean.document.pairs
    told = {
        "project": project,
        "document": name,
        "segments": len(segments),
        "flagged": dict(Counter(one.kind for one in clean.findings)),
        "removed": {},
        "findings": [one.to_dict() for one in clean.findings],
    }
    copy = (target or source).with_name(f"removed-{(target or source).name}")
    if target is None:
        try:
            data, text = removed_entry(source, rng)
        except IndexError:
            return told
        copy.write_bytes(data)
        known = {one.id for one in clean.findings}
        found = check_documents(checker, str(copy), None, Running()).findings
        new = [one for one in found if one.id not in known]
        told["removed"]["entry"] = any(text[:20] in one.source.text or one.source.text[:20] in text for one in new)
        return told
    ours, theirs = (read_document(str(file), format_of(file)).segments for file in (source, target))
    for kind, places in removable(target).items():
        first, last = rng.choice(places)
        copy.write_bytes(removed_lines(target, first, last))
        gone = [number for number, one in enumerate(theirs) if first < one.line <= last]
        if not gone:
            continue
        if kind == "cue":
            begin, end = theirs[gone[0]].time
            right = {one.line for one in ours if min(one.time[1], end) - max(one.time[0], begin) > 0.3}
        else:
            right = {ours[number].line for number in gone}
        try:
            found = check_documents(checker, str(source), str(copy), Running()).findings
        except CommandError as error:
            told["removed"][kind] = str(error)
            continue
        known = {(one.kind, one.id) for one in clean.findings}
        new = [one for one in found if (one.kind, one.id) not in known and one.source is not None]
        whole = any(one.kind == "missing" and one.source.line in right for one in new)
        told["removed"][kind] = whole or (kind == "cue" and any(one.source.line in right for one in new))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--part", choices=("dev", "test"), default="test")
    parser.add_argument("--only", default="")
    parser.add_argument("--findings", type=Path, help="write all findings here, with their texts, to be read")
    arguments = parser.parse_args()
    checker = Remembering(Checker.from_pretrained(arguments.model, device="cpu"))
    commits = {project.repo: git(arguments.repos / project.repo / "repo", "rev-parse", "HEAD").decode().strip()
               for project in SOURCES}  # fmt: skip
    head = record({"part": arguments.part, "seed": SEED, "commits": commits})
    name = "documents.json" if arguments.part == "test" else f"documents_{arguments.part}.json"
    measured: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for project, document, *files in documents(arguments.repos, Path(folder), arguments.part):
            if arguments.only not in f"{project} {document}":
                continue
            try:
                measured.append(measure(checker, project, document, *files))
            except CommandError as error:
                refused = {"project": project, "document": document, "segments": 0, "flagged": {}, "removed": {}}
                measured.append(refused | {"refused": str(error).replace(folder, "")})
            one = measured[-1]
            findings = one.pop("findings", ())
            if arguments.findings:
                with arguments.findings.open("a") as file:
                    for finding in findings:
                        file.write(json.dumps({"document": document, **finding}, ensure_ascii=False) + "\n")
            print(one, flush=True)
            # Whole after each document: a run may be stopped.
            write_json({**head, **totals(measured), "each": measured}, arguments.output / name)
    print(json.dumps(totals(measured), indent=1))


def totals(measured: list[dict]) -> dict:
    """Return shares over all documents: of removed segments that are found, and of segments with a false alarm.

    Whatever is said of a document as it is counts as a false alarm, but for entries of a bilingual file that have no
    translation.
    """
    segments = sum(one["segments"] for one in measured)
    removed = [(kind, found is True) for one in measured for kind, found in one["removed"].items()]
    bilingual = {project.repo for project in SOURCES if not project.source}
    alarms: Counter = Counter()
    for one in measured:
        counts = Counter(one["flagged"])
        if one["project"] in bilingual:
            counts.pop("missing", None)
        alarms.update(counts)
    by_kind = {
        kind: {"removed": sum(k == kind for k, _ in removed), "found": sum(found for k, found in removed if k == kind)}
        for kind in sorted({kind for kind, _ in removed})
    }
    return {
        "documents": len(measured),
        "refused": sum("refused" in one for one in measured),
        "segments": segments,
        "removed": len(removed),
        "found": sum(found for _, found in removed) / max(1, len(removed)),
        "found_by_kind": by_kind,
        "false_alarms": sum(alarms.values()) / max(1, segments),
        "whole_segment_alarms": (alarms["missing"] + alarms["added"]) / max(1, segments),
        "alarms_by_kind": dict(sorted(alarms.items())),
    }


if __name__ == "__main__":
    main()
