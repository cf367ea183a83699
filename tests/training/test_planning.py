"""How long a run takes and shall take: measured steps, a time budget, refusals before the start, Ctrl-C."""

import json
import re
import signal
from functools import partial
from types import SimpleNamespace

import pytest
from helpers import begun, tiny_model
from runs import make_trainer, toy_dataset
from runs import translation_settings as settings
from safetensors.torch import load_file
from transformers import DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState

from hf_attncal.training import budget, planning, seq2seq
from hf_attncal.training.budget import Plan, steps_within
from hf_attncal.training.folder import last_checkpoints
from hf_attncal.training.interrupts import how_to_go_on, saved_on_interrupt
from hf_attncal.training.planning import Speed, measure
from hf_attncal.training.settings_yaml import read_settings
from hf_attncal.training.translation import TranslationConfig, train_translation

QUICK = ["training.eval_strategy=no", "data.dev=null", "training.bf16=false"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few steps are measured."""
    monkeypatch.setattr(planning, "_SECONDS", 0.0)


@pytest.fixture
def config(corpus, tmp_path):
    """Makes the settings of a run of four steps in tmp_path/run, with more of them if it is told so."""

    def make(*more: str) -> TranslationConfig:
        values = read_settings(settings(tmp_path, calibration="gated"), [*QUICK, *more])
        values["data"]["root"] = str(corpus)
        return TranslationConfig.make(values)

    make.folder, make.corpus = tmp_path, str(corpus)
    return make


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(one, other) -> bool:
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def saved_run(tmp_path):
    return json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))


# ---- measuring ----


class Clock:
    """Every look at it is so many seconds later."""

    def __init__(self, *seconds: float):
        self.seconds, self.now = list(seconds), 0.0

    def __call__(self) -> float:
        self.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        return self.now


@pytest.mark.parametrize(
    ("seconds", "expected", "steps"),
    [((1, 9, 9, 3), 3, 6), ((1, 100), 100, 4), ((0.125,), 0.125, planning._UNTIMED + planning._MOST)],
)
def test_the_first_steps_are_left_out_and_slow_ones_are_few(seconds, expected, steps, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "clock", Clock(*seconds))
    monkeypatch.setattr(planning, "_SECONDS", 10.0)
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 900, "per_device_train_batch_size": 2}
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), **options)
    speed = measure(trainer)
    assert speed.seconds == expected
    assert speed.memory > 10**7
    assert trainer.state.global_step == steps
    assert list(tmp_path.iterdir()) == []


def test_a_budget_is_for_training_and_for_what_follows_it():
    assert steps_within(10, spent=60, seconds=0.5) == int((0.95 * 600 - 60) / 0.5)
    with pytest.raises(ValueError, match=r"`minutes`.*got 1: .*57 seconds.*4"):
        steps_within(1, spent=57, seconds=1.5)


# ---- a time budget ----


@pytest.fixture
def planned(monkeypatch):
    """Sets the plan of runs that have a budget; without it, a run begins with what is measured."""

    def begin(steps: int, wanted: int = 4, seconds: float = 0.001) -> None:
        monkeypatch.setattr(budget, "_planned", lambda job, trainer: Plan(steps, wanted, seconds))

    return begin


def test_a_plan_that_holds_gives_the_run_that_these_steps_give(config, tmp_path, planned):
    """The same weights as where these steps are asked for; the plan is kept for --resume."""
    planned(4)
    timed = train_translation(config("minutes=10"))
    assert timed["steps"] == timed["config"]["training"]["max_steps"] == 4
    assert timed["config"]["minutes"] == 10
    assert saved_run(tmp_path)["plan"]["steps"] == 4
    asked = train_translation(config("training.max_steps=4", f"training.output_dir={tmp_path / 'asked'}"))
    assert asked["steps"] == 4
    assert same(tmp_path / "run", tmp_path / "asked")


def test_a_budget_never_makes_a_run_longer_and_says_what_it_chose(config, capsys):
    assert train_translation(config("minutes=100"))["steps"] == 4
    assert re.search(r"^100 minutes: 4 steps of \S+ seconds, all that fit this text$", capsys.readouterr().out, re.M)


@pytest.mark.slow
def test_a_faster_machine_trains_more_steps_than_were_planned(config, planned, capsys):
    """Up to those that fit the text, over further epochs, and the learning rate ends where they end."""
    planned(2, wanted=9)
    results = train_translation(config("minutes=100", "training.warmup_steps=0", "training.logging_steps=1"))
    assert results["steps"] == 9
    rates = [entry["learning_rate"] for entry in results["log_history"] if "learning_rate" in entry]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < rates[0] / 3


@pytest.mark.slow
def test_a_run_that_goes_on_is_not_measured_again(config, tmp_path, monkeypatch, planned):
    planned(3, wanted=3)
    whole = train_translation(config("minutes=1", f"training.output_dir={tmp_path / 'whole'}"))
    interrupted_at(2, config("minutes=1"))
    clock_file = next((tmp_path / "run").glob("checkpoint-*")) / "clock.json"
    assert json.loads(clock_file.read_text())["position"] == 2
    monkeypatch.delattr(budget, "_planned")
    assert train_translation(config("minutes=1"), resume=True)["steps"] == whole["steps"] == 3
    assert same(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(ValueError, match=r"`minutes`.*2.*1"):
        train_translation(config("minutes=2"), resume=True)


def test_a_slower_machine_stops_when_the_time_is_over(config, tmp_path, monkeypatch, capsys, planned):
    """It saves what it has, and scores it."""
    planned(4)
    monkeypatch.setattr(seq2seq.AttnCalTrainer, "wall_seconds", property(lambda self: 25.0 * self.state.global_step))
    results = train_translation(config("minutes=1", "training.warmup_steps=1"))
    assert results["steps"] == 2
    assert results["averaged_checkpoints"][-1] == "checkpoint-2"
    assert "test" in results
    assert "1 minutes had room for 2 steps; 4 were planned." in capsys.readouterr().out


@pytest.mark.parametrize("strategy", ["no", "steps", "epoch"])
@pytest.mark.parametrize("seconds", [0.2, 1.0, 6.0])
def test_the_whole_command_ends_in_the_time_given_whatever_was_measured(seconds, strategy):
    """A step was measured to take a second; now it takes `seconds`, and so do evaluations and the last scores."""
    now, plan = 20.0, Plan(steps=500, wanted=10**6, seconds=1.0, evaluation=2.0, scores=10.0)
    kept = budget.Budget(600.0, lambda: now, plan)
    state = TrainerState(max_steps=plan.steps, eval_steps=10, save_steps=10, epoch=0.0)
    control, flow = TrainerControl(), DefaultFlowCallback()
    args = SimpleNamespace(save_strategy="no", eval_strategy=strategy, eval_delay=0, logging_first_step=False)
    args.logging_strategy = "no"
    schedule, rates = kept.moved(lambda position: 1 - position / plan.steps), []
    kept.on_train_begin(args, state, control)
    while not control.should_training_stop:
        kept.on_optimizer_step(args, state, control)
        state.global_step += 1
        state.epoch += 1 / 50
        rates.append(schedule(state.global_step))
        now += seconds
        control.should_evaluate = False
        flow.on_step_end(args, state, control)
        kept.on_step_end(args, state, control)
        if control.should_evaluate or (strategy == "epoch" and state.global_step % 50 == 0):
            now += 2 * seconds
            kept.on_evaluate(args, state, control)
    now += 2 * seconds * (strategy == "epoch") + 10 * seconds
    assert 0.92 * 600 <= now <= 600
    assert rates == sorted(rates, reverse=True)
    assert abs(rates[-1]) < 0.02 + 10 / state.global_step


def test_a_budget_of_several_processes_is_refused(config, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="`minutes` is for one process"):
        train_translation(config("minutes=1"))


# ---- refused before the start ----


@pytest.mark.parametrize("dry", [False, True])
def test_a_run_that_ends_before_its_warm_up_is_refused(config, tmp_path, dry):
    message = r"`training.warmup_steps` must be at most the optimiser steps of the run \(4\), got 5"
    with pytest.raises(ValueError, match=message):
        train_translation(config("training.warmup_steps=5"), dry_run=dry)
    assert not begun(tmp_path / "run")
    assert train_translation(config("training.warmup_steps=4"))["steps"] == 4


def test_a_budget_below_the_warm_up_is_refused(config, planned):
    planned(2)
    with pytest.raises(ValueError, match=r"`training.warmup_steps`.*\(2\).*got 3.*`minutes`"):
        train_translation(config("training.warmup_steps=3", "minutes=1"))


# ---- a plan ----


def test_a_plan_says_what_the_run_is(config, tmp_path, capsys):
    settings = config()
    before = sorted(tmp_path.rglob("*"))
    found = train_translation(settings, dry_run=True)
    assert sorted(tmp_path.rglob("*")) == before
    told = capsys.readouterr().out
    results = train_translation(config())
    for key in ("parameters", "trained_parameters", "steps", "sentence_pairs"):
        assert found[key] == results[key]
    assert found["epochs"] == pytest.approx(results["log_history"][-1]["epoch"])
    assert 0 < found["seconds_per_step"] < 60
    assert found["minutes"] * 60 > found["steps"] * found["seconds_per_step"]
    assert 1e8 < found["memory_bytes"] < 1e11
    assert f"{found['parameters']:,} parameters" in told
    assert "4 steps" in told


def test_a_plan_of_a_folder_in_use_is_refused(config):
    train_translation(config())
    with pytest.raises(ValueError, match="holds another run"):
        train_translation(config(), dry_run=True)
    with pytest.raises(ValueError, match=r"--dry-run.*--resume"):
        train_translation(config(), resume=True, dry_run=True)


# ---- Ctrl-C ----


class Interrupts(TrainerCallback):
    """Ctrl-C at the end of a step, before whatever comes after it."""

    def __init__(self, step: int):
        self.step = step

    def on_substep_end(self, args, state, control, **kwargs):
        if state.global_step == self.step - 1:
            signal.raise_signal(signal.SIGINT)


def interrupted_at(step: int, config) -> str:
    """Train until a Ctrl-C in this step; what is said."""
    with pytest.raises(KeyboardInterrupt) as caught:
        train_translation(config, callbacks=[Interrupts(step)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["training.eval_strategy=steps", "training.eval_steps=3"],
        pytest.param(["training.save_strategy=epoch"], marks=pytest.mark.slow),
    ],
    ids=["between checkpoints", "before an evaluation", "at the end of an epoch"],
)
@pytest.mark.parametrize("average", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_what_was_interrupted_ends_as_if_it_had_not_been(config, average, more, tmp_path):
    """The checkpoint of the interruption is not averaged, and pushes none out, unless it is due."""
    more = [*more, f"average_last={average}", "training.max_steps=5", "training.save_steps=2", "data.dev=null"]
    if any("eval_steps" in setting for setting in more):
        more.append("data.held_out_pairs=3")
    train_translation(config(*more, f"training.output_dir={tmp_path / 'whole'}"))
    assert interrupted_at(3, config(*more)) == "stopped after 3 of 5 steps"
    assert last_checkpoints(tmp_path / "run")[-1].name == "checkpoint-3"
    assert not (tmp_path / "run" / "results.json").exists()
    train_translation(config(*more), resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")
    left = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("run", "whole")]
    assert left[0] == left[1]


@pytest.mark.slow
def test_ctrl_c_at_a_checkpoint_of_its_own_makes_no_other(config, tmp_path):
    more = ["average_last=2", "training.max_steps=5", "training.save_steps=2"]
    train_translation(config(*more, f"training.output_dir={tmp_path / 'whole'}"))
    interrupted_at(4, config(*more))
    assert [path.name for path in last_checkpoints(tmp_path / "run")] == ["checkpoint-2", "checkpoint-4"]
    train_translation(config(*more), resume=True)
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), max_steps=9, save_strategy="steps")

    class Twice(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    trainer.add_callback(Twice())
    with pytest.raises(KeyboardInterrupt), saved_on_interrupt(trainer):
        trainer.train()
    assert trainer.state.global_step == 0
    assert not last_checkpoints(tmp_path)


@pytest.mark.parametrize("option", [{"save_only_model": True}, {"dataloader_num_workers": 1}, {"save_strategy": "no"}])
def test_where_no_exact_checkpoint_can_be_left_ctrl_c_is_as_ever(option, tmp_path):
    options = {"max_steps": 2, "save_strategy": "steps"} | option
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), **options)
    with saved_on_interrupt(trainer):
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_of_others_stay(tmp_path):
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), max_steps=2, save_strategy="steps")
    theirs = partial(print, "theirs")
    before = signal.signal(signal.SIGINT, theirs)
    try:
        with saved_on_interrupt(trainer):
            assert signal.getsignal(signal.SIGINT) is theirs
    finally:
        signal.signal(signal.SIGINT, before)


def test_how_to_go_on_is_the_command_itself(tmp_path):
    command = ["attncal", "train", "--source", "a file"]
    assert how_to_go_on(tmp_path, command) == f"There is no checkpoint in {tmp_path} yet: start anew."
    (tmp_path / "checkpoint-3").mkdir()
    told = "Go on with: attncal train --source 'a file' --resume"
    assert how_to_go_on(tmp_path, command) == how_to_go_on(tmp_path, [*command, "--resume"]) == told


@pytest.mark.parametrize(("steps", "warned"), [(1, True), (2, False)])
def test_a_budget_for_few_of_the_steps_is_warned_of(config, monkeypatch, recwarn, steps, warned):
    monkeypatch.setattr(planning, "measure", lambda trainer, whole: Speed(1.0, None))
    monkeypatch.setattr(budget, "steps_within", lambda *arguments: steps)
    train_translation(config("minutes=1", "training.warmup_steps=1"))
    told = [str(warning.message) for warning in recwarn if "have room for" in str(warning.message)]
    assert len(told) == warned
    assert all("1 minutes have room for 1 optimiser steps, and 4 fit this text" in text for text in told)
    assert all("about 2 minutes" in text for text in told)


# ---- evaluations and scores in the budget ----


def test_a_measurement_has_an_evaluation_in_it_scaled_to_the_whole_dev_text(config, monkeypatch):
    """It is made of fewer lines, each as long as the longest reference."""
    seen, evaluate = [], seq2seq.evaluate

    def evaluated(model, tokenizer, pairs, *arguments, **options):
        seen.append((len(pairs), options["length"]))
        return evaluate(model, tokenizer, pairs, *arguments, **options)

    def measured(trainer, whole=None):
        with monkeypatch.context() as patched:
            patched.setattr(planning, "clock", Clock(1.0))
            patched.setattr(planning, "_REHEARSED", 2)
            patched.setattr(seq2seq, "evaluate", evaluated)
            longest = max(map(len, trainer.eval_dataset[:2]["labels"]))
            speed = measure(trainer)
        assert seen == [(2, longest)]
        assert speed.seconds == 1
        assert speed.evaluation == 1.5  # one second for two of the three lines of `dev_lines`
        return Speed(0.001, None)

    monkeypatch.setattr(planning, "measure", measured)
    values = read_settings(settings(config.folder, calibration="gated"), ["training.bf16=false", "minutes=9"])
    values["data"]["root"] = config.corpus
    train_translation(TranslationConfig.make(values))
    assert seen != []


@pytest.mark.parametrize(
    ("strategy", "step", "fixed"),
    [(["no"], 5, 0), (["steps", "4"], 5 + 20 / 4, 0), (["steps", "0.25"], 5, 4 * 20), (["epoch"], 5 + 20 / 6, 0)],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_evaluations_leave_fewer_steps(tmp_path, monkeypatch, strategy, step, fixed):
    monkeypatch.setattr(planning, "measure", lambda trainer, whole: Speed(5.0, None, evaluation=20.0))
    options = {"max_steps": 9000, "save_strategy": "no", "per_device_train_batch_size": 4}
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), **options)
    trainer.args.eval_strategy = strategy[0]
    trainer.args.eval_steps = float(strategy[1]) if strategy[1:] else None
    assert planning.step_and_fixed_seconds(trainer)[:2] == pytest.approx((step, fixed))
