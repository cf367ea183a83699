"""Checkpoints that are whole or not there, for any Trainer, with the seconds and losses behind them; their mean."""

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import nested_gather

from hf_attncal.io.files import give_name, make_readable, to_disk
from hf_attncal.layouts import INDEX, UNFINISHED, WEIGHTS
from hf_attncal.models.loading import check_finite, check_missing

from .budget import PlannedSteps
from .folder import last_checkpoints
from .sharding import sharded_by_layers

CLOCK = "clock.json"


class WholeCheckpointsMixin(PlannedSteps):
    """A checkpoint gets its name when it is complete and loses it before it is deleted; goes first in the bases.

    So a process may be killed at any system call, and `resume_from_checkpoint` goes on from the last checkpoint that
    is whole. A run that has reached its last step trains no further. What is logged at the end (`train_loss`,
    `train_runtime`, steps and samples per second) is of the whole run, however often it was resumed; the stock
    Trainer's is of the steps since the last resume.
    """

    # The next checkpoint is one that no uninterrupted run would have: it goes when the next one is there, and counts
    # neither among those that are kept nor among those that are averaged.
    out_of_turn = False
    _saving_in: str | None = None
    _started = 0.0
    _before: Mapping[str, Any] = MappingProxyType({})  # what the checkpoint that was resumed says in `CLOCK`

    @property
    def wall_seconds(self) -> float:
        """Seconds of training up to now, with those before a resume."""
        return time.monotonic() - self._started

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        if resume_from_checkpoint is True and (last := last_checkpoints(self.args.output_dir, 1)):
            resume_from_checkpoint = str(last[0])
        start = {"wall_seconds": 0.0, "loss_sum": 0.0}
        self._before = _clock(Path(str(resume_from_checkpoint))) if resume_from_checkpoint else start
        self._started = time.monotonic() - self._before.get("wall_seconds", 0.0)
        if self.budget is not None:
            self.budget.position = self._before.get("position", 0.0)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _prepare_for_training(self, *args, **kwargs):
        with sharded_by_layers(self) if self.is_fsdp_enabled else nullcontext():
            return super()._prepare_for_training(*args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with whole_weights(resume_from_checkpoint, self.model if model is None else model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        with whole_weights(self.state.best_model_checkpoint, self.model):
            super()._load_best_model()

    def _run_epoch(self, *args, **kwargs) -> None:
        """Train nothing in a finished run: the stock Trainer would only look at the number of steps after a step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    def _loss_sum(self) -> float:
        """Return the sum of the losses of all optimiser steps so far, NaN where the checkpoint did not say its own.

        Every process has to call it.
        """
        since_log = nested_gather(self._tr_loss, self.args.parallel_mode).mean().item()
        return self._before.get("loss_sum", math.nan) + self._total_loss_scalar + since_log

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if math.isnan(self._before.get("loss_sum", math.nan)):
            logs.pop("train_loss", None)  # that of the steps since the resume is not the run's
        super().log(logs, start_time)

    def _finalize_training(self, trial, num_train_samples, start_time):
        """Log totals of the whole run, and find the best checkpoint in a folder that may have moved."""
        folder = Path(self._get_output_dir(trial))
        self._name_best(folder)
        last = folder / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            self._rotate(folder, last)
        if "wall_seconds" in self._before:  # the stock method counts from these two
            self._initial_global_step, start_time = 0, time.time() - self.wall_seconds
        self._total_loss_scalar += self._before.get("loss_sum", math.nan)
        return super()._finalize_training(trial, num_train_samples, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            make_readable(output_dir or self.args.output_dir)

    def _get_output_dir(self, trial) -> str:
        return self._saving_in or super()._get_output_dir(trial)

    def _save_checkpoint(self, model, trial) -> None:
        """Let the stock method write into a folder beside the older checkpoints, then rename the new one."""
        folder = Path(self._get_output_dir(trial))
        name = f"checkpoint-{self.state.global_step}"
        unfinished, final = folder / UNFINISHED / name, folder / name
        if self.args.should_save:
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)  # of a process that was killed
        self.accelerator.wait_for_everyone()
        self._saving_in = str(folder / UNFINISHED)
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._saving_in = None
        self._name_best(folder, final)
        clock = {"wall_seconds": self.wall_seconds, "loss_sum": self._loss_sum(), "out_of_turn": self.out_of_turn}
        clock["position"] = self.position
        self.accelerator.wait_for_everyone()  # every process has files in it
        if self.args.should_save:
            self.state.save_to_json(str(unfinished / TRAINER_STATE_NAME))
            (unfinished / CLOCK).write_text(json.dumps(clock), encoding="utf-8")
            to_disk(*unfinished.rglob("*"))  # before one of the same name goes
            _discard(final)
            give_name(unfinished, final)
            self._rotate(folder, final)
            shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _name_best(self, folder: Path, newest: Path | None = None) -> None:
        """Say where the best checkpoint is, by its step; `newest` is about to get its name."""
        best = folder / f"checkpoint-{self.state.best_global_step}"
        if best == newest or best.is_dir():
            self.state.best_model_checkpoint = str(best)

    def _rotate(self, folder: Path, newest: Path) -> None:
        """Delete what is out of turn, and the oldest over `save_total_limit`, but neither the newest nor the best."""
        if self.out_of_turn:  # the newest itself
            return
        for path in last_checkpoints(folder):
            if path != newest and _clock(path).get("out_of_turn"):
                _discard(path)
        if not newest.is_dir():
            return
        checkpoints = last_checkpoints(folder)
        spare = [path for path in checkpoints if path not in (newest, Path(self.state.best_model_checkpoint or ""))]
        limit = self.args.save_total_limit or len(checkpoints)
        for path in spare[: max(0, len(checkpoints) - limit)]:
            _discard(path)


@contextmanager
def whole_weights(checkpoint: str | Path, model: nn.Module) -> Iterator[None]:
    """Check that the block fills every trained weight of `model`: the libraries only warn of missing ones.

    Raises:
        ValueError: it cannot be read, a weight that is trained was not filled, or one is not finite; naming the
            checkpoint and the weight.
    """
    # What fills a weight in place counts up its version; by which of its names it was saved does not matter then.
    before = {name: weight._version for name, weight in model.named_parameters() if weight.requires_grad}
    try:
        yield
        after = dict(model.named_parameters())
        check_missing("it", model, [name for name, version in before.items() if after[name]._version == version])
        check_finite(model)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{checkpoint} cannot be gone on from: {error}") from error


def _clock(checkpoint: Path) -> dict:
    """Read the seconds and losses that led to a checkpoint; the stock Trainer's checkpoints have none."""
    file = checkpoint / CLOCK
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _discard(checkpoint: Path) -> None:
    """Delete a checkpoint, if there is one: what is half deleted must not have its name."""
    if checkpoint.is_dir():
        nameless = checkpoint.parent / UNFINISHED / f"{checkpoint.name}.old"
        nameless.parent.mkdir(exist_ok=True)
        checkpoint.rename(nameless)
        shutil.rmtree(nameless, ignore_errors=True)


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Return the state dict of the mean of checkpoint folders, given oldest first (Lu et al. 2021 average ten).

    Sums are kept in float32 and the result has the type of the last checkpoint. Other tensors (the annealing step) are
    those of the last checkpoint.

    Raises:
        ValueError: no paths, or checkpoints of different models (names or shapes differ).
        FileNotFoundError: a folder without safetensors weights.
    """
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint, got none.")
    last = _load_weights(paths[-1])
    sums = {name: tensor.to(torch.float32, copy=True) for name, tensor in last.items() if tensor.is_floating_point()}
    for path in paths[:-1]:
        state = _load_weights(path)
        if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in last.items()}:
            raise ValueError(
                f"`paths` must hold checkpoints of one model: the tensors of {path} and {paths[-1]} have different "
                "names or shapes. Average checkpoints of one run."
            )
        for name in sums:
            sums[name] += state[name].float()
    return last | {name: (total / len(paths)).to(last[name].dtype) for name, total in sums.items()}


def _load_weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a checkpoint folder, from one safetensors file or from the shards of an index."""
    folder = Path(folder)
    if (folder / WEIGHTS).is_file():
        return load_file(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        shards = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        return {name: tensor for shard in shards for name, tensor in load_file(folder / shard).items()}
    raise FileNotFoundError(f"{folder} holds neither {WEIGHTS} nor {INDEX}. Give the folder of a saved checkpoint.")
