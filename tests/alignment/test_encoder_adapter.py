"""The learned update of the default encoder is applied to its maps, and to no other encoder."""

import copy

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

from hf_attncal.alignment import encoder_prior
from hf_attncal.alignment.encoder_prior import LEARNED_FILE, adapt_encoder, halves

MAPS = ("encoder.layer.0.attention.self.query", "encoder.layer.1.output.dense")
PROBE = "encoder.layer.1.output.dense"


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    return BertModel(BertConfig(vocab_size=30, **sizes)).eval()


@pytest.fixture
def learned(encoder, tmp_path, monkeypatch):
    """Return A and B of each map, which a file holds for the second layer of the encoder."""
    torch.manual_seed(4)
    found, tensors = {}, {"probe": encoder.get_submodule(PROBE).weight[0].detach().half()}
    for name in MAPS:
        outputs, inputs = encoder.get_submodule(name).weight.shape
        found[name] = torch.randn(2, inputs), torch.randn(outputs, 2)
        tensors |= halves(name, *found[name])
    save_file(tensors, tmp_path / "adapter.safetensors", {"layer": "2", "probe": PROBE})
    monkeypatch.setattr(encoder_prior, "LEARNED_FILE", tmp_path / "adapter.safetensors")
    return found


def test_each_map_changes_by_what_it_has_learned(encoder, learned):
    changed = copy.deepcopy(encoder)
    assert adapt_encoder(changed, 2)
    for name, weight in encoder.state_dict().items():
        a, b = learned.get(name.removesuffix(".weight"), (None, None))
        change = changed.state_dict()[name] - weight
        expected = torch.zeros_like(weight) if a is None else b @ a
        torch.testing.assert_close(
            change, expected, rtol=0, atol=0.03 * float(expected.abs().max()) if a is not None else 0
        )


@pytest.mark.parametrize("other", ["layer", "weights", "size", "names"])
def test_another_encoder_stays_as_it_is(encoder, learned, other):
    changed, layer = copy.deepcopy(encoder), 1 if other == "layer" else 2
    if other == "weights":
        torch.nn.init.normal_(changed.get_submodule(PROBE).weight)
    elif other == "size":
        changed.get_submodule(PROBE).weight = torch.nn.Parameter(torch.randn(16, 20))
    elif other == "names":
        changed = torch.nn.Sequential(changed.encoder)
    before = copy.deepcopy(changed.state_dict())
    assert not adapt_encoder(changed, layer)
    assert all(torch.equal(weight, before[name]) for name, weight in changed.state_dict().items())


def test_the_file_of_the_package_fits_the_default_encoder():
    """384 wide, read after layer 7 of 12: each map of its seven layers, and no other."""
    with safe_open(LEARNED_FILE, "pt") as file:
        said, names = file.metadata(), set(file.keys())
        shapes = {name: file.get_slice(name).get_shape() for name in names}
    assert {"layer": "7", "probe": "encoder.layer.6.output.dense"}.items() <= said.items()
    assert len([name for name in names if name.endswith(".a")]) == 7 * 6
    assert {shapes[name][-1] for name in names if name.endswith(".a")} == {384, 1536}
    assert LEARNED_FILE.stat().st_size < 300_000
