"""Duration of a run: a time budget, refusals before the start, a dry run, Ctrl-C."""

import signal
from types import SimpleNamespace

import pytest
from helpers import begun
from runs import translation_settings as settings
from safetensors.torch import load_file
from transformers import DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState

from hf_attncal.training import seq2seq
from hf_attncal.training.checkpoints import TimeBudget, resume_advice
from hf_attncal.training.sections import read_settings
from hf_attncal.training.translation import TranslationConfig, TranslationJob, train_translation

QUICK = ["training.eval_strategy=no", "data.dev=null", "training.bf16=false"]


@pytest.fixture
def config(corpus, tmp_path):
    """Return a function that makes the settings of a run of four steps in tmp_path/run, with further ones."""

    def make(*more: str) -> TranslationConfig:
        values = read_settings(settings(tmp_path, calibration="gated"), [*QUICK, *more])
        values["data"]["root"] = str(corpus)
        return TranslationConfig.make(values)

    return make


def same(one, other) -> bool:
    one, other = (load_file(folder / "model.safetensors") for folder in (one, other))
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


# ---- a time budget ----


def test_a_budget_with_room_for_all_steps_changes_nothing(config, tmp_path):
    timed = train_translation(config("minutes=100"))
    assert (timed["steps"], timed["config"]["minutes"]) == (4, 100)
    train_translation(config(f"training.output_dir={tmp_path / 'asked'}"))
    assert same(tmp_path / "run", tmp_path / "asked")


def test_the_run_stops_when_the_time_is_over(config, monkeypatch):
    """It saves what it has, and scores it."""
    monkeypatch.setattr(seq2seq.AttnCalTrainer, "wall_seconds", property(lambda self: 25.0 * self.state.global_step))
    results = train_translation(config("minutes=1"))
    assert results["steps"] == 2
    assert results["averaged_checkpoints"][-1] == "checkpoint-2"
    assert "test" in results


def test_an_annealed_model_is_annealed_when_the_time_is_over(config, monkeypatch, tmp_path):
    monkeypatch.setattr(seq2seq.AttnCalTrainer, "wall_seconds", property(lambda self: 25.0 * self.state.global_step))
    more = ["model.calibration=annealed", "model.annealing_steps=30", "training.max_steps=40", "average_last=1"]
    assert train_translation(config("minutes=1", *more))["steps"] == 2
    steps = [value for name, value in load_file(tmp_path / "run" / "model.safetensors").items() if "annealing" in name]
    assert steps
    assert all(value == 40 for value in steps)


def test_a_budget_that_is_over_before_the_first_step_is_refused(config, monkeypatch):
    monkeypatch.setattr(seq2seq.AttnCalTrainer, "wall_seconds", property(lambda self: 55.0))
    with pytest.raises(ValueError, match=r"^`minutes`.*got 1"):
        train_translation(config("minutes=1"))


@pytest.mark.parametrize("strategy", ["no", "steps"])
@pytest.mark.parametrize("seconds", [0.2, 1.0, 6.0])
def test_a_budget_is_kept_and_schedules_end_with_it(seconds, strategy, recwarn):
    now = 20.0
    budget = TimeBudget(600.0, lambda: now)
    state = TrainerState(max_steps=10**6, logging_steps=10, eval_steps=2 * 10**5, save_steps=10**5, epoch=0.0)
    control, flow = TrainerControl(), DefaultFlowCallback()
    args = SimpleNamespace(save_strategy="no", eval_strategy=strategy, eval_delay=0, logging_strategy="no")
    args.logging_first_step = False
    schedule, rates, evaluations = budget.moved(lambda position: 1 - position / 10**6), [], 0
    budget.on_train_begin(args, state, control)
    while not control.should_training_stop:
        budget.on_optimizer_step(args, state, control)
        state.global_step += 1
        rates.append(schedule(state.global_step))
        now += seconds
        control.should_evaluate = False
        flow.on_step_end(args, state, control)
        budget.on_step_end(args, state, control)
        if control.should_evaluate:
            evaluations += 1
            now += 2 * seconds
            budget.on_evaluate(args, state, control)
    assert 0.8 * 600 <= now <= 600
    assert rates == sorted(rates, reverse=True)
    assert abs(rates[-1]) < 0.02 + 10 / state.global_step
    assert (4 <= evaluations <= 6) == (strategy == "steps")
    assert "low quality" in str(recwarn.pop(UserWarning).message)


def test_a_budget_of_several_processes_is_refused(config, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"^`minutes`"):
        train_translation(config("minutes=1"))


# ---- before the start ----


@pytest.mark.parametrize("dry", [False, True])
def test_a_run_that_ends_before_its_warm_up_is_refused(config, tmp_path, dry):
    with pytest.raises(ValueError, match=r"^`training.warmup_steps`.*\(4\), got 5"):
        train_translation(config("training.warmup_steps=5"), dry_run=dry)
    assert not begun(tmp_path / "run")
    assert config("training.warmup_steps=4")


def test_a_dry_run_prints_the_plan_and_writes_nothing(config, tmp_path, capsys):
    settings = config()
    before = sorted(tmp_path.rglob("*"))
    found = train_translation(settings, dry_run=True)
    assert sorted(tmp_path.rglob("*")) == before
    results = train_translation(config())
    assert found["settings"] == results["config"]
    assert found["lines"]["train"] == results["sentence_pairs"]["train"]["kept"]
    assert "max_steps: 4" in capsys.readouterr().out
    with pytest.raises(ValueError, match="holds another run"):
        train_translation(config(), dry_run=True)
    with pytest.raises(ValueError, match=r"--dry-run.*--resume"):
        train_translation(config(), resume=True, dry_run=True)


# ---- Ctrl-C ----


class Interrupts(TrainerCallback):
    """Ctrl-C once the checkpoint of this step is written."""

    def __init__(self, step: int):
        self.step = step

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            signal.raise_signal(signal.SIGINT)


def interrupted_at(step: int, config) -> None:
    """Train until a Ctrl-C in this step."""
    build = TranslationJob.build

    def interrupting(*arguments):
        trainer = build(*arguments)
        trainer.add_callback(Interrupts(step))
        return trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationJob, "build", interrupting)
        with pytest.raises(KeyboardInterrupt):
            train_translation(config)


def test_an_interrupted_run_ends_like_an_uninterrupted_one(config, tmp_path):
    more = ["average_last=2", "training.max_steps=5", "training.save_steps=2", "data.dev=null"]
    train_translation(config(*more, f"training.output_dir={tmp_path / 'whole'}"))
    interrupted_at(2, config(*more))
    assert not (tmp_path / "run" / "results.json").exists()
    train_translation(config(*more), resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    left = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("run", "whole")]
    assert left[0] == left[1]


def test_advice_to_resume_is_the_command_itself(tmp_path):
    command = ["attncal", "train", "--source", "a file"]
    assert resume_advice(tmp_path, command) == f"There is no checkpoint in {tmp_path} yet. Start again."
    (tmp_path / "checkpoint-3").mkdir()  # half of one
    assert "Start again" in resume_advice(tmp_path, command)
    (tmp_path / "checkpoint-3" / "clock.json").write_text("{}")
    told = "Go on with: attncal train --source 'a file' --resume"
    assert resume_advice(tmp_path, command) == resume_advice(tmp_path, [*command, "--resume"]) == told
