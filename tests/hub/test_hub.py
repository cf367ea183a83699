"""A folder for the Hub: what is found missing, what the model card says, and that it works without the package."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from helpers import TINY
from huggingface_hub import ModelCard

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel, MaskAlignConfig, MaskAlignModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import Result, inspect_folder, translate_in_fresh_process, write_model_card
from hf_attncal.inference.translation import translate


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


def test_a_complete_folder_has_no_problem(folder):
    found = inspect_folder(folder)
    assert found.problems == ()
    assert found.model_type == "attncal_marian"
    assert found.architecture == "AttnCalMarianMTModel"
    assert "modeling_attncal_marian.py" in found.code_files
    assert found.weight_bytes == (folder / "model.safetensors").stat().st_size
    assert "ready for the Hub" in str(found)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("*.safetensors", "no *.safetensors with the weights"),
        ("tokenizer_config.json", "no tokenizer"),
        ("functional.py", "functional.py is imported and missing"),
        ("modeling_attncal_marian.py", "modeling_attncal_marian.py is imported and missing"),
    ],
)
def test_what_is_missing_is_named(folder, pattern, problem):
    for path in folder.glob(pattern):
        path.unlink()
    problems = inspect_folder(folder).problems
    assert any(problem in found for found in problems), problems
    assert "not ready: " in str(inspect_folder(folder))


def test_code_that_needs_the_package_is_named(folder):
    with (folder / "functional.py").open("a") as file:
        file.write("from hf_attncal.data import corpora\n")
    assert inspect_folder(folder).problems == ("functional.py imports the package hf_attncal",)


def test_a_folder_without_code_is_named(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["auto_map"]
    path.write_text(json.dumps(config))
    assert any("`auto_map`" in found for found in inspect_folder(folder).problems)


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"is not the folder of a saved model: config\.json cannot be read"):
        inspect_folder(tmp_path)


def test_the_model_card_says_what_it_is_and_what_was_measured(folder):
    path = write_model_card(
        folder,
        model_name="a-name",
        summary="A summary.",
        training_data="three lines",
        example="the old house",
        languages=("en", "de"),
        results=[Result("BLEU", 61.25, "nrefs:1|version:x")],
    )
    card = ModelCard.load(path)
    assert card.data.language == ["en", "de"]
    assert card.data.library_name == "transformers"
    assert "| BLEU | 61.2 | `nrefs:1\\|version:x` |" in card.text
    assert "`calibration`: `gated`" in card.text
    assert "leaky" not in card.text
    assert "from_pretrained(name, trust_remote_code=True)" in card.text


def test_a_model_card_without_results_says_so(folder):
    path = write_model_card(folder, model_name="a", summary="b", training_data="c", example="d")
    text = path.read_text()
    assert "Not measured." in text
    assert "| measure |" not in text


def test_the_folder_translates_where_the_package_cannot_be_imported(folder):
    sentences = ["the old house", "a house"]
    alone = translate_in_fresh_process(folder, sentences, num_beams=2, max_new_tokens=5)
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    model = AttnCalMarianMTModel.from_pretrained(folder)
    here = translate(model, tokenizer, sentences, num_beams=2, max_new_tokens=5)
    assert [text.strip() for text in alone] == here


def test_code_that_does_not_travel_fails_in_the_fresh_process(folder):
    with (folder / "functional.py").open("a") as file:
        file.write("import hf_attncal\n")
    with pytest.raises(RuntimeError, match=r"does not work without the package:[\s\S]*hf_attncal"):
        translate_in_fresh_process(folder, ["the"], num_beams=1, max_new_tokens=2)


def test_the_card_of_an_aligner(tmp_path):
    config = MaskAlignConfig(
        vocab_size=30, d_model=8, encoder_layers=1, decoder_layers=1, attention_heads=2, ffn_dim=8, lowercase=True
    )
    MaskAlignModel(config).save_pretrained(tmp_path)
    train_bpe_tokenizer(["a house", "ein haus"] * 2, vocab_size=30).save_pretrained(tmp_path)
    assert inspect_folder(tmp_path).problems == ()
    path = write_model_card(
        tmp_path, model_name="me/aligner", summary="It aligns.", training_data="Text.", example="a ||| b"
    )
    text = path.read_text(encoding="utf-8")
    assert "word-alignment" in text
    assert "pipeline_tag" not in text
    assert "- `lowercase`: `True`" in text
    assert 'echo "a ||| b" | attncal align run me/aligner' in text
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = python.replace('"me/aligner"', repr(str(tmp_path))) + "\nprint(output.forward_attention.shape)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch.Size([1, " in process.stdout
