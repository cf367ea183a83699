"""The demo: its pieces on a tiny model, and the whole of it with a few steps (slow)."""

import json

import pytest
import torch
from helpers import TINY

pytest.importorskip("rich")

from hf_attncal import demo
from hf_attncal.analysis import contributions, head_average, reliability_level
from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.data.tokenizer import train_bpe_tokenizer

PAIRS = generate_pairs(12, seed=3)


@pytest.fixture(scope="module")
def tokenizer():
    lines = [" ".join(side) for pair in generate_pairs(300) for side in (pair.source, pair.target)]
    return train_bpe_tokenizer(lines, vocab_size=200)


@pytest.fixture
def model(tokenizer, monkeypatch):
    small = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")
    monkeypatch.setattr(demo, "MODEL", demo.MODEL | {name: TINY[name] for name in small} | {"init_std": 0.5})
    return demo.build_model(tokenizer).eval()


def test_details_of_a_batch_are_those_of_each_pair_alone(model, tokenizer):
    together, reliability = demo.inspect_pairs(model, tokenizer, PAIRS)
    assert len(together) == len(PAIRS)
    assert len(reliability) == model.config.decoder_layers
    for pair, details in zip(PAIRS, together, strict=True):
        shape = (model.config.decoder_layers, len(pair.target), len(pair.source))
        assert details.attention.shape == details.mask.shape == details.contribution.shape == shape
        (alone,), _ = demo.inspect_pairs(model, tokenizer, [pair])
        for name in ("attention", "mask", "contribution"):
            torch.testing.assert_close(getattr(alone, name), getattr(details, name), rtol=1e-4, atol=1e-5)


def test_details_are_the_models_own_numbers(model, tokenizer):
    """On single-subword words the cells are those of the attention matrix, less the end of the sentence."""
    words = [word.removeprefix("▁") for word in tokenizer.get_vocab() if word.startswith("▁") and len(word) > 3][:4]
    pair = demo.AlignedPair(source=tuple(words), target=tuple(reversed(words)), links=frozenset())
    source = tokenizer(" ".join(pair.source), return_tensors="pt")
    target = tokenizer(" ".join(pair.target), return_tensors="pt")
    assert source["input_ids"].shape == target["input_ids"].shape == (1, 5)
    outputs = model(**source, labels=target["input_ids"], output_attention_details=True)
    (details,), reliability = demo.inspect_pairs(model, tokenizer, [pair])
    for layer in range(model.config.decoder_layers):
        a, m = outputs.uncalibrated_cross_attentions[layer], outputs.calibration_masks[layer]
        phi = contributions(a, m)
        for expected, found in ((a, details.attention), (m, details.mask), (phi, details.contribution)):
            torch.testing.assert_close(found[layer], head_average(expected)[0, :4, :4])
        assert reliability[layer] == pytest.approx(reliability_level(a, phi))


def test_attention_on_the_gold_links_has_no_error_where_every_word_has_one():
    pair = demo.AlignedPair(("a", "b"), ("x", "y"), frozenset({(0, 1), (1, 0)}))
    gold = torch.tensor([[[0.1, 0.9], [0.8, 0.2]]])
    details = [demo.PairDetails(attention=gold, mask=gold, contribution=1 - gold)]
    assert demo.layer_score([pair], details, "attention", 0).aer == 0
    assert demo.layer_score([pair], details, "contribution", 0).aer == 1


def test_the_heat_map_shows_a_pair_that_fits(model, tokenizer, tmp_path):
    details, _ = demo.inspect_pairs(model, tokenizer, PAIRS)
    path = tmp_path / "map.png"
    drawn = demo.draw_heat_map(path, tokenizer, PAIRS, details, layer=2)
    assert path.read_bytes().startswith(b"\x89PNG")
    source, target = drawn.split("  |  ")
    assert max(len(source.split()), len(target.split())) <= demo.LONGEST_MAP


def test_punctuation_can_be_left_out():
    pair = demo.AlignedPair(("a", "."), ("x", "."), frozenset({(0, 0), (1, 1)}))
    wrong_full_stop = torch.tensor([[[0.9, 0.1], [0.9, 0.1]]])
    details = [demo.PairDetails(attention=wrong_full_stop, mask=wrong_full_stop, contribution=wrong_full_stop)]
    assert demo.layer_score([pair], details, "attention", 0).aer == 0.5
    without = demo.layer_score([pair], details, "attention", 0, "without_punctuation")
    assert without.aer == 0
    assert "|unit:word without punctuation|" in without.signature


@pytest.mark.slow
def test_the_whole_demo(tmp_path, monkeypatch, capsys):
    for name in ("TRAIN_PAIRS", "DEV_PAIRS", "TEST_PAIRS"):
        monkeypatch.setattr(demo, name, 60)
    monkeypatch.setattr(demo, "MAX_TOKENS", 300)
    results = demo.run_demo(tmp_path, steps=3, seed=0)
    out = capsys.readouterr().out
    assert "BLEU before training" in out
    assert "alignment error rate" in out
    assert "attention a" in out
    assert "contribution phi" in out
    assert results == json.loads((tmp_path / "results.json").read_text())
    assert len(results["translations"]) == demo.SHOWN
    assert (tmp_path / "heat_map.png").exists()
    assert (tmp_path / "model" / "README.md").exists()
    assert demo.inspect_folder(tmp_path / "model").problems == ()
