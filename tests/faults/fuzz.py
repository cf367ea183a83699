"""Hostile lines for `attncal align run`, `attncal translate` and `attncal score`, and wrong values of their options.

Every line has one right answer, or an error that names it; what it is follows from the bytes alone (`rules.py`), and
for links and translations also from the answer that the line gets in a file without the others, in a batch of its own.
Most files go through the command in this process, some through a process with pipes and another encoding.
"""

import gzip
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from outcomes import Outcome
from rules import (
    BOM,
    LONGEST_LINKS,
    Links,
    links_of_lines,
    pair_of,
    readable_lines,
    scores,
    words_of,
)
from warm import warm

LINES = 1000  # of each command
FIRST = 100_000 * int(os.environ.get("ATTNCAL_FAULTS_SEED", "0"))  # of the numbers that cases are drawn by
SECONDS = 120  # that one file may take
LONGEST = 1500  # bytes of a line: --longest-line
POSITIONS = 24  # of the tiny models
ALIGN, TRANSLATE, SCORE = (f"fuzzed lines of {name}" for name in ("align run", "translate", "score"))
OPTIONS = "wrong values of options"
CUT = re.compile(r"^attncal: warning: of \d+ of \d+ lines of .* only the beginning was translated: .*\n")

# ---- lines ----

WORDS = ["the", "old", "house", "is", "a", "das", "alte", "Haus", "ist", "ein"]
# What ends lines or words elsewhere, is invisible, joins what is beside it, or means something to a model or a file.
PIECES = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r", "\r\r", "\t", "\x00", "\x1b[2J"]
PIECES += [
    "\x08",
    "\x7f",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u200d",
    "\ufffe",
    "\ufffd",
    "\U0010ffff",
]
PIECES += ["😀", "👩‍👩‍👧‍👦", "e\u0301\u0327", "\u0301", "ﬁ", "שלום", "مرحبا", "\u202eabc", "\u202c", "東京", "가"]
PIECES += ["ǅ", "İ", "ß", "٣", "３", "²", "½"]
PIECES += ["<s>", "</s>", "<pad>", "<unk>", "▁", "▁▁", "&quot;", "||", "||||", "|", "%s", "{}", "\\n"]
PIECES += ["-1", "99999999999999999999", "0-0", "1e999", "nan", "--help", "'", '"', "`"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"\x80"]
BROKEN += [b"\xf4\x90\x80\x80"]
BLANK = [b"", b" ", b"\t", b"\r", b"\r\r", " \u3000\u00a0".encode(), "\u2028".encode(), b"\x0c", b"\x1f"]
LINKS = ["0-0", "1-0", "0-1", "1-1", "12-3", "007-1", "3-2", "999999999-0", "2-4", "4-4"]
POSSIBLE = ["2p1", "0?1", "1p2", "3?3", "0p0"]
SCORED = ["0-0:0.5", "1-1:-1e-3", "3-2:.5", "1-2:1.", "2-2:+7E+2", "1-3:0"]
NO_LINKS = ["0-", "-0", "-1-0", "1--2", "0_0-1", "a", "1:2", "0-0:", "0-0:.", "0-0:1e", "٣-٤", "１-２", "²-1", "1–2"]
NO_LINKS += [
    "1-2-3",
    "1234567890-0",
    "0-18446744073709551616",
    "0p0:1",
    "\ufeff",
    "0-0\u200b",
    "+1-2",
    "1.0-2",
    "0x1-2",
]
NO_LINKS += ["1-2,", "0-0:٣", "0-0:nan", "0-0:inf", "0-0:0.5:1", "|||", "1P2", "1-\x002", "1p-2", "-", "p"]
NO_LINKS += ["1pp2", "0-" + "9" * 5000]


def fuzzed_text(rng: random.Random) -> bytes:
    """Words among what is no word, to be read or not."""
    match rng.randrange(12):
        case 0:
            return rng.choice(BLANK)
        case 1 | 2 | 3:
            return " ".join(rng.choices(WORDS, k=rng.randint(1, 8))).encode()
        case 4:
            return "".join(map(chr, rng.choices([*range(10), *range(11, 0xD800)], k=rng.randint(1, 12)))).encode()
        case 5:
            return " ".join(rng.choice(WORDS + PIECES) * rng.randint(1, 40) for _ in range(2)).encode()
        case _:
            gap = rng.choice(["", " "])
            return gap.join(rng.choices(WORDS + PIECES, k=rng.randint(1, 9))).encode()


def unreadable(rng: random.Random, text: bytes) -> bytes:
    """A line with bytes that are no UTF-8, or about as long as a line may be, some over."""
    match rng.randrange(3):
        case 0:
            at = rng.randrange(len(text) + 1)
            return text[:at] + rng.choice(BROKEN) + text[at:]
        case 1:
            return bytes(rng.choices([*range(10), *range(11, 256)], k=rng.randint(1, 60)))
        case _:
            piece = rng.choice([b"x", "é".encode(), b"a ", "東".encode()])
            size = LONGEST + rng.choice([-3, -2, -1, 0, 0, 1, 2, 3, 4, 5, 6, 9000, 70_000])
            return (text + b" " + piece * size)[:size]


def fuzzed_pair(rng: random.Random, wrong: float) -> bytes:
    """A line `source ||| target`, or one that is none with the probability `wrong`."""
    sides = [fuzzed_text(rng), fuzzed_text(rng)]
    if rng.random() >= wrong:
        return rng.choice([b" ||| ", b" ||| ", b"\t|||\t", "\u3000|||\u2028".encode()]).join(sides)
    match rng.randrange(4):
        case 0:
            return rng.choice([b"|||", b" || ", b" |||", b""]).join(sides)
        case 1:
            return b" ||| ".join([*sides, rng.choice([b"", b"|||", sides[0]])])
        case _:
            return unreadable(rng, b" ||| ".join(sides))


def fuzzed_links(rng: random.Random, tokens: Sequence[str]) -> bytes:
    """A line of links, or of what looks like some."""
    line = rng.choice([" ", "\t", " \u3000"]).join(rng.choices(tokens, k=rng.randint(0, 5))).encode()
    match rng.randrange(24):
        case 0 | 1:
            at = rng.randrange(len(line) + 1)
            return line[:at] + rng.choice([*BROKEN, *(piece.encode() for piece in PIECES)]) + line[at:]
        case 2 | 3:
            return line + b" " + fuzzed_text(rng)
        case 4 | 5:
            return b" ".join([line] * rng.randint(1, 400))
        case 6:
            return (b"1-1 " * (LONGEST_LINKS // 4 + 1))[: LONGEST_LINKS + rng.randint(-3, 5)]
        case _:
            return line


def file_of(rng: random.Random, lines: Sequence[bytes]) -> bytes:
    """The lines with either line end, the last with none at times, and at times a byte-order mark before them."""
    ends = rng.choices([b"\n", b"\n", b"\n", b"\r\n"], k=len(lines))
    data = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    return BOM * (rng.random() < 0.2) + (data[:-1] if rng.random() < 0.2 else data)


# ---- the command ----


@dataclass(frozen=True)
class Answer:
    """What a command left: status (None where it did not end), standard output or its file, standard error."""

    status: int | None
    out: bytes
    err: str


class _OutOfTime(BaseException):
    """No `Exception`: the command makes an error for the user of any of those."""


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*_):
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def here(arguments: Sequence[str], stdin: bytes = b"") -> Answer:
    """`attncal` in this process."""
    from hf_attncal.commands import main

    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    status: int | None = None
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with redirect_stdout(out), redirect_stderr(err), _limited(SECONDS):
            status = main(list(arguments))
    except SystemExit as stopped:
        status = stopped.code
    except _OutOfTime:
        pass
    except BaseException:
        status = 1
        traceback.print_exc(file=err)
    finally:
        sys.stdin = before
    out.flush()
    return Answer(status, out.buffer.getvalue(), err.getvalue())


def process(arguments: Sequence[str], stdin: bytes = b"", **environment: str) -> Answer:
    """`attncal` as a process with pipes."""
    fixed = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    fixed |= {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "hf_attncal.commands", *arguments]
    command = command if "LC_ALL" in environment else warm(command)  # Python reads that when it starts
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=SECONDS, env=os.environ | fixed | environment
        )
    except subprocess.TimeoutExpired:
        return Answer(None, b"", "")
    return Answer(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


# Environments of processes: in the last two, standard streams have another encoding than the lines.
ENCODINGS = [{}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}]

# ---- what is right ----

Item = tuple[str, str] | str


@dataclass(frozen=True)
class Case:
    """A file for a command, and what the rules say about it.

    Attributes:
        kind: of its outcomes.
        name: with which it can be made again.
        command: arguments, without those of the files.
        items: the pairs or lines before the first that is wrong: each gets one line.
        told: what the error must say (a regular expression); None where nothing is wrong.
        stdin: standard input.
        files: arguments that name files.
        output: the file in which the answer is; None for standard output.
        process: environment of the process that runs it; None to run it in this one.
    """

    kind: str
    name: str
    command: tuple[str, ...]
    items: list[Item]
    told: str | None
    stdin: bytes = b""
    files: tuple[str, ...] = ()
    output: Path | None = None
    process: dict[str, str] | None = field(default=None, compare=False)

    def answer(self) -> Answer:
        """What the command makes of the file."""
        arguments = [*self.command, *self.files]
        found = here(arguments, self.stdin) if self.process is None else process(arguments, self.stdin, **self.process)
        if self.output is None:
            return found
        # After an error the file has no name, but what was complete is kept.
        path = self.output if found.status == 0 else Path(f"{self.output}.partial")
        return Answer(found.status, found.out + (path.read_bytes() if path.exists() else b""), found.err)


def judge(case: Case, answer: Answer, problem: Callable[[Item, str], str]) -> list[Outcome]:
    """One outcome for each line of a file, up to the first that is wrong.

    Args:
        case: the file.
        answer: of the command.
        problem: what is wrong with the line that was written for an item; "" if nothing is.
    """
    failed = "hung" if answer.status is None else "traceback" if "Traceback" in answer.err else None
    bad = failed or ("wrong" if answer.status == 0 else "lost")
    *written, rest = answer.out.split(b"\n")
    details = []
    for number, item in enumerate(case.items):
        if number >= len(written):
            details.append("no line was written")
        else:
            try:
                details.append(problem(item, written[number].decode()))
            except (ValueError, LookupError, TypeError) as error:  # no UTF-8, no JSON, other fields
                details.append(f"{written[number][:100]!r}: {error!r}")
    ending = wrong_ending(case.told, answer)
    if len(written) > len(case.items) or rest:
        ending = f"{len(written) - len(case.items)} lines too many were written, and {rest[:50]!r}"
    right = ["survived"] * len(details)
    if case.told is not None:
        details.append(ending)
        right.append("refused")
    elif ending and details:
        details[-1] = ending
    return [
        Outcome(case.kind, f"{case.name}, line {number}", bad if failed or detail else good, detail)
        for number, (good, detail) in enumerate(zip(right, details, strict=True), start=1)
    ]


def wrong_ending(told: str | None, answer: Answer) -> str:
    """What is wrong with status and standard error, but for what tells which lines were cut; "" if nothing is."""
    err = CUT.sub("", answer.err, count=1)
    if told is None:
        return "" if (answer.status, err) == (0, "") else f"status {answer.status}: {answer.err[:300]}"
    right = answer.status == 1 and err.startswith("attncal: error: ") and re.search(told, err)
    one = err.endswith("\n") and err.count("\n") == 1
    return "" if right and one else f"status {answer.status}, not `{told}`: {answer.err[:300]}"


def problem_of_links(options: Sequence[str], pair: tuple[str, str], line: str, alone: str | None) -> str:
    """What is wrong with a line of `align run`: its form, an index of no word, or not what it gets alone."""
    source, target = (len(words_of(side)) for side in pair)
    if "json" in options:
        found = json.loads(line)
        links, nulls = [tuple(link) for link in found["links"]], (found["source_null"], found["target_null"])
    else:
        text, *columns = line.split("\t")
        tokens = text.split(" ") if text else []
        form = r"(\d+)-(\d+)" + (r":([01]\.\d{4})" if "--scores" in options else "")
        matches = [re.fullmatch(form, token, re.ASCII) for token in tokens]
        if None in matches or len(columns) != 2 * ("--null" in options):
            return f"{line[:100]!r} is not of this format"
        links = [(int(match[1]), int(match[2])) for match in matches]
        nulls = [column.split(" ") if column else [] for column in columns] or (None, None)
    if links != sorted(set(links)) or not all(i < source and j < target for i, j in links):
        return f"{line[:100]!r} are no links of {source} and {target} words"
    if nulls[0] is not None and [len(null) for null in nulls] != [source, target]:
        return f"{line[:100]!r} has not one NULL probability for each of {source} and {target} words"
    return "" if line == alone else f"{line[:100]!r}, but alone {alone and alone[:100]!r}"


def problem_of_translation(options: Sequence[str], text: str, line: str, alone: str | None) -> str:
    """What is wrong with a line of `translate`: its form, text for a blank line, or not what the line gets alone."""
    translation, score = line, None
    if "json" in options:
        found = json.loads(line)
        translation, score = found["translation"], found["score"]
        source, target = len(words_of(text)), len(words_of(translation))
        if found["source"] != text or len(found["tokens"]) != len(found["token_scores"]):
            return f"{line[:100]!r} has another source, or not one score for each token"
        if not all(i < source and j < target for i, j in found["alignment"]["links"]):
            return f"{line[:100]!r} has links that are none of {source} and {target} words"
    elif "--scores" in options:
        score, tab, translation = line.partition("\t")
        if not tab or not re.fullmatch(r"(-?\d+\.\d{4})?", score, re.ASCII):
            return f"{line[:100]!r} is not of this format"
    if not words_of(text) and (translation or score):
        return f"{line[:100]!r} for a blank line"
    return "" if line == alone else f"{line[:100]!r}, but alone {alone and alone[:100]!r}"


def answers_alone(command: Sequence[str], items: set[Item], folder: Path) -> dict[Item, str]:
    """The answer to each line among none that is wrong, in another order, and in batches of one."""
    ordered = sorted(items)
    # Pairs from two files, where the separator is a word; lines from standard input.
    columns = list(zip(*ordered, strict=True)) if command[0] == "align" else [ordered]
    # CRLF, as a line may end in a CR of its own; an empty line first, as a line may begin with a byte-order mark.
    data = [b"".join(text.encode() + b"\r\n" for text in ["", *column]) for column in columns]
    files = []
    if command[0] == "align":
        for option, content in zip(("--source", "--target"), data, strict=True):
            path = folder / f"alone{option}"
            path.write_bytes(content)
            files += [option, str(path)]
    answer = here([*command, "--batch-size", "1", *files], data[0])
    lines = answer.out.decode().split("\n")[1:-1]
    return dict(zip(ordered, lines, strict=True)) if answer.status == 0 and len(lines) == len(ordered) else {}


# ---- align run, translate ----


@dataclass(frozen=True)
class Models:
    """Folders of tiny random models, in float64: no link or word hangs on the last digit of a sum."""

    mask_align: str
    translator: str
    tokens: Callable[[str], int]  # of a text, for the translator


def make_models(folder: Path) -> Models:
    """Save them."""
    import torch
    from transformers import AutoTokenizer, MarianConfig, MarianMTModel

    from hf_attncal.data.tokenizer import train_bpe_tokenizer
    from hf_attncal.models.configuration_mask_align import MaskAlignConfig
    from hf_attncal.models.modeling_mask_align import MaskAlignModel

    tokenizer = train_bpe_tokenizer([" ".join(WORDS)] * 3, vocab_size=60)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS, "pad_token_id": pad}
    sizes |= {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    ids = {"eos_token_id": eos, "bos_token_id": eos, "decoder_start_token_id": pad, "forced_eos_token_id": None}
    models = {
        "mask_align": MaskAlignModel(MaskAlignConfig(**sizes, attention_heads=2, ffn_dim=16)),
        "translator": MarianMTModel(MarianConfig(**sizes, **heads, **ids)),
    }
    generator = torch.Generator().manual_seed(5)
    for name, model in models.items():
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:  # norms and biases as they are: else every line has the same answer
                    parameter.normal_(generator=generator)
        model.double().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    loaded = AutoTokenizer.from_pretrained(folder / "translator")
    return Models(*(str(folder / name) for name in models), lambda text: len(loaded(text, verbose=False)["input_ids"]))


def _up_to(items: Sequence[Item], wrong: Callable[[Item], bool]) -> int:
    """The index of the first that is wrong, or their number."""
    return next((index for index, item in enumerate(items) if wrong(item)), len(items))


def align_case(seed: int, models: Models, folder: Path, environment: dict[str, str] | None = None) -> Case:
    """A file of fuzzed pairs, or two files."""
    rng = random.Random(seed)
    wrong = rng.choice([0.0, 0.03, 0.1, 0.3])
    model = rng.choice([models.mask_align, models.mask_align, models.translator])
    options = rng.choice([[], ["--scores"], ["--null"], ["--format", "json"]] if model == models.mask_align else [[]])
    command = ["align", "run", model, "--device", "cpu", "--longest-line", str(LONGEST), *options]
    batches = ["--batch-size", rng.choice(["1", "2", "256"])]
    folder = folder / f"align{seed}"
    folder.mkdir()
    size, way = rng.randint(1, 40), rng.choice(["-", "-", "one file", "two files"])
    stdin, files = b"", ()
    if way == "two files":
        sides = [[fuzzed_text(rng) for _ in range(size + (rng.random() < 0.1))] for _ in range(2)]
        sides = [[unreadable(rng, line) if rng.random() < wrong / 2 else line for line in side] for side in sides]
        data = [file_of(rng, side) for side in sides]
        names = [_written(folder / name, content, rng) for name, content in zip(("s", "t"), data, strict=True)]
        read = [readable_lines(content, LONGEST) for content in data]
        texts = list(zip(*(lines for lines, _ in read), strict=False))
        items = [tuple(" ".join(words_of(side)) for side in pair) for pair in texts]
        told = _told_of_two(names, read)
        files = ("--source", names[0], "--target", names[1])
    else:
        data = file_of(rng, [fuzzed_pair(rng, wrong) for _ in range(size)])
        texts, unread = readable_lines(data, LONGEST)
        number = _up_to(texts, lambda text: pair_of(text) is None)
        items = [pair_of(text) for text in texts[:number]]
        told = None if number == len(texts) and unread is None else rf" line {number + 1} "
        if way == "one file":
            files = ("--source", _written(folder / "pairs", data, rng))
        else:
            stdin = data
    if model == models.translator:
        number = _up_to(items, lambda pair: all(pair) and max(map(models.tokens, pair)) > POSITIONS)
        if number < len(items):
            items, told = items[:number], rf" line {number + 1} "
    output = folder / "links" if rng.random() < 0.25 else None
    files += () if output is None else ("--output", str(output))
    name = f"align_case({seed})"
    return Case(ALIGN, name, tuple(command), items, told, stdin, (*batches, *files), output, environment)


def _told_of_two(names: Sequence[str], read: Sequence[tuple[list[str], int | None]]) -> str | None:
    """What must be said of two files: the first line that is wrong in either, or that one has more lines."""
    (first, first_wrong), (second, second_wrong) = read
    if first_wrong is None and second_wrong is None:
        numbers = rf"{re.escape(names[0])} has {len(first)} lines and .* has {len(second)},"
        return None if len(first) == len(second) else numbers
    number = min(wrong for wrong in (first_wrong, second_wrong) if wrong is not None)
    wrong = [re.escape(name) for name, (_, line) in zip(names, read, strict=True) if line == number]
    return rf" line {number} of ({'|'.join(wrong)}) "


def _written(path: Path, data: bytes, rng: random.Random) -> str:
    """The path of a file, compressed at times."""
    compressed = rng.random() < 0.2
    path = path.with_name(path.name + ".gz" * compressed)
    path.write_bytes(gzip.compress(data) if compressed else data)
    return str(path)


def translate_case(seed: int, models: Models, folder: Path, environment: dict[str, str] | None = None) -> Case:
    """Fuzzed lines on standard input, or in a file."""
    rng, form = random.Random(seed), random.Random(f"form {seed}")
    wrong, cut = rng.choice([0.0, 0.05, 0.15, 0.3]), rng.random() < 0.4
    lines = [fuzzed_text(rng) for _ in range(rng.randint(1, 40))]
    data = file_of(rng, [unreadable(rng, line) if rng.random() < wrong else line for line in lines])
    command = ["translate", models.translator, "--device", "cpu", "--longest-line", str(LONGEST)]
    command += ["--beams", rng.choice("12"), "max_new_tokens=5", *["--too-long", "truncate"] * cut]
    command += form.choice([[], [], ["--scores"], ["--format", "json", "--aligner", models.mask_align]])
    texts, unread = readable_lines(data, LONGEST, cut)
    number = _up_to(texts, lambda text: not cut and bool(words_of(text)) and models.tokens(text) > POSITIONS)
    folder, files, output, called = folder / f"translate{seed}", (), None, "the input"
    folder.mkdir()
    if form.random() < 0.3:
        called = _written(folder / "lines", data, form)
        files, data = ("--source", called), b""
    if form.random() < 0.3:
        output = folder / "translations"
        files += ("--output", str(output))
    told = None if number == len(texts) and unread is None else rf" line {number + 1} of {re.escape(called)} "
    batches = ("--batch-size", rng.choice(["1", "2", "32"]))
    name = f"translate_case({seed})"
    return Case(
        TRANSLATE, name, tuple(command), texts[:number], told, data, (*batches, *files), output, process=environment
    )


def run_cases(
    draw: Callable[..., Case], problem: Callable, models: Models, folder: Path, lines: int, processes: int
) -> list[Outcome]:
    """Files until so many lines have been judged, the first of them in processes.

    Args:
        draw: `align_case` or `translate_case`.
        problem: what is wrong with a line: (arguments of the command, item, line, the line that it gets alone).
        models: of `draw`.
        folder: for the files.
        lines: how many.
        processes: how many files go through a process.
    """
    answered: list[tuple[Case, Answer]] = []
    tried = number = 0
    while tried < lines:
        environment = ENCODINGS[number % len(ENCODINGS)] if number < processes else None
        case = draw(FIRST + number, models, folder, environment)
        answered.append((case, case.answer()))
        tried += len(case.items) + (case.told is not None)
        number += 1
    items: dict[tuple[str, ...], set[Item]] = {}
    for case, _ in answered:
        items.setdefault(case.command, set()).update(case.items)
    alone = {command: answers_alone(command, known, folder) for command, known in items.items()}
    outcomes = []
    for case, answer in answered:
        known = alone[case.command]
        outcomes += judge(
            case, answer, lambda item, line, case=case, known=known: problem(case.command, item, line, known.get(item))
        )
    return outcomes[:lines]


# ---- score ----


def score_outcome(seed: int, folder: Path, environment: dict[str, str] | None = None) -> Outcome:
    """One fuzzed line of one of two files of links, scored."""
    rng = random.Random(seed)
    size, allowed = rng.randint(0, 6), (LINKS + POSSIBLE, LINKS + SCORED)
    sides = [[" ".join(rng.choices(tokens, k=rng.randint(0, 6))).encode() for _ in range(size)] for tokens in allowed]
    fuzzed = rng.randrange(2)
    hostile = rng.choice([*[allowed[fuzzed]] * 5, allowed[1 - fuzzed], [*LINKS * 5, *NO_LINKS], NO_LINKS])
    for side, lines in enumerate(sides):
        line = fuzzed_links(rng, hostile) if side == fuzzed else b"1-1 2-1"
        lines.insert(rng.randint(0, size), line)
    if rng.random() < 0.05:
        sides[fuzzed].append(b"1-1")
    data = [file_of(rng, lines) for lines in sides]
    paths = [folder / f"{seed}.{name}" for name in ("gold", "links")]
    names = [_written(path, content, rng) for path, content in zip(paths, data, strict=True)]
    options = ["--bootstrap", "0", "--format", "json", "-q"]  # so few lines do not tell where words begin to count
    ignored = rng.random() < 0.2
    options += ["--ignore-possible"] * ignored
    stdin = b""
    if rng.random() < 0.2:
        names[1], stdin = "-", data[1]
    arguments = ["score", *names, *options]
    answer = here(arguments, stdin) if environment is None else process(arguments, stdin, **environment)
    for path in folder.glob(f"{seed}.*"):
        path.unlink()
    result, detail = judge_score(data, names, answer, ignored=ignored)
    return Outcome(SCORE, f"score_outcome({seed})", result, detail)


def judge_score(data: Sequence[bytes], names: Sequence[str], answer: Answer, *, ignored: bool) -> tuple[str, str]:
    """The result and the detail of an outcome.

    Args:
        data: gold alignment and hypothesis.
        names: their names.
        answer: of the command, in JSON, without bootstrap.
        ignored: --ignore-possible.
    """
    if answer.status is None:
        return "hung", ""
    if "Traceback" in answer.err:
        return "traceback", answer.err[-300:]
    bad = "wrong" if answer.status == 0 else "lost"
    files = []
    for content, name, gold in zip(data, names, (True, False), strict=True):
        read, told = _links_or_error(content, gold, "standard input" if name == "-" else name)
        if told is not None:
            detail = wrong_ending(told, answer) or answer.out[:100].decode()
            return (bad, detail) if detail else ("refused", "")
        files.append(read)
    if len(files[0]) != len(files[1]):
        detail = wrong_ending(rf"has {len(files[0])} lines and .* has {len(files[1])}\b", answer)
        return (bad, detail) if detail else ("refused", "")
    gold, proposed = files
    if ignored:
        gold = [(sure, sure) for sure, _ in gold]
    if detail := wrong_ending(None, answer):
        return bad, detail
    (row,) = json.loads(answer.out)["scores"]
    expected = scores(gold, proposed)
    different = {name: (row[name], value) for name, value in expected.items() if abs(row[name] - value) > 1e-12}
    return (bad, f"found and expected: {different}") if different else ("survived", "")


def _links_or_error(content: bytes, gold: bool, name: str) -> tuple[list[Links], str | None]:
    """The links of a file, or what its error must say."""
    texts, unread = readable_lines(content, LONGEST_LINKS)
    if unread is not None:
        return [], rf" line {unread} of {re.escape(name)} "
    if not any(map(words_of, texts)):
        return [], rf"{re.escape(name)} is empty"
    links = links_of_lines(texts, gold)
    if isinstance(links, int):
        return [], rf"{re.escape(name)}: line {links}: "
    return links, None


# ---- options ----

BAD_VALUES = {
    ("align", "run", "no/model"): {
        "--format": ["", "xml", "pharaoh\n", "JSON", "\udcff"],
        "--longest-line": ["", "0", "-1", "1.5", "1e3", "1\n2", "9" * 30, "9" * 5000, "nan", "\x00", "²"],
        "--symmetrize": ["", "both", "union ", "Union", "grow\ndiag"],
        "--threshold": ["", "-0.1", "1.1", "nan", "inf", "x"],
        "--batch-size": ["0", "-1", "18446744073709551616"],
        "--threads": ["0", "-1", "100000", "1.5"],
    },
    ("translate", "no/model"): {
        "--longest-line": ["", "0", "-5", "x", "2147483648"],
        "--beams": ["0", "1.0", "\n"],
        "length_penalty": ["", "x", "nan", "inf", "-inf", "1e300", "-1e300"],
        "--too-long": ["", "cut", "error\n"],
        "--threads": ["", "100000", "9" * 30],
    },
    ("score", "no gold", "no links"): {
        "--format": ["", "pharaoh", "text\n"],
        "--metric": ["", "AER", "rouge\n"],
        "--bootstrap": ["-1", "", "1.5"],
    },
}


def option_outcomes() -> list[Outcome]:
    """One for each of `BAD_VALUES`: it is told before anything is read or loaded."""
    return [
        judge_option(command, option, value, here([*command, f"{option}={value}"]))
        for command, options in BAD_VALUES.items()
        for option, values in options.items()
        for value in values
    ]


def judge_option(command: Sequence[str], option: str, value: str, answer: Answer) -> Outcome:
    """There must be one line, which names the option."""
    _, _, error = answer.err.partition(": error: ")
    right = re.search(rf"{option}\b", error) and error.count("\n") == 1
    case, detail = f"{' '.join(command)} {option}={value[:50]!r}", f"status {answer.status}: {answer.err[-300:]}"
    if answer.status in (1, 2) and right and not answer.out:
        return Outcome(OPTIONS, case, "refused")
    failed = "hung" if answer.status is None else "traceback" if "Traceback" in answer.err else None
    return Outcome(OPTIONS, case, failed or ("lost" if answer.status else "wrong"), detail)


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Fuzzed lines of three commands, `LINES` of each where `full` is given, and wrong values of options."""
    lines, processes = (LINES, 8) if full else (60, 0)
    models = make_models(folder / "models")
    outcomes = run_cases(align_case, problem_of_links, models, folder, lines, processes)
    outcomes += run_cases(translate_case, problem_of_translation, models, folder, lines, processes)
    environments = [ENCODINGS[n % len(ENCODINGS)] if n < 5 * processes else None for n in range(lines)]
    outcomes += [score_outcome(FIRST + n, folder, environment) for n, environment in enumerate(environments)]
    return outcomes + option_outcomes()
