"""The ablation of Mask-Align: the whole run on a tiny model."""

import importlib
import json
import sys
from pathlib import Path

import pytest
from helpers import write_linked_pairs

from hf_attncal.data.synthetic.english_german import generate_pairs

ROOT = Path(__file__).resolve().parents[2]
TINY = ["d_model=8", "encoder_layers=1", "decoder_layers=1", "attention_heads=1", "ffn_dim=8"]


@pytest.mark.slow
def test_a_row_of_the_ablation(tmp_path, monkeypatch):
    pairs = generate_pairs(60, seed=5)
    write_linked_pairs(tmp_path, ("source", "target"), train=pairs, dev=pairs[:8], test=pairs[8:16])
    lines = []
    for split in ("train", "dev", "test"):
        gold = "" if split == "train" else f", gold: {split}.align"
        lines.append(f"  {split}: {{source: {split}.source, target: {split}.target{gold}}}")
    config = tmp_path / "config.yaml"
    config.write_text("\n".join(["data:", *lines, "tokenizer: {vocab_size: 150}", ""]), encoding="utf-8")

    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    ablation = importlib.import_module("alignment_ablation")
    output = tmp_path / "ablation.json"
    options = ["--config", config, "--data", tmp_path, "--steps", 2, "--only", 5, "--output", output]
    settings = [*(f"model.{field}" for field in TINY), "training.tokens_per_batch=200", "training.warmup_steps=1"]
    settings.append("training.agreement_warmup_steps=1")
    monkeypatch.setattr(sys, "argv", ["alignment_ablation", *map(str, options), *settings])
    ablation.main()
    result = json.loads(output.read_text(encoding="utf-8"))
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert len(result["data_sha256"]) == 2 + 3 + 3
    (row,) = result["rows"]
    assert (row["masked"], row["leaky"], row["agreement"]) == (True, False, True)
    assert row["held_out"]["prediction_accuracy"] >= 0
    for scored in (row["with_end_punctuation"], row["without_end_punctuation"]):
        assert 0 <= scored["test"] <= 1
    assert row["with_end_punctuation"]["dev"] != row["without_end_punctuation"]["dev"]  # it is one word in ten or so
