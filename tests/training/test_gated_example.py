"""The second part of `make demo`: a small gated model, its attention, and its folder."""

import json

import gated_model
import torch
from english_german import AlignedPair

from hf_attncal.inference.word_attention import WordDetails


def details(attention: torch.Tensor, contribution: torch.Tensor) -> WordDetails:
    steps = torch.ones(len(attention), attention.shape[1]).bool()
    return WordDetails(attention, attention, contribution, attention, steps)


def test_each_weight_is_scored_in_the_layer_that_is_best_for_it_on_dev():
    """Attention finds the links in layer 1, contribution in layer 0, counted as everywhere."""
    pair = AlignedPair(("a", "b"), ("x", "y"), frozenset({(0, 1), (1, 0)}))
    gold = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    found = details(torch.stack([1 - gold, gold]), torch.stack([gold, 1 - gold]))
    worse = details(torch.stack([gold, 1 - gold]), torch.stack([1 - gold, gold]))
    for tested, rate in ((found, 0), (worse, 1)):
        scores = gated_model.compare_alignments(([pair], [found]), ([pair], [tested]))
        assert {name: score["layer"] for name, score in scores.items()} == {"attention": 1, "contribution": 0}
        assert [scores[name]["all"]["aer"] for name in scores] == [rate, rate]


def test_the_whole_example(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gated_model, "PAIRS", {"train": 60, "valid": 12, "test": 12})
    settings = gated_model.DEMO_SETTINGS.replace("tokens_per_batch: 1024", "tokens_per_batch: 300")
    settings = settings.replace("vocab_size: 800", "vocab_size: 300").replace("new_tokens: 48", "new_tokens: 6")
    monkeypatch.setattr(gated_model, "DEMO_SETTINGS", settings)
    gated_model.main(["--output", str(tmp_path), "--steps", "3"])
    printed = capsys.readouterr().out
    for part in ("BLEU before training", "attention a", "contribution phi", "files of code. Problems: none."):
        assert part in printed
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["reliability"]) == 2
    assert len(results["translations"]) == gated_model.TRANSLATED
    assert (tmp_path / "heat_map.png").exists()
    assert gated_model.inspect_folder(tmp_path / "model").problems == ()
