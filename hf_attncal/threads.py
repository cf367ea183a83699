"""The number of CPU threads that suits a small model at the moment, found by timing steps.

A thread of PyTorch that has nothing to do waits by spinning. On an idle machine that is the fastest way; as soon as
anything else wants the processor, the spinning takes away the time that the others need to finish, and a step with
two threads can take several times as long as one with a single thread.
"""

import os
import statistics
import time
from collections.abc import Callable

# What decides how GNU OpenMP, with which PyTorch is built for Linux, lets a thread wait.
_WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
# Turns of spinning before a thread sleeps. Of the default, 300,000, others lose more; with this a
# small model trains as fast on an idle machine (`results/benchmark_demo_cpu.json`).
_SPINS = "10000"
MOST_THREADS = 1024  # of many more the process dies where it starts them
# A round of measurements: this many steps with each number of threads, after some that warm up.
_WARM_UP, _STEPS = 2, 3
# A number of threads is given up after one step that takes so much longer than the best, and chosen if it is so much
# faster than the present one.
_HOPELESS, _BETTER = 1.5, 0.9
# Seconds to the next round, or this many times what the last one cost, if that is more.
_PAUSE, _PAUSE_PER_COST = 20.0, 30.0


def spin_briefly() -> None:
    """Make idle threads of PyTorch sleep after a short spin. It has an effect before torch is imported, and only then.

    A wait policy in the environment of the user stays as it is.
    """
    if not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def is_fixed_by_user() -> bool:
    """Whether the environment says how many threads to use."""
    return any(os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))


def check_threads(threads: int, name: str) -> None:
    """Raise ValueError, which begins with `name`, for a number of threads that PyTorch cannot start.

    PyTorch itself ends the process where the system refuses a thread.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(f"{name} must be from 1 to {MOST_THREADS}, got {threads}. More than cores make it slower.")


class ThreadChoice:
    """Repeats a piece of work with the number of threads that finishes it soonest, measured again now and then.

    Call `begin()` before and `end()` after each piece. What is timed is the work itself, so that no second of it is
    lost; different numbers of threads add up in another order, so results differ by rounding.

    Args:
        most: the largest number of threads to try; half of it, a quarter, ... and 1 are tried beside it.
        set_threads: called with a number of threads, such as `torch.set_num_threads`.
        clock: returns seconds.

    Attributes:
        threads: the present choice.
        seconds: the median of a step by number of threads, as the last round measured it.
        rounds: how many rounds have ended.
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
        # What it cost to try other numbers of threads than the present one, which would have been used anyway.
        best = self.seconds[fastest]
        cost = sum(sum(times) - len(times) * best for count, times in self._times.items() if count != self.threads)
        if best < _BETTER * self.seconds[self.threads]:
            self.threads = fastest
        self.set_threads(self.threads)
        self._next_round = self.clock() + max(_PAUSE, _PAUSE_PER_COST * cost)
        self.rounds += 1

    def __str__(self) -> str:
        """The choice in words: "2 threads (0.12 seconds a step; with 1: 0.18)"."""
        others = [f"with {count}: {seconds:.2f}" for count, seconds in self.seconds.items() if count != self.threads]
        what = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{what} ({'; '.join([f'{self.seconds[self.threads]:.2f} seconds a step', *others])})"
