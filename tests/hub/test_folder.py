"""A folder for the Hub: what is found missing, and that it works without the package."""

import json

import pytest

from hf_attncal import AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import inspect_folder, translate_in_fresh_process
from hf_attncal.inference.translation import translate


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


@pytest.mark.parametrize("config", [{"model_type": "marian"}, {}])
def test_a_model_that_is_not_ours_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"`model_type` in config\.json must be one of .*'mask_align'.*, got "):
        inspect_folder(tmp_path)


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
