"""Ctrl-C in a training: the run stops after the step that it is in, and leaves a checkpoint to go on from."""

import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from transformers import Trainer, TrainerCallback

from hf_attncal.io.process import interrupt
from hf_attncal.layouts import COUNTING

from .folder import last_checkpoints

_TOLD = b"\nStopping after this step, with a checkpoint. Ctrl-C again: at once, without one.\n"


@contextmanager
def saved_on_interrupt(trainer: Trainer) -> Iterator[None]:
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

    trainer: Trainer
    handler: Callable
    asked: bool = False

    def ask(self, number: int, frame) -> None:
        """Handle the signal: stop at the next moment at which a run can go on exactly."""
        self.asked = True
        signal.signal(signal.SIGINT, self.handler)
        with suppress(OSError):  # nobody may be there to read it
            os.write(2, _TOLD)  # and what was interrupted may be a `print`

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
    if not last_checkpoints(folder) and not (Path(folder) / COUNTING).is_dir():
        return f"There is no checkpoint in {folder} yet: start anew."
    command = [*command, *(["--resume"] if "--resume" not in command else [])]
    return f"Go on with: {shlex.join(command)}"
