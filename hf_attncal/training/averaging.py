"""Checkpoint averaging: the mean of the weights of the last checkpoints of one run (Lu et al. 2021 average ten)."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Return the state dict of the mean of checkpoint folders, given oldest first.

    Sums are kept in float32 and the result has the type of the last checkpoint. Other tensors (the annealing step) are
    those of the last checkpoint.

    Raises:
        ValueError: no paths, or checkpoints of different models (names or shapes differ).
        FileNotFoundError: a folder without safetensors weights.
    """
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint, got none.")
    last = _load(paths[-1])
    sums = {name: tensor.to(torch.float32, copy=True) for name, tensor in last.items() if tensor.is_floating_point()}
    for path in paths[:-1]:
        state = _load(path)
        if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in last.items()}:
            raise ValueError(
                f"`paths` must hold checkpoints of one model: the tensors of {path} and {paths[-1]} have different "
                "names or shapes. Average checkpoints of one run."
            )
        for name in sums:
            sums[name] += state[name].float()
    return last | {name: (total / len(paths)).to(last[name].dtype) for name, total in sums.items()}


def _load(folder: str | Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a checkpoint folder, from one safetensors file or from the shards of an index."""
    folder = Path(folder)
    if (folder / WEIGHTS).is_file():
        return load_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        shards = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        return {name: tensor for shard in shards for name, tensor in load_file(folder / shard).items()}
    raise FileNotFoundError(f"{folder} holds neither {WEIGHTS} nor {INDEX}. Give the folder of a saved checkpoint.")
