"""Ctrl-C that waits for a running import, and that a destructor does not swallow."""

import _thread
import signal
import sys
import threading
import time
from types import FrameType

_RETRY_SECONDS = 0.05  # delay of an interrupt that came during an import
_MAX_IMPORT_SECONDS = 20.0  # longest delay of an interrupt by an import
_IMPORTING = "<frozen importlib._bootstrap>"
_interrupted_at: list[float] = []  # time of the interrupt that waits for an import


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
