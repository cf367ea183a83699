"""Output of a training: lines for its steps and evaluations, a bar on a terminal."""

import pytest
from helpers import tiny_model
from runs import make_trainer, toy_dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, TrainerState
from transformers.trainer_utils import IntervalStrategy
from transformers.utils import logging as transformers_logging

from hf_attncal.training.progress import ProgressBar, ProgressLines, bars_are_shown, duration, shown_progress


class Scores(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        metrics["eval_bleu"] = 12.345


def run(folder, **options):
    dataset = toy_dataset(24)
    options = {"eval_steps": 10, "logging_steps": 1, "max_steps": 20} | options
    trainer = make_trainer(folder, tiny_model("marian"), dataset, **options)
    trainer.eval_dataset, trainer.args.eval_strategy = dataset, IntervalStrategy.STEPS
    trainer.add_callback(Scores())
    with shown_progress(trainer):
        callbacks = trainer.callback_handler.callbacks
        printing = [type(c) for c in callbacks if isinstance(c, PrinterCallback | ProgressCallback | ProgressLines)]
        assert printing == [ProgressLines, *([ProgressBar] if bars_are_shown(trainer.args) else [])]
        trainer.train()
    assert not any(isinstance(c, ProgressLines | ProgressBar) for c in trainer.callback_handler.callbacks)
    return trainer


def test_lines_in_place_of_dictionaries(tmp_path, capsys):
    transformers_logging.enable_progress_bar()
    run(tmp_path)
    assert transformers_logging.is_progress_bar_enabled()
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("  step ")]
    assert "{" not in out
    assert 8 <= len(lines) <= 12
    assert "step 10 of 20  loss " in out
    assert lines[-1].startswith("  step 20 of 20  loss ")
    assert "dev BLEU 12.35  dev loss " in lines[-1]
    assert "left" in lines[0]
    assert "left" not in lines[-1]


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    trainer = run(tmp_path, disable_tqdm=False)
    assert bars_are_shown(trainer.args)
    said = capsys.readouterr()
    assert "20/20" in said.err
    assert "{" not in said.out
    assert len([line for line in said.out.splitlines() if "step" in line]) == 2  # of the evaluations


def test_other_processes_write_nothing(capsys):
    state = TrainerState(max_steps=4, global_step=2, is_world_process_zero=False)
    lines = ProgressLines(bar=False)
    lines.on_train_begin(None, state, None)
    lines.on_evaluate(None, state, None, {"eval_loss": 1.0})
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 seconds"), (150, "2.5 minutes"), (1200, "20 minutes"), (9000, "2.5 hours")]
)
def test_a_length_of_time_has_the_unit_that_a_person_would_use(seconds, words):
    assert duration(seconds) == words
