"""The harness of "defaults by data size": whole runs on a tiny generated corpus, and what is printed of results."""

import hashlib
import importlib
import json
from pathlib import Path

import pytest
from helpers import write_linked_pairs

from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.training import defaults
from hf_attncal.training.defaults import translation_defaults

ROOT = Path(__file__).resolve().parents[2]
TINY = ["model.d_model=16", "model.encoder_layers=1", "model.decoder_layers=1"]


@pytest.fixture(scope="module")
def harness():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        yield importlib.import_module("defaults")


@pytest.fixture(scope="module")
def place(tmp_path_factory, harness):
    """The folder of a corpus "a-b": text, dev and test of translation, which are those of links, too."""
    folder = tmp_path_factory.mktemp("defaults")
    for name, (count, seed) in {"train": (60, 1), "dev": (9, 2), "test": (7, 3)}.items():
        write_linked_pairs(folder, ("a", "b"), **{name: generate_pairs(count, seed)})
    languages, train = ("a", "b"), ("train.{}",)
    with pytest.MonkeyPatch.context() as patch:
        splits = {"dev": "dev.{}", "test": "test.{}"}
        patch.setitem(harness.TEXTS, "a-b", harness.Corpus(languages, train, splits))
        patch.setitem(harness.GOLD, "a-b", harness.Corpus(languages, train, {"dev": "dev", "test": "test"}))
        yield folder


def run(harness, place: Path, *options) -> dict:
    result = harness.main([str(option) for option in (*options, "--data", place, "--corpus", "a-b")])
    return json.loads(json.dumps(result))


@pytest.mark.slow
def test_a_translation_model_has_the_defaults_of_its_pairs_and_is_scored_on_dev_and_test(
    harness, place, tmp_path, monkeypatch
):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    asked = []

    def shortened(pairs, steps=None):
        asked.append(pairs)
        values = translation_defaults(pairs, steps=4)
        values["model"] |= {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.17}
        return values

    monkeypatch.setattr(defaults, "translation_defaults", shortened)
    result = run(harness, place, "translation", "--pairs", 50, "--seed", 3)
    assert set(asked) == {50}
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    config = result["config"]
    assert {key: config[key] for key in ("experiment", "job", "corpus", "pairs")} == {
        "experiment": "defaults",
        "job": "translation",
        "corpus": "a-b",
        "pairs": 50,
    }
    assert config["model"]["dropout"] == 0.17
    assert config["training"]["seed"] == 3
    assert result["sentence_pairs"]["train"]["kept"] == 50
    assert result["sentence_pairs"]["dev"]["kept"] == 9
    first = "".join((place / "train.a").read_text(encoding="utf-8").splitlines(keepends=True)[:50])
    assert result["data_sha256"]["train.source"] == hashlib.sha256(first.encode()).hexdigest()
    assert result["steps"] == 4
    assert result["seconds"] > result["wall_seconds"] > 0
    assert "tok:none" in result["test"]["signature"]
    assert 0 <= result["dev"]["bleu"] <= 100
    assert json.loads((tmp_path / "defaults" / "translation_a-b_50.json").read_text(encoding="utf-8")) == result


@pytest.mark.slow
def test_what_is_chosen_on_dev_sees_no_test_text(harness, place, tmp_path):
    for file in place.iterdir():
        if not file.name.startswith("test."):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    options = ("translation", "--pairs", 40, "--dev-pairs", 5, "--output", tmp_path / "out.json", *TINY)
    result = run(harness, tmp_path, *options, "training.max_steps=2", "training.warmup_steps=1")
    assert result["config"]["model"]["d_model"] == 16
    assert result["sentence_pairs"]["dev"]["kept"] == 5
    assert "dev" in result
    assert "test" not in result


def test_an_aligner_links_by_the_rule_that_it_has_without_gold(harness, place, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    result = run(harness, place, "aligner", "--pairs", 60, "--size", "hmm")
    assert (result["config"]["corpus"], result["config"]["pairs"], result["config"]["model"]["size"]) == (
        "a-b",
        60,
        "hmm",
    )
    assert result["config"]["data"]["dev"] is None  # no gold links in training
    for split, count in (("dev", 9), ("test", 7)):
        assert result[split]["sentences"] == count
        assert 0 < result[split]["aer"] < 1
        assert "symm:harmonic" in result[split]["signature"]
        assert f"{split}.align" in result["data_sha256"]
    assert (tmp_path / "defaults" / "aligner_a-b_60_hmm.json").exists()
