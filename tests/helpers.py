"""Tiny models, batches and comparisons that tests share; test_functional.py tests the comparisons."""

import functools
import itertools
import json
import math
import operator
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from english_german import AlignedPair
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel, PreTrainedModel
from warm import warm

from hf_attncal import (
    AttnCalBartConfig,
    AttnCalBartForConditionalGeneration,
    AttnCalMarianConfig,
    AttnCalMarianMTModel,
)
from hf_attncal.data.pharaoh import format_links
from hf_attncal.families import VARIANTS
from hf_attncal.layouts import COUNTS, Fate, fate_of, kind_of_folder

# stock configuration, stock model, our configuration, our model
FAMILIES = {
    "marian": (MarianConfig, MarianMTModel, AttnCalMarianConfig, AttnCalMarianMTModel),
    "bart": (BartConfig, BartForConditionalGeneration, AttnCalBartConfig, AttnCalBartForConditionalGeneration),
}

TINY = {
    "vocab_size": 11,
    "d_model": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "max_position_embeddings": 24,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "forced_eos_token_id": None,
    "decoder_start_token_id": 2,
}

OBJECTIVES = ("copy", "guided")  # variants that do not change the weights; they have their own test files
# Further settings for the tests of a variant.
SHORT = {"annealed": {"annealing_steps": 10}}


def switched(*names: str, **others: Any) -> dict[str, Any]:
    """Return the settings that switch on variants of the table, by their names."""
    settings = [{VARIANTS[name].field: VARIANTS[name].value} | SHORT.get(name, {}) for name in names]
    return functools.reduce(operator.or_, settings, {}) | others


CALIBRATIONS = {name: switched(name) for name, variant in VARIANTS.items() if variant.field == "calibration"}
# Every variant of the weights, and every combination that runs different code.
SWITCHES = {
    **CALIBRATIONS,
    "gated, head": switched("gated", mask_projection="head"),
    "gated, renormalized": switched("gated", renormalize=True),
    "gated, trained inputs": switched("gated", mask_inputs="trained"),
    "annealed, leaky, head, trained inputs": switched(
        "annealed", "leaky", mask_projection="head", mask_inputs="trained"
    ),
    "gated, leaky": switched("gated", "leaky"),
    "annealed, gumbel": switched("annealed", "gumbel"),
    "gated, leaky, gumbel, head": switched("gated", "leaky", "gumbel", gumbel_temperature=0.7, mask_projection="head"),
    **{name: switched(name) for name in VARIANTS if name not in (*CALIBRATIONS, *OBJECTIVES)},
    "leaky, gumbel": switched("leaky", "gumbel"),
    "gated, leaky, output gate": switched("gated", "leaky", "output_gate"),
}
CALIBRATED = {name: switches for name, switches in SWITCHES.items() if "calibration" in switches}


def half_of(*axes: Mapping[str, Any] | Iterable) -> list:
    """Return test parameters for every combination of values of some axes, with ids from the axes' names.

    Of two combinations that differ in only one value, one is marked as slow.
    """
    named = [axis if isinstance(axis, Mapping) else {str(value): value for value in axis} for axis in axes]
    combinations = []
    for combination in itertools.product(*(enumerate(axis.items()) for axis in named)):
        numbers, items = zip(*combination, strict=True)
        names, values = zip(*items, strict=True)
        marks = pytest.mark.slow if sum(numbers) % 2 else ()
        combinations.append(pytest.param(*values, id="-".join(names), marks=marks))
    return combinations


def scatter(model: torch.nn.Module, scale: float = 0.4) -> None:
    """Add random values to every trainable parameter, so that no term is 0 by chance."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(scale * noise.to(parameter.dtype))


def tiny_model(family: str, dtype: torch.dtype = torch.float64, **config) -> PreTrainedModel:
    """Return a tiny random model of ours with scattered parameters; `config` overrides fields."""
    _, _, config_class, model_class = FAMILIES[family]
    torch.manual_seed(3)
    model = model_class(config_class(**TINY | config)).to(dtype)
    scatter(model)
    if model.config.calibration == "annealed":
        model.set_annealing_step(4)
    return model


def tiny_stock_model(family: str, dtype: torch.dtype = torch.float64, **config) -> PreTrainedModel:
    """Return a tiny random stock model with scattered parameters."""
    config_class, model_class, _, _ = FAMILIES[family]
    torch.manual_seed(3)
    model = model_class(config_class(**TINY | config)).to(dtype)
    scatter(model)
    return model


def slow_twin(model: PreTrainedModel) -> reference.SlowModel:
    """Return a model with the parameters of `model` that computes by tests/reference.py."""
    config_class, model_class, _, _ = FAMILIES[model.config.model_type.removeprefix("attncal_")]
    fields = config_class().to_dict().keys() - {"model_type", "architectures", "transformers_version"}
    config = {name: value for name, value in model.config.to_dict().items() if name in fields}
    stock = model_class(config_class(**config, attn_implementation="eager")).to(model.dtype)
    names = set(stock.state_dict())
    stock.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if name in names})
    added = {name: p.detach().clone() for name, p in model.named_parameters() if name not in names}
    return reference.SlowModel(stock, added, model.config, getattr(model, "annealing_step", None))


def tiny_batch() -> dict[str, torch.Tensor]:
    """Return two pairs with source lengths 5 and 3 and target lengths 4 and 2, padded to 5 and 4."""
    return {
        "input_ids": torch.tensor([[4, 7, 3, 9, 2], [5, 8, 2, 1, 1]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "labels": torch.tensor([[6, 10, 4, 2], [9, 2, -100, -100]]),
    }


def is_mask_network(name: str) -> bool:
    """Return True for the name of a parameter in theta_m."""
    return ".mask_network." in name


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients by parameter name, without None."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def largest_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest absolute difference; raise an AssertionError if the tensors cannot be compared."""
    assert actual.shape == expected.shape, f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"dtypes {actual.dtype} and {expected.dtype}"
    assert actual.numel() > 0, "nothing to compare"
    assert torch.isfinite(actual).all(), "not finite"
    assert torch.isfinite(expected).all(), "the expected tensor is not finite"
    return float((actual - expected).detach().abs().max())


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-12, what: str = "tensor") -> None:
    """Assert the same shape and dtype, finite values, and differences of at most `tolerance`."""
    difference = largest_difference(actual, expected)
    assert difference <= tolerance, f"{what}: largest difference {difference:.3g} > {tolerance:.3g}"


def assert_identical(actual: torch.Tensor, expected: torch.Tensor, what: str = "tensor") -> None:
    """Assert that two tensors are equal to the bit."""
    difference = largest_difference(actual, expected)
    assert torch.equal(actual, expected), f"{what}: not identical, largest difference {difference:.3g}"


def assert_gradients_close(
    actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: float = 1e-12
) -> None:
    """Assert that the same parameters have gradients, that they agree, and that some are not 0."""
    assert actual.keys() == expected.keys(), f"only one has a gradient: {sorted(actual.keys() ^ expected.keys())}"
    assert any(gradient.abs().max() > 1e-6 for gradient in expected.values()), "every expected gradient is 0"
    for name in expected:
        assert_close(actual[name], expected[name], tolerance, f"gradient of {name}")


def assert_results_agree(actual: Any, expected: Any, where: str = "results") -> None:
    """Assert that two runs with the same settings have the same results, except for times; `where` names the value."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for name in expected.keys() - {"output_dir", "hardware"}:
            if "second" not in name and not name.endswith("runtime"):
                assert_results_agree(actual[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), where
        for number, pair in enumerate(zip(actual, expected, strict=True)):
            assert_results_agree(*pair, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert math.isclose(actual, expected, rel_tol=1e-6), f"{where}: {actual} is not {expected}"
    else:
        assert actual == expected, where


def files_that_name(place: Path, folder: Path) -> set[str]:
    """Return the files of a folder that contain the path `place`, without checkpoints, which nobody publishes."""
    files = (path for path in folder.rglob("*") if path.is_file() and "checkpoint-" not in str(path))
    return {str(path.relative_to(folder)) for path in files if str(place).encode() in path.read_bytes()}


def begun(folder: Path) -> bool:
    """Return True if a run was started in a folder; its `run.json` may also be there because of a tokenizer."""
    run = folder / "run.json"
    return any(folder.glob("checkpoint-*")) or (run.exists() and "run" in json.loads(run.read_text(encoding="utf-8")))


def assert_layouts_know(folder: Path) -> None:
    """Assert that all saved files of a folder, and of models in it, are in the table and not refused."""
    for path in folder.iterdir():
        fate = fate_of(path.name)
        if path.is_dir() and path.name != COUNTS and fate is Fate.STAYS:
            continue  # checkpoints
        if path.is_dir():
            assert kind_of_folder(path) is not None, path
            assert_layouts_know(path)
        else:
            assert fate is not Fate.REFUSED, path


def assert_functions_agree(
    fast: Callable[..., torch.Tensor], slow: Callable[..., torch.Tensor], inputs: Mapping[str, torch.Tensor]
) -> None:
    """Assert that both functions return the same tensor, with the same gradients of all `inputs`, to 1e-12."""
    outputs, grads = [], []
    for function in (fast, slow):
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
        output = function(**leaves)
        # An arbitrary direction with a different weight for every cell of the output.
        direction = torch.arange(1, output.numel() + 1, dtype=output.dtype).reshape(output.shape).sin()
        grad = torch.autograd.grad((output * direction).sum(), list(leaves.values()), allow_unused=True)
        outputs.append(output.detach())
        grads.append({name: g for name, g in zip(leaves, grad, strict=True) if g is not None})
    assert_close(outputs[0], outputs[1], what="output")
    assert_gradients_close(grads[0], grads[1])


def run_in_two_processes(script: str, folder: Path) -> Path:
    """Run `python script folder` in two connected processes (gloo), and return the folder that they filled."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    environment = {**os.environ, **address, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)}
    command = warm([sys.executable, script, folder])
    ranks = [environment | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    started = [subprocess.Popen(command, env=rank, stderr=subprocess.PIPE, text=True) for rank in ranks]
    for process in started:
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err[-4000:]
    return folder


def batch_of_pairs(pairs, extra: int = 0, *, vocab_size: int) -> dict:
    """Return pairs of token ids as a batch for word aligners, padded on the right by `extra` more than needed.

    The padding has different tokens.
    """
    batch = {}
    for side, prefix in enumerate(("", "target_")):
        length = max(len(pair[side]) for pair in pairs) + extra
        ids = torch.arange(len(pairs) * length).remainder(vocab_size).reshape(len(pairs), length)
        mask = torch.zeros_like(ids)
        for n, pair in enumerate(pairs):
            ids[n, : len(pair[side])] = torch.tensor(pair[side])
            mask[n, : len(pair[side])] = 1
        batch |= {f"{prefix}input_ids": ids, f"{prefix}attention_mask": mask}
    return batch


def padded_pairs(pairs, left: bool = False) -> dict[str, torch.Tensor]:
    """Return a batch of pairs, sources padded on the left or right with a token that is not the padding token."""
    longest, most = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
    rows = {"input_ids": [], "attention_mask": [], "labels": []}
    for source, target in pairs:
        padding, real = [8] * (longest - len(source)), [1] * len(source)
        rows["input_ids"].append(padding + source if left else source + padding)
        rows["attention_mask"].append([0] * len(padding) + real if left else real + [0] * len(padding))
        rows["labels"].append(target + [-100] * (most - len(target)))
    return {name: torch.tensor(values) for name, values in rows.items()}


# Sentence pairs as tokens, with links (source token, target token): one to one, one to several, several to one, and
# tokens and a whole pair without any.
LINKED_PAIRS = [([4, 7, 3, 9, 2], [6, 10, 4, 2]), ([5, 8, 2], [9, 2]), ([6, 2], [4, 9, 5, 7, 2])]
LINKS = [[(0, 0), (1, 1), (3, 1), (2, 3)], [], [(0, 0), (0, 2), (1, 4)]]


def write_linked_pairs(folder: Path, sides: tuple[str, str] = ("en", "de"), **splits: Iterable[AlignedPair]) -> None:
    """Write generated pairs into `<split>.<side>` of a folder, and their links into `<split>.align`."""
    for split, pairs in splits.items():
        lines = [(" ".join(pair.source), " ".join(pair.target), format_links(pair.links)) for pair in pairs]
        for suffix, column in zip((*sides, "align"), zip(*lines, strict=True), strict=True):
            (folder / f"{split}.{suffix}").write_text("\n".join(column) + "\n", encoding="utf-8")


def check_gradient_checkpointing(
    model: torch.nn.Module, batch: dict[str, torch.Tensor], inner: torch.nn.Module | None = None
) -> None:
    """Assert that recomputed activations give the same gradients; `inner`, or the model itself, recomputes them."""
    model.train()(**batch).loss.backward()
    expected = gradients(model)
    model.zero_grad()
    enable_checkpointing(inner or model, {"use_reentrant": False})
    model(**batch).loss.backward()
    assert_gradients_close(gradients(model), expected)


def enable_checkpointing(model: torch.nn.Module, options: dict[str, bool] | None) -> None:
    """Enable gradient checkpointing, by the method's name in this version of transformers."""
    name = "activation_checkpointing_enable"
    name = name if hasattr(model, name) else "gradient_checkpointing_enable"  # the older name
    getattr(model, name)(options)


def guided_batch(pairs=LINKED_PAIRS, links=LINKS, left: bool = False) -> dict[str, torch.Tensor]:
    """Return a padded batch with `links` for a guided model."""
    batch = padded_pairs(pairs, left)
    (rows, steps), source = batch["labels"].shape, batch["input_ids"].shape[1]
    batch["links"] = torch.zeros(rows, steps, source)
    for row, ((src, tgt), links_of_pair) in enumerate(zip(pairs, links, strict=True)):
        for s, t in links_of_pair:
            batch["links"][row, t + left * (steps - len(tgt)), s + left * (source - len(src))] = 1
    return batch


def without_links(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in batch.items() if name != "links"}
