"""Inputs and settings that look whole and are not: each is refused by a line that names it, or answered rightly.

Compressed files that are empty, cut, damaged or have something behind them; settings with a key twice or sizes of 0;
a link with two scores; an output that is open already; and as few sentences as make no interval.
"""

import bz2
import gzip
import json
import lzma
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import commands
from fuzz import Answer, here, wrong_ending
from outcomes import Outcome, Result

COMPRESSED, SETTINGS, LINKS = "damaged compressed files", "settings twice or of 0", "a link with two scores"
APPENDED, FEW = "an output that is appended to", "scores of one sentence"
Judged = tuple[Result, str]


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """All of them; without `full`, those that need no process of their own and of the cut files some."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = [*_compressed(folder, 12 if full else 3), *_settings(folder), *_two_scores(folder), *_few(folder)]
    return outcomes + (_appended(folder) if full else [])


def refused(answer: Answer, told: str) -> Judged:
    """The answer to what must be refused by one line that has `told`, a regular expression, in it."""
    return _failed(answer) or _judged(answer, "refused", wrong_ending(told, answer) or answer.out.decode())


def survived(answer: Answer, right: bytes) -> Judged:
    """The answer where it must be `right`."""
    other = "" if answer.out == right else f"{answer.out[:200]!r}"
    return _failed(answer) or _judged(answer, "survived", wrong_ending(None, answer) or other)


def _failed(answer: Answer) -> Judged | None:
    return ("hung", "") if answer.status is None else ("traceback", answer.err) if "Traceback" in answer.err else None


def _judged(answer: Answer, good: Result, wrong: str) -> Judged:
    return (good, "") if not wrong else ("lost" if answer.status else "wrong", wrong)


# ---- compressed files ----


def _zst(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def damages(first: bytes, second: bytes, cuts: int, draw: random.Random) -> Iterator[tuple[str, bytes, bool]]:
    """What can become of a file of two parts (streams, members, frames): (what, content, it is whole)."""
    both = first + second
    flipped = bytearray(both)
    flipped[len(first) + len(second) // 2] ^= 1 << draw.randrange(8)
    yield "two parts", both, True
    yield "0 bytes", b"", False
    yield "a part damaged behind a whole one", bytes(flipped), False
    for what, garbage in {"text": b"1-1\n", "another format": bz2.compress(b"1-1\n"), "half a mark": both[:3]}.items():
        yield f"{what} behind it", both + garbage, False
    for part, start, length in (("first", 0, len(first)), ("second", len(first), len(second))):
        for size in sorted(draw.sample(range(start + 1, start + length), cuts)):
            yield f"cut after {size} bytes, in its {part} part", both[:size], False


def _compressed(folder: Path, cuts: int) -> Iterator[Outcome]:
    lines = "".join(f"{n % 7}-{n % 5} {n % 3}-{n % 11}\n" for n in range(200)).encode()
    (folder / "gold").write_bytes(lines)
    score = partial(_scored, str(folder / "gold"))
    right = score(folder / "gold").out
    draw = random.Random(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")))
    for suffix, pack in {".gz": gzip.compress, ".xz": lzma.compress, ".zst": _zst}.items():
        path = folder / f"links{suffix}"
        for what, content, whole in damages(pack(lines[:600]), pack(lines[600:]), cuts, draw):
            path.write_bytes(content)
            answer = score(path)
            named = answer.out.replace(str(path).encode(), str(folder / "gold").encode())
            judged = survived(Answer(answer.status, named, answer.err), right) if whole else refused(answer, path.name)
            yield Outcome(COMPRESSED, f"{path.name}: {what}", *judged)


def _scored(gold: str, links: Path) -> Answer:
    return here(["score", gold, str(links), "--format", "json", "--bootstrap", "0"])


# ---- settings ----

# What is given, and what the error must name.
WRONG = {
    "model={d_model: 16, d_model: 32}": "`d_model` is given twice",
    "training={seed: 1, bf16: false, seed: 2}": "`seed` is given twice",
    "model.d_model=0": "`model.d_model`",
    "model.ffn_dim=0": "`model.ffn_dim`",
    "model.attention_heads=0": "`model.attention_heads`",
    "model.encoder_layers=0": "`model.encoder_layers`",
    "model.decoder_layers=0": "`model.decoder_layers`",
    "model.max_position_embeddings=0": "`model.max_position_embeddings`",
    "tokenizer.vocab_size=0": "`tokenizer.vocab_size`",
    "training.tokens_per_batch=0": "`training.tokens_per_batch`",
}
FILES = {
    "a key twice": ("model:\n  d_model: 16\nmodel:\n  d_model: 32\n", "`model` is given twice, in lines 1 and 3"),
    "a key twice within": ("model:\n  d_model: 16\n  d_model: 32\n", "`d_model` is given twice, in lines 2 and 3"),
    "a size of 0": ("model: {d_model: 0}\n", "`model.d_model`"),
}


def _settings(folder: Path) -> Iterator[Outcome]:
    for side in ("source", "target"):
        (folder / side).write_text(f"the {side}\n" * 9)
    command = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--output", str(folder / "run")]
    for name in ("train", "align train"):
        sizes = (
            {"model.ffn_dim=0", "model.attention_heads=0"} if name == "train" else set()
        )  # it has one for each side
        for given, told in WRONG.items():
            if given not in sizes:
                yield _not_trained(folder, f"{name} {given}", [*name.split(), *command, given], told)
    for what, (content, told) in FILES.items():
        (folder / "settings.yaml").write_text(f"{content}job: translation\n")
        config = ["train", *command, "--config", str(folder / "settings.yaml")]
        yield _not_trained(folder, f"train --config with {what}", config, told)


def _not_trained(folder: Path, case: str, command: Sequence[str], told: str) -> Outcome:
    judged = refused(here(command), told)
    if judged[0] == "refused" and any((folder / "run").rglob("*.safetensors")):
        judged = "wrong", "a model was saved"
    return Outcome(SETTINGS, case, *judged)


# ---- links ----


def _two_scores(folder: Path) -> Iterator[Outcome]:
    files = {"source": "a b\nc\n", "target": "d\ne f\n", "tags": "X Y\nZ\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    path = folder / "scored"
    text = ["--source", str(folder / "source"), "--target", str(folder / "target"), "--links", str(path)]
    for action in (["lexicon"], ["project", "--tags", str(folder / "tags")]):
        command = ["align", action[0], *text, *action[1:]]
        path.write_text("0-0:0.5\n0-0 0-1\n")
        right = here(command).out
        for line, told in {
            "0-0:0.5 0-0:0.5": None,
            "0-0:0.5 0-0:0.9": f"line 1 of {path}: the link 0-0 is given twice",
            "0-0:0.5 0-0": f"line 1 of {path}: the link 0-0 is given twice",
        }.items():
            path.write_text(f"{line}\n0-0 0-1\n")
            answer = here(command)
            judged = survived(answer, right) if told is None else refused(answer, told)
            yield Outcome(LINKS, f"align {action[0]}: {line}", *judged)


# ---- outputs, and few sentences ----


def _appended(folder: Path) -> list[Outcome]:
    place = commands.prepare(folder / "place")
    cases: dict[str, tuple[Callable[..., list[str]], Path]] = {
        "align run": (place.align_run, place.pairs),
        "translate": (place.translate, place.folder / "train.en"),
    }
    outcomes = []
    for name, (command, source) in cases.items():
        right = commands.finish(command("--source", str(source)))
        path = folder / "appended"
        path.write_text("kept\n")
        with path.open("a") as file:
            done = commands.finish(command("--source", str(source), "--output", "/dev/stdout"), stdout=file)
        # What is said of the text is said of it there, too.
        written = Answer(done.returncode, path.read_bytes(), done.stderr.replace(right.stderr, "", 1))
        judged = survived(written, f"kept\n{right.stdout}".encode())
        outcomes.append(Outcome(APPENDED, f"{name} --output /dev/stdout", *judged))
    return outcomes


def _few(folder: Path) -> Iterator[Outcome]:
    """No interval, no p and no winner of one sentence."""
    for name, text in {
        "first": "0-0 1-1\n",
        "second": "0-0\n",
        "summary": "a cat sat\n",
        "other": "the cat\n",
    }.items():
        (folder / name).write_text(text)
    for command, gold, other, names in (
        ("score", "first", "second", ("interval", "p_value", "better_than_first")),
        ("rouge", "summary", "other", ("intervals",)),
    ):
        answer = here([command, *(str(folder / name) for name in (gold, gold, other)), "--format", "json"])
        judged = _failed(answer) or _judged(
            answer, "survived", wrong_ending(None, answer) or told_of_one(answer, names)
        )
        yield Outcome(FEW, command, *judged)


def told_of_one(answer: Answer, names: Sequence[str]) -> str:
    """What the JSON of one sentence says that nobody can know; "" if nothing."""
    rows = json.loads(answer.out)["scores"]
    rows += [one for row in rows for one in (row.get("above_first") or {}).values()]
    return str({name: row[name] for row in rows for name in (*names, "interval") if row.get(name) is not None} or "")
