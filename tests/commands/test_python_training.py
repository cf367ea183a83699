"""The functions that train, from Python: the same run as the command's, and what they return."""

import shutil

import pytest
from english_german import generate_split
from helpers import write_linked_pairs
from safetensors.torch import load_file

import hf_attncal
from hf_attncal.io.errors import CommandError

QUIET = ["training.bf16=false", "training.tokens_per_batch=200", "training.disable_tqdm=true", "training.max_steps=2"]
SIZES = ("layers=1", "attention_heads=2", "ffn_dim=8")
SIDES = [f"model.{side}coder_{size}" for side in ("en", "de") for size in SIZES]
SMALL = [*QUIET, *SIDES, "tokenizer.vocab_size=150", "model.d_model=8", "evaluation.max_new_tokens=3"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Files of text: `train` and `test`, in `.en` and `.de`, with gold links in `.align`."""
    folder = tmp_path_factory.mktemp("text")
    split = generate_split(60, 6, 6, seed=5)
    write_linked_pairs(folder, train=split.train, test=split.test)
    return folder


@pytest.fixture
def same(text, tmp_path, attncal):
    """Train by a function and by its command, compare what both leave, and return what the function returned."""

    def train_twice(function, command, base, settings, weights="model.safetensors", test=("en", "de"), **options):
        files = {"source": text / "train.en", "target": [text / "train.de"]}
        files["test"] = tuple(str(text / f"test.{suffix}") for suffix in test)
        trained = function(*base, *settings, **files, **options, output=tmp_path / "python")
        words = [*command.split(), *map(str, base), *(f"--{name}={value}" for name, value in options.items())]
        words += [f"--source={files['source']}", "--target", str(files["target"][0]), "--test", *files["test"]]
        output = tmp_path / "command"
        status, out, _ = attncal(*words, f"--output={output}", *settings)
        assert (status, trained.folder) == (0, tmp_path / "python")
        mine, theirs = (load_file(folder / weights) for folder in (trained.folder, output))
        assert mine.keys() == theirs.keys()
        assert all(mine[name].equal(weight) for name, weight in theirs.items())
        assert trained.scores["command"] == f"hf_attncal.{function.__name__}"
        first, *others = str(trained).replace(str(trained.folder), str(output)).splitlines()
        assert first.startswith(f"{output}: {trained.scores['steps']} steps in ")
        assert out.splitlines()[-len(others) :] == others
        shutil.rmtree(output)
        return trained

    return train_twice


def test_train_and_adapt(same, tmp_path):
    made = same(hf_attncal.train, "train", [], SMALL, model="marian")
    assert made.scores["test"].keys() >= {"bleu", "signature"}
    base = made.folder.rename(tmp_path / "base")
    settings = [*QUIET, "evaluation.max_new_tokens=3"]
    weights = "adapter_model.safetensors"
    adapted = same(hf_attncal.adapt, "adapt", [base], settings, weights, calibration="leaky+none")
    assert adapted.scores["test"].keys() == {"trained", "base"}


def test_train_aligner(same):
    trained = same(
        hf_attncal.train_aligner,
        "align train",
        [],
        ["tokenizer.vocab_size=100"],
        test=("en", "de", "align"),
        config="hmm",
    )
    assert f"test: AER {100 * trained.scores['test']['aer']:.1f}  " in str(trained)


def test_a_dry_run_returns_its_settings(text, tmp_path):
    files = {"source": text / "train.en", "target": text / "train.de", "output": tmp_path / "model"}
    planned = hf_attncal.train_aligner("tokenizer.vocab_size=100", config="hmm", **files, dry_run=True)
    assert planned.scores["lines"]["train"] > 0
    assert planned.scores["settings"]["tokenizer"]["vocab_size"] == 100
    assert (str(planned), (tmp_path / "model").exists()) == ("", False)


def test_missing_parts_are_named():
    with pytest.raises(CommandError, match="--source must be given"):
        hf_attncal.train(output="model")
    with pytest.raises(ValueError, match="There is no file nothing"):
        hf_attncal.adapt("model", source="nothing", target="nothing", output="adapter")
