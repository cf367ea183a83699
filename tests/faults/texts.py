"""Text that is not as a command takes it: in another encoding, empty, or with words that can be parted in two ways.

Another encoding and a NUL are named, with the line. Nothing in gives nothing out where lines are transformed, and is
refused where something is learned or scored. Links that count words in another way than the reader does are read
rightly, or refused.
"""

import gzip
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from fuzz import Answer, here, make_models
from inputs import refused, survived
from outcomes import Outcome
from rules import words_of

ENCODINGS, EMPTY, PARTED = "text in another encoding", "no text at all", "links of words parted otherwise"
SEED = int(os.environ.get("ATTNCAL_FAULTS_SEED", "0"))

HEAD = b"source\ttarget\tcount\tp(target|source)\tp(source|target)\n"
CHECKED = b"line\twrong\tleft_out\tmade_up\trepeats\tdetached\tchanged\tflagged\tnames\n"

# ---- encodings ----

# What reads text, and where. `ALIGNER` counts, `MODEL` translates.
READ = """
align run ALIGNER --source WIDE --target text
align run ALIGNER --source text --target WIDE
align run ALIGNER --source WIDE
align run MODEL --source text --target WIDE
align quick --source WIDE --target text
align quick --source text --target text --with-source WIDE --with-target text
align lexicon --source WIDE --target text --links links
align lexicon --source text --target WIDE --links links
align lexicon --source text --target text --links WIDE
align lexicon --source text --target WIDE --links ALIGNER
align project --source text --target text --links links --tags WIDE
align project --source text --target text --links links --spans WIDE
align project --source WIDE --target text --links links --markup
align compare links WIDE --source text --target text
align compare links other --source WIDE --target text
score WIDE links
score links WIDE
score links links --source text --target WIDE
rouge WIDE text
rouge text WIDE
rouge text text --references WIDE
translate MODEL --source WIDE
summarize MODEL --source WIDE
check ALIGNER --source text --target WIDE
check ALIGNER --clean-source WIDE --clean-target text
analyze MODEL --source WIDE --target text --report new
analyze MODEL --source text --target text --gold WIDE --report new
align select MODEL --source WIDE --target text --gold links --output folder
align select MODEL --source text --target text --gold WIDE --output folder
align calibrate ALIGNER --source text --target text --gold WIDE --output folder
train --source WIDE --target text --output new
train --source text --target WIDE --output new
train --source text --target text2 --links WIDE --output new
train --config WIDE --source text --target text2 --output new
align train --source text --target WIDE --output new
align train --source text --target text2 --dev WIDE text links --output new
adapt MODEL --source text --target WIDE --output new
""".strip().split("\n")
WORDS = ("a man", "ein Hund", "schöne Grüße", "привет мир", "一个 人", "नमस्ते", "😀 ok", "„ja“ – nein")


def wide_texts(rng: random.Random) -> dict[str, tuple[bytes, str]]:
    """Texts in other encodings: what they are -> their bytes, and what an error must say of them."""
    text = "".join(f"{' '.join(rng.choices(WORDS, k=rng.randint(2, 4)))}\n" for _ in range(2))
    found: dict[str, tuple[bytes, str]] = {}
    for size, end in product((16, 32), ("LE", "BE", "")):
        name = f"UTF-{size}{end}"
        found[name] = text.encode(name), rf"is {name}, not UTF-8.*`iconv -f {name} -t UTF-8`"
    found["Latin-1"] = "schön\nGrüße\n".encode("latin1"), r"line 1 of .* is not UTF-8 \(byte 4\).*iconv"
    space = rng.choice(["\0", " \0 ", "\0\0 "])
    found["a NUL"] = f"a{space}b\nc d\n".encode(), "line 1 of .* has a NUL"
    return found


def encodings(models: dict[str, str], seed: int, some: Sequence[str]) -> Iterator[Outcome]:
    """Every place where a command reads text, with text that is no UTF-8."""
    for what, (data, told) in wide_texts(random.Random(seed)).items():
        for name, content in {"WIDE": data, "WIDE.gz": gzip.compress(data)}.items():
            Path(name).write_bytes(content)
        for line in some:
            gz = "WIDE.gz" if seed % 2 and "--config" not in line else "WIDE"
            answer = here([models.get(word, gz if word == "WIDE" else word) for word in line.split()])
            answer = Answer(answer.status, answer.out.removeprefix(CHECKED), answer.err)  # a head is no answer
            yield Outcome(ENCODINGS, f"{what} ({seed}): {line}", *refused(answer, told))


# ---- nothing ----

# Of each command what it gives for files of nothing, or why it gives none; None for commands that read no text.
NOTHING: dict[str, dict[str, bytes | str] | None] = {
    "align run": {
        "ALIGNER": b"",
        "ALIGNER --source empty": b"",
        "ALIGNER --source empty --target empty": b"",
        "ALIGNER --source empty --target empty --format json --scores": b"",
        "ALIGNER --source blank": b"\n",
        "MODEL --source empty --target empty": b"",
        "ALIGNER --source empty.gz": "damaged|incomplete",
    },
    "align quick": {
        "": b"",
        "--source empty": b"",
        "--source empty --target empty": b"",
        "--source empty --target empty --with-source text --with-target text2": b"",
        "--source blank": b"\n",
        "--source empty.xz": "damaged|incomplete",
    },
    "align lexicon": {
        "--source empty --target empty --links empty": HEAD,
        "--source empty --target empty --links empty --format json": b"",
        "--source empty --target empty --links ALIGNER": HEAD,
        "--source blank --target blank --links blank": HEAD,
    },
    "align project": {
        "--source empty --target empty --links empty --tags empty": b"",
        "--source empty --target empty --links empty --spans empty": b"",
        "--source empty --target empty --links empty --markup": b"",
        "--source empty --target empty --links ALIGNER --markup": b"",
        "--source blank --target blank --links blank --tags blank": b"\n",
    },
    "translate": {"MODEL": b"", "MODEL --source empty": b"", "MODEL --source empty --format json": b""}
    | {"MODEL --source blank": b"\n", "MODEL --source empty.gz": "damaged|incomplete"},
    "summarize": {"MODEL": b"", "MODEL --source empty": b"", "MODEL --source blank": b"\n"},
    "check": {
        "ALIGNER --source empty --target empty": CHECKED,
        "ALIGNER --source empty --target empty --format json": b"",
        "ALIGNER --source empty --target empty --format marked": b"",
        "ALIGNER --source empty --target empty --format kept": b"",
        "ALIGNER --source empty --target empty --worst 3": CHECKED,
        "ALIGNER --source empty --target empty --format summary": "no|empty|nothing",
        "ALIGNER --clean-source empty --clean-target empty": "50 or more",
    },
    "align compare": {"empty empty2 --source empty --target empty": "is empty"},
    "score": {"empty empty": "is empty", "links empty": "is empty"},
    "rouge": {"empty empty": "is empty", "text empty": "is empty"},
    "analyze": {"MODEL --source empty --target empty --report new": "is empty"},
    "align select": {"MODEL --source empty --target empty --gold empty --output folder": "is empty"},
    "align calibrate": {"ALIGNER --source empty --target empty --gold empty --output folder": "is empty"},
    "train": {"--source empty --target text --output new": "is empty"},
    "align train": {"--source empty --target text --output new": "is empty"},
    "align tune": {"MODEL --source empty --target text --output new": "is empty|is of type|BERT|encoder"},
    "adapt": {"MODEL --source empty --target text --output new": "is empty"},
    "data": None,
    "demo": None,
    "export": None,
    "import": None,
    "publish": None,
    "show": None,
}


def nothing(models: dict[str, str]) -> Iterator[Outcome]:
    """Every command, with files of nothing and of an empty line."""
    for command, lines in NOTHING.items():
        for line, right in (lines or {}).items():
            answer = here([models.get(word, word) for word in f"{command} {line}".split()])
            judged = refused(answer, right) if isinstance(right, str) else survived(answer, right)
            yield Outcome(EMPTY, f"{command} {line}", *judged)


# ---- words ----

SPACES = "\u00a0\u1680\u2000\u2002\u2003\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\x85\x1c\x1d\x1e\x1f"
HOW = ("white-space", "spaces")


def parted(text: str, words: str) -> list[str]:
    """The words of a line, by the rules."""
    return words_of(text) if words == HOW[0] else [word for word in text.replace("\t", " ").split(" ") if word]


def linked_text(rng: random.Random, words: str) -> tuple[list[str], list[str], list[str]]:
    """Two texts with white space of any kind, and links of words that are parted so."""
    space = rng.choice(SPACES)
    sides: tuple[list[str], list[str]] = ([], [])
    links = []
    for number in range(rng.choice([1, 2, 3, 12])):
        lines = []
        for side in sides:
            pieces = rng.choices("abcdefgh", k=rng.randint(1, 5))
            gaps = [rng.choice([" ", " ", space]) for _ in pieces[1:]]
            lines.append("".join(piece + gap for piece, gap in zip(pieces, [*gaps, ""], strict=True)) + str(number))
            side.append(lines[-1])
        source, target = (len(parted(line, words)) for line in lines)
        cells = sorted(product(range(source), range(target)))
        links.append(" ".join(f"{i}-{j}" for i, j in sorted(rng.sample(cells, rng.randint(0, min(4, len(cells)))))))
    return *sides, links


def lexicon_of(source: Sequence[str], target: Sequence[str], links: Sequence[str], words: str) -> Counter:
    """The lexicon by its definition: how often two words are linked."""
    found: Counter[tuple[str, str]] = Counter()
    for sides, line in zip(zip(source, target, strict=True), links, strict=True):
        first, second = (parted(side, words) for side in sides)
        for link in line.split():
            i, j = map(int, link.split("-"))
            found[first[i], second[j]] += 1
    return found


def words_parted(seed: int) -> Iterator[Outcome]:
    """Links without a word of what parts words; links with a record; and links that we write."""
    rng = random.Random(seed)
    words = HOW[seed % 2]
    source, target, links = linked_text(rng, words)
    for name, lines in {"s": source, "t": target, "l": links}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    lexicon = ["align", "lexicon", "--source", "s", "--target", "t", "--links"]
    right = lexicon_of(source, target, links, words)
    Path("l.words").unlink(missing_ok=True)
    told = here([*lexicon, "l"])
    judged = refused(told, "into l.words") if told.status else _same(told, right)
    yield Outcome(PARTED, f"words_parted({seed}), lexicon", *judged)
    Path("l.words").write_text(words)
    yield Outcome(PARTED, f"words_parted({seed}), lexicon with a record", *_same(here([*lexicon, "l"]), right))
    made = here(["align", "quick", "--source", "s", "--target", "t", "--words", words, "--output", "made"])
    lines = Path("made").read_text().split("\n")[:-1] if made.status == 0 else []
    right = lexicon_of(source, target, lines, words) if len(lines) == len(source) else Counter()
    yield Outcome(PARTED, f"words_parted({seed}), lexicon of quick", *_same(here([*lexicon, "made"]), right))


def _same(answer: Answer, right: Counter) -> tuple:
    rows = [line.split("\t")[:3] for line in answer.out.decode().split("\n")[1:-1]]
    found = Counter({(source, target): int(count) for source, target, count in rows})
    return survived(answer, answer.out if found == right else b"another lexicon")


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """All places, commands and separators; without `full` some of each."""
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        models = prepared(folder)
        outcomes = list(nothing(models))
        for seed in range(4) if full else (0,):
            outcomes += encodings(models, SEED + seed, READ if full else READ[SEED % 9 :: 9])
        for seed in range(300 if full else 12):
            outcomes += words_parted(1000 * SEED + seed)
    finally:
        os.chdir(before)
    return outcomes


def prepared(folder: Path) -> dict[str, str]:
    """Write texts, and the models that `READ` and `NOTHING` name."""
    files = {"text": "a b\nc d\n", "text2": "e f\ng h\n", "links": "0-0\n1-1\n", "other": "0-0 1-1\n1-1\n"}
    for name, content in files.items():
        Path(name).write_text(content)
    for name in ("empty", "empty2", "empty.gz", "empty.xz"):
        Path(name).write_bytes(b"")
    Path("blank").write_text("\n")
    Path("folder").mkdir()
    rng = random.Random(1)
    lines = [" ".join(rng.choices("abcdefgh", k=rng.randint(3, 7))) for _ in range(300)]
    Path("clean.a").write_text("".join(f"{line}\n" for line in lines))
    Path("clean.b").write_text("".join(f"{line.upper()}\n" for line in lines))
    text = ["--source", "clean.a", "--target", "clean.b"]
    for line in (
        ["align", "train", "--config", "hmm", *text, "--output", "hmm", "-q"],
        ["check", "hmm", "--clean-source", "clean.a", "--clean-target", "clean.b"],
    ):
        done = here(line)
        assert done.status == 0, done.err
    return {"ALIGNER": "hmm", "MODEL": make_models(folder / "models").translator}
