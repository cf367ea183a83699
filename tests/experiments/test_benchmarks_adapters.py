"""The benchmarks of adapters: the whole runs on tiny models, and what they state."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from adapter_helpers import adapted, save_base
from helpers import write_linked_pairs

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.data.pharaoh import parse_alignments
from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.metrics.aer import alignment_error_rate

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(monkeypatch):
    """(name of a benchmark, arguments) -> what it wrote."""

    def run(name: str, *arguments: str, output: Path) -> dict:
        for folder in ("benchmarks", "experiments"):
            monkeypatch.syspath_prepend(str(ROOT / folder))
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--output", str(output)])
        importlib.import_module(name).main()
        return json.loads(output.read_text(encoding="utf-8"))

    return run


def test_size_and_speed(run, tmp_path):
    shape = "--d-model 16 --layers 1 --ffn 16 --vocab 60 --batch 2 --length 4 --new-tokens 2 --lora-rank 2 --repeats 1"
    result = run("adapters", "--variants", "gated", *shape.split(), "--threads", "1", output=tmp_path / "x.json")
    gated = result["variants"]["gated"]
    heads = 8
    assert gated["parameters"] == 2 * 16 * 16 + heads * (16 // heads + 1)
    assert gated["lora_parameters"] == 8 * 2 * 2 * 16
    assert gated["megabytes"]["float32"] > gated["megabytes"]["bfloat16"] > 2e-6 * gated["parameters"]
    assert all(gated[name]["median"] > 0 for name in ("speed_ratio", "step_ratio_to_lora", "step_ratio_to_full"))


def test_attention_before_and_after(run, tmp_path):
    """What is chosen on dev is scored on test, and is what the aligner gives with these settings."""
    pairs = [pair for pair in generate_pairs(60, seed=5) if len(pair.source) < 9]
    lines = [" ".join(side) for pair in pairs for side in (pair.source, pair.target)]
    tokenizer = train_bpe_tokenizer(lines, vocab_size=120)
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 64,
    }
    base = save_base(tmp_path, "marian", dtype=torch.float32, **tokens)
    tokenizer.save_pretrained(base)
    adapted(base, calibration="gated").save_pretrained(tmp_path / "gated")
    folder = tmp_path / "data" / "wpt03-enfr"
    folder.mkdir(parents=True)
    write_linked_pairs(folder, ("en", "fr"), dev=pairs[:6], test=pairs[6:12])

    models = ["--model", f"base={base}", "--model", f"gated={tmp_path / 'gated'}"]
    data = ["--data", str(tmp_path / "data"), "--pair", "wpt03-enfr", "--bootstrap", "10"]
    result = run("adapter_attention", *data, *models, output=tmp_path / "attention.json")
    assert list(result["models"]["base"]) == ["attention", "attention, mean of heads"]
    assert len(result["models"]["gated"]) == 4
    assert str(tmp_path) not in json.dumps(result)
    gold = parse_alignments((folder / "test.align").read_text().splitlines())
    for name, source in (("base", base), ("gated", tmp_path / "gated")):
        for what, row in result["models"][name].items():
            settings = Seq2SeqAttention.from_dict(row["settings"])
            assert settings.weights == what.partition(",")[0]
            assert settings.heads is None or "mean" not in what
            aligner = WordAligner.from_pretrained(source, device="cpu", settings=settings)
            aligned = aligner.align([(" ".join(p.source), " ".join(p.target)) for p in pairs[6:12]])
            assert alignment_error_rate(gold, [set(a.links) for a in aligned]).aer == row["test"]["aer"]
