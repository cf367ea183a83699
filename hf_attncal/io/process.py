"""The process: Ctrl-C that waits for an import, and the number of CPU threads.

An idle thread of PyTorch waits by spinning. That is fastest on an idle machine. But if another process wants the
processor, spinning takes the time that the other threads need to finish, and a step with two threads can take several
times as long as with one.
"""

import _thread
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

# ---- Ctrl-C ----

_AGAIN = 0.05  # seconds until an interrupt that came at a bad moment is raised again
_LONGEST_IMPORT = 20.0  # seconds that an import may keep an interrupt from being raised
_IMPORTING = "<frozen importlib._bootstrap>"
_came: list[float] = []  # when the interrupt came that waits for an import


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt, once the outermost import that is going on is done.

    A library whose import is cut short may swallow the interrupt, raise another error, or be half there for all that
    comes after (`module 'numpy' has no attribute 'matrix'`), and C++ code ends the process (`terminate called`).

    Raises:
        KeyboardInterrupt: nothing is being imported, or it has taken 20 seconds.
    """
    if _is_importing(frame):
        _came[:] = _came or [time.monotonic()]
        if time.monotonic() < _came[0] + _LONGEST_IMPORT:
            raise_soon()
            return
    _came.clear()
    signal.default_int_handler(number, frame)


def raise_soon() -> None:
    """Let SIGINT come again in a moment."""
    timer = threading.Timer(_AGAIN, _thread.interrupt_main)
    timer.daemon = True  # a command that is done needs no interrupt
    timer.start()


def raise_unraisable_again(unraisable) -> None:
    """Raise Ctrl-C again that came in a destructor or a callback: Python would print a traceback and go on.

    A moment later, as Python would drop one that is raised in this hook, too.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        raise_soon()
    else:
        sys.__unraisablehook__(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    return frame is not None


# ---- threads ----

# Environment variables for how a thread of GNU OpenMP, which PyTorch uses on Linux, waits.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
# Turns of spinning before a thread sleeps. The default of 300,000 costs other processes more; with this number a
# small model trains as fast on an idle machine (docs/log.md).
_SPINS = "10000"
MOST_THREADS = 1024  # a process that starts many more is killed by the system
# Steps that warm up, and steps timed with each number of threads in a round of measurements.
_WARM_UP, _STEPS = 2, 3
# A number of threads is dropped after a step this many times slower than the best, and chosen if its steps take at
# most this share of the present time.
_HOPELESS, _BETTER = 1.5, 0.9
# Seconds until the next round, or this many times the cost of the last one, if that is longer.
_PAUSE, _PAUSE_PER_COST = 20.0, 30.0


def spin_briefly() -> None:
    """Make idle threads of PyTorch sleep after a short spin; call it before torch is imported.

    A wait policy that the user has set in the environment stays.
    """
    if not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def is_fixed_by_user() -> bool:
    """Return whether the environment says how many threads to use."""
    return any(os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))


def check_threads(threads: int, name: str) -> None:
    """Raise ValueError, beginning with `name`, for a number of threads that PyTorch cannot start.

    PyTorch itself would end the process if the system refused a thread.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(
            f"{name} must be from 1 to {MOST_THREADS}, got {threads}. More threads than cores are slower."
        )


class ThreadChoice:
    """Finds the number of threads that finishes a step soonest, and measures again from time to time.

    Call `begin()` before and `end()` after each step. The steps that are timed are those of the job itself, so no time
    is lost. Different numbers of threads add up in another order, so results differ by rounding.

    Args:
        most: the largest number of threads to try; half of it, a quarter, ... and 1 are tried, too.
        set_threads: function that sets the number of threads, such as `torch.set_num_threads`.
        clock: function that returns seconds.

    Attributes:
        threads: number of threads chosen at present.
        seconds: median seconds of a step by number of threads, measured in the last round.
        rounds: number of rounds that have ended.
    """

    def __init__(self, most: int, set_threads: Callable[[int], None], clock: Callable[[], float] = time.perf_counter):
        self.threads, self.set_threads, self.clock = most, set_threads, clock
        self.seconds: dict[int, float] = {}
        self.rounds = 0
        self._candidates = [max(1, most >> halvings) for halvings in range(most.bit_length())]
        self._waiting: list[int] = []  # numbers of threads that this round has yet to try
        self._times: dict[int, list[float]] = {}
        self._warm_up = _WARM_UP
        self._next_round = 0.0

    def begin(self) -> None:
        """Start the clock of a step."""
        if not self._waiting and self._warm_up <= 0 and self.clock() >= self._next_round:
            others = [count for count in self._candidates if count != self.threads]
            self._waiting, self._times = [self.threads, *others], {}
        if self._waiting:
            self.set_threads(self._waiting[0])
        self._started = self.clock()

    def end(self) -> bool:
        """Stop the clock; return True if a round of measurements has ended with this step."""
        seconds = self.clock() - self._started
        self._warm_up -= 1
        if not self._waiting:
            return False
        count = self._waiting[0]
        times = self._times.setdefault(count, [])
        times.append(seconds)
        hopeless = seconds > _HOPELESS * min(map(statistics.median, self._times.values()))
        if len(times) < _STEPS and not hopeless:
            return False
        self._waiting.pop(0)
        if self._waiting:
            return False
        self._choose()
        return True

    def _choose(self) -> None:
        self.seconds = {count: statistics.median(times) for count, times in self._times.items()}
        fastest = min(self.seconds, key=self.seconds.__getitem__)
        # Seconds lost by trying other numbers of threads than the present one.
        best = self.seconds[fastest]
        cost = sum(sum(times) - len(times) * best for count, times in self._times.items() if count != self.threads)
        if best < _BETTER * self.seconds[self.threads]:
            self.threads = fastest
        self.set_threads(self.threads)
        self._next_round = self.clock() + max(_PAUSE, _PAUSE_PER_COST * cost)
        self.rounds += 1

    def __str__(self) -> str:
        """Describe the choice: "2 threads (0.12 seconds a step; with 1: 0.18)"."""
        others = [f"with {count}: {seconds:.2f}" for count, seconds in self.seconds.items() if count != self.threads]
        chosen = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{chosen} ({'; '.join([f'{self.seconds[self.threads]:.2f} seconds a step', *others])})"
