"""Progress of a training: the Trainer's bar on a terminal, elsewhere a few lines; one for each evaluation on both."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainingArguments
from transformers.utils import logging as transformers_logging

_LINES = 10  # most lines beside evaluations where there is no bar
# Name in the Trainer's logs -> what to call it, and how to write it.
_LOGGED = {
    "loss": "loss {:.3f}",
    "guided_loss": "guided loss {:.3f}",
    "mask_mean": "mean mask {:.2f}",
    "gate_mean": "mean gate {:.2f}",
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
def shown_progress(trainer: Trainer) -> Iterator[None]:
    """Show step, losses, dev scores and the time left during the block, in place of the Trainer's dictionaries."""
    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # there is one for each checkpoint
    lines = ProgressLines(bars_are_shown(trainer.args))
    trainer.add_callback(lines)  # the last one, so that its evaluations are complete
    try:
        yield
    finally:
        trainer.remove_callback(lines)
        if bars:
            transformers_logging.enable_progress_bar()


class ProgressLines(ProgressCallback):
    """The Trainer's bar, with short lines in the place of its dictionaries.

    Args:
        bar: draw a bar; without it, a tenth of the steps has a line.
    """

    def __init__(self, bar: bool):
        super().__init__()
        self.bar, self.logged = bar, {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.first = self.written = state.global_step
        self.began = time.monotonic()
        if self.bar:
            super().on_train_begin(args, state, control, **kwargs)

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar:
            self.training_bar.total = state.max_steps  # which a time budget changes
            super().on_step_end(args, state, control, **kwargs)

    def on_prediction_step(self, args, state, control, **kwargs):
        if self.bar:
            super().on_prediction_step(args, state, control, **kwargs)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar:
            super().on_train_end(args, state, control, **kwargs)

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logged |= {name: value for name, value in (logs or {}).items() if not name.startswith("eval_")}
        due = "loss" in logs and state.global_step - self.written >= state.max_steps / _LINES
        if due and not self.bar and not control.should_evaluate:
            self._write(state, self.logged)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if self.bar:
            super().on_evaluate(args, state, control, **kwargs)
        self._write(state, self.logged | (metrics or {}))

    def _write(self, state, values: dict[str, float]) -> None:
        """Write the step, the last averages and scores, and the time left."""
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
            self.training_bar.write(line)
        else:
            print(line, flush=True)


def duration(seconds: float) -> str:
    """Return a length of time in words, in the unit that a person would use."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    if seconds < 6000:
        return f"{seconds / 60:.{0 if seconds > 600 else 1}f} minutes"
    return f"{seconds / 3600:.1f} hours"
