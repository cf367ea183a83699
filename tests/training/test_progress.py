"""What people see of a training run: a bar on a terminal, lines elsewhere, nothing of the libraries' own."""

import io
import logging
import os
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from runs import translation_settings as settings
from transformers import PrinterCallback, TrainerCallback, TrainerState
from transformers.integrations import integration_utils
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_callback import CallbackHandler, TrainerControl

from hf_attncal.metrics.bleu import bleu
from hf_attncal.training import progress
from hf_attncal.training.progress import bars_are_shown, duration, evaluations_left, shown_progress
from hf_attncal.training.settings_yaml import read_settings
from hf_attncal.training.translation import TranslationConfig, train_translation


class Terminal(io.StringIO):
    """A stream of a terminal."""

    def isatty(self) -> bool:
        return True


EVALUATED = {"eval_loss": 2.5, "eval_bleu": 12.345, "eval_runtime": 7.0}


class Script:
    """A Trainer without a model: it calls what is to be called in a training of `steps` steps, 10 seconds each."""

    def __init__(self, monkeypatch, steps: int, every: int, index: int = 0, disable_tqdm: bool = False):
        self.now = 0.0
        monkeypatch.setattr(progress, "clock", lambda: self.now)
        self.args = SimpleNamespace(process_index=index, disable_tqdm=disable_tqdm, eval_strategy="steps")
        self.handler = CallbackHandler([PrinterCallback(), DEFAULT_PROGRESS_CALLBACK()], None, None, None, None)
        self.remove_callback, self.add_callback = self.handler.remove_callback, self.handler.add_callback
        self.state, self.control = TrainerState(max_steps=steps), TrainerControl()
        self.state.eval_steps = every

    def call(self, event: str, **more) -> None:
        self.handler.call_event(event, self.args, self.state, self.control, **more)

    def shown(self, terminal: bool, logged_every: int = 1, meanwhile=lambda step: None) -> str:
        """What is written."""
        file = io.StringIO()
        with shown_progress(self, Console(file=file, force_terminal=terminal, width=120)):
            assert not {PrinterCallback, DEFAULT_PROGRESS_CALLBACK} & set(map(type, self.handler.callbacks))
            self.call("on_train_begin")
            for step in range(1, self.state.max_steps + 1):
                self.now += 10
                self.state.global_step = step
                self.control.should_evaluate = step % self.state.eval_steps == 0
                self.call("on_step_end")
                meanwhile(step)
                if step % logged_every == 0:
                    self.call("on_log", logs={"loss": 1.2345, "grad_norm": 9.9})
                if self.control.should_evaluate:
                    self.now += 30
                    self.call("on_log", logs={"eval_loss": 2.5})
                    self.control.should_evaluate = False
                    self.call("on_evaluate", metrics=dict(EVALUATED))
            self.call("on_log", logs={"train_runtime": 3.0})
            self.call("on_train_end")
        assert self.handler.callbacks == []
        return file.getvalue()


def test_without_a_terminal_there_is_an_estimate_and_a_line_for_each_evaluation(monkeypatch):
    lines = Script(monkeypatch, steps=40, every=20).shown(terminal=False, logged_every=100).splitlines()
    assert lines == [
        "  40 steps will take about 6.7 minutes, evaluations besides",
        "  step 20 of 40  dev BLEU 12.35  dev loss 2.500  about 3.8 minutes left",
        "  step 40 of 40  dev BLEU 12.35  dev loss 2.500",
    ]


@pytest.mark.parametrize("steps", [100, 1000])
def test_lines_between_evaluations_are_few(monkeypatch, steps):
    monkeypatch.setattr(progress, "_SILENCE", 1e9)
    lines = Script(monkeypatch, steps, every=steps // 2).shown(terminal=False).splitlines()[1:]
    assert len(lines) == 10
    assert all("loss 1.234" in line for line in lines)
    assert sum("dev BLEU" in line for line in lines) == 2


def test_a_line_comes_at_least_every_ten_minutes(monkeypatch):
    lines = Script(monkeypatch, steps=1000, every=2000).shown(terminal=False).splitlines()
    assert len(lines) > 1000 * 10 / 600


def test_what_takes_seconds_is_told_no_length(monkeypatch):
    monkeypatch.setattr(progress, "_SHORT", 1e9)
    assert "will take" not in Script(monkeypatch, steps=40, every=20).shown(terminal=False)


def test_a_bar_on_a_terminal_and_a_line_for_each_evaluation(monkeypatch):
    told = Script(monkeypatch, steps=40, every=20).shown(terminal=True)
    assert "20/40" in told and "40/40" in told  # noqa: PT018
    assert "evaluating" in told
    assert "loss 1.234  dev BLEU 12.35" in told
    assert "minutes left" in told
    assert told.count("  step 20 of 40  loss 1.234  dev BLEU 12.35  dev loss 2.500") == 1
    assert "step 10 of 40" not in told


def test_disable_tqdm_means_lines_on_a_terminal_too(monkeypatch):
    told = Script(monkeypatch, steps=40, every=20, disable_tqdm=True).shown(terminal=True)
    assert "20/40" not in told
    assert "step 20 of 40" in told


@pytest.mark.parametrize("terminal", [False, True])
def test_one_process_speaks_for_all(monkeypatch, terminal):
    assert Script(monkeypatch, steps=40, every=20, index=1).shown(terminal) == ""


def test_what_is_printed_warned_and_logged_meanwhile_stays_above_the_bar(monkeypatch):
    """The log's handler has kept the terminal's own stream, which the bar would overwrite."""
    error = Terminal()
    monkeypatch.setattr(sys, "stderr", error)
    handler, logger = logging.StreamHandler(error), logging.getLogger("hf_attncal.test_progress")
    logger.addHandler(handler)

    def meanwhile(step):
        if step == 15:
            print("a print")
            print("a warning", file=sys.stderr)
            logger.warning("a log")

    told = Script(monkeypatch, steps=40, every=20).shown(terminal=True, meanwhile=meanwhile)
    logger.removeHandler(handler)
    assert [text for text in ("a print\n", "a warning\n", "a log\n") if text not in told] == []
    assert sys.stderr is handler.stream is error
    assert error.getvalue() == ""


def test_an_error_gives_the_terminal_back(monkeypatch):
    def fail(step):
        raise KeyboardInterrupt

    before = sys.stdout, sys.stderr
    with pytest.raises(KeyboardInterrupt):
        Script(monkeypatch, steps=40, every=20).shown(terminal=True, meanwhile=fail)
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.4, "0 seconds"), (99, "99 seconds"), (150, "2.5 minutes"), (3000, "50 minutes"), (8000, "2.2 hours")],
)
def test_durations_in_words(seconds, told):
    assert duration(seconds) == told


@pytest.mark.parametrize(("strategy", "left"), [("no", 0), ("steps", 3), ("epoch", 2)])
def test_evaluations_that_are_left(strategy, left):
    state = SimpleNamespace(max_steps=100, global_step=49, eval_steps=20, num_train_epochs=3, epoch=1.4)
    assert evaluations_left(SimpleNamespace(eval_strategy=strategy), state) == left


# ---- in a real run ----


@pytest.fixture
def config(corpus, tmp_path):
    """Makes the settings of a run that evaluates after its second and its last step."""

    def make(*more: str) -> TranslationConfig:
        chosen = ["training.bf16=false", "training.eval_strategy=steps", "training.eval_steps=2", *more]
        values = read_settings(settings(tmp_path, calibration="gated"), chosen)
        values["data"]["root"] = str(corpus)
        return TranslationConfig.make(values)

    return make


class Reporter(TrainerCallback):
    """In the place of TensorBoard: keeps what it is told."""

    told: list[dict]

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.told.append(dict(logs))


@pytest.mark.parametrize("terminal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_report_to_gets_every_number_the_dev_score_too(config, monkeypatch, capfd, terminal):
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tensorboard", Reporter)
    monkeypatch.setattr(integration_utils, "is_tensorboard_available", lambda: True)
    monkeypatch.setattr(Reporter, "told", [], raising=False)
    monkeypatch.setattr(progress, "Console", lambda: Console(force_terminal=terminal, width=120))
    results = train_translation(config("training.report_to=tensorboard", "training.disable_tqdm=false"))
    names = set().union(*Reporter.told)
    assert {"loss", "nmt_loss", "mask_mean", "eval_loss", "eval_bleu", "learning_rate"} <= names
    assert [logs["eval_bleu"] for logs in Reporter.told if "eval_bleu" in logs] == [
        entry["eval_bleu"] for entry in results["log_history"] if "eval_bleu" in entry
    ]
    told = capfd.readouterr()
    assert "step 2 of 4" in told.out
    assert "{'" not in told.out + told.err
    assert ("2/4" in told.out) == terminal


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="pseudo-terminals are of Unix")
def test_bars_are_for_a_terminal(monkeypatch):
    args = SimpleNamespace(process_index=0, disable_tqdm=False)
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader):
        monkeypatch.setattr(sys, "stdout", terminal)
        assert bars_are_shown(args)
        assert not bars_are_shown(SimpleNamespace(process_index=1, disable_tqdm=False))
        assert not bars_are_shown(SimpleNamespace(process_index=0, disable_tqdm=True))
        with open(os.devnull, "w") as nothing:  # as with -q
            monkeypatch.setattr(sys, "stdout", nothing)
            assert not bars_are_shown(args)


def test_tokenised_text_is_no_reason_to_scold(caplog):
    lines = ["A flower is red ."] * 200
    assert bleu(lines, lines).score == pytest.approx(100)
    assert [record.getMessage() for record in caplog.records] == []
