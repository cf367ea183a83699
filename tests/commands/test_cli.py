"""The `attncal` command: one line out for each line in, and errors that say what to do."""

import gzip
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers import TINY, scatter
from transformers import BertConfig, BertForMaskedLM

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel, HMMAlignConfig, HMMAlignModel
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.data.tokenizer import train_bpe_tokenizer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder with a tiny random gated model and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    model = AttnCalMarianMTModel(
        AttnCalMarianConfig(**TINY | special | {"vocab_size": len(tokenizer), "calibration": "gated"})
    )
    scatter(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return SimpleNamespace(folder=str(folder), model=model, tokenizer=tokenizer)


def test_no_input_gives_no_output(attncal, checkpoint):
    assert attncal("translate", checkpoint.folder, "--device", "cpu")[:2] == (0, "")


def test_progress_is_shown_on_request_and_not_in_a_pipe(attncal, checkpoint):
    options = ["translate", checkpoint.folder, "--device", "cpu", "max_new_tokens=2"]
    assert "translated" not in attncal(*options, text="a\n")[2]
    status, out, err = attncal(*options, "--progress", text="a\n")
    assert status == 0
    assert "translated: 1 lines" in err
    assert "translated" not in out


def test_a_line_that_is_too_long_is_named_and_nothing_before_it_is_lost(attncal, checkpoint):
    options = ["translate", checkpoint.folder, "--device", "cpu", "max_new_tokens=4", "--batch-size", "1"]
    before = ["old"] * 20  # more than a window: the number counts from the start of the input
    text = "\n".join([*before, "old " * 40, "a"])
    status, out, err = attncal(*options, text=text)
    assert status == 1
    assert "line 21 of the input has" in err
    assert f"at most {TINY['max_position_embeddings']}" in err
    assert "--too-long truncate" in err
    assert "Traceback" not in err
    assert out.count("\n") == len(before)
    status, out, _ = attncal(*options, "--too-long", "truncate", text=text)
    assert (status, out.count("\n")) == (0, len(before) + 2)


# ---- checkpoints that cannot be used ----


def test_a_checkpoint_of_another_kind(attncal, tmp_path):
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertForMaskedLM(BertConfig(vocab_size=10, **tiny)).save_pretrained(tmp_path)
    status, _, err = attncal("translate", str(tmp_path))
    assert status == 1
    assert "'bert', which is not an encoder-decoder" in err


def test_model_code_runs_only_on_request(attncal, tmp_path):
    auto_map = {"AutoConfig": "code.Config", "AutoModelForSeq2SeqLM": "code.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "another_kind", "auto_map": auto_map}))
    (tmp_path / "code.py").write_text("raise SystemExit('this code was run')")
    status, _, err = attncal("translate", str(tmp_path), text="y\n")
    assert status == 1
    assert "pass --trust-remote-code" in err


def test_a_device_that_cannot_be_used(attncal, checkpoint):
    status, _, err = attncal("translate", checkpoint.folder, "--device", "no_such_device")
    assert status == 1
    assert "--device no_such_device cannot be used" in err


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (1, ["--batch-size", "0"]),
        (1, ["--beams", "0"]),
        (1, ["max_new_tokens=x"]),
        (1, ["length_penalty=nan"]),  # scores that are no numbers, and so any beam
        (1, ["length_penalty=5.1"]),
        (1, ["--threads", "100000"]),  # PyTorch would die of it
        (2, ["--dtype", "int8"]),
    ],
)
def test_values_out_of_range_are_refused_at_once(attncal, capfdbinary, status, arguments):
    """Before the model is loaded, which does not exist."""
    try:
        found, _, err = attncal("translate", "unused", *arguments)
    except SystemExit as left:
        found, err = left.code, capfdbinary.readouterr().err.decode()
    assert found == status
    assert arguments[0].partition("=")[0].removeprefix("--").replace("-", "_") in err.replace("-", "_")
    assert "unused" not in err


# ---- light ----

# What takes long to import, and must wait until a command needs it.
MODELS = {"torch", "transformers", "tokenizers", "accelerate", "peft", "huggingface_hub"}
HEAVY = MODELS | {"datasets", "evaluate", "sacrebleu", "matplotlib", "rich", "tqdm", "yaml"}


def imported_by(*arguments: str) -> tuple[int, set[str]]:
    """The exit status of the command, and the modules that its process had imported when it ended."""
    code = "import atexit, sys\natexit.register(lambda: print('MODULES', *sys.modules, file=sys.stderr))\n"
    code += "from hf_attncal.commands import main\nsys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("status", "command"),
    [
        (0, "--help"),
        (0, "align train --help"),
        (2, "score --no-such-option gold hypothesis"),
        (2, "align run model --format xml"),
        (1, "translate model --beams 0"),
        (1, "align run model --source text"),
        (1, "translate ./nothing"),
    ],
)
def test_help_and_wrong_usage_do_not_wait_for_heavy_packages(status, command):
    found, modules = imported_by(*command.split())
    assert found == status
    assert {*HEAVY, "numpy"} & modules <= {"rich"}  # which draws help


def test_scoring_files_does_not_wait_for_models(tmp_path):
    gold, first, second = tmp_path / "gold", tmp_path / "first.gz", tmp_path / "second"
    gold.write_text("0-0 1p1\n0-0\n")
    first.write_bytes(gzip.compress(b"0-0\n0-0\n"))
    second.write_text("0-0 1-1\n\n")
    status, modules = imported_by("score", str(gold), str(first), str(second), "--format", "json")
    assert status == 0
    assert HEAVY & modules == set()
    assert "numpy" in modules  # the modules are those of a process that has computed something


def test_aligning_by_counts_does_not_wait_for_transformers(tmp_path):
    """An aligner with links needs torch and its tokenizer; the rest took three times as long to import as both."""
    english, german = ["the old house", "a house"], ["das alte Haus", "ein Haus"]
    tokenizer = train_bpe_tokenizer(english + german, vocab_size=40)
    model = HMMAlignModel(HMMAlignConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id))
    CountLearner(model, *(tokenizer(side, add_special_tokens=False)["input_ids"] for side in (english, german))).run()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "aligner")
    (tmp_path / "text").write_text("the house ||| das Haus\n")
    (tmp_path / "english").write_text("\n".join(english) + "\n")
    files = ["--source", str(tmp_path / "text"), "--output", str(tmp_path / "links")]
    run = ["align", "run", str(tmp_path / "aligner"), *files, "--device", "cpu"]
    quick = [
        "align",
        "quick",
        *(f"--{side}={tmp_path / 'english'}" for side in ("source", "target")),
        files[-2],
        files[-1],
    ]
    for command, links in ((run, "0-0 1-1\n"), (quick, "0-0 1-1 2-2\n0-0 1-1\n")):
        status, modules = imported_by(*command)
        assert (status, (tmp_path / "links").read_text()) == (0, links)
        assert {"torch", "tokenizers", "hf_attncal.models.hmm_tables"} <= modules
        slow = {*HEAVY, "torch._dynamo", "scipy", "sklearn", "pandas", "numba"} - {"torch", "tokenizers", "tqdm"}
        assert slow & modules == set()
