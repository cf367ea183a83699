"""A time budget kept: the plan of a run is revised after each step, and its learning rates end where it ends."""

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerCallback, set_seed

from .folder import note
from .planning import PLANNED, clock, step_and_fixed_seconds, steps_within, total_steps
from .settings import Settings

# Seconds in which the memory of how long a step takes fades, and how many steps the measurement before counts for.
_FADING, _MEASURED = 30.0, 3
# A run of less than this share of the steps that fit its text is warned of.
_TOO_FEW = 0.3


@dataclass(frozen=True)
class Plan:
    """What a run with a time budget begins with; it is kept in `run.json`.

    Args:
        steps: optimiser steps that seem to fit, on which warm-ups and learning rates are laid out.
        wanted: steps that the run would have without a budget, and never exceeds.
        seconds: seconds of a step, as measured.
        evaluation: seconds of an evaluation.
        scores: seconds of what follows the training.
    """

    steps: int
    wanted: int
    seconds: float
    evaluation: float = 0.0
    scores: float = 0.0


def within_budget(job) -> tuple[Settings, Trainer]:
    """Plan a run that has a time budget; return its settings with the planned length, and its Trainer.

    The training has as many optimiser steps as the time allows, evaluations and the scores at the end counted, and at
    most as many as it would have without a budget. The measurement leaves no trace: if the plan holds, the same
    settings with these steps as `max_steps` give the same model.

    Args:
        job: the `Job`, before its training.

    Raises:
        ValueError: no time for a step.
    """
    config, run = job.config, job.run
    if run.plan is None:  # in a Trainer that is thrown away
        plan = _planned(job, job.build(config, run.args))
        note(Path(run.args.output_dir), plan=asdict(plan))
    else:
        plan = Plan(**run.plan)
    config = config.for_steps(plan.steps)
    set_seed(run.args.seed)
    trainer = job.build(config, config.arguments())
    before = clock() - run.started
    trainer.budget = Budget(60 * config.minutes, lambda: before + trainer.wall_seconds, plan)
    trainer.add_callback(trainer.budget)
    return config, trainer


def _planned(job, trainer: Trainer) -> Plan:
    """Measure some steps, an evaluation and a little of the last scores; return the steps that fit the budget.

    Warns:
        UserWarning: they are so few that the model will be of little use.
    """
    minutes, wanted = job.config.minutes, total_steps(trainer)
    step, fixed, speed = step_and_fixed_seconds(trainer, 60 * minutes)
    scores = job.seconds_of_scores(trainer, speed.evaluation)
    steps = steps_within(minutes, clock() - job.run.started + fixed + scores, step)
    if steps < _TOO_FEW * wanted:
        needed = minutes + (wanted - steps) * step / 60 / PLANNED
        warnings.warn(
            f"{minutes:g} minutes have room for {steps} optimiser steps, and {wanted} fit this text: the model may be "
            f"of little use. All of them take about {math.ceil(needed)} minutes on this machine.",
            stacklevel=2,
        )
    steps = min(wanted, steps)
    if job.run.args.process_index == 0:
        why = "all that fit this text" if steps == wanted else f"as many as there is time for, of {wanted:,} that fit"
        print(f"{minutes:g} minutes: {steps:,} steps of {speed.seconds:.2g} seconds, {why}", flush=True)
    return Plan(steps, wanted, speed.seconds, speed.evaluation, scores)


@dataclass
class Budget(TrainerCallback):
    """Revises after each step how many more the time has room for, and ends the training when it has none.

    Args:
        seconds: seconds of the budget.
        spent: tells how many of them are gone.
        plan: the plan that the run began with.

    Attributes:
        position: where the training is among the steps of `plan`: what follows a schedule follows this. It gets to
            their end with the last step, however many steps that takes.
    """

    seconds: float
    spent: Callable[[], float]
    plan: Plan
    position: float = 0.0
    evaluation: float | None = None  # seconds of the last one
    saving: float = 0.0
    last: float = 0.0  # seconds that were gone when the last thing was done
    _recent: list[float] = field(default_factory=list)  # steps and their seconds, faded

    def moved(self, function: Callable[[float], float]) -> Callable[[int], float]:
        """Return a schedule by the position of one by the step."""
        return lambda step: function(self.position)

    def on_train_begin(self, args, state, control, **kwargs):
        self.last, self._recent = self.spent(), [_MEASURED, _MEASURED * self.plan.seconds]

    def on_optimizer_step(self, args, state, control, **kwargs):
        # This step is not counted yet.
        self.position += (self.plan.steps - self.position) / max(1, state.max_steps - state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        now = self.spent()
        took, self.last = now - self.last, now
        fade = math.exp(-took / _FADING)
        steps, seconds = self._recent
        self._recent = [steps * fade + 1, seconds * fade + took]
        left = self._steps_left(args, state, control)
        state.max_steps = min(state.global_step + left, self.plan.wanted)
        if left < 1 and not control.should_training_stop:
            control.should_save = args.save_strategy != "no"
            control.should_training_stop = True

    def on_evaluate(self, args, state, control, **kwargs):
        now = self.spent()
        if state.global_step:
            self.evaluation = now - self.last
        self.last = now

    def on_save(self, args, state, control, **kwargs):
        now = self.spent()
        self.saving, self.last = now - self.last, now

    def on_train_end(self, args, state, control, **kwargs):
        if state.global_step not in (self.plan.steps, self.plan.wanted):
            planned = self.plan.steps
            print(f"{self.seconds / 60:g} minutes had room for {state.global_step} steps; {planned} were planned.")

    def _steps_left(self, args, state, control) -> int:
        """Return how many steps fit in what is left beside evaluations, checkpoints and the last scores."""
        step = self._recent[1] / self._recent[0]
        slower = step / self.plan.seconds  # than at the measurement
        evaluation = slower * self.plan.evaluation if self.evaluation is None else self.evaluation
        evaluated, saved = args.eval_strategy != "no", args.save_strategy != "no"
        left = PLANNED * self.seconds - self.last - slower * self.plan.scores
        left -= evaluation * (evaluated + control.should_evaluate) + self.saving * (1 + saved + control.should_save)
        for strategy, every, seconds in (
            (args.eval_strategy, state.eval_steps, evaluation),
            (args.save_strategy, state.save_steps, self.saving),
        ):
            if strategy == "steps":
                step += seconds / max(1, every)
            elif strategy == "epoch" and state.epoch:
                step += seconds * state.epoch / state.global_step
        return max(0, int(left / step))


class PlannedSteps:
    """Lets a `Budget` change the number of steps while a Trainer trains; goes before it in the bases."""

    budget: Budget | None = None

    @property
    def position(self) -> float:
        """Where the training is in its schedules, in optimiser steps: see `Budget`."""
        return self.state.global_step if self.budget is None else self.budget.position

    def set_initial_training_values(self, args, dataloader, *more) -> tuple[Any, ...]:
        """Allow for as many epochs as the plan may come to have."""
        epochs, steps_of_epoch, *rest = super().set_initial_training_values(args, dataloader, *more)
        if self.budget is not None:
            epochs = max(epochs, math.ceil(self.budget.plan.wanted / steps_of_epoch))
        return epochs, steps_of_epoch, *rest

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """Let learning rates follow the position."""
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        if self.budget is not None and isinstance(scheduler, LambdaLR):
            scheduler.lr_lambdas = [self.budget.moved(function) for function in scheduler.lr_lambdas]
        return scheduler
