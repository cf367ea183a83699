"""Progress of a training: a bar on a terminal, elsewhere a few lines; a line for each evaluation on both."""

import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.utils import logging as transformers_logging

clock = time.monotonic
# How many steps tell how long all will take, for the first time and later. The very first is left out: it is slower.
_FIRST, _RECENT = 4, 100
# An estimate of fewer seconds is not worth a line.
_SHORT = 10.0
# Where there is no bar: most lines between evaluations, unless a line takes longer than these seconds to come.
_LINES, _SILENCE = 10, 600.0
_REDRAWN = 0.2  # least seconds between two pictures of the bar
# Name in the Trainer's logs -> what to call it, and how to write it. The bar has the first of the dev scores.
_LOGGED = {
    "loss": "loss {:.3f}",
    "guided_loss": "guided loss {:.3f}",
    "mask_mean": "mean mask {:.2f}",
    "gate_mean": "mean gate {:.2f}",
}
_EVALUATED = {
    "eval_bleu": "dev BLEU {:.2f}",
    "eval_rouge1": "dev ROUGE-1 {:.2f}",
    "eval_rouge2": "ROUGE-2 {:.2f}",
    "eval_rougeL": "ROUGE-L {:.2f}",
    "eval_aer": "dev AER {:.1%}",
    "eval_perplexity": "dev perplexity {:.2f}",
    "eval_loss": "dev loss {:.3f}",
}


def bars_are_shown(args: TrainingArguments) -> bool:
    """Tell whether this process draws progress bars: the first one does, on a terminal, unless `disable_tqdm` is set.

    The terminal is that of `sys.stdout`, which `-q` leads elsewhere.
    """
    return args.process_index == 0 and not args.disable_tqdm and sys.stdout.isatty()


@contextmanager
def shown_progress(trainer: Trainer, console: Console | None = None) -> Iterator[None]:
    """Show step, loss, dev score and the time left during the block, in place of the Trainer's dictionaries.

    Other callbacks, those of `report_to` among them, stay. What is printed, warned or logged meanwhile appears above
    the bar.

    Args:
        trainer: loses the callbacks that print.
        console: console to write to, by default standard output.
    """
    for printing in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(printing)
    if trainer.args.process_index > 0:
        yield
        return
    with ExitStack() as stack:
        shown = _Shown(console or Console(), stack)
        trainer.add_callback(shown)  # the last one, so that its evaluations are complete
        stack.callback(trainer.remove_callback, shown)
        if transformers_logging.is_progress_bar_enabled():  # there is one for each checkpoint
            transformers_logging.disable_progress_bar()
            stack.callback(transformers_logging.enable_progress_bar)
        yield


@dataclass
class _Shown(TrainerCallback):
    """Draws the bar and writes the lines.

    Args:
        console: console to write to.
        stack: is left when the training is over, however it ends.
    """

    console: Console
    stack: ExitStack
    bar: Progress | None = None
    logged: dict[str, float] = field(default_factory=dict)
    score: str = ""
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  # seconds of the last steps
    evaluations: list[float] = field(default_factory=list)  # seconds of each
    warm: bool = False

    def on_train_begin(self, args, state, control, **kwargs):
        self.first = self.line_step = state.global_step
        self.last = self.line_time = self.drawn = clock()
        if self.console.is_terminal and not self.console.is_dumb_terminal and not args.disable_tqdm:
            label, values = TextColumn("{task.description:10}"), TextColumn("{task.fields[values]}")
            columns = label, BarColumn(20), MofNCompleteColumn(), values
            # No thread that redraws it: a process of a data loader could be forked while that holds a lock.
            self.bar = Progress(
                *columns, console=self.console, auto_refresh=False, redirect_stderr=sys.stderr.isatty()
            )
            self.task = self.bar.add_task("training", total=state.max_steps, completed=state.global_step, values="")
            own = sys.stdout, sys.stderr
            self.stack.enter_context(self.bar)
            self.stack.enter_context(_logging_redirected([(own[0], sys.stdout), (own[1], sys.stderr)]))

    def on_step_end(self, args, state, control, **kwargs):
        now = clock()
        if self.warm:
            self.steps.append(now - self.last)
        self.last, self.warm = now, True
        if len(self.steps) == _FIRST and state.global_step == self.first + _FIRST + 1 and self.bar is None:
            self._tell_length(args, state)
        self._draw(args, state, evaluating=control.should_evaluate)

    def on_epoch_end(self, args, state, control, **kwargs):
        self._draw(args, state, evaluating=control.should_evaluate)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logged |= {name: logs[name] for name in _LOGGED if name in logs}
        due = state.global_step - self.line_step >= state.max_steps / _LINES or clock() - self.line_time >= _SILENCE
        if self.bar is None and "loss" in logs and due and not control.should_evaluate:
            self._write_line(args, state, {})

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        now = clock()
        self.evaluations.append(now - self.last)
        self.last = now
        scores = _written(_EVALUATED, metrics or {})
        self.score = scores[0] if scores else ""
        self._write_line(args, state, metrics or {})
        self._draw(args, state)

    def on_train_end(self, args, state, control, **kwargs):
        self._draw(args, state, now=True)

    def _seconds_left(self, args: TrainingArguments, state) -> float | None:
        """Estimate the seconds until the last step from the last ones; None before the first estimate."""
        if not self.steps:
            return None
        left = (state.max_steps - state.global_step) * fmean(self.steps)
        if self.evaluations:
            left += fmean(self.evaluations) * evaluations_left(args, state)
        return left

    def _tell_length(self, args: TrainingArguments, state) -> None:
        steps = state.max_steps - self.first
        seconds = fmean(self.steps) * steps
        if seconds >= _SHORT:
            besides = ", evaluations besides" if evaluations_left(args, state) else ""
            self._print(f"{steps:,} steps will take about {duration(seconds)}{besides}")

    def _write_line(self, args: TrainingArguments, state, metrics: dict[str, float]) -> None:
        """Write where the training is: the averages logged last and, with `metrics`, the scores of an evaluation."""
        self.line_step, self.line_time = state.global_step, clock()
        parts = [*_written(_LOGGED, self.logged), *_written(_EVALUATED, metrics)]
        left = self._seconds_left(args, state)
        if left and state.global_step < state.max_steps:
            parts.append(f"about {duration(left)} left")
        width = len(str(state.max_steps))
        self._print("  ".join([f"step {state.global_step:{width}} of {state.max_steps}", *parts]))

    def _print(self, line: str) -> None:
        self.console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)

    def _draw(self, args: TrainingArguments, state, *, evaluating: bool = False, now: bool = False) -> None:
        """Redraw the bar if there is one, and it is not too early."""
        if self.bar is None or not (now or evaluating or clock() - self.drawn >= _REDRAWN):
            return
        self.drawn = clock()
        left = self._seconds_left(args, state)
        parts = [_LOGGED["loss"].format(self.logged["loss"])] if "loss" in self.logged else []
        parts += [self.score] if self.score else []
        parts += [f"{duration(left)} left"] if left and state.global_step < state.max_steps else []
        doing = "evaluating" if evaluating else "training"
        values = "  ".join(parts)
        done = {"total": state.max_steps, "completed": state.global_step}
        self.bar.update(self.task, **done, description=doing, values=values, refresh=True)


@contextmanager
def _logging_redirected(streams: list[tuple[TextIO, TextIO]]) -> Iterator[None]:
    """Let log handlers that hold a stream of the terminal write above the bar, as `print` and warnings do.

    Args:
        streams: each stream that a handler may hold, and what it is to hold meanwhile.
    """
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    with ExitStack() as stack:
        for handler in handlers:
            for own, above in streams:
                if isinstance(handler, logging.StreamHandler) and handler.stream is own:
                    stack.callback(handler.setStream, own)
                    handler.setStream(above)
                    break
        yield


def evaluations_left(args: TrainingArguments, state) -> int:
    """Return how many evaluations a training has before it.

    Args:
        args: arguments of the Trainer.
        state: state of the Trainer, after at least one step.
    """
    if args.eval_strategy == "steps":
        return state.max_steps // state.eval_steps - state.global_step // state.eval_steps
    if args.eval_strategy == "epoch":
        # Not `num_train_epochs`: a time budget may end before them.
        return math.ceil(state.max_steps * state.epoch / state.global_step) - int(state.epoch)
    return 0


def duration(seconds: float) -> str:
    """Return a length of time in words, in the unit that a person would use."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    if seconds < 6000:
        return f"{seconds / 60:.{0 if seconds > 600 else 1}f} minutes"
    return f"{seconds / 3600:.1f} hours"


def _written(names: dict[str, str], values: dict[str, float]) -> list[str]:
    return [written.format(values[name]) for name, written in names.items() if name in values]
