"""The experiment with encoder states: text of two languages in every direction, a whole run on tiny checkpoints."""

import json

import pytest
import torch
from seq2seq_helpers import bpe_tokenizer, randomized, sized
from transformers import BertConfig, BertModel, MarianConfig, MarianMTModel

from hf_attncal.alignment import EncoderStates
from hf_attncal.data.pharaoh import format_links
from hf_attncal.data.synthetic.english_german import generate_pairs


def test_text_of_two_languages_in_every_direction(experiment, tmp_path):
    sides = [f"a{n} b{n} c{n}" for n in range(30)], [f"x{n} y{n}" for n in range(30)]
    for name, lines in zip("ef", sides, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--source", tmp_path / "e", "--target", tmp_path / "f", "--languages", "en", "fr", "--output", tmp_path]
    experiment("multilingual_text").main([str(option) for option in options])
    made = [(tmp_path / f"train.{side}.txt").read_text().splitlines() for side in ("source", "target")]
    pairs = list(zip(*made, strict=True))
    for source, target in zip(*sides, strict=True):
        assert pairs.count((source, f"2fr {target}")) == pairs.count((target, f"2en {source}")) == 1
    restored = [pair for pair in pairs if set(pair[0].split()) <= set(pair[1].split())]
    assert len(pairs) == 60 + 20
    assert len(restored) == 20
    assert any(len(source.split()) + 1 < len(target.split()) for source, target in restored)
    assert all(source for source, _ in restored)


@pytest.fixture
def place(experiment, tmp_path, monkeypatch):
    """A corpus "a-b", an encoder with settings beside it, and an encoder-decoder."""
    robustness = experiment("robustness")
    for name, some in (
        ("train", generate_pairs(30, 5)),
        ("dev", generate_pairs(8, 6)),
        ("test", generate_pairs(9, 7)),
    ):
        for suffix, lines in (
            ("a", (" ".join(pair.source) for pair in some)),
            ("b", (" ".join(pair.target) for pair in some)),
            ("align", (format_links(pair.links) for pair in some)),
        ):
            (tmp_path / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus = robustness.Corpus(("a", "b"), ("train.{}",), {"dev": "dev", "test": "test"})
    monkeypatch.setitem(robustness.CORPORA, "a-b", corpus)
    tokenizer = bpe_tokenizer()
    torch.manual_seed(3)
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    bert = BertModel(BertConfig(**size, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id))
    for name, model in (("bert", bert), ("marian", randomized(MarianMTModel(MarianConfig(**sized(tokenizer)))))):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    EncoderStates(1, 0.3).save(tmp_path / "bert")
    return tmp_path


def test_every_way_of_every_checkpoint(experiment, place, tables, capsys):
    output = place / "encoder_states" / "a-b.json"
    output.parent.mkdir()
    models = [f"--model={name}={place / name}" for name in ("bert", "marian")]
    result = experiment("encoder_states").main(
        ["--data", str(place), "--pair", "a-b", *models, "--bootstrap", "20", "--output", str(output)]
    )
    assert json.loads(output.read_text()) == json.loads(json.dumps(result))
    ways = {name: list(row["ways"]) for name, row in result["systems"].items()}
    assert ways == {"bert": ["gold", "agreement", "saved"], "marian": ["attention", "gold", "agreement"]}
    assert result["systems"]["bert"]["ways"]["saved"]["settings"]["threshold"] == 0.3
    for row in result["systems"].values():
        assert row["ways"]["gold"]["dev"]["aer"] == min(row["layers"].values())
        assert row["ways"]["gold"]["dev"]["aer"] <= row["ways"]["agreement"]["dev"]["aer"]
    test = 100 * result["systems"]["bert"]["ways"]["gold"]["test"]["aer"]
    assert f"| {test:.1f} (" in capsys.readouterr().out


def test_tables_and_headlines_of_the_ways(experiment, place, results):
    assert experiment("tables_encoders").encoder_states() == "not run\n"
    (results / "encoder_states").mkdir()
    score = {"aer": 0.25, "interval": [0.2, 0.3], "precision": 0.8, "recall": 0.7, "signature": "s"}
    found = {"settings": {"layer": 1, "threshold": 0.3}, "dev": score, "test": score}
    systems = {
        "multilingual": {"layers": {"0": 0.5, "1": 0.25}, "ways": {"gold": found}},
        "multilingual_tuned_seed1": {"layers": {"0": 0.5}, "ways": {"saved": found}, "tuned": {}},
        "multilingual_tuned_seed2": {
            "layers": {},
            "ways": {"saved": found | {"test": score | {"aer": 0.15}}},
            "tuned": {},
        },
    }
    (results / "encoder_states" / "a-b.json").write_text(json.dumps({"config": {"pair": "a-b"}, "systems": systems}))
    table = experiment("tables_encoders").encoder_states()
    assert (
        "| multilingual, states, chosen on dev gold | 25.0 | 25.0 (20.0 to 30.0) | 80.0 | 70.0 | layer 1 above 0.3 |"
        in table
    )
    assert "| multilingual | 50.0 | 25.0 |" in experiment("tables_encoders").encoder_layers()
    named = {figure["name"]: figure for figure in experiment("headlines").collect()}
    assert set(named) == {"aligner/encoder_states/a-b/test_aer", "aligner/encoder_states/a-b/tuned/test_aer"}
    tuned = named["aligner/encoder_states/a-b/tuned/test_aer"]
    assert (tuned["value"], tuned["spread"], tuned["seeds"]) == (
        pytest.approx(20),
        {"half_range": pytest.approx(5)},
        [1, 2],
    )
