"""Entry point of `attncal` and `python -m hf_attncal`.

Ctrl-C waits for a running import, and a destructor does not swallow it.
"""

import _thread
import gc
import os
import signal
import sys
import threading
import time
from types import FrameType

# Environment variables of the wait policy of GNU OpenMP, which PyTorch uses on Linux.
_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
# Spins before an idle thread sleeps. The default of 300,000 takes processor time from other processes. With this
# number a small model trains as fast on an idle machine (docs/log.md).
_SPIN_COUNT = "10000"
_RETRY_SECONDS = 0.05  # delay of an interrupt that came during an import
_MAX_IMPORT_SECONDS = 20.0  # longest delay of an interrupt by an import
_IMPORTING = "<frozen importlib._bootstrap>"
_interrupted_at: list[float] = []  # time of the interrupt that waits for an import


def main() -> int:
    """Run the command and return its exit status.

    Ctrl-C prints one line. During imports and after the work it ends the process at once: nothing can be lost, and
    some libraries would turn it into another error.
    """
    spin_briefly()
    raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False for `attncal ... &` in a script
    sys.unraisablehook = raise_unraisable_again
    try:
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from hf_attncal.commands import main as run

        if raised:
            signal.signal(signal.SIGINT, interrupt)
        return run()
    except KeyboardInterrupt:
        print("attncal: interrupted", file=sys.stderr)
        return 130
    finally:
        gc.freeze()  # skips garbage collection at exit, half a second with PyTorch
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def spin_briefly() -> None:
    """Make idle threads of PyTorch sleep after a short spin; call before torch is imported.

    A wait policy in the environment has priority.
    """
    if not any(name in os.environ for name in _WAIT_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT


# ---- Ctrl-C ----


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt as soon as the outermost current import is complete.

    A library whose import is interrupted may swallow the interrupt, raise another error, or stay incomplete (`module
    'numpy' has no attribute 'matrix'`), and C++ code ends the process (`terminate called`).

    Raises:
        KeyboardInterrupt: no import is running, or it has taken 20 seconds.
    """
    if _is_importing(frame):
        _interrupted_at[:] = _interrupted_at or [time.monotonic()]
        if time.monotonic() < _interrupted_at[0] + _MAX_IMPORT_SECONDS:
            raise_soon()
            return
    _interrupted_at.clear()
    signal.default_int_handler(number, frame)


def raise_soon() -> None:
    """Raise SIGINT again after a short delay."""
    timer = threading.Timer(_RETRY_SECONDS, _thread.interrupt_main)
    timer.daemon = True  # a finished command needs no interrupt
    timer.start()


def raise_unraisable_again(unraisable) -> None:
    """Repeat a Ctrl-C from a destructor or a callback, where Python would print a traceback and go on.

    The delay is needed, as Python also drops exceptions of this hook.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        raise_soon()
    else:
        sys.__unraisablehook__(unraisable)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    return frame is not None


if __name__ == "__main__":
    sys.exit(main())
