"""Two processes (gloo) that shard a model by its own `_no_split_modules` (FSDP2) train what one process trains.

This file is both the test and, run as a script by `torch.distributed.run`, each of the two processes.
"""

import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from discrete_helpers import tiny_discrete
from helpers import run_in_two_processes, tiny_model
from luong_helpers import tiny_luong
from runs import largest_difference, tiny_aligner, weights
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS = 3
MODELS = {
    "marian": lambda: tiny_model("marian", calibration="gated", leaky=True),
    "bart": lambda: tiny_model("bart", calibration="annealed", annealing_steps=10),
    "discrete": lambda: tiny_discrete("seq2seq", streams=2, gumbel_noise=0),
    "recurrent": lambda: tiny_luong(),
    "recurrent, gru, one table": lambda: tiny_luong(
        cell="gru", bidirectional=True, selective_gate=True, share_embeddings=True, embedding_size=4
    ),
    "recurrent, unfed": lambda: tiny_luong(input_feeding=False, attention_window="local-p"),
    "recurrent, gated": lambda: tiny_luong(calibration="gated", leaky=True),
    "recurrent, without attention": lambda: tiny_luong(input_feeding=False, attention_window=None),
    "aligner": lambda: tiny_aligner(share_embeddings=True),
}
# One process takes the first half of the pairs, the other the second: of equal lengths, so that the means of their
# losses are those of the whole batch.
BATCH = {
    "input_ids": torch.tensor([[4, 7, 3, 9, 2], [5, 8, 2, 1, 1], [3, 9, 2, 1, 1], [6, 5, 4, 10, 2]]),
    "labels": torch.tensor([[6, 10, 4, 2], [9, 2, -100, -100], [8, 2, -100, -100], [7, 3, 5, 2]]),
}
BATCH["attention_mask"] = BATCH["input_ids"].ne(1).long()
PAIRS = {
    **{name: BATCH[name] for name in ("input_ids", "attention_mask")},
    "target_input_ids": BATCH["labels"].clamp(min=0),
    "target_attention_mask": BATCH["labels"].gt(0).long(),
}


def shard(model: torch.nn.Module) -> int:
    """Shard each module that the model says is not to be split, then the rest; returns how many there were."""
    layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
    return len(layers)


def train(model: torch.nn.Module, part: slice) -> None:
    """Take a few steps of gradient descent on these rows of the batch."""
    is_aligner = model.config.model_type == "mask_align"
    batch = {name: tensor[part] for name, tensor in (PAIRS if is_aligner else BATCH).items()}
    if is_aligner:
        batch["return_loss"] = True
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for _ in range(STEPS):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def worker(folder: Path) -> None:
    """One of two processes: every model."""
    dist.init_process_group("gloo")
    half = slice(0, 2) if dist.get_rank() == 0 else slice(2, 4)
    for name, build in MODELS.items():
        model = build()
        try:
            layers = shard(model)
            train(model, half)
            state = model.state_dict()
            whole = {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in state.items()}
            result = {"layers": layers, "weights": whole}
        except (RuntimeError, ValueError) as error:
            result = {"error": repr(error)}
        if dist.get_rank() == 0:
            torch.save(result, folder / f"{name}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """The folder that a run of `worker` in two processes filled."""
    return run_in_two_processes(__file__, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("name", MODELS)
def test_modules_that_are_not_split_are_there(name):
    """Accelerate refuses a model that names a class it does not have."""
    model = MODELS[name]()
    assert set(model._no_split_modules) <= {type(module).__name__ for module in model.modules()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_two_sharded_halves_equal_one_process(name, two_processes):
    both = torch.load(two_processes / f"{name}.pt")
    assert both.get("error") is None
    assert both["layers"] > 0
    one, untrained = MODELS[name](), MODELS[name]()
    train(one, slice(None))
    assert largest_difference(weights(one), both["weights"]) < 1e-10
    # The comparison can fail: these steps move the weights.
    assert largest_difference(weights(one), weights(untrained)) > 1e-3


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]))
