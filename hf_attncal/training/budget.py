"""A time budget: one callback times the steps, shortens the training to what fits, and ends its schedules with it."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback

# Share of the time that is for saving and for the scores at the end, beside this many evaluations.
_RESERVED, _EVALUATIONS = 0.1, 2
# Steps after which it is said how many there will be, and the share of those wanted below which that is a warning.
_MEASURED, _TOO_FEW = 5, 0.3


@dataclass
class TimeBudget(TrainerCallback):
    """Revises after each step how many more the time has room for, and ends the training when it has none.

    Args:
        seconds: seconds of the budget.
        spent: returns how many of them are gone.

    Attributes:
        position: place in the schedules, in steps of a training without a budget: it gets to their end with the last
            step, however many steps that takes.
    """

    seconds: float
    spent: Callable[[], float]
    position: float = 0.0
    wanted: int = field(init=False, default=0)
    _evaluation: float = field(init=False, default=0.0)  # seconds of the last one

    def on_train_begin(self, args, state, control, lr_scheduler=None, **kwargs):
        self.wanted, self._first, self._began = state.max_steps, state.global_step, self.spent()
        if self._began >= (1 - _RESERVED) * self.seconds:
            raise ValueError(
                f"`minutes` must leave time to train, got {self.seconds / 60:g}, and {self._began:.0f} seconds are "
                "gone before the first step. Give more minutes, or less text."
            )
        schedule = getattr(lr_scheduler, "scheduler", lr_scheduler)  # Accelerate wraps it
        if isinstance(schedule, LambdaLR):
            schedule.lr_lambdas = [self.moved(rate) for rate in schedule.lr_lambdas]

    def moved(self, rate: Callable[[float], float]) -> Callable[[int], float]:
        """Return a schedule over positions for one over steps."""
        return lambda step: rate(self.position)

    def on_optimizer_step(self, args, state, control, **kwargs):
        # This step is not counted yet.
        self.position += (self.wanted - self.position) / max(1, state.max_steps - state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        self._last, done = self.spent(), state.global_step - self._first
        pace = (self._last - self._began) / done  # with its share of evaluations and checkpoints
        time_left = (1 - _RESERVED) * self.seconds - self._last - _EVALUATIONS * self._evaluation
        left = max(0, int(time_left / max(pace, 1e-9)))
        state.max_steps = min(state.global_step + left, self.wanted)
        if done == _MEASURED and state.max_steps < self.wanted:
            self._announce(state)
        if not left and not control.should_training_stop:
            control.should_save = args.save_strategy != "no"
            control.should_training_stop = True

    def on_evaluate(self, args, state, control, **kwargs):
        if state.global_step > self._first:
            self._evaluation = self.spent() - self._last

    def _announce(self, state) -> None:
        """Say how long the training will be, and evaluate, save and log as often as in one of full length."""
        share = state.max_steps / self.wanted
        for name in ("logging_steps", "eval_steps", "save_steps"):
            setattr(state, name, max(1, round(share * getattr(state, name))))
        text = f"{self.seconds / 60:g} minutes: about {state.max_steps:,} of {self.wanted:,} steps"
        print(text, flush=True)
        if share < _TOO_FEW:
            warnings.warn(f"{text}. The model may be of little use: give more minutes.", stacklevel=2)


def budget_of(trainer, minutes: float, started: float) -> TimeBudget:
    """Return the budget of a command that began at `started` (by `time.monotonic`), for its Trainer.

    The seconds of a training that goes on count from its first start.
    """
    before = time.monotonic() - started
    return TimeBudget(60 * minutes, lambda: before + trainer.wall_seconds)
