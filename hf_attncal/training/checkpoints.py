"""Checkpoints that a killed or interrupted training goes on from exactly, their mean, and weights shared by FSDP2.

Writing and reading them is the Trainer's. Added here is what says that one is whole, and Ctrl-C.
"""

import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel, Trainer, TrainerCallback
from transformers.trainer_utils import rotate_checkpoints

from hf_attncal.io.errors import interrupt
from hf_attncal.io.files import give_name, make_readable, to_disk
from hf_attncal.layouts import WEIGHTS
from hf_attncal.models.loading import check_finite, check_missing

from .progress import TimeBudget

CLOCK = "clock.json"
_STOPPING = b"\nStopping after this step, with a checkpoint. Ctrl-C again: at once, without one.\n"


def last_checkpoints(folder: str | Path, count: int | None = None) -> list[Path]:
    """Return the last `count` whole checkpoints of a folder, by step, oldest first, or all there are."""
    found = [path.parent for path in Path(folder).glob(f"checkpoint-*/{CLOCK}")]
    found.sort(key=lambda path: int(path.name.removeprefix("checkpoint-")))
    return found[max(0, len(found) - count) :] if count is not None else found


class WholeCheckpointsTrainer(Trainer):
    """Writes `clock.json` into a checkpoint when all else is on the disk.

    A checkpoint without it is of a process that was killed. `train(resume_from_checkpoint=FOLDER)` goes on with the
    seconds that led there, and a run that has reached its last step trains no further.
    """

    model: Any  # a PreTrainedModel, or PEFT's around one
    budget: TimeBudget | None = None
    # The next checkpoint is one that no uninterrupted run would have: it goes when the next one is there.
    out_of_turn = False
    _started = 0.0

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return Path(self.args.output_dir or "")

    @property
    def wall_seconds(self) -> float:
        """Seconds of training up to now, with those before a resume."""
        return time.monotonic() - self._started

    @property
    def position(self) -> float:
        """Where the training is in its schedules, in optimiser steps: see `TimeBudget`."""
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
        """Train nothing in a finished run: the stock Trainer would only look at the number of steps after a step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            self._delete_older(self.folder)  # a kill may have come before
            return
        super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model, trial) -> None:
        """Let the stock method write a checkpoint, mark it as whole, and only then delete older ones."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()  # every process has files in it
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial))
            newest = folder / f"checkpoint-{self.state.global_step}"
            make_readable(newest)
            to_disk(*newest.rglob("*"))
            clock = {"wall_seconds": self.wall_seconds, "position": self.position, "out_of_turn": self.out_of_turn}
            (newest / f"{CLOCK}.part").write_text(json.dumps(clock), encoding="utf-8")
            give_name(newest / f"{CLOCK}.part", newest / CLOCK)
            to_disk(folder)
            self._delete_older(folder)
        self.accelerator.wait_for_everyone()

    def _delete_older(self, folder: Path) -> None:
        """Delete the checkpoints that are out of turn, and the oldest over `save_total_limit`."""
        checkpoints = last_checkpoints(folder)
        if self.args.should_save and checkpoints and not _out_of_turn(checkpoints[-1]):
            for path in filter(_out_of_turn, checkpoints):
                shutil.rmtree(path)
            rotate_checkpoints(str(folder), self.args.save_total_limit, self.state.best_model_checkpoint)

    def _finalize_training(self, *args, **kwargs):
        """Find the best checkpoint in a folder that may have moved."""
        best = Path(self.folder, f"checkpoint-{self.state.best_global_step}")
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        return super()._finalize_training(*args, **kwargs)


def _out_of_turn(checkpoint: Path) -> bool:
    return json.loads((checkpoint / CLOCK).read_text(encoding="utf-8")).get("out_of_turn", False)


@contextmanager
def whole_weights(checkpoint: str | Path | None, model: nn.Module) -> Iterator[None]:
    """Refuse a checkpoint that the block loads into `model`, unless it fills every trained weight with numbers.

    The stock Trainer only warns of missing weights, and reads NaN without a word.

    Raises:
        ValueError: it cannot be read, or a weight is missing or not finite; naming the checkpoint and the weight.
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


# ---- Ctrl-C ----


@contextmanager
def saved_on_interrupt(trainer: WholeCheckpointsTrainer) -> Iterator[None]:
    """Let the first Ctrl-C end `trainer.train()` after a step or an evaluation, with a checkpoint.

    Not in a run that keeps no checkpoints, or none to go on from (`save_only_model`), where several processes or
    workers get the signal at different steps, or where the caller has a handler of its own.

    Raises:
        KeyboardInterrupt: at the end of the block, with how far the run has come.
    """
    args = trainer.args
    alone = args.world_size == 1 and args.dataloader_num_workers == 0
    kept = args.save_strategy != "no" and not args.save_only_model
    ours = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if not (kept and alone and ours and handler in (signal.default_int_handler, interrupt)):
        yield
        return
    stop = _Stop(trainer, handler)
    trainer.add_callback(stop)
    signal.signal(signal.SIGINT, stop.ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        trainer.remove_callback(stop)
    if stop.asked:
        raise KeyboardInterrupt(f"stopped after {trainer.state.global_step} of {trainer.state.max_steps} steps")


@dataclass
class _Stop(TrainerCallback):
    """Asks for the checkpoint, and for the end, at the next moment at which a run can go on exactly."""

    trainer: WholeCheckpointsTrainer
    handler: Callable
    asked: bool = False

    def ask(self, number: int, frame) -> None:
        """Handle the signal: stop at the next moment at which a run can go on exactly."""
        self.asked = True
        signal.signal(signal.SIGINT, self.handler)
        with suppress(OSError):  # nobody may be there to read it
            os.write(2, _STOPPING)  # and what was interrupted may be a `print`

    def on_step_end(self, args, state, control, **kwargs):
        # An evaluation that is due draws random numbers, so the checkpoint is the one after it.
        if self.asked and not control.should_evaluate:
            self._stop(control)

    def on_evaluate(self, args, state, control, **kwargs):
        if self.asked:
            self._stop(control)

    def on_epoch_end(self, args, state, control, **kwargs):
        if self.asked and state.epoch % 1:  # it is not over
            control.should_log = control.should_evaluate = control.should_save = False
        elif self.asked and control.should_save:
            self.trainer.out_of_turn = False

    def _stop(self, control) -> None:
        self.trainer.out_of_turn = not control.should_save
        control.should_save = control.should_training_stop = True


def how_to_go_on(folder: str | Path, command: Sequence[str]) -> str:
    """Tell a user who has interrupted this command how to go on with the run in a folder."""
    if not last_checkpoints(folder):
        return f"There is no checkpoint in {folder} yet: start anew."
    command = [*command, *(["--resume"] if "--resume" not in command else [])]
    return f"Go on with: {shlex.join(command)}"


# ---- means ----


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
    last = load_file(Path(paths[-1]) / WEIGHTS)
    sums = {name: tensor.to(torch.float32, copy=True) for name, tensor in last.items() if tensor.is_floating_point()}
    for path in paths[:-1]:
        state = load_file(Path(path) / WEIGHTS)
        if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in last.items()}:
            raise ValueError(
                f"`paths` must hold checkpoints of one model: the tensors of {path} and {paths[-1]} have different "
                "names or shapes. Average checkpoints of one run."
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
