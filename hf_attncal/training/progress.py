"""The progress of a training run for people: a bar where the output is a terminal, else a line for each log."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

clock = time.monotonic
# The steps after which, and at the end of which, the speed is known well enough to say how long all will take.
_UNTIMED, _TIMED = 2, 22


def show_progress(trainer: Trainer, console: Console, shown: Mapping[str, str]) -> None:
    """Show steps, how long they will take, and some of the logged values, in the place of what the Trainer prints.

    Args:
        trainer: gets a callback and loses those that print.
        console: where to.
        shown: name in the Trainer's logs -> what to call it. Logs with none of them are not shown.
    """
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    trainer.add_callback(_RichProgress(console, shown))


class _RichProgress(TrainerCallback):
    def __init__(self, console: Console, shown: Mapping[str, str]):
        self.console, self.shown = console, shown

    def on_train_begin(self, args, state, control, **kwargs):
        bar = self.console.is_terminal and state.is_world_process_zero
        columns = *Progress.get_default_columns(), TimeElapsedColumn()
        self.progress = Progress(*columns, console=self.console, disable=not bar)
        self.task = self.progress.add_task("training", total=state.max_steps)
        self.progress.start()

    def on_step_end(self, args, state, control, **kwargs):
        self.progress.update(self.task, completed=state.global_step)
        if state.global_step == _UNTIMED:
            self.begin = clock()
        elif state.global_step == _TIMED and state.max_steps > 2 * _TIMED and state.is_world_process_zero:
            minutes = (clock() - self.begin) / (_TIMED - _UNTIMED) * state.max_steps / 60
            self.console.print(f"  {state.max_steps} steps will take about {minutes:.1f} minutes")

    def on_log(self, args, state, control, logs=None, **kwargs):
        numbers = "  ".join(f"{label} {logs[name]:.2f}" for name, label in self.shown.items() if name in logs)
        if not numbers or not state.is_world_process_zero:
            return
        self.progress.update(self.task, description=numbers)
        if not self.console.is_terminal:
            self.console.print(f"  step {state.global_step:5} of {state.max_steps}  {numbers}")

    def on_train_end(self, args, state, control, **kwargs):
        self.progress.stop()
