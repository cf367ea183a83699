"""`attncal align run --shard I/N`: parts in any order make what one run makes."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.commands import main
from hf_attncal.data.texts import PairText, part_of
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.io.files import compressing, open_to_read
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
        file = open(names[-1], "wb")  # noqa: SIM115
        with compressing(file) if suffix else file as file:
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


@pytest.mark.parametrize(("suffix", "end"), [("", "\n"), (".gz", "")])
def test_parts_in_any_order_are_what_one_run_writes(run, tmp_path, suffix, end):
    files = write(tmp_path, 150, suffix, end)
    assert run(tmp_path / "whole", "--scores", files=files) == (0, "")
    whole = (tmp_path / "whole").read_bytes()
    assert whole.count(b"\n") == 150
    for number in (3, 1, 2):
        assert run(tmp_path / f"links.{{}}{suffix}", "--scores", "--shard", f"{number}/3", files=files) == (0, "")
    assert joined(tmp_path, f"links.*-of-00003{suffix}") == whole
    assert {path.name for path in tmp_path.iterdir()} == {
        "whole",
        *(Path(file).name for file in files),
        *(f"links.0000{number}-of-00003{suffix}" for number in (1, 2, 3)),
    }


def test_lines_of_one_file_in_a_folder(run, model, tmp_path, capfd):
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("\ufeff" + "".join(f"{s} ||| {t}\n" for s, t in zip(*sentences(70), strict=True)))
    given = ["align", "run", model, "--source", str(pairs), *WINDOW, "--device", "cpu"]
    assert main([*given, "--output", str(tmp_path / "whole")]) == 0
    for number in (2, 1):
        assert main([*given, "--output", str(tmp_path / "new" / "folder"), "--shard", f"{number}/2"]) == 0
    assert joined(tmp_path / "new" / "folder", "*.links") == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(("lines", "window", "total"), [(0, 5, 3), (40, 32, 5), (150, 7, 4)])
def test_parts_follow_each_other_and_begin_with_a_window(tmp_path, lines, window, total):
    text = PairText(*write(tmp_path, lines) if lines else write(tmp_path, 1, end=""))
    if not lines:
        for file in text.files:
            Path(file).write_bytes(b"")
    parts = [
        part_of(f"{number}/{total}", str(tmp_path / "parts"), text, window).lines for number in range(1, total + 1)
    ]
    assert [line for part in parts for line in part] == list(range(lines))
    assert all(part.start % window == 0 for part in parts if part)
    sizes = [-(-len(part) // window) for part in parts]
    assert max(sizes) - min(sizes) <= 1


# ---- what is refused ----


def test_a_part_that_is_there_is_refused_and_stays(run, tmp_path):
    write(tmp_path)
    part = tmp_path / "parts" / "00002-of-00003.links"
    part.parent.mkdir()
    part.write_text("0-0\n")
    status, error = run(tmp_path / "parts", "--shard", "2/3")
    assert (status, part.read_text()) == (1, "0-0\n")
    assert f"{part} exists" in error


def test_files_of_other_lengths_are_refused_before_anything_is_aligned(run, tmp_path):
    files = write(tmp_path)
    Path(files[0]).write_text("one\n" * 149)
    status, error = run(tmp_path / "parts", "--shard", "1/3", files=files)
    assert status == 1
    assert f"{files[0]} has 149 lines, {files[1]} has 150 lines" in error
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_wrong_line_has_its_number_in_the_whole_text(run, tmp_path):
    files = write(tmp_path)
    lines = Path(files[0]).read_bytes().splitlines(keepends=True)
    lines[119] = b"\xff\n"
    Path(files[0]).write_bytes(b"".join(lines))
    status, error = run(tmp_path / "parts", "--shard", "3/3", files=files)
    assert status == 1
    assert f"line 120 of {files[0]} is not UTF-8" in error
    assert not list((tmp_path / "parts").glob("*.links"))


@pytest.mark.parametrize("shard", ["0/3", "4/3", "a/b", "1/3/3", "1/1000000"])
def test_invalid_parts_are_reported(shard, capsys):
    assert main(["align", "run", "model", "--source", "s", "--output", "x", f"--shard={shard}"]) == 1
    assert "--shard must be I/N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--source", "S", "--target", "T", "--shard", "1/2"], "--shard needs --output"),
        (["--source", "-", "--shard", "1/2", "--output", "x"], "--shard needs files to read"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "{}/x"], "--shard needs --output"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "S/x"], "cannot be made"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "x", "--format", "html"], "--format html"),
        (["--source", "S", "--target", "T", "--shard", "1/2", "--output", "x", "--adapt"], "--adapt"),
    ],
)
def test_impossible_options_are_reported_before_the_model_is_read(tmp_path, given, message, capsys, monkeypatch):
    source, target = write(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    names = {"S": source, "T": target, "S/x": f"{source}/x"}
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
