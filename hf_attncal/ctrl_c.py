"""Ctrl-C raises KeyboardInterrupt, but not inside an import or a destructor, where it would be lost or do harm."""

import _thread
import signal
import sys
import threading
import time
from types import FrameType

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
