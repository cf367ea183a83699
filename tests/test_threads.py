"""The number of threads of a training, by a clock that the tests turn."""

import os
import subprocess
import sys

import pytest
import torch

from hf_attncal.io.process import ThreadChoice, check_threads, spin_briefly


class Machine:
    """A clock, and work that takes `seconds[threads]` on it."""

    def __init__(self, **seconds: float):
        self.seconds = {int(name.removeprefix("with_")): value for name, value in seconds.items()}
        self.now, self.threads, self.used = 0.0, max(self.seconds), []

    def clock(self) -> float:
        return self.now

    def set_threads(self, threads: int) -> None:
        self.threads = threads

    def work(self, choice: ThreadChoice, steps: int) -> None:
        for _ in range(steps):
            choice.begin()
            self.used.append(self.threads)
            self.now += self.seconds[self.threads]
            choice.end()


def choice_of(machine: Machine) -> ThreadChoice:
    return ThreadChoice(machine.threads, machine.set_threads, machine.clock)


@pytest.mark.parametrize(("one", "two", "best"), [(0.2, 0.1, 2), (0.1, 0.3, 1), (0.1, 0.105, 2)])
def test_the_faster_number_is_chosen_and_the_present_one_kept_where_it_is_as_fast(one, two, best):
    machine = Machine(with_1=one, with_2=two)
    choice = choice_of(machine)
    machine.work(choice, 20)
    assert choice.threads == best
    assert choice.rounds == 1
    assert machine.used[-5:] == [best] * 5
    assert choice.seconds == pytest.approx({1: one, 2: two})


def test_four_threads_try_two_and_one():
    machine = Machine(with_1=0.3, with_2=0.1, with_4=0.2)
    choice = choice_of(machine)
    machine.work(choice, 20)
    assert choice.threads == 2
    assert set(machine.used) == {1, 2, 4}


def test_load_that_comes_and_goes_changes_the_choice():
    machine = Machine(with_1=0.2, with_2=0.1)
    choice = choice_of(machine)
    machine.work(choice, 30)
    assert choice.threads == 2
    machine.seconds = {1: 0.3, 2: 3.0}
    machine.work(choice, 30)
    assert choice.threads == 1
    machine.seconds = {1: 0.2, 2: 0.1}
    machine.work(choice, 400)
    assert choice.threads == 2


def test_measuring_costs_little():
    """A number of threads that is a hundred times slower is tried for one step, and then not again for long."""
    machine = Machine(with_1=0.1, with_2=10.0)
    choice = choice_of(machine)
    machine.work(choice, 20_000)
    assert machine.used.count(2) < 15
    assert machine.now < 1.08 * 20_000 * 0.1


def test_the_choice_in_words():
    machine = Machine(with_1=0.1, with_2=0.2)
    choice = choice_of(machine)
    machine.work(choice, 20)
    assert str(choice) == "1 thread (0.10 seconds a step; with 2: 0.20)"


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_numbers_of_threads_that_cannot_be(threads):
    with pytest.raises(ValueError, match=rf"^`threads`.*1.*1024.*got {threads}"):
        check_threads(threads, "`threads`")


@pytest.mark.parametrize(("given", "expected"), [({}, "10000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_a_wait_policy_of_the_user_stays(monkeypatch, given, expected):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spin_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


def test_the_command_sets_the_policy_before_torch_is_imported():
    code = (
        "import os, sys, hf_attncal.__main__ as m, hf_attncal.commands as cli\n"
        "cli.main = lambda: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "m.main()"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY",)}
    environment.pop("GOMP_SPINCOUNT", None)
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10000", "False"]


class _Arguments:
    device, world_size = torch.device("cpu"), 1


class _State:
    global_step = 7


def _trained(callback, clock=None) -> None:
    callback.on_train_begin(_Arguments(), _State(), None)
    for _ in range(20):
        callback.on_step_begin(_Arguments(), _State(), None)
        callback.on_step_end(_Arguments(), _State(), None)


@pytest.fixture
def threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_training_says_and_keeps_what_was_chosen(monkeypatch, capsys, threads_restored):
    from hf_attncal.training.threads import ChooseThreads

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    callback = ChooseThreads()
    _trained(callback)
    (entry,) = callback.history
    assert entry["step"] == 7
    assert entry["threads"] == torch.get_num_threads()
    assert set(entry["seconds_per_step"]) == {"1", "2"}
    assert f"Training on {entry['threads']} thread" in capsys.readouterr().out


@pytest.mark.parametrize("fixed", ["environment", "argument", "processes"])
def test_a_number_that_is_fixed_is_kept(monkeypatch, capsys, threads_restored, fixed):
    from hf_attncal.training.threads import ChooseThreads

    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    if fixed == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    if fixed == "processes":
        monkeypatch.setattr(_Arguments, "world_size", 2)
    callback = ChooseThreads(threads=3 if fixed == "argument" else None)
    _trained(callback)
    assert torch.get_num_threads() == (3 if fixed == "argument" else 2)
    assert not callback.history
    assert not capsys.readouterr().out
