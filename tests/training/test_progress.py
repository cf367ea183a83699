"""Progress of a training where no bar is shown: a line for each tenth of the steps and for each evaluation."""

import re

from transformers import TrainerControl, TrainerState

from hf_attncal.training.job import ProgressLines


def test_a_line_for_each_tenth_and_each_evaluation(capsys):
    lines, control = ProgressLines(), TrainerControl()
    state = TrainerState(max_steps=100)
    lines.on_train_begin(None, state, control)
    for step in range(2, 101, 2):
        state.global_step = step
        lines.on_log(None, state, control, logs={"loss": 10 / step, "mask_mean": 0.5, "grad_norm": 1.0})
        if step == 50:
            lines.on_log(None, state, control, logs={"eval_loss": 1.25})
            lines.on_evaluate(None, state, control, metrics={"eval_loss": 1.25, "eval_bleu": 12.345})
    lines.on_log(None, state, control, logs={"train_runtime": 3.0})
    said = capsys.readouterr().out.splitlines()
    steps = [int(re.match(r"  step (\d+) of 100  ", line)[1]) for line in said]
    assert steps == [2, 12, 22, 32, 42, 50, 52, 62, 72, 82, 92]
    assert said[0].startswith("  step 2 of 100  loss 5  mask_mean 0.5  about ")
    assert said[5].startswith("  step 50 of 100  dev loss 1.25  dev bleu 12.35  about ")
    assert all(re.search(r"  about \d+\.\d minutes left$", line) for line in said)


def test_other_processes_write_nothing(capsys):
    state = TrainerState(max_steps=4, global_step=2, is_world_process_zero=False)
    lines = ProgressLines()
    lines.on_train_begin(None, state, None)
    lines.on_log(None, state, None, logs={"loss": 1.0})
    assert capsys.readouterr().out == ""
