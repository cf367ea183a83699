"""`attncal publish`: what it prints, refuses and sends."""

import re

import huggingface_hub.constants
import pytest
from helpers import TINY
from huggingface_hub import HfApi
from local_hub import Hub

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.commands import main
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import write_model_card


@pytest.fixture
def folder(tmp_path):
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    path = tmp_path / "model"
    AttnCalMarianMTModel(AttnCalMarianConfig(**fields)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    write_model_card(path, model_name="m", summary="A model.", training_data="lines", example="the house")
    return path


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with Hub() as served:
        made = HfApi.__init__

        def at_the_served(self, endpoint=None, token=None, **rest):
            made(self, endpoint=served.url, token="x", **rest)

        monkeypatch.setattr(HfApi, "__init__", at_the_served)
        yield served


def test_a_dry_run_lists_files_and_what_is_missing(folder, capsys):
    (folder / "run.json").write_text("{}")
    assert main(["publish", str(folder), "someone/model", "--dry-run", "--no-try-loading"]) == 0
    out = capsys.readouterr().out
    assert f"{(folder / 'model.safetensors').stat().st_size:>13,}  model.safetensors\n" in out
    assert "left out: run.json\n" in out
    assert "the card does not say: license (license=...), language (language=...)\n" in out
    assert out.endswith("someone/model would hold these files. Nothing was sent.\n")


def test_a_refusal_is_one_line(folder, capsys):
    (folder / "README.md").unlink()
    assert main(["publish", str(folder), "someone/model"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("attncal: error: ")
    assert "has no README.md" in captured.err
    assert captured.err.count("\n") == 1


def test_it_is_published_once(folder, hub, capsys):
    command = ["publish", str(folder), "someone/model", "--no-try-loading", "license=mit", "language=en,de"]
    assert main(command) == 0
    assert f"{hub.url}/someone/model holds them: commit " in capsys.readouterr().out
    assert hub.repositories["someone/model"].private
    assert main(command) == 0
    assert f"{hub.url}/someone/model held them already: commit " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["licence=mit"], r"A card has no field 'licence'. Its fields are license, language, dataset, base_model"),
        (["license=mit", "license=gpl"], r"`license` is given twice"),
        (["language="], r"`language` of the card is empty"),
        (["title=x"], r"A card has no field 'title'"),
    ],
)
def test_a_field_that_a_card_does_not_have_is_named(folder, capsys, given, told):
    assert main(["publish", str(folder), "someone/model", "--dry-run", *given]) == 1
    assert re.search(told, capsys.readouterr().err)
