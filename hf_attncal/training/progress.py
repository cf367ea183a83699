"""Progress of a training as a bar or a few lines, and a time budget that shortens the training."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch.optim.lr_scheduler import LambdaLR
from tqdm.auto import tqdm
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging as transformers_logging

_MAX_LINES = 10  # progress lines without a bar, not counting evaluations
# Name in the Trainer's logs -> label and format.
_LOGGED = {
    "loss": "loss {:.3f}",
    "guided_loss": "guided loss {:.3f}",
    "mask_mean": "mean mask {:.2f}",
    "gate_mean": "mean gate {:.2f}",
    "mass_mean": "mass {:.2f}",
    "eval_bleu": "dev BLEU {:.2f}",
    "eval_rouge1": "dev ROUGE-1 {:.2f}",
    "eval_rouge2": "ROUGE-2 {:.2f}",
    "eval_rougeL": "ROUGE-L {:.2f}",
    "eval_aer": "dev AER {:.1%}",
    "eval_perplexity": "dev perplexity {:.2f}",
    "eval_loss": "dev loss {:.3f}",
}

# Share of the budget reserved for saving and the final scores, and number of evaluations reserved in addition.
_RESERVED, _EVALUATIONS = 0.1, 2
# Steps before the number of steps is estimated, and share of the planned steps below which it is a warning.
_STEPS_BEFORE_ESTIMATE, _LOW_SHARE = 5, 0.3


def bars_are_shown(args: TrainingArguments) -> bool:
    """Return True for the first process on a terminal, unless `disable_tqdm` is set.

    `sys.stdout` decides about the terminal, because `-q` redirects it.
    """
    return args.process_index == 0 and not args.disable_tqdm and sys.stdout.isatty()


@contextmanager
def shown_progress(trainer: Trainer) -> Iterator[None]:
    """Print readable progress (step, losses, dev scores, remaining time) until the block ends.

    The Trainer by itself would print dictionaries.
    """
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # each checkpoint would show one
    bar = bars_are_shown(trainer.args)
    # Added last, because `ScoreCallback` adds to the metrics of an evaluation.
    callbacks: list[TrainerCallback] = [ProgressLines(bar), *([ProgressBar()] if bar else [])]
    for callback in callbacks:
        trainer.add_callback(callback)
    try:
        yield
    finally:
        for callback in callbacks:
            trainer.remove_callback(callback)
        if bars:
            transformers_logging.enable_progress_bar()


class ProgressBar(ProgressCallback):
    """Progress bar of the Trainer, without its dictionaries."""

    def on_step_end(self, args, state, control, **kwargs):
        if self.training_bar is not None:
            self.training_bar.total = state.max_steps  # a time budget changes it
        super().on_step_end(args, state, control, **kwargs)

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Print nothing, because `ProgressLines` does."""


class ProgressLines(TrainerCallback):
    """Progress lines: one per evaluation and, without a bar, one per tenth of the steps."""

    def __init__(self, bar: bool):
        self.bar = bar
        self.logged: dict[str, float] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.first = self.written = state.global_step
        self.began = time.monotonic()

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logged |= {name: value for name, value in (logs or {}).items() if not name.startswith("eval_")}
        due = "loss" in logs and state.global_step - self.written >= state.max_steps / _MAX_LINES
        if due and not self.bar and not control.should_evaluate:
            self._write(state, self.logged)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self._write(state, self.logged | (metrics or {}))

    def _write(self, state, values: dict[str, float]) -> None:
        """Write the step, the last averages and scores, and the remaining time."""
        if not state.is_world_process_zero:
            return
        self.written = state.global_step
        parts = [f"step {state.global_step:{len(str(state.max_steps))}} of {state.max_steps}"]
        parts += [text.format(values[name]) for name, text in _LOGGED.items() if name in values]
        done, left = state.global_step - self.first, state.max_steps - state.global_step
        if done and left > 0:
            parts.append(f"about {duration((time.monotonic() - self.began) / done * left)} left")
        line = "  " + "  ".join(parts)
        if self.bar:
            tqdm.write(line)
        else:
            print(line, flush=True)


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, in words."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    if seconds < 6000:
        return f"{seconds / 60:.{0 if seconds > 600 else 1}f} minutes"
    return f"{seconds / 3600:.1f} hours"


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
