"""How long a run takes on this machine, and how long it shall be: measured steps, a time budget, a plan."""

import dataclasses
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import DefaultFlowCallback, Trainer, TrainerCallback, set_seed

from .folder import Run, settle
from .settings import Settings
from .threads import ChooseThreads

clock = time.monotonic
# Of a measurement: the first steps are slower; then as many as these seconds have, within limits.
_UNTIMED, _LEAST, _MOST, _SECONDS = 2, 2, 50, 10.0
# Of a time budget, for what leads to a finished model. The rest is for evaluations, scores and saving.
_FOR_TRAINING = 0.85
# A run of less than this share of the steps that fit its text is warned of.
_TOO_FEW = 0.3
_SIDES = ("input_ids", "labels", "target_input_ids")
_BYTES_OF_A_CELL = 6  # see `counting.CountLearner`
_WARMUPS = ("warmup_steps", "agreement_warmup_steps")


# ---- measuring ----


@dataclass(frozen=True)
class Speed:
    """What optimiser steps took on this machine: seconds each, and the peak of memory in bytes (None: not known)."""

    seconds: float
    memory: int | None


def measure(trainer: Trainer) -> Speed:
    """Train some steps, and look at the clock.

    Args:
        trainer: is of no use after that, and has written nothing.
    """
    args = trainer.args
    args.max_steps = _UNTIMED + _MOST
    args.eval_strategy = args.save_strategy = args.logging_strategy = "no"
    args.eval_on_start = False
    stopwatch = _Stopwatch()
    for callback in list(trainer.callback_handler.callbacks):  # what reports, prints or scores
        if not (isinstance(callback, DefaultFlowCallback) or type(callback).__module__.startswith("hf_attncal")):
            trainer.remove_callback(callback)
    trainer.add_callback(ChooseThreads(args.threads))
    trainer.add_callback(stopwatch)
    trainer.train()
    return Speed(stopwatch.seconds, peak_memory())


class _Stopwatch(TrainerCallback):
    """Ends the training when enough steps have been timed."""

    def __init__(self):
        self.times: list[float] = []

    @property
    def seconds(self) -> float:
        """Of a step, the mean."""
        timed = self.times[_UNTIMED:]
        return (timed[-1] - timed[0]) / (len(timed) - 1)

    def on_train_begin(self, args, state, control, **kwargs):
        self.times = [clock()]

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(clock())
        timed = self.times[_UNTIMED:]
        if len(timed) > _LEAST and timed[-1] - timed[0] >= _SECONDS:
            control.should_training_stop = True


def peak_memory() -> int | None:
    """The most memory that this process has had so far, in bytes: of the GPU where it has used one."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


# ---- the length of a run ----


def settled(config: Settings, run: Run, build: Callable[[Settings, Any], Trainer]) -> tuple[Settings, Trainer]:
    """The trainer of a run whose length is settled, and the settings that say it.

    With a time budget the run has no more optimiser steps than the measured speed allows, and ends when the budget
    does. The measurement leaves no trace: the same settings with these steps as `max_steps` give the same model.

    Args:
        config: of the run.
        run: from `run.start`.
        build: makes model and Trainer of settings and the Trainer's arguments.

    Raises:
        ValueError: fewer steps than the warm-up, or none; a budget for several processes.
    """
    if config.minutes is None:
        trainer = build(config, run.args)
        check_steps(trainer, config)
        return config, trainer
    if run.args.world_size > 1:
        raise ValueError(
            f"`minutes` is for one process, got {config.minutes} in {run.args.world_size}: each has a clock of its "
            "own. Give `training.max_steps`."
        )
    steps = run.steps
    if steps is None:
        # For a while in a Trainer that is thrown away.
        steps = _affordable(build(config, run.args), config, run.started)
        settle(Path(run.args.output_dir), steps)
    config = config.for_steps(steps)
    set_seed(run.args.seed)
    trainer = build(config, config.arguments())
    check_steps(trainer, config)
    before = clock() - run.started
    trainer.add_callback(_Budget(60 * config.minutes, lambda: before + trainer.wall_seconds))
    return config, trainer


def _affordable(trainer: Trainer, config: Settings, started: float) -> int:
    """As many optimiser steps as the time budget has room for, and not more than the run would have without it.

    Warns:
        UserWarning: they are so few that the model will be of little use.
    """
    wanted = total_steps(trainer)
    speed = measure(trainer)
    steps = steps_within(config.minutes, clock() - started, speed.seconds)
    if steps < _TOO_FEW * wanted:
        minutes = (config.minutes * 60 * _FOR_TRAINING + (wanted - steps) * speed.seconds) / 60 / _FOR_TRAINING
        warnings.warn(
            f"{config.minutes:g} minutes have room for {steps} optimiser steps, and {wanted} fit this text: the model "
            f"may be of little use. All of them take about {math.ceil(minutes)} minutes on this machine.",
            stacklevel=2,
        )
    return min(wanted, steps)


def steps_within(minutes: float, spent: float, seconds: float) -> int:
    """The optimiser steps that a budget has room for.

    Args:
        minutes: of the budget.
        spent: seconds that have gone already.
        seconds: of a step.

    Raises:
        ValueError: there is room for none; the message says for how many minutes there would be.
    """
    steps = int((_FOR_TRAINING * 60 * minutes - spent) / seconds)
    if steps < 1:
        needed = math.ceil((spent + 100 * seconds) / 60 / _FOR_TRAINING)
        raise ValueError(
            f"`minutes` must leave time to train, got {minutes:g}: what comes before took {spent:.0f} seconds, a step "
            f"takes {seconds:.2f}. Give at least {needed}."
        )
    return steps


def total_steps(trainer: Trainer) -> int:
    """The optimiser steps of the whole run."""
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    return steps


def check_steps(trainer: Trainer, config: Settings) -> None:
    """Refuse a run that ends before its warm-up does, which would train next to nothing.

    Raises:
        ValueError: naming the warm-up, the steps and the remedy.
    """
    steps = total_steps(trainer)
    for name in _WARMUPS:
        warmup = getattr(trainer.args, name, 0)
        if warmup > steps:
            more = "`training.max_steps`" if config.minutes is None else "`minutes`"
            raise ValueError(
                f"`training.{name}` must be at most the optimiser steps of the run ({steps}), got {warmup:g}. Lower "
                f"it, or raise {more}."
            )


class _Budget(TrainerCallback):
    """Ends the training, with a checkpoint, when the time is over: this machine has been slower than measured."""

    def __init__(self, seconds: float, spent: Callable[[], float]):
        self.seconds, self.spent = seconds, spent

    def on_step_end(self, args, state, control, **kwargs):
        if self.spent() >= self.seconds and state.global_step < state.max_steps:
            control.should_save = args.save_strategy != "no"
            control.should_training_stop = True
            print(
                f"The time budget of {self.seconds / 60:g} minutes is over after {state.global_step} of "
                f"{state.max_steps} steps: this machine has been slower than it was when they were measured."
            )


# ---- a plan ----


def plan(trainer: Trainer, config: Settings, reports: dict[str, Any], run: Run, before: float = 0.0) -> dict[str, Any]:
    """What a run would be, without it; printed, too.

    Args:
        trainer: of the run; some steps are trained with it.
        config: of the run.
        reports: what was kept of each text.
        run: from `run.start`.
        before: seconds for what comes before the training, besides what this process has spent.

    Returns:
        What `plan_of_counts` gives, and `parameters`, `trained_parameters`, `steps`, `epochs`, `seconds_per_step`.

    Raises:
        ValueError: fewer steps than the warm-up, or none in the time budget.
    """
    check_steps(trainer, config)
    steps = total_steps(trainer)
    epoch = len(trainer.get_train_dataloader()) / trainer.args.gradient_accumulation_steps
    found = _text(trainer.train_dataset, reports, config)
    parameters = list(trainer.model.parameters())
    found["parameters"] = sum(parameter.numel() for parameter in parameters)
    found["trained_parameters"] = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    print(f"Model: {found['parameters']:,} parameters, {found['trained_parameters']:,} of them trained")
    speed = measure(trainer)
    if config.minutes is not None:
        steps = min(steps, steps_within(config.minutes, clock() - run.started + before, speed.seconds))
    found |= {"steps": steps, "epochs": steps / epoch, "seconds_per_step": speed.seconds}
    print(f"Training: {steps:,} steps of {speed.seconds:.2f} seconds, {found['epochs']:.1f} epochs")
    return found | _costs(run, before + steps * speed.seconds, speed.memory)


def plan_of_counts(
    text: Dataset, config: Settings, reports: dict[str, Any], run: Run, seconds: float
) -> dict[str, Any]:
    """What a run without steps would be: the aligner that counts.

    Args:
        text: tokenised.
        config: of the run.
        reports: what was kept of each text.
        run: from `run.start`.
        seconds: for all that this process has not done.

    Returns:
        `sentence_pairs` (or `sequences`), `tokens` of each side, `minutes` and `memory_bytes`.
    """
    found = _text(text, reports, config)
    source, target = (text.with_format("numpy")[name] for name in found["tokens"])
    cells = sum(len(one) * len(other) for one, other in zip(source, target, strict=True))
    return found | _costs(run, seconds, (peak_memory() or 0) + _BYTES_OF_A_CELL * cells)


def _text(text: Dataset, reports: dict[str, Any], config: Settings) -> dict[str, Any]:
    """What was kept of a text, and its tokens; printed, too."""
    for name, report in reports.items():
        print(f"Text, {name}: {report}")
    tokens = {name: count_tokens(text, name) for name in _SIDES if name in text.column_names}
    sides = config.data.sides if len(tokens) > 1 else ()
    of_sides = [f" of the {side}" for side in sides] or [""]
    print("Tokens: " + ", ".join(f"{count:,}{side}" for count, side in zip(tokens.values(), of_sides, strict=True)))
    kept = {name: dataclasses.asdict(report) for name, report in reports.items()}
    return {config.data.units: kept, "tokens": tokens}


def _costs(run: Run, seconds: float, memory: int | None) -> dict[str, Any]:
    """Minutes, with `seconds` for what this process has not done, and bytes; printed, too."""
    minutes = (clock() - run.started + seconds) / 60
    if memory is not None:
        print(f"Memory: about {memory / 1e9:.1f} GB")
    print(f"Time: about {minutes:.1f} minutes on this machine, and evaluations. Nothing was written.")
    return {"minutes": minutes, "memory_bytes": memory}


def count_tokens(text: Dataset, column: str) -> int:
    """The tokens in a column of a tokenised text."""
    return sum(len(chunk[column].combine_chunks().flatten()) for chunk in text.with_format("arrow").iter(10_000))
