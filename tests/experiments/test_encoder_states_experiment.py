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


@pytest.mark.slow
def test_every_way_of_every_checkpoint(experiment, place):
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
