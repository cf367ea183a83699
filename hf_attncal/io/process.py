"""The process: Ctrl-C that waits for an import, and the number of CPU threads.

An idle thread of PyTorch waits by spinning. That is fastest on an idle machine. But if another process wants the
processor, spinning takes the time that the other threads need to finish, and a step with two threads can take several
times as long as with one.
"""

import _thread
import os
import signal
import sys
import threading
import time
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


def spin_briefly() -> None:
    """Make idle threads of PyTorch sleep after a short spin; call it before torch is imported.

    A wait policy that the user has set in the environment stays.
    """
    if not any(name in os.environ for name in _WAITING):
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def check_threads(threads: int, name: str) -> None:
    """Raise ValueError, beginning with `name`, for a number of threads that PyTorch cannot start.

    PyTorch itself would end the process if the system refused a thread.
    """
    if not 1 <= threads <= MOST_THREADS:
        raise ValueError(
            f"{name} must be from 1 to {MOST_THREADS}, got {threads}. More threads than cores are slower."
        )
