"""A saved model, as it would go to the Hub."""

import shutil

import pytest
from helpers import TINY

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved tiny model of ours with its tokenizer."""
    path = tmp_path_factory.mktemp("saved")
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    model = AttnCalMarianMTModel(AttnCalMarianConfig(**fields, calibration="gated"))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(saved, tmp_path / "model")
