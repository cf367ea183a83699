"""Ctrl-C in a command, at moments that are chosen."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hf_attncal
from hf_attncal.interrupts import Interruptible, raises_interrupt

PRESS = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
# What a command does, in a process that left Ctrl-C to the system.
COMMAND = """
import time
from hf_attncal.interrupts import Interruptible, leave_to_system
leave_to_system()
try:
    with Interruptible("command"):
        {work}
except KeyboardInterrupt:
    print("caught", flush=True)
    {after}
"""


@pytest.fixture(autouse=True)
def what_was_there_is_put_back():
    def handlers():
        return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook

    before = handlers()
    yield
    assert handlers() == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


def run(work: str, after: str = "pass", **options) -> subprocess.CompletedProcess:
    script = COMMAND.format(work=work, after=after)
    path = ":".join([str(Path(hf_attncal.__file__).parents[1]), *sys.path])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment, **options
    )


def test_an_import_comes_to_its_end(module):
    """One that drops the exception, too, as libraries do: with Python's handler nobody would hear of it again."""
    module("outer_of_interrupt", "try:\n    import inner_of_interrupt\nexcept BaseException:\n    pass\n")
    module("inner_of_interrupt", f"{PRESS}whole = True\n")
    with pytest.raises(KeyboardInterrupt), Interruptible("command"):  # noqa: PT012 - it comes later
        import outer_of_interrupt  # noqa: F401

        time.sleep(10)
    assert sys.modules["inner_of_interrupt"].whole


def test_one_in_a_destructor_is_raised_after_it(capfd):
    class Closing:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Interruptible("command"):  # noqa: PT012
        Closing()
        time.sleep(10)
    assert capfd.readouterr().err == ""


def test_what_else_cannot_be_caught_is_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class Failing:
        def __del__(self):
            raise ValueError

    with Interruptible("command"):
        Failing()
    assert [unraisable.exc_type for unraisable in told] == [ValueError]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_who_does_not_listen_or_has_a_handler_is_left_alone(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with Interruptible("command"):
            assert signal.getsignal(signal.SIGINT) is handler
            assert not raises_interrupt(handler)
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_works_without():
    with ThreadPoolExecutor(1) as threads, Interruptible("command"):
        handler = signal.getsignal(signal.SIGINT)
        assert raises_interrupt(handler)

        def work():
            with Interruptible("inner"):
                return signal.getsignal(signal.SIGINT)

        assert threads.submit(work).result() is handler


def test_what_a_command_imports_first_is_not_waited_for(module, tmp_path):
    module("long_of_interrupt", f"{PRESS}import time\nfor _ in range(600):\n    time.sleep(0.1)\n")
    ended = run("import long_of_interrupt", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "command: interrupted\n")


def test_what_its_work_imports_comes_to_its_end(tmp_path):
    """Something may have been written, which is to be cleared up."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "__init__.py").write_text(
        "def work():\n    from . import lazy\n    import time; time.sleep(60)"
    )
    (tmp_path / "library" / "lazy.py").write_text(f"{PRESS}print('whole', flush=True)\n")
    ended = run("import library; library.work()", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "whole\ncaught\n", "")


def test_a_second_one_does_not_wait_for_clearing_up():
    ended = run(PRESS.replace("\n", ";"), after=PRESS.replace("\n", ";") + "time.sleep(60)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "caught\n", "")
