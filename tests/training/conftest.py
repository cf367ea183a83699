"""Fixtures of runs: text, a base model for adapters, a run that was stopped."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from runs import ROOT, SENTENCES, german, translation_settings
from transformers import MarianConfig, MarianMTModel

import hf_attncal.alignment.counting  # noqa: F401 - makes the links of guided trainings
from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer

sys.path.insert(0, str(ROOT / "training"))
import train as script

QUICK = ["training.eval_strategy=no", "data.dev=null", "training.bf16=false", "average_last=1"]
SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 32,
    "init_std": 0.2,
}


def write_texts(folder: Path) -> Path:
    """Three splits of word-by-word translations."""
    folder.mkdir()
    for name, sentences in (("train", SENTENCES * 3), ("dev", SENTENCES[:6]), ("test", SENTENCES[4:9])):
        (folder / f"{name}.en").write_text("\n".join(sentences) + "\n", encoding="utf-8")
        (folder / f"{name}.de").write_text("\n".join(map(german, sentences)) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A folder with these texts."""
    return write_texts(tmp_path / "data")


@pytest.fixture
def base(corpus, tmp_path) -> Path:
    """A folder with a stock model and its tokenizer."""
    lines = (corpus / "train.en").read_text(encoding="utf-8") + (corpus / "train.de").read_text(encoding="utf-8")
    tokenizer = train_bpe_tokenizer(lines.splitlines(), 60)
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "forced_eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(1)
    MarianMTModel(MarianConfig(**SIZES, **tokens)).save_pretrained(tmp_path / "base")
    AttnCalMarianMTModel(AttnCalMarianConfig(**SIZES, **tokens)).save_pretrained(tmp_path / "ours")
    gated = AttnCalMarianConfig(**SIZES, **tokens, calibration="gated")
    AttnCalMarianMTModel(gated).save_pretrained(tmp_path / "gated")
    for name in ("base", "ours", "gated"):
        tokenizer.save_pretrained(tmp_path / name)
    return tmp_path / "base"


def arguments_of(corpus: Path, folder: Path) -> list[str]:
    """Of a run of four steps in folder/run, with a checkpoint at each."""
    return ["--config", str(translation_settings(folder)), "--data", str(corpus), *QUICK]


@pytest.fixture
def arguments(corpus, tmp_path) -> list[str]:
    return arguments_of(corpus, tmp_path)


@pytest.fixture(scope="session")
def stopped_run(tmp_path_factory) -> Path:
    """The folder of a run that was killed after its second checkpoint, with half of a third."""
    folder = tmp_path_factory.mktemp("stopped")
    script.main([*arguments_of(write_texts(folder / "data"), folder), "training.save_total_limit=9"])
    run = folder / "run"
    for name in ("model.safetensors", "results.json"):
        (run / name).unlink()
    for step in (3, 4):
        shutil.rmtree(run / f"checkpoint-{step}")
    (run / "checkpoint-3").mkdir()
    (run / "checkpoint-3" / "model.safetensors").write_bytes(b"half")
    return run


@pytest.fixture
def stopped(arguments, stopped_run, tmp_path) -> list[str]:
    """The arguments of a run that was killed after its second checkpoint, with half of a third."""
    shutil.copytree(stopped_run, tmp_path / "run")
    return arguments
