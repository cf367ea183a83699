"""`attncal align run --shard i/n`: parts in any order, at once, killed and again, make what one run makes."""

import codecs
import errno
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warm import warm

from hf_attncal.alignment import chosen_reading
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.commands import main
from hf_attncal.data import shards
from hf_attncal.data.shards import Shard
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.io.encoding import compressing, open_to_read
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

WORDS = {"the": "das", "old": "alte", "house": "Haus", "is": "ist", "red": "rot", "and": "und"}
PARTS = 3
# A window is 16 batches: 32 lines.
WINDOW = ("--batch-size", "2")


def sentences(lines: int, seed: int = 1) -> tuple[list[str], list[str]]:
    generator = random.Random(seed)
    text = [generator.choices(sorted(WORDS), k=generator.randint(0, 7)) for _ in range(lines)]
    return [" ".join(words) for words in text], [" ".join(WORDS[word] for word in words[::-1]) + "." for words in text]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    english, german = sentences(200, seed=2)
    tokenizer = train_bpe_tokenizer(english + german, vocab_size=50)
    model = HMMAlignModel(HMMAlignConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).eval()
    CountLearner(model, *(tokenizer(side, add_special_tokens=False)["input_ids"] for side in (english, german))).run()
    folder = tmp_path_factory.mktemp("model")
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return str(folder)


def write(folder: Path, lines: int = 150, suffix: str = "", end: str = "\n") -> list[str]:
    names = []
    for side, text in zip(("source", "target"), sentences(lines), strict=True):
        names.append(str(folder / f"{side}.txt{suffix}"))
        with compressing(open(names[-1], "wb"), suffix or None) as file:
            file.write(("\n".join(text) + end).encode())
    return names


@pytest.fixture
def run(model, tmp_path, capfd):
    """Run the action in this process: (output, options) -> (status, standard error)."""

    def run(output, *options: str, files: list[str] | None = None, name: str | None = None):
        source, target = files or (str(tmp_path / "source.txt"), str(tmp_path / "target.txt"))
        given = [name or model, "--source", source, "--target", target, "--output", str(output)]
        given += [*(() if WINDOW[0] in options else WINDOW), *options]
        status = main(["align", "run", *given, "--device", "cpu"])
        return status, capfd.readouterr().err

    return run


def joined(folder: Path, pattern: str) -> bytes:
    data = b""
    for path in sorted(folder.glob(pattern)):
        with open_to_read(path) as file:
            data += file.read()
    return data


# ---- what makes a whole ----


@pytest.mark.half("suffix", "end")
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("end", ["\n", ""])
def test_parts_in_any_order_are_what_one_run_writes(run, tmp_path, suffix, end):
    files = write(tmp_path, 150, suffix, end)
    assert run(tmp_path / "whole", "--scores", files=files) == (0, "")
    whole = (tmp_path / "whole").read_bytes()
    assert whole.count(b"\n") == 150
    for number in (3, 1, 2):
        assert run(tmp_path / f"links.{{}}{suffix}", "--scores", "--shard", f"{number}/3", files=files) == (0, "")
    assert joined(tmp_path, f"links.*-of-00003{suffix}") == whole
    manifests = [json.loads(path.read_text()) for path in sorted(tmp_path.glob(f"links.*-of-00003{suffix}.json"))]
    assert [part["part"] for part in manifests] == [1, 2, 3]
    assert [part["first_line"] for part in manifests] == [1, 33, 97]
    assert [part["lines"] for part in manifests] == [32, 64, 54]
    assert sum(part["links"] for part in manifests) == len(whole.split())
    for part in manifests:
        assert part["bytes"] == (tmp_path / part["file"]).stat().st_size
        assert part["seconds"] > 0
        assert part["model"].startswith("sha256:")
    assert not list(tmp_path.glob("*.partial"))


def test_lines_of_one_file_in_a_folder(run, model, tmp_path, capfd):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("\ufeff" + "".join(f"{s} ||| {t}\n" for s, t in zip(*sentences(70), strict=True)))
    given = ["align", "run", model, "--source", str(pairs), *WINDOW, "--device", "cpu"]
    assert main([*given, "--output", str(tmp_path / "whole")]) == 0
    for number in (2, 1):
        assert main([*given, "--output", str(tmp_path / "new" / "folder"), "--shard", f"{number}/2"]) == 0
    assert joined(tmp_path / "new" / "folder", "*.links") == (tmp_path / "whole").read_bytes()


def test_more_parts_than_windows(run, tmp_path):
    write(tmp_path, 40)
    assert run(tmp_path / "whole") == (0, "")
    for number in range(1, 6):
        assert run(tmp_path / "parts", "--shard", f"{number}/5") == (0, "")
    assert joined(tmp_path / "parts", "*.links") == (tmp_path / "whole").read_bytes()
    assert sorted(path.stat().st_size > 0 for path in (tmp_path / "parts").glob("*.links")) == [False] * 3 + [True] * 2


@given(lines=st.integers(0, 300), window=st.integers(1, 50), total=st.integers(1, 20))
def test_parts_follow_each_other_and_begin_with_a_window(lines, window, total):
    parts = [Shard(number, total).lines(lines, window) for number in range(1, total + 1)]
    assert [line for part in parts for line in part] == list(range(lines))
    assert all(part.start % window == 0 for part in parts if part)
    sizes = [-(-len(part) // window) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"")), max_size=30), st.booleans())
def test_lines_are_counted(tmp_path_factory, lines, ended):
    """Pieces that end in the middle of lines, and lines that are longer than a piece."""
    path = tmp_path_factory.mktemp("text") / "x"
    text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_PIECE", 4)
        found = shards._input(str(path), None)
    lengths = [len(line) for line in text.split(b"\n")[:-1]]
    last = b"" if text == codecs.BOM_UTF8 else text.split(b"\n")[-1]  # the mark alone is no line
    assert found["lines"] == len(lengths) + bool(last)


# ---- again ----


def test_a_part_that_is_complete_is_skipped_and_one_that_is_not_is_made(run, tmp_path, monkeypatch):
    write(tmp_path)
    assert run(tmp_path / "parts", "--shard", "2/3") == (0, "")
    part = tmp_path / "parts" / "00002-of-00003.links"
    before, state = part.read_bytes(), part.stat()
    with monkeypatch.context() as patch:
        patch.setattr(chosen_reading, "open_to_align", lambda *_, **__: pytest.fail("the model was loaded"))
        assert run(tmp_path / "parts", "--shard", "2/3") == (0, f"attncal: {part} is complete, and skipped\n")
        assert run(tmp_path / "parts", "--shard", "2/3", "-q") == (0, "")
    assert part.stat() == state
    for spoil in (part.unlink, Path(f"{part}.json").unlink, lambda: part.write_bytes(before[:-1])):
        spoil()
        assert run(tmp_path / "parts", "--shard", "2/3") == (0, "")
        assert part.read_bytes() == before


@pytest.mark.parametrize(
    "after", [pytest.param("before", marks=pytest.mark.slow), pytest.param("during", marks=pytest.mark.slow), "behind"]
)
def test_a_killed_part_leaves_nothing_that_looks_complete(run, model, tmp_path, after):
    """Killed when a window is written, and between the file and the line about it."""
    source, target = write(tmp_path)
    where = {"before": "part_of", "during": "write_lines", "behind": "_write"}[after]
    code = (
        "import os, signal, sys\nfrom hf_attncal.alignment import streaming\nfrom hf_attncal.commands import main\n"
        "from hf_attncal.data import shards\n"
        "def kill(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
        "write, calls = shards._write, []\n"
        "def late(path, values, new=False):\n"
        "    if not new: kill()\n"
        "    return write(path, values, new)\n"
        "lines = streaming.write_lines\n"
        "def second(*args):\n"
        "    lines(*args); calls.append(1)\n"
        "    if len(calls) == 2: kill()\n"
        f"replaced = {{'part_of': kill, 'write_lines': second, '_write': late}}[{where!r}]\n"
        f"setattr({'streaming' if after == 'during' else 'shards'}, {where!r}, replaced)\n"
        "main(sys.argv[1:])"
    )
    given = ["align", "run", model, "--source", source, "--target", target, "--output", str(tmp_path / "parts")]
    command = [*given, *WINDOW, "--shard", "2/3", "--device", "cpu"]
    killed = subprocess.run(warm([sys.executable, "-c", code, *command]), capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    part = tmp_path / "parts" / "00002-of-00003.links"
    assert part.exists() == (after == "behind")
    assert not Path(f"{part}.json").exists()
    for number in (1, 2, 3):
        assert run(tmp_path / "parts", "--shard", f"{number}/3") == (0, "")
    assert run(tmp_path / "whole") == (0, "")
    assert joined(tmp_path / "parts", "*.links") == (tmp_path / "whole").read_bytes()


def test_parts_at_once(model, run, tmp_path):
    """All of them begin with no file there: one writes what the job is."""
    source, target = write(tmp_path, suffix=".gz")
    command = [sys.executable, "-m", "hf_attncal", "align", "run", model, "--source", source, "--target", target]
    command += [*WINDOW, "--device", "cpu", "--threads", "1"]
    jobs = [
        subprocess.Popen(warm([*command, "--shard", f"{number}/2", "--output", str(tmp_path / "l.{}")]), stderr=-1)
        for number in (1, 2)
    ]
    assert [(job.wait(), job.stderr.read()) for job in jobs] == [(0, b"")] * 2
    assert run(tmp_path / "whole", files=(source, target)) == (0, "")
    assert joined(tmp_path, "l.*-of-00002") == (tmp_path / "whole").read_bytes()


# ---- what is refused ----


@pytest.mark.parametrize("change", ["text", "length", "only in time", "place"])
def test_inputs_that_have_changed_are_refused(run, tmp_path, change):
    files = write(tmp_path)
    assert run(tmp_path / "parts", "--shard", "1/3") == (0, "")
    path = Path(files[1])
    if change == "text":
        path.write_text(path.read_text().replace("Haus", "Maus"))
    elif change == "length":
        path.write_text(path.read_text() + "Haus\n")
    elif change == "place":
        files[1] = str(path.rename(tmp_path / "moved.txt"))
    else:
        os.utime(path, ns=(time.time_ns(), time.time_ns() + 10**9))
    status, error = run(tmp_path / "parts", "--shard", "2/3", files=files)
    if change in ("only in time", "place"):  # the same text
        assert (status, error) == (0, "")
        return
    assert status == 1
    assert error.startswith(f"attncal: error: {path} is not what other parts were made of: its SHA-256 is ")
    assert "of-00003.links.json is" in error


@pytest.mark.parametrize(
    ("options", "name", "was", "now"),
    [
        (["--threshold", "0.9"], "--threshold", "None", "0.9"),
        (["--tokenize"], "--tokenize", "None", "True"),
        (["--batch-size", "3"], "--batch-size", "2", "3"),
    ],
)
def test_other_settings_are_refused(run, tmp_path, options, name, was, now):
    write(tmp_path)
    assert run(tmp_path / "parts", "--shard", "1/3") == (0, "")
    status, error = run(tmp_path / "parts", "--shard", "2/3", *options)
    assert status == 1
    assert f"other parts were made with {name} {was}, this one has {now}. Give the same, or another --output" in error


def test_options_that_change_no_link_may_differ(run, tmp_path):
    write(tmp_path)
    assert run(tmp_path / "parts", "--shard", "1/3") == (0, "")
    assert run(tmp_path / "parts", "--shard", "2/3", "--threads", "1", "-q", "--no-progress", "--debug") == (0, "")


def test_another_model_is_refused(run, model, tmp_path):
    write(tmp_path)
    assert run(tmp_path / "parts", "--shard", "1/3") == (0, "")
    config = HMMAlignModel.from_pretrained(model)
    config.counts *= 2
    config.save_pretrained(tmp_path / "other")
    for file in Path(model).glob("tokenizer*"):
        (tmp_path / "other" / file.name).write_bytes(file.read_bytes())
    status, error = run(tmp_path / "parts", "--shard", "2/3", name=str(tmp_path / "other"))
    assert status == 1
    assert "other parts were made with model sha256:" in error


@pytest.mark.parametrize("found", ["", "{}", "[]"])
def test_a_description_of_the_parts_that_is_none_is_told(run, tmp_path, found):
    write(tmp_path)
    path = tmp_path / "parts" / "of-00003.links.json"
    path.parent.mkdir()
    path.write_text(found)
    status, error = run(path.parent, "--shard", "1/3")
    assert status == 1
    assert error.startswith(f"attncal: error: {path} cannot be read: ")
    assert error.endswith("Remove it, or give another --output.\n")


@pytest.mark.parametrize("file", ["alignment.json", "link_probabilities.json"])
def test_what_lies_beside_the_weights_may_not_change(run, model, tmp_path, file):
    write(tmp_path)
    folder = shutil.copytree(model, tmp_path / "model")
    assert run(tmp_path / "parts", "--shard", "1/3", name=str(folder)) == (0, "")
    (folder / file).write_text("{}")  # refused before it is read
    status, error = run(tmp_path / "parts", "--shard", "2/3", name=str(folder))
    assert status == 1
    assert f"other parts were made with {file} None, this one has sha256:" in error


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_need_not_have_hard_links(run, tmp_path, monkeypatch, number):
    def link(*names):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    write(tmp_path)
    assert run(tmp_path / "whole") == (0, "")
    for part in (2, 1):
        assert run(tmp_path / "parts", "--shard", f"{part}/2") == (0, "")
    assert joined(tmp_path / "parts", "*.links") == (tmp_path / "whole").read_bytes()


def test_files_of_other_lengths_are_refused_before_anything_is_aligned(run, tmp_path):
    files = write(tmp_path)
    Path(files[0]).write_text("one\n" * 149)
    status, error = run(tmp_path / "parts", "--shard", "1/3", files=files)
    assert status == 1
    assert f"{files[0]} has 149 lines and {files[1]} has 150, they must have the same number." in error
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_wrong_line_has_its_number_in_the_whole_text(run, tmp_path):
    files = write(tmp_path)
    lines = Path(files[0]).read_bytes().splitlines(keepends=True)
    lines[119] = b"\xff\n"
    Path(files[0]).write_bytes(b"".join(lines))
    status, error = run(tmp_path / "parts", "--shard", "3/3", files=files)
    assert status == 1
    assert f"line 120 of {files[0]} is not UTF-8 (byte 1)." in error
    assert not list((tmp_path / "parts").glob("*.links"))


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/3", "1/1000000"])
def test_what_is_no_part_is_told(shard, capsys):
    assert main(["align", "run", "model", f"--shard={shard}"]) == 1
    assert "must be i/n, part i of n, with i from 1 to n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--source", "S", "--target", "T", "--shard", "1/2"],
            "--shard needs --output: a folder, or the name of a file",
        ),
        (["--shard", "1/2", "--output", "x"], "--shard needs files to read"),
        (
            ["--source", "S", "--target", "T", "--shard", "1/2", "--output", "S"],
            "would overwrite",
        ),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "{}/x"], "has {} in the name of a folder"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "S/x/y"], "cannot be made a folder"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "x", "--format", "html"], "one page"),
        (
            ["--source", "S", "--target", "T", "--offsets", "--format", "html"],
            "--offsets has no place in --format html",
        ),
        (["--source", "S", "--target", "T", "--offsets", "--format", "words"], "--offsets has no place in --format"),
    ],
)
def test_what_cannot_be_is_told_before_the_model_is_looked_at(tmp_path, given, message, capsys, monkeypatch):
    source, target = write(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    names = {"S": source, "T": target, "S/x/y": f"{source}/x/y"}
    assert main(["align", "run", ".", *(names.get(word, word) for word in given)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_slurm_array_of_the_examples_aligns_a_part_in_each_task(model, tmp_path, attncal):
    """Joined as the script says, the parts are what one run writes; a number of parts that is not its own is PARTS."""
    source, target = write(tmp_path)
    script = Path(__file__).parents[2] / "examples" / "align_array.sh"
    environment = os.environ | {"PARTS": str(PARTS), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for task in (2, 1, 3):
        command = ["sh", str(script), model, source, target, str(tmp_path / "parts")]
        done = subprocess.run(command, env=environment | {"SLURM_ARRAY_TASK_ID": str(task)}, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
    parts = sorted((tmp_path / "parts").glob(f"links.*-of-{PARTS:05}.gz"))
    whole = ("--source", source, "--target", target, "--output", str(tmp_path / "all"))
    assert attncal("align", "run", model, *whole)[0] == 0
    assert gzip.decompress(b"".join(part.read_bytes() for part in parts)) == (tmp_path / "all").read_bytes()
    text = script.read_text(encoding="utf-8")
    assert all(part in text for part in ("--array=1-20", "-of-00020.gz", "${PARTS:-20}"))
