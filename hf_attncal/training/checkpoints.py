"""Checkpoints from which a killed or interrupted training resumes exactly, their mean, and weights shared by FSDP2.

The Trainer writes and reads them. This file adds a mark of complete checkpoints, and a time budget for a training.
"""

import json
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_utils import rotate_checkpoints

from hf_attncal.io.files import give_name, make_readable, to_disk
from hf_attncal.layouts import WEIGHTS
from hf_attncal.models.loading import check_finite, check_missing

CLOCK = "clock.json"
# Share of the budget reserved for saving and the final scores, and number of evaluations reserved in addition.
_RESERVED, _EVALUATIONS = 0.1, 2
# Steps before the number of steps is estimated, and share of the planned steps below which it is a warning.
_STEPS_BEFORE_ESTIMATE, _LOW_SHARE = 5, 0.3


# ---- time budget ----


@dataclass
class TimeBudget(TrainerCallback):
    """Time budget: estimates the remaining steps after each step, and ends the training in time.

    Args:
        seconds: budget in seconds.
        spent: function that returns the seconds used so far.

    Attributes:
        position: place in the schedules, in steps of a training without a budget; the last step reaches their end.
    """

    seconds: float
    spent: Callable[[], float]
    position: float = 0.0
    wanted: int = field(init=False, default=0)
    _evaluation: float = field(init=False, default=0.0)  # seconds of the last evaluation

    def on_train_begin(self, args, state, control, lr_scheduler=None, **kwargs):
        self.wanted, self._first, self._began = state.max_steps, state.global_step, self.spent()
        if self._began >= (1 - _RESERVED) * self.seconds:
            raise ValueError(
                f"`minutes` must leave time to train, got {self.seconds / 60:g}: {self._began:.0f} seconds passed "
                "before the first step. Give more minutes, or less text."
            )
        schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)  # Accelerate wraps it
        if isinstance(schedule, LambdaLR):
            schedule.lr_lambdas = [self.moved(rate) for rate in schedule.lr_lambdas]

    def moved(self, rate: Callable[[float], float]) -> Callable[[int], float]:
        """Return a schedule that reads `position` in place of the step."""
        return lambda step: rate(self.position)

    def on_optimizer_step(self, args, state, control, **kwargs):
        # This step is not counted yet.
        self.position += (self.wanted - self.position) / max(1, state.max_steps - state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        self._last, done = self.spent(), state.global_step - self._first
        pace = (self._last - self._began) / done  # seconds per step, evaluations and checkpoints included
        time_left = (1 - _RESERVED) * self.seconds - self._last - _EVALUATIONS * self._evaluation
        left = max(0, int(time_left / max(pace, 1e-9)))
        state.max_steps = min(state.global_step + left, self.wanted)
        if done == _STEPS_BEFORE_ESTIMATE and state.max_steps < self.wanted:
            self._announce(state)
        if not left and not control.should_training_stop:
            control.should_save = args.save_strategy != "no"
            control.should_training_stop = True

    def on_evaluate(self, args, state, control, **kwargs):
        if state.global_step > self._first:
            self._evaluation = self.spent() - self._last

    def _announce(self, state) -> None:
        """Print the number of steps, and scale the intervals of evaluations, checkpoints and logs to it."""
        share = state.max_steps / self.wanted
        for name in ("logging_steps", "eval_steps", "save_steps"):
            setattr(state, name, max(1, round(share * getattr(state, name))))
        text = f"{self.seconds / 60:g} minutes: about {state.max_steps:,} of {self.wanted:,} steps"
        print(text, flush=True)
        if share < _LOW_SHARE:
            warnings.warn(f"{text}. Expect low quality, or give more minutes.", stacklevel=2)


# ---- checkpoints ----


def last_checkpoints(folder: str | Path, count: int | None = None) -> list[Path]:
    """Return the last `count` complete checkpoints of a folder, oldest first; all for None."""
    checkpoints = [path.parent for path in Path(folder).glob(f"checkpoint-*/{CLOCK}")]
    checkpoints.sort(key=lambda path: int(path.name.removeprefix("checkpoint-")))
    return checkpoints[max(0, len(checkpoints) - count) :] if count is not None else checkpoints


class WholeCheckpointsTrainer(Trainer):
    """Trainer that writes `clock.json` last, when all other files of a checkpoint are on disk.

    A checkpoint without it was cut off by a kill. `train(resume_from_checkpoint=FOLDER)` continues the count of
    seconds, and does not train a finished run further.
    """

    model: Any  # a PreTrainedModel, or PEFT's around one
    budget: TimeBudget | None = None
    _started = 0.0

    @property
    def folder(self) -> Path:
        """Folder of the checkpoints."""
        return Path(self.args.output_dir or "")

    @property
    def wall_seconds(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return time.monotonic() - self._started

    @property
    def position(self) -> float:
        """Place in the schedules, in optimiser steps (see `TimeBudget`)."""
        return self.state.global_step if self.budget is None else self.budget.position

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs):
        before: dict[str, Any] = {}
        if resume_from_checkpoint is True and (last := last_checkpoints(self.folder, 1)):
            resume_from_checkpoint = str(last[0])
        if isinstance(resume_from_checkpoint, str) and (file := Path(resume_from_checkpoint, CLOCK)).is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
        self._started = time.monotonic() - before.get("wall_seconds", 0.0)
        if self.budget is not None:
            self.budget.position = before.get("position", 0.0)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _prepare_for_training(self, *args, **kwargs):
        """Prepare as the stock Trainer does; with FSDP2 shard the layers that the model names, and the rest together.

        Accelerate would shard the input embedding and the output layer apart, but in an encoder-decoder a third module
        has the same table, which torch refuses to see in two groups.

        Raises:
            ValueError: the processes were started for FSDP1, or with an adapter on the model.
        """
        if not self.is_fsdp_enabled:
            return super()._prepare_for_training(*args, **kwargs)
        version = self.accelerator.state.fsdp_plugin.fsdp_version
        if version != 2 or not isinstance(self.model, PreTrainedModel):
            raise ValueError(
                f"`fsdp_version` must be 2, and the model a whole one, got {version} and {type(self.model).__name__}. "
                "Launch with configs/accelerate/fsdp2.yaml, of an adapter with ddp.yaml: what is trained is small."
            )
        hidden = dict.fromkeys(("get_input_embeddings", "get_output_embeddings"), lambda: None)
        own = vars(self.model)
        own.update(hidden)
        try:
            return super()._prepare_for_training(*args, **kwargs)
        finally:
            for name in hidden:
                own.pop(name)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with whole_weights(resume_from_checkpoint, self.model if model is None else model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        with whole_weights(self.state.best_model_checkpoint, self.model):
            super()._load_best_model()

    def _run_epoch(self, *args, **kwargs) -> None:
        """Stop a finished run before its first step; the stock Trainer checks the number of steps after one."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            self._delete_older(self.folder)  # a kill may have prevented it
            return
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model, trial) -> None:
        """Write a checkpoint as the stock Trainer does, mark it as complete, and then delete older ones."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()  # every process writes files
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial))
            newest = folder / f"checkpoint-{self.state.global_step}"
            make_readable(newest)
            to_disk(*newest.rglob("*"))
            clock = {"wall_seconds": self.wall_seconds, "position": self.position}
            (newest / f"{CLOCK}.part").write_text(json.dumps(clock), encoding="utf-8")
            give_name(newest / f"{CLOCK}.part", newest / CLOCK)
            to_disk(folder)
            self._delete_older(folder)
        self.accelerator.wait_for_everyone()

    def _delete_older(self, folder: Path) -> None:
        """Delete the oldest checkpoints over `save_total_limit`."""
        if self.args.should_save:
            rotate_checkpoints(str(folder), self.args.save_total_limit, self.state.best_model_checkpoint)

    def _finalize_training(self, *args, **kwargs):
        """Look up the best checkpoint again, since the folder may have moved."""
        best = Path(self.folder, f"checkpoint-{self.state.best_global_step}")
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        return super()._finalize_training(*args, **kwargs)


@contextmanager
def whole_weights(checkpoint: str | Path | None, model: nn.Module) -> Iterator[None]:
    """Refuse a checkpoint, loaded into `model` in the block, that lacks a trained weight or holds NaN.

    The stock Trainer only warns of missing weights, and loads NaN without a warning.

    Raises:
        ValueError: the checkpoint cannot be read, or a weight is missing or not finite; the message names both.
    """
    # Filling a weight in place raises its version, whichever of its names it was saved by.
    before = {name: weight._version for name, weight in model.named_parameters() if weight.requires_grad}
    try:
        yield
        after = dict(model.named_parameters())
        check_missing("it", model, [name for name, version in before.items() if after[name]._version == version])
        check_finite(model)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{checkpoint} cannot be resumed: {error}") from error


def resume_advice(folder: str | Path, command: Sequence[str]) -> str:
    """Return advice on how to resume an interrupted command."""
    if not last_checkpoints(folder):
        return f"There is no checkpoint in {folder} yet. Start again."
    command = [*command, *(["--resume"] if "--resume" not in command else [])]
    return f"Go on with: {shlex.join(command)}"


# ---- means ----


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, torch.Tensor]:
    """Return the mean state dict of checkpoint folders, oldest first (Lu et al. 2021 average ten).

    Floating-point tensors are summed in float32 and returned in the type of the last checkpoint. Other tensors (the
    annealing step) come from the last checkpoint.

    Raises:
        ValueError: no paths, or checkpoints of different models (names or shapes differ).
        FileNotFoundError: a folder without safetensors weights.
    """
    if not paths:
        raise ValueError("`paths` must name at least one checkpoint, got none.")
    last = load_file(Path(paths[-1]) / WEIGHTS)
    sums = {name: tensor.to(torch.float32, copy=True) for name, tensor in last.items() if tensor.is_floating_point()}
    for path in paths[:-1]:
        state = load_file(Path(path) / WEIGHTS)
        if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in last.items()}:
            raise ValueError(
                f"`paths` must be checkpoints of one run: the tensors of {path} and {paths[-1]} have different "
                "names or shapes."
            )
        for name in sums:
            sums[name] += state[name].float()
    return last | {name: (total / len(paths)).to(last[name].dtype) for name, total in sums.items()}


def in_one_piece(model: Any) -> Any:
    """Return a model with all its weights, on every process: itself, or a new one of the class that FSDP2 sharded."""
    if FSDPModule not in type(model).__bases__:
        return model
    weights = model.state_dict()
    whole = type(model).__bases__[1](model.config)  # FSDP2 makes a class of its own from this one
    whole.load_state_dict({n: w.full_tensor() if isinstance(w, DTensor) else w for n, w in weights.items()})
    if whole.can_generate():
        whole.generation_config = model.generation_config
    return whole.to(model.device)
