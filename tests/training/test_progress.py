"""What people see of a training run."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from transformers import PrinterCallback, ProgressCallback, TrainerState
from transformers.trainer_callback import CallbackHandler

from hf_attncal.training import progress
from hf_attncal.training.progress import show_progress


def shown(terminal: bool, main: bool = True) -> str:
    """What is written about a run of 20 steps."""
    file = io.StringIO()
    handler = CallbackHandler([PrinterCallback(), ProgressCallback()], None, None, None, None)
    trainer = SimpleNamespace(add_callback=handler.add_callback, remove_callback=handler.remove_callback)
    show_progress(trainer, Console(file=file, force_terminal=terminal, width=80), {"nmt_loss": "loss"})
    assert not {PrinterCallback, ProgressCallback} & {type(callback) for callback in handler.callbacks}
    state = TrainerState(max_steps=20, global_step=10, is_world_process_zero=main)
    (callback,) = handler.callbacks
    callback.on_train_begin(None, state, None)
    callback.on_step_end(None, state, None)
    callback.on_log(None, state, None, logs={"nmt_loss": 1.234, "loss": 2.0})
    callback.on_log(None, state, None, logs={"train_runtime": 3.0})
    callback.on_train_end(None, state, None)
    return file.getvalue()


def test_a_line_for_each_log_where_there_is_no_terminal():
    assert shown(terminal=False) == "  step    10 of 20  loss 1.23\n"


def test_a_bar_on_a_terminal():
    assert "loss 1.23" in shown(terminal=True)
    assert "50%" in shown(terminal=True)
    assert "step" not in shown(terminal=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_one_process_speaks_for_all(terminal):
    assert shown(terminal, main=False) == ""


@pytest.mark.parametrize(("steps", "told"), [(600, "  600 steps will take about 5.0 minutes\n"), (40, "")])
def test_how_long_it_will_take_is_told_early(monkeypatch, steps, told):
    times = iter(range(0, 10_000, 10))  # twenty steps take ten seconds
    monkeypatch.setattr(progress, "clock", lambda: next(times))
    file = io.StringIO()
    handler = CallbackHandler([], None, None, None, None)
    trainer = SimpleNamespace(add_callback=handler.add_callback, remove_callback=handler.remove_callback)
    show_progress(trainer, Console(file=file, width=80), {})
    state = TrainerState(max_steps=steps, is_world_process_zero=True)
    (callback,) = handler.callbacks
    callback.on_train_begin(None, state, None)
    for state.global_step in range(1, 31):
        callback.on_step_end(None, state, None)
    assert file.getvalue() == told
