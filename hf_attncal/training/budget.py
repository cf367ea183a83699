"""Time budget that shortens a training."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback

# Share of the budget reserved for saving and the final scores, and number of evaluations reserved in addition.
_RESERVED, _EVALUATIONS = 0.1, 2
# Steps before the number of steps is estimated, and share of the planned steps below which it is a warning.
_STEPS_BEFORE_ESTIMATE, _LOW_SHARE = 5, 0.3


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
