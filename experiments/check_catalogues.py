"""Measure `attncal check` on catalogues of real software: faults planted into them, and findings on them unchanged.

    python experiments/check_catalogues.py --catalogues DIR --half choose --quick --languages de
    python experiments/check_catalogues.py --catalogues DIR --data ROOT --encoder FOLDER --half report --output OUT

DIR/LANGUAGE/PROJECT.po are the catalogues that catalogues.py writes. They are read for measuring only. One half of the
projects is for choosing, and the other one is reported. German is checked by `ende`, and other languages by the
encoder in FOLDER. ROOT has the clean lines.

- `planted`: one entry in ten of a file has one fault. It is found if the check has a finding on this entry.
- `untouched`: findings on the files as they are. `--to-read` writes a sample of them. `--read` reads that table, with
  1 (true) or 0 (false) in its first column, and adds the share to the result in OUT; nothing else is measured.
- `fifty`: files of fifty entries, as they are and with a single fault.
- `lines`: share of the clean lines of each domain that `deen` and `ende` flag.

The package learns from none of these faults, and shares no code with the ones that it does learn from.
"""

import argparse
import csv
import json
import random
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.sax.saxutils import escape

import polib
import yaml

import hf_attncal
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.checking.checker import Checker
from hf_attncal.checking.documents.check_documents import DocumentCheck
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import open_to_read, write_json
from hf_attncal.io.streams import json_line
from hf_attncal.metrics.records import record

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
SEED = 58
PROJECTS = (*TABLE["choose"], *TABLE["report"])
PARTS = ("planted", "untouched", "fifty", "lines")
ENTRIES, FEWER, QUICK = 400, 250, 150  # entries of a German file, of another file, and of a file with --quick
RARE = 15  # entries of a file that are taken for each rare kind
DRAWS, SHARE = 4, 0.1  # share of the entries that have a fault
LINES, SMALL, TO_READ = 1000, 50, 100


# ---- catalogues ----


class Entry(NamedTuple):
    """An entry with its translations: one, or one for each plural form."""

    source: str
    targets: tuple[str, ...]
    plural: str = ""
    context: str | None = None


def catalogue(file: Path, most: int, with_plurals: bool) -> list[Entry]:
    """Read a sample of the entries of a file, in its order, with some that can have a rare fault."""
    entries = [
        Entry(one.msgid, tuple(one.msgstr_plural.values()) or (one.msgstr,), one.msgid_plural, one.msgctxt)
        for one in polib.pofile(str(file))
        if (with_plurals or not one.msgid_plural) and any(map(str.isalpha, one.msgid))
    ]
    rng = random.Random(f"{SEED} {file.stem}")
    numbers = rng.sample(range(len(entries)), len(entries))
    places = [Place(one, one, file.parent.name, rng) for one in entries]
    chosen: list[int] = []
    for is_rare in (lambda place: place.entry.plural, date_or_unit_changed, number_changed):
        chosen += [number for number in numbers if is_rare(places[number])][:RARE]
    return [entries[number] for number in sorted(list(dict.fromkeys([*chosen, *numbers]))[:most])]


def written(entries: list[Entry], name: Path, language: str) -> tuple[list[str], list[int]]:
    """Write entries in the format of a file name; return the names of the files and the first line of each entry."""
    texts = [(one.source, one.targets[0]) for one in entries]
    if name.suffix == ".json":
        files = {code: name.with_name(f"{name.stem}.{code}.json") for code in ("en", language)}
        for side, file in enumerate(files.values()):
            tree: dict[str, dict[str, str]] = defaultdict(dict)
            for number, pair in enumerate(texts):
                tree[f"page{number // 10}"][f"text{number}"] = pair[side]
            file.write_text(json.dumps(tree, ensure_ascii=False, indent=1), encoding="utf-8")
        lines = enumerate(file.read_text(encoding="utf-8").split("\n"), start=1)
        return list(map(str, files.values())), [number for number, line in lines if line.startswith('  "')]
    quoted = escape if name.suffix == ".xlf" else lambda text: text.replace('"', '""')
    head, piece, end = TABLE["formats"][name.suffix]
    head = head.format(language=language, forms="n > 1" if language == "fr" else "n != 1")
    pieces = []
    for number, one in enumerate(entries):
        pieces.append(piece.format(number, quoted(one.source), quoted(one.targets[0])))
        if name.suffix == ".po":
            forms = {"msgid_plural": one.plural, "msgstr_plural": dict(enumerate(one.targets))}
            content = forms if one.plural else {"msgstr": one.targets[0]}
            pieces[-1] = f"{polib.POEntry(msgid=one.source, msgctxt=one.context, **content)}\n"
    name.write_text("".join([head, *pieces, end]), encoding="utf-8")
    begins = [1 + head.count("\n")]
    for piece in pieces:
        begins.append(begins[-1] + piece.count("\n"))
    return [str(name)], begins[:-1]


# ---- faults ----

PATTERNS = {name: re.compile(pattern) for name, pattern in TABLE["patterns"].items()}


class Place(NamedTuple):
    """An entry, a different entry of its file, the language of the translations and a source of chance."""

    entry: Entry
    other: Entry
    language: str
    rng: random.Random

    @property
    def target(self) -> str:
        return self.entry.targets[0]


def words(text: str) -> list[str]:
    return [word.lower() for word in PATTERNS["word"].findall(text)]


def replaced(text: str, begin: int, end: int, new: str = "") -> str:
    """Replace characters; a text whose begin is lost begins with a capital letter if it did before."""
    rest = text[end:]
    if begin == 0 and not new and text[:1].isupper():
        rest = rest.lstrip()[:1].upper() + rest.lstrip()[1:]
    return text[:begin] + new + rest


def number_changed(place: Place) -> str | None:
    numbers = [
        one
        for one in PATTERNS["number"].finditer(place.target)
        if one[0] in PATTERNS["number"].findall(place.entry.source)
    ]
    if not numbers:
        return None
    one = place.rng.choice(numbers)
    digit = one.start() + place.rng.randrange(len(one[0]))
    new = place.rng.choice([new for new in "123456789" if new != place.target[digit]])
    return replaced(place.target, digit, digit + 1, new)


def date_or_unit_changed(place: Place) -> str | None:
    """Change a date, a time, or a unit after a number or a placeholder."""
    changes = [
        (one.start(one.lastgroup), one.end(one.lastgroup), f"{int(one[one.lastgroup]) % 27 + 1:02d}")
        for one in PATTERNS["date"].finditer(place.target)
        if one[0] in place.entry.source
    ]
    for row in TABLE["units"]:
        names = row[place.language].split()
        for number, (english, name) in enumerate(zip(row["en"].split(), names, strict=True)):
            before = r"(?:\d|%\w+|[)}]s?)[\W_]?"
            if re.search(rf"{before}{english}s?\b", place.entry.source):
                new = names[(number + place.rng.randrange(1, len(names))) % len(names)]
                found = re.finditer(rf"{before}({name})(?:e?[nsm]|e)?\b", place.target)
                changes += [(*one.span(1), new) for one in found]
    return replaced(place.target, *place.rng.choice(changes)) if changes else None


def placeholder_changed(place: Place) -> str | None:
    """Lose a placeholder, or change its name or its type."""
    in_source = PATTERNS["placeholder"].findall(place.entry.source)
    ones = [one for one in PATTERNS["placeholder"].finditer(place.target) if one[0] in in_source]
    if not ones:
        return None
    one = place.rng.choice(ones)
    name, way = re.search(r"[a-zA-Z_]{3,}", one[0]), place.rng.random()
    if name and way < 0.5:
        return replaced(place.target, *one.span(), one[0].replace(name[0], name[0][:-1], 1))
    if one[0][-1] in "sd" and way < 0.5:
        return replaced(place.target, one.end() - 1, one.end(), "sd".replace(one[0][-1], ""))
    return replaced(place.target, one.start() - (place.target[one.start() - 1 : one.start()] == " "), one.end())


def negations(text: str, language: str) -> list[tuple[int, int, str]]:
    return [
        (*one.span(), one.expand(left))
        for pattern, left in TABLE["negations"][language].items()
        for one in re.finditer(pattern, text, re.IGNORECASE)
    ]


def negation_dropped(place: Place) -> str | None:
    """Drop the only negation of the translation."""
    found = negations(place.target, place.language)
    if len(found) != 1 or not PATTERNS["denial"].search(place.entry.source) or len(words(place.target)) < 3:
        return None
    return replaced(place.target, *found[0])


def untranslated_copy(place: Place) -> str | None:
    source = place.entry.source
    return source if len(words(source)) >= 3 and PATTERNS["function word"].search(source) else None


def another_entry(place: Place) -> str | None:
    ours, theirs = set(words(place.entry.source)), set(words(place.other.source))
    is_other = min(len(ours), len(theirs)) >= 5 and len(ours & theirs) <= 0.25 * len(ours | theirs)
    return place.other.targets[0] if is_other else None


def another_short_entry(place: Place) -> str | None:
    """Take the translation of another entry of one to four words, without a word in common."""
    if not all(len(one.source.split()) <= 4 and words(one.source) for one in place[:2]):
        return None
    ours, theirs = ({*words(one.source), *words(one.targets[0])} for one in place[:2])
    return None if ours & theirs else place.other.targets[0]


def cut_at_half(place: Place) -> str | None:
    ends = [one.end() for one in re.finditer(r"\S+", place.target)]
    return place.target[: ends[len(ends) // 2 - 1]] if len(ends) >= 8 else None


def sentence_added(place: Place) -> str | None:
    """Add the translation of another entry, without numbers and placeholders."""
    new, end = place.other.targets[0].strip(), len(place.target.rstrip())
    if len(words(place.target)) < 4 or not 5 <= len(words(new)) <= 25 or re.search(r"[\d%{<]", new):
        return None
    stop = "" if place.target[end - 1] in ".!?:" else "."
    return f"{place.target[:end]}{stop} {new}{place.target[end:]}"


def clause_left_out(place: Place) -> str | None:
    """Leave out three to five adjacent words, from or to a comma where there is one."""
    text, ones = place.target, list(re.finditer(r"\S+", place.target))
    denials, windows = negations(text, place.language), []
    for first in range(1, len(ones) - 4 if len(ones) >= 9 else 0):
        for last in range(first + 2, min(first + 5, len(ones) - 1)):
            begin, end = ones[first].start(), ones[last].end()
            is_plain = not re.search(r'[\d\n"<>=%{}()«»„“”]', text[begin:end])
            in_denial = any(begin < one[1] and one[0] < end for one in denials)
            if is_plain and not in_denial and sum(len(word) > 3 for word in words(text[begin:end])) >= 2:
                windows.append((text[: begin - 1].endswith(",") + text[:end].endswith(","), begin, end))
    if not windows:
        return None
    _, begin, end = place.rng.choice([one for one in windows if one[0] == max(windows)[0]])
    return text[:begin] + text[end:].lstrip()


def wrong_plural_form(place: Place) -> tuple[str, ...] | None:
    """Leave a plural form empty or untranslated, or take the one of another entry."""
    entry, other = place.entry, place.other
    if not (entry.plural and other.plural) or len(entry.targets) < 2:
        return None
    form = place.rng.randrange(2)
    new = place.rng.choice(("", (entry.source, entry.plural)[form], other.targets[min(form, len(other.targets) - 1)]))
    return (*entry.targets[:form], new, *entry.targets[form + 1 :])


FAULTS: tuple[Callable[[Place], str | tuple[str, ...] | None], ...] = (
    *(number_changed, placeholder_changed, negation_dropped, untranslated_copy, another_entry, cut_at_half),
    *(sentence_added, clause_left_out, date_or_unit_changed, wrong_plural_form, another_short_entry),
)
KINDS = {fault.__name__.replace("_", " "): fault for fault in FAULTS}
SINGLE_FAULTS = tuple(KINDS)[:8]
Changed = tuple[int, Entry]  # number of an entry in its file, and the entry with a fault


def possible_faults(entries: list[Entry], language: str, kinds: list[str], rng) -> dict[str, list[Changed]]:
    """Return the entries with each kind of fault, in random order."""
    possible: dict[str, list[Changed]] = {kind: [] for kind in kinds}
    for number, entry in enumerate(entries):
        others = [other for other in rng.sample(entries, min(30, len(entries))) if other != entry]
        for kind in kinds:
            if bool(entry.plural) == (kind == "wrong plural form"):
                new = next(filter(None, (KINDS[kind](Place(entry, one, language, rng)) for one in others)), None)
                targets = (new,) if isinstance(new, str) else new
                if targets and targets != entry.targets:
                    possible[kind].append((number, entry._replace(targets=targets)))
    for changed in possible.values():
        rng.shuffle(changed)
    return possible


def draws(possible: dict[str, list[Changed]], most: int, number: int) -> Iterator[dict[int, tuple[str, Entry]]]:
    """Yield the changed entries of each draw with their kinds, the rare kinds first; none is drawn twice.

    Also of the entries that can have a fault of a kind, most stay right.
    """
    left = {kind: list(changed) for kind, changed in sorted(possible.items(), key=lambda item: len(item[1]))}
    rounds = [kind for turn in range(most) for kind in left if turn < max(2, SHARE * len(possible[kind]))]
    for _ in range(number):
        drawn: dict[int, tuple[str, Entry]] = {}
        for kind in rounds:
            place = next((place for place, (line, _) in enumerate(left[kind]) if line not in drawn), None)
            if place is not None and len(drawn) < most:
                line, entry = left[kind].pop(place)
                drawn[line] = kind, entry
        yield drawn


# ---- measuring ----


class Measurement:
    """Counts over all files, and the texts to read."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.checker = Checker.from_pretrained("ende", device="cpu")
        self.encoder = options.encoder and EncoderPrior.from_pretrained(options.encoder, adapted=False)
        self.counts: dict[str, Counter] = defaultdict(Counter)
        self.refused: Counter = Counter()
        self.files: dict[str, Path] = {}
        self.to_read: list[tuple] = []
        self.planted: list[dict] = []

    def findings(self, entries: list[Entry], project: str, language: str) -> dict[int, list] | None:
        """Check entries in a file; return the findings of each entry. None if the file is refused."""
        with TemporaryDirectory() as folder:
            names, begins = written(entries, Path(folder, project + TABLE["suffixes"].get(project, ".po")), language)
            try:
                model, encoder = (self.checker, None) if language == "de" else (None, self.encoder)
                result = hf_attncal.check(model, *names, encoder=encoder)
            except CommandError as error:
                result = str(error).replace(folder, "")
        if not isinstance(result, DocumentCheck):
            self.refused[f"{language} {project}: {result if isinstance(result, str) else 'read as lines'}"] += 1
            return None
        findings = defaultdict(list)
        for one in result.findings:
            findings[bisect_right(begins, (one.source or one.target).line) - 1].append(one)
        return findings

    def file(self, project: str, language: str) -> None:
        """Measure all parts on one file."""
        options, rng = self.options, random.Random(f"{SEED} {language} {project}")
        most = QUICK if options.quick else ENTRIES if language == "de" else FEWER
        name = options.catalogues / language / f"{project}.po"
        self.files[f"{language}/{name.name}"] = name
        entries = catalogue(name, most, project not in TABLE["suffixes"])
        possible = possible_faults(entries, language, options.kinds, rng)
        if "untouched" in options.parts:
            self.count_untouched(entries, project, language)
        if "planted" in options.parts:
            for drawn in draws(possible, int(SHARE * len(entries)), 1 if options.quick else DRAWS):
                self.count_planted(entries, drawn, project, language)
        if "fifty" in options.parts:
            self.count_fifty(entries, possible, project, language, rng)

    def count_untouched(self, entries: list[Entry], project: str, language: str) -> None:
        findings, counts = self.findings(entries, project, language), self.counts[f"{language} {project}"]
        counts["segments"] += 0 if findings is None else len(entries)
        for number, finding in ((number, one) for number, ones in (findings or {}).items() for one in ones):
            counts.update(["findings", f"as {finding.kind}"])
            probability = round(finding.probability, 4)
            sides = (entries[number].source, " | ".join(entries[number].targets))
            self.to_read.append(("", language, project, number, probability, finding.kind, finding.reason, *sides))

    def count_planted(self, entries: list[Entry], drawn: dict, project: str, language: str) -> None:
        changed = [drawn[number][1] if number in drawn else one for number, one in enumerate(entries)]
        findings = self.findings(changed, project, language) or {}
        for number, (kind, entry) in drawn.items():
            ones = [f"{one.kind} {one.probability:.3f} {one.reason}" for one in findings.get(number, ())]
            self.counts[kind].update([language, f"{language} found"] if ones else [language])
            texts = {"source": entry.source, "right": entries[number].targets, "planted": entry.targets}
            self.planted.append({"kind": kind, "file": f"{language} {project}", **texts, "findings": ones})

    def count_fifty(self, entries: list[Entry], possible: dict, project: str, language: str, rng) -> None:
        """Count single faults of each kind in a file of fifty entries, and the findings on it without a fault."""
        faults = {kind: possible[kind][0] for kind in SINGLE_FAULTS if possible.get(kind)}
        others = rng.sample(range(len(entries)), len(entries))
        kept = sorted(list(dict.fromkeys([*(number for number, _ in faults.values()), *others]))[:SMALL])
        findings = self.findings([entries[number] for number in kept], project, language)
        if findings is None:
            return
        sure = {f"above 0.9: {one.kind}" for ones in findings.values() for one in ones if one.probability > 0.9}
        self.counts["fifty"].update(["files", *sure, *["files with a finding above 0.9"] * bool(sure)])
        for kind, (number, new) in faults.items():
            changed = [new if other == number else entries[other] for other in kept]
            found = self.findings(changed, project, language) or {}
            self.counts["fifty"].update(["faults", "found" if kept.index(number) in found else f"missed: {kind}"])

    def result(self) -> dict:
        """Return all counts and shares."""
        kinds = {}
        for kind in (kind for kind in KINDS if kind in self.counts):
            counts = self.counts[kind]
            languages = {name: (counts[f"{name} found"], counts[name]) for name in counts if " " not in name}
            found, planted = map(sum, zip(*languages.values(), strict=True))
            kinds[kind] = {"planted": planted, "found": found, "recall": found / planted, "found_of": languages}
        files = {name: dict(counts) for name, counts in self.counts.items() if "segments" in counts}
        segments, findings = (sum(one.get(key, 0) for one in files.values()) for key in ("segments", "findings"))
        result = {"segments": segments, "findings": findings, "findings_in_100": 100 * findings / max(1, segments)}
        return result | {"kinds": kinds, "fifty": self.counts["fifty"], "files": files, "refused": self.refused}


def clean_pairs(root: Path, domain: dict) -> list[tuple[str, str]]:
    """Return German and English lines of a domain."""

    def lines(name: str) -> list[str]:
        with open_to_read(root / name) as file:
            return file.read().decode("utf-8").splitlines()

    if "table" in domain:
        rows = [line.split("\t") for line in lines(domain["table"])]
        pairs = [(row[domain["de"]], row[domain["en"]]) for row in rows if row[domain["mark"]] == domain["right"]]
    else:
        sides = ([line for name in domain[code] for line in lines(name)] for code in ("de", "en"))
        pairs = list(zip(*sides, strict=True))
    return random.Random(SEED).sample(pairs, min(LINES, len(pairs)))


def flagged_lines(root: Path, quick: bool) -> dict[str, dict]:
    """Return the share of the clean lines of each domain that `deen` and `ende` flag."""
    flagged: dict[str, dict] = {}
    for name, domain in TABLE["domains"].items():
        german, english = zip(*clean_pairs(root, domain)[: LINES // 5 if quick else None], strict=True)
        shares = {}
        for model, texts in (("deen", (german, english)), ("ende", (english, german))):
            verdicts = hf_attncal.check(model, *map(list, texts))
            shares[model] = sum(bool(one.flagged) for one in verdicts) / len(german)
        flagged[name] = {"lines": len(german), **shares, "share": sum(shares.values()) / len(shares)}
    return flagged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogues", type=Path, required=True)
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--encoder", help="folder of the encoder; without it, only German is checked")
    for name, text in (
        ("--data", "folder of the clean lines; without it they are not checked"),
        ("--output", "folder for catalogues.json"),
        ("--to-read", f"table for {TO_READ} of the findings on the untouched files"),
        ("--read", "such a table with 1 (true) or 0 (false) in its first column"),
        ("--texts", "file for the planted faults and what is found, of the choose half"),
    ):
        parser.add_argument(name, type=Path, help=text)
    languages = tuple(TABLE["negations"])
    for name, values in (("kinds", tuple(KINDS)), ("parts", PARTS), ("languages", languages), ("projects", PROJECTS)):
        parser.add_argument(f"--{name}", nargs="+", choices=values, default=values)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} entries a file, in one draw")
    options = parser.parse_args()
    if options.texts and options.half == "report":
        parser.error("--texts is for the half to choose on: nobody looks at the texts of the other one.")
    if options.read:
        file = options.output / "catalogues.json"
        with options.read.open(encoding="utf-8", newline="") as table:
            marks = [row[0] for row in csv.reader(table, delimiter="\t") if row[0] in ("0", "1")]
        read = {"read": len(marks), "true_of_read": marks.count("1") / len(marks)}
        write_json(json.loads(file.read_text(encoding="utf-8")) | read, file)
        return
    measurement = Measurement(options)
    for project, languages in TABLE[options.half].items():
        for language in (one for one in languages if one in options.languages and (one == "de" or options.encoder)):
            if project in options.projects:
                measurement.file(project, language)
    result = measurement.result()
    if options.data and "lines" in options.parts:
        result["lines"] = flagged_lines(options.data, options.quick)
    if options.to_read:
        sample = random.Random(SEED).sample(measurement.to_read, min(TO_READ, len(measurement.to_read)))
        head = ("true", "language", "project", "entry", "probability", "kind", "reason", "source", "target")
        with options.to_read.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t").writerows([head, *sample])
    if options.texts:
        options.texts.write_text("".join(f"{json_line(one)}\n" for one in measurement.planted), encoding="utf-8")
    if options.output:
        metadata = record({"half": options.half, "seed": SEED}, measurement.files)
        write_json(metadata | result, options.output / "catalogues.json")
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
