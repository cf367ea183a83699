"""Length of a run on this machine: measured steps, a time budget, a plan."""

import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from transformers import DefaultFlowCallback, Trainer, TrainerCallback, TrainingArguments

from .folder import Run
from .threads import ChooseThreads

clock = time.monotonic
# Of a time budget, what is planned; the rest is for saving, and for scores that take longer than was thought.
PLANNED = 0.95
# Of a measurement: the first steps are slower; then as many as these seconds have, within limits.
_UNTIMED, _LEAST, _MOST, _SECONDS = 2, 2, 50, 10.0
_DRY_SECONDS = 1.0  # of a dry run, for its steps
_SHARE = 0.03  # of a time budget, at most, if the least number of steps allows
_REHEARSED = 64  # dev lines that tell how long an evaluation takes
_SIDES = ("input_ids", "labels", "target_input_ids")
_WARMUPS = ("warmup_steps", "agreement_warmup_steps")


# ---- measuring ----


@dataclass(frozen=True)
class Speed:
    """Time and memory that a training takes on this machine.

    Args:
        seconds: seconds of an optimiser step.
        memory: peak in bytes; None where it is not known.
        evaluation: seconds of an evaluation of the Trainer.
    """

    seconds: float
    memory: int | None
    evaluation: float = 0.0


def measure(trainer: Trainer, whole: float | None = None) -> Speed:
    """Train some steps, evaluate on some lines, and look at the clock.

    A model that has learned nothing says when a text ends by chance: what it generates is made as long as the longest
    reference, so the seconds are rather too many than too few.

    Args:
        trainer: is of no use after that, and has written nothing.
        whole: seconds of the run of which this is a small part.
    """
    args = trainer.args
    args.max_steps = _UNTIMED + _MOST
    args.eval_strategy = args.save_strategy = args.logging_strategy = "no"
    args.eval_on_start = False
    stopwatch = _Stopwatch(_SECONDS if whole is None else min(_SECONDS, _SHARE * whole))
    for callback in list(trainer.callback_handler.callbacks):  # what reports, prints or scores
        if not (isinstance(callback, DefaultFlowCallback) or type(callback).__module__.startswith("hf_attncal")):
            trainer.remove_callback(callback)
    trainer.add_callback(ChooseThreads(args.threads))
    trainer.add_callback(stopwatch)
    trainer.train()
    return Speed(stopwatch.seconds, peak_memory(), _evaluation_seconds(trainer))


def _evaluation_seconds(trainer: Trainer) -> float:
    """Time an evaluation of the first dev lines; return the seconds of a whole one, 0 without dev text."""
    dev, times = trainer.eval_dataset, 1.0
    if dev is None or not len(dev):
        return 0.0
    if getattr(trainer, "gold", None) is None:  # links are evaluated in all of the text, however little of it is read
        lines = min(_REHEARSED, len(dev))
        trainer.eval_dataset, times = dev.select(range(lines)), len(dev) / lines
        for callback in trainer.callback_handler.callbacks:
            if hasattr(callback, "rehearse"):
                times = callback.rehearse(lines, max(map(len, trainer.eval_dataset["labels"])))
    begin = clock()
    trainer.evaluate()
    return (clock() - begin) * times


class _Stopwatch(TrainerCallback):
    """Ends the training when enough steps have been timed."""

    def __init__(self, enough: float):
        self.enough, self.times = enough, []

    @property
    def seconds(self) -> float:
        """Return the mean seconds that a step took."""
        timed = self.times[_UNTIMED:]
        return max((timed[-1] - timed[0]) / (len(timed) - 1), 1e-9)

    def on_train_begin(self, args, state, control, **kwargs):
        self.times = [clock()]

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(clock())
        timed = self.times[_UNTIMED:]
        if len(timed) > _LEAST and timed[-1] - timed[0] >= self.enough:
            control.should_training_stop = True


def peak_memory() -> int | None:
    """Return the most memory in bytes that this process has had: on the GPU if it has used one."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:  # not a Unix
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


# ---- the length of a run ----


def step_and_fixed_seconds(trainer: Trainer, whole: float | None = None) -> tuple[float, float, Speed]:
    """Measure the seconds of a step with its share of evaluations, and of evaluations that do not repeat.

    Args:
        trainer: is of no use after that, but for its model.
        whole: seconds of the run of which this is a small part.
    """
    args, epoch = trainer.args, _steps_of_epoch(trainer)
    # `measure` changes what it is read from.
    rate, count = 0.0, int(args.eval_on_start)
    if args.eval_strategy == "epoch":
        rate = 1 / epoch
    elif args.eval_strategy == "steps":
        every = args.eval_steps or args.logging_steps
        rate, count = (1 / every, count) if every >= 1 else (0.0, count + int(1 / every))
    speed = measure(trainer, whole)
    return speed.seconds + rate * speed.evaluation, count * speed.evaluation, speed


def _steps_of_epoch(trainer: Trainer) -> float:
    return len(trainer.get_train_dataloader()) / trainer.args.gradient_accumulation_steps


def steps_within(minutes: float, spent: float, seconds: float) -> int:
    """Return the number of optimiser steps that fit a time budget.

    Args:
        minutes: minutes of the budget.
        spent: seconds that have gone already, and those of the scores at the end.
        seconds: seconds of a step.

    Raises:
        ValueError: there is room for none; the message says for how many minutes there would be.
    """
    steps = int((PLANNED * 60 * minutes - spent) / seconds)
    if steps < 1:
        needed = math.ceil((spent + 100 * seconds) / 60 / PLANNED)
        raise ValueError(
            f"`minutes` must leave time to train, got {minutes:g}: what comes before and after takes {spent:.0f} "
            f"seconds, a step {seconds:.2f}. Give at least {needed}."
        )
    return steps


def total_steps(trainer: Trainer) -> int:
    """Return the number of optimiser steps of the whole run."""
    *_, steps = trainer.set_initial_training_values(trainer.args, trainer.get_train_dataloader())
    return steps


@dataclass
class RefuseShortRun(TrainerCallback):
    """Refuses a training that ends before its warm-up does, which would train next to nothing.

    Args:
        minutes: time budget of the run, or None.
    """

    minutes: float | None

    def on_train_begin(self, args, state, control, **kwargs):
        self.check(args, state.max_steps)

    def check(self, args: TrainingArguments, steps: int) -> None:
        """Raise ValueError if a run of so many optimiser steps is too short for its warm-up."""
        for name in _WARMUPS:
            warmup = getattr(args, name, 0)
            if warmup > steps:
                remedy = "`training.max_steps`" if self.minutes is None else "`minutes`"
                raise ValueError(
                    f"`training.{name}` must be at most the optimiser steps of the run ({steps}), got {warmup:g}. "
                    f"Lower it, or raise {remedy}."
                )


# ---- a plan ----


def plan(job) -> dict[str, Any]:
    """Describe, in print too, the run that a `Job` would be; some steps are trained for it.

    Returns:
        What `plan_of_counts` gives, and `parameters`, `trained_parameters`, `steps`, `epochs`, `seconds_per_step`.

    Raises:
        ValueError: fewer steps than the warm-up, or none in the time budget.
    """
    config, run = job.config, job.run
    before_model = peak_memory()
    trainer = job.build(config, run.args)
    steps = total_steps(trainer)
    epoch = job.whole * _steps_of_epoch(trainer)
    if job.whole > 1 and trainer.args.max_steps <= 0:
        epochs = job.config.training.get("num_train_epochs", trainer.args.num_train_epochs)
        steps = max(math.ceil(epochs * epoch), getattr(trainer.args, "least_steps", 0))
    RefuseShortRun(config.minutes).check(trainer.args, steps)
    described = describe_text(job, trainer.train_dataset)
    parameters = list(trainer.model.parameters())
    described["parameters"] = sum(parameter.numel() for parameter in parameters)
    described["trained_parameters"] = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    print(f"Model: {described['parameters']:,} parameters, {described['trained_parameters']:,} of them trained")
    before = job.counting_seconds
    step, fixed, speed = step_and_fixed_seconds(trainer, _DRY_SECONDS / _SHARE)
    fixed += job.seconds_of_scores(trainer, speed.evaluation)
    if config.minutes is not None:
        steps = min(steps, steps_within(config.minutes, clock() - run.started + before + fixed, step))
    described |= {"steps": steps, "epochs": steps / epoch, "seconds_per_step": speed.seconds}
    print(f"Training: {steps:,} steps of {speed.seconds:.2f} seconds, {described['epochs']:.1f} epochs")
    memory = peak_memory()  # scores take their part
    if memory is not None and before_model is not None and not torch.cuda.is_available():
        memory = max(round(before_model + job.growth * (memory - before_model)), job.counting_memory)
    return described | describe_costs(run, before + steps * step + fixed, memory)


def describe_text(job, text: Dataset) -> dict[str, Any]:
    """Describe, in print too, the pairs and tokens that were kept of each text."""
    if job.whole > 1:
        print(f"Looked at are {len(job.splits['train']):,} lines of the training text, one of {job.whole:.1f}")
    for name, report in job.reports.items():
        print(f"Text, {name}: {report}")
    tokens = {name: round(job.whole * count_tokens(text, name)) for name in _SIDES if name in text.column_names}
    sides = job.config.data.sides if len(tokens) > 1 else ()
    of_sides = [f" of the {side}" for side in sides] or [""]
    print("Tokens: " + ", ".join(f"{count:,}{side}" for count, side in zip(tokens.values(), of_sides, strict=True)))
    kept = {name: dataclasses.asdict(report) for name, report in job.reports.items()}
    return {job.config.data.units: kept, "tokens": tokens}


def describe_costs(run: Run, seconds: float, memory: int | None) -> dict[str, Any]:
    """Return minutes and bytes, and print them; `seconds` are those that this process has not spent yet."""
    minutes = (clock() - run.started + seconds) / 60
    if memory is not None:
        print(f"Memory: about {memory / 1e9:.1f} GB")
    print(f"Time: about {minutes:.1f} minutes on this machine, evaluations and scores included. Nothing was written.")
    return {"minutes": minutes, "memory_bytes": memory}


def count_tokens(text: Dataset, column: str) -> int:
    """Count the tokens in a column of a tokenised text."""
    return sum(len(chunk[column].combine_chunks().flatten()) for chunk in text.with_format("arrow").iter(10_000))
