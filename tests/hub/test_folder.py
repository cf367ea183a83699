"""A folder for the Hub: what is found missing, and that it works without the package."""

import json

import pytest

from hf_attncal import AttnCalMarianMTModel
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import inspect_folder, translate_in_fresh_process, write_model_card
from hf_attncal.inference.translation import translate_texts


def test_a_complete_folder_has_no_problem(folder):
    found = inspect_folder(folder)
    assert found.problems == ()
    assert found.model_type == "attncal_marian"
    assert found.architecture == "AttnCalMarianMTModel"
    assert "modeling_attncal_marian.py" in found.code_files
    assert found.weight_bytes == (folder / "model.safetensors").stat().st_size
    assert found.problems == ()


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("*.safetensors", "no *.safetensors with weights"),
        ("tokenizer_config.json", "no tokenizer"),
        ("functional.py", "functional.py is imported but missing"),
        ("modeling_attncal_marian.py", "modeling_attncal_marian.py is imported but missing"),
    ],
)
def test_missing_parts_are_named(folder, pattern, problem):
    for path in folder.glob(pattern):
        path.unlink()
    problems = inspect_folder(folder).problems
    assert any(problem in found for found in problems), problems


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


def test_an_adapter_is_ready_where_its_base_is_on_the_hub(tmp_path):
    AttentionCalibrationConfig(base_model_name_or_path="me/base").save_pretrained(tmp_path)
    assert inspect_folder(tmp_path).problems == ("no adapter_model.safetensors with the weights",)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    assert inspect_folder(tmp_path).problems == ()
    for base in (None, str(tmp_path), "/of/another/machine", "./base"):
        AttentionCalibrationConfig(base_model_name_or_path=base).save_pretrained(tmp_path)
        (problem,) = inspect_folder(tmp_path).problems
        assert problem == (
            f"`base_model_name_or_path` of adapter_config.json must be the base model's name on the Hub, got {base!r}"
        )
        assert base is None or base not in (tmp_path / "README.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="write its card with `write_trained_adapter_card`"):
        write_model_card(tmp_path, model_name="m", summary="", training_data="", example="a")


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"config\.json.*read"):
        inspect_folder(tmp_path)


@pytest.mark.parametrize("config", [{"model_type": "marian"}, {}])
def test_a_model_that_is_not_ours_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"`model_type`.*config\.json.*'mask_align'.*got "):
        inspect_folder(tmp_path)


def test_the_folder_translates_where_the_package_cannot_be_imported(folder, quick_fresh_process):
    sentences = ["the old house", "a house"]
    alone = translate_in_fresh_process(folder, sentences, num_beams=2, max_new_tokens=5)
    tokenizer = train_bpe_tokenizer(["the old house is a house"] * 3, vocab_size=40)
    model = AttnCalMarianMTModel.from_pretrained(folder)
    here = translate_texts(model, tokenizer, sentences, num_beams=2, max_new_tokens=5)
    assert [text.strip() for text in alone] == here


def test_code_that_does_not_travel_fails_in_the_fresh_process(folder, quick_fresh_process):
    with (folder / "functional.py").open("a") as file:
        file.write("import hf_attncal\n")
    with pytest.raises(RuntimeError, match=r"does not work without the package:[\s\S]*hf_attncal"):
        translate_in_fresh_process(folder, ["the"], num_beams=1, max_new_tokens=2)
