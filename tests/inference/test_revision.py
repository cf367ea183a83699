"""Revision of a folder: it changes if the folder gets another model."""

import json

import pytest

from hf_attncal.training.folder import revision_of

BASE = {"config.json": "{}", "model.safetensors": "weights"}


def folder(path, files):
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "file",
    [
        *BASE,
        "generation_config.json",
        "pytorch_model.bin",
        "modeling_attncal.py",
        "tokenizer.json",
        "vocab.txt",
        "source.spm",
    ],
)
def test_every_file_that_is_read_counts(tmp_path, file):
    name = folder(tmp_path, BASE)
    found = {revision_of(name)}
    for text in ("one", "two"):
        folder(tmp_path, {file: text})
        found.add(revision_of(name))
    assert len(found) == 3
    assert all(revision.startswith("sha256:") for revision in found)


def test_the_revision_includes_names_but_not_the_files_of_a_run(tmp_path):
    name = folder(tmp_path / "a", BASE)
    before = revision_of(name)
    folder(tmp_path / "a", {"README.md": "a card", "run.json": "{}", "training_args.bin": "?", "alignment.json": "{}"})
    (tmp_path / "a" / "vocabulary").mkdir()
    assert revision_of(name) == before
    assert revision_of(folder(tmp_path / "b", BASE)) == before
    other = {"config.json": "{}", "model-1.safetensors": "weights"}
    assert revision_of(folder(tmp_path / "c", other)) != before


def test_an_adapter_is_one_of_its_model(tmp_path):
    base = folder(tmp_path / "base", BASE)
    config = json.dumps({"base_model_name_or_path": base})
    adapter = folder(tmp_path / "adapter", {"adapter_config.json": config, "adapter_model.safetensors": ""})
    before = revision_of(adapter)
    assert before.endswith(f" on {revision_of(base)}")
    folder(tmp_path / "base", {"model.safetensors": "others"})
    assert revision_of(adapter) != before


@pytest.mark.parametrize("config", ["", '{"base_model_name_or_path": null}', "itself"])
def test_an_adapter_without_a_model(tmp_path, config):
    """The error comes when it is loaded."""
    if config == "itself":
        config = json.dumps({"base_model_name_or_path": str(tmp_path)})
    assert " on " not in revision_of(folder(tmp_path, {"adapter_config.json": config}))
