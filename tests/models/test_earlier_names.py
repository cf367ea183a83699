"""Weights saved before NULL and the count of steps were modules load under their present names."""

import json

import pytest
import torch
from helpers import FAMILIES, assert_identical, tiny_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM

EARLIER = {
    "null.key": "null_key",
    "null.value": "null_value",
    "null.bias": "null_bias",
    "annealing.annealing_step": "annealing_step",
}


@pytest.fixture
def folder(family, tmp_path):
    """An annealed, leaky model with the earlier names in its file."""
    model = tiny_model(family, torch.float32, calibration="annealed", leaky=True, null_bias=-1.0)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    stored = load_file(path)
    renamed = {}
    for name, tensor in stored.items():
        for now, earlier in EARLIER.items():
            name = name.removesuffix(now) + earlier if name.endswith(f".{now}") else name
        renamed[name] = tensor
    assert len(renamed.keys() - stored.keys()) == 2 * len(EARLIER)  # decoder layers
    save_file(renamed, path, metadata={"format": "pt"})
    return tmp_path


def expected_state(family, folder) -> dict[str, torch.Tensor]:
    config = json.loads((folder / "config.json").read_text())
    return tiny_model(
        family, torch.float32, **{name: config[name] for name in ("calibration", "leaky", "null_bias")}
    ).state_dict()


def assert_same_state(model: torch.nn.Module, expected: dict[str, torch.Tensor]) -> None:
    state = model.state_dict()
    for name, tensor in expected.items():
        assert_identical(state[name], tensor, name)


def test_from_pretrained(family, folder, tmp_path):
    expected = expected_state(family, folder)
    model, report = FAMILIES[family][3].from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert_same_state(model, expected)
    assert_same_state(AutoModelForSeq2SeqLM.from_pretrained(folder), expected)
    bare = {name.removeprefix("model."): t for name, t in expected.items() if name.startswith("model.")}
    assert_same_state(AutoModel.from_pretrained(folder), bare)
    model.save_pretrained(tmp_path / "again")
    assert_same_state(FAMILIES[family][3].from_pretrained(tmp_path / "again"), expected)


def test_the_callers_own_mapping_of_keys_still_counts(family, folder):
    path = folder / "model.safetensors"
    stored = load_file(path)
    save_file({name.replace("fc1", "first"): t for name, t in stored.items()}, path, metadata={"format": "pt"})
    model = FAMILIES[family][3].from_pretrained(folder, key_mapping={"first": "fc1"})
    assert_same_state(model, expected_state(family, folder))


def test_load_state_dict(family, folder):
    """How a Trainer resumes."""
    model = FAMILIES[family][3](FAMILIES[family][2].from_pretrained(folder))
    report = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not report.unexpected_keys
    assert not [name for name in report.missing_keys if "encoder_attn" in name]
    expected = expected_state(family, folder)
    assert_same_state(model, {name: t for name, t in expected.items() if "encoder_attn" in name})
