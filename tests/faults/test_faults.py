"""A run of each kind of fault: kill, full disk, signal, a reader that leaves, damaged checkpoints, hostile lines."""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import commands
import pytest

LINES = 40
OLD = "as it was before\n"
HOSTILE = (
    "",
    " ",
    "a\u00a0b",
    "\u200b",
    "x" * 300,
    "||| |||",
    "é" * 50,
    "\x85a\x1cb",
    "</s> <pad>",
    "a\tb",
    "﷽ 𝔘",
    "0-0",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> commands.Place:
    return commands.prepare(tmp_path_factory.mktemp("faults"))


def few_lines(place: commands.Place) -> tuple[list[str], Path]:
    """A command that writes a line for each line, and the file that it reads from standard input."""
    file = place.folder / "few"
    file.write_text("".join(place.pairs.read_text(encoding="utf-8").splitlines(True)[:LINES]), encoding="utf-8")
    return place.align_run(), file


def answer(command: list[str], file: Path, **options) -> subprocess.CompletedProcess:
    with file.open("rb") as lines:
        return commands.finish(command, stdin=lines, **options)


def test_a_killed_training_goes_on_to_the_same_weights(place, tmp_path):
    whole = commands.finish(place.align_train(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    command = place.align_train(tmp_path / "killed")
    with commands.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        commands.until(process, (tmp_path / "killed" / "checkpoint-2").exists)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "results.json").exists()
    again = commands.finish(place.align_train(tmp_path / "killed", "--resume"))
    assert again.returncode == 0, again.stderr
    weights = [commands.weights(tmp_path / name)["model.safetensors"] for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_full_disk_is_one_line_and_the_old_output_stays(place, tmp_path):
    output = tmp_path / "links"
    output.write_text(OLD, encoding="utf-8")
    command = [*place.align_run(), "--source", str(place.pairs), "--output", str(output)]
    done = commands.finish(command, limit=3000)
    assert done.returncode == 1
    assert "File too large" in done.stderr.splitlines()[-1]
    assert not commands.said_by_python(done.stderr)
    assert output.read_text(encoding="utf-8") == OLD
    assert commands.finish(command).returncode == 0
    assert output.read_text(encoding="utf-8").count("\n") == commands.PAIRS


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is of Linux")
def test_a_full_standard_output_is_one_line(place):
    with open("/dev/full", "wb") as full:
        done = commands.finish(place.score(), stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert not commands.said_by_python(done.stderr)


@pytest.mark.parametrize(("by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (None, 141)])
def test_a_command_that_ends_early_leaves_whole_lines(place, by, status):
    """`None` is a reader that leaves."""
    command, file = few_lines(place)
    whole = answer(command, file).stdout.encode()
    repeated = place.folder / "repeated"
    repeated.write_bytes(file.read_bytes() * 50)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with repeated.open("rb") as lines, commands.start(command, stdin=lines, **streams) as process:
        read = b"".join(process.stdout.readline() for _ in range(20))
        if by is None:
            process.stdout.close()
            rest = b""
        else:
            process.send_signal(by)
            rest = process.stdout.read()
        err = process.stderr.read().decode()
    assert process.returncode == status, err
    assert not commands.said_by_python(err)
    assert (whole * 50).startswith(read + rest)
    assert not rest or rest.endswith(b"\n")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def change(file: Path, **fields) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | fields), encoding="utf-8")


def hostile(folder: Path) -> None:
    (folder / "evil.py").write_text("open('ran', 'w').close()\nclass Config: pass\n", encoding="utf-8")
    change(folder / "config.json", auto_map={"AutoConfig": "evil.Config"}, model_type="evil")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: cut(folder / "model.safetensors"), "model.safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: change(folder / "config.json", d_model=0), "d_model"),
        (lambda folder: change(folder / "config.json", vocab_size=10**9), "vocab_size"),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), "tokenizer"),
        (hostile, ""),
    ],
    ids=["weights cut", "weights missing", "JSON", "a size of 0", "a size out of bounds", "tokenizer", "code"],
)
@pytest.mark.parametrize("model", ["aligner", "translator"])
def test_a_damaged_checkpoint_is_refused_by_name(place, tmp_path, monkeypatch, model, damage, named):
    command, file = few_lines(place)
    shutil.copytree(place.folder / model, tmp_path / "model")
    damage(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    done = answer(
        [str(tmp_path / "model") if word == str(place.folder / "aligner") else word for word in command], file
    )
    assert done.returncode == 1, done.stdout
    assert done.stdout == ""
    assert named in done.stderr.splitlines()[-1]
    assert "error: " in done.stderr
    assert not commands.said_by_python(done.stderr)
    assert not os.path.exists("ran")


def test_hostile_lines_do_not_change_the_answers_to_others(place, tmp_path):
    chance = random.Random(0)
    words = place.pairs.read_text(encoding="utf-8").split()[:60]
    sides = [
        [
            " ".join(chance.choice([*HOSTILE, *words]).replace("|||", "") for _ in range(chance.randint(0, 6)))
            for _ in "st"
        ]
        for _ in range(60)
    ]
    lines = [f"{source} ||| {target}" for source, target in sides]
    file = tmp_path / "lines"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    together = answer(place.align_run("--longest-line=1000000"), file)
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("\n") == len(lines)
    file.write_text("".join(f"{line}\n" for line in reversed(lines)), encoding="utf-8")
    again = answer(place.align_run("--longest-line=1000000"), file)
    assert again.stdout.splitlines() == together.stdout.splitlines()[::-1]


@pytest.mark.parametrize("wrong", [b"caf\xe9 ||| x", b"a\0b ||| x", b"no separator"])
def test_a_line_that_cannot_be_read_is_named_after_the_answers_to_those_before(place, tmp_path, wrong):
    command, file = few_lines(place)
    right = answer(command, file).stdout
    bad = tmp_path / "bad"
    bad.write_bytes(file.read_bytes() + wrong + b"\n" + file.read_bytes())
    done = answer(command, bad)
    assert done.returncode == 1
    assert done.stdout == right
    assert f"line {LINES + 1}" in done.stderr.splitlines()[-1]
    assert not commands.said_by_python(done.stderr)
