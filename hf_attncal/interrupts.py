"""Ctrl-C in a command: one KeyboardInterrupt, and none in the middle of an import.

Libraries do not bear it there: some swallow it, and go on half imported until they fail in some other way; where
Python itself swallows it, it prints a traceback.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

_PAUSE = 0.02  # seconds
_IMPORT = "<frozen importlib._bootstrap>"  # the file of the code that runs while anything is imported


def leave_to_system() -> None:
    """Let Ctrl-C end the process without a word, unless it is ignored (a shell's `attncal ... &` is started so)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Interruptible:
    """Around the work of a command: the first Ctrl-C is a KeyboardInterrupt, as soon as nothing is being imported.

    The next one, and one after the work, is what it was before: for a process that left Ctrl-C to the system, as
    `leave_to_system` does, its end. There, what the package of the caller imports comes before the work: it is not
    waited for, and the process ends with the line and the status of an interrupted command. Who ignores Ctrl-C, or has
    a handler of another kind, is left alone.

    Args:
        name: of the command, which begins the line.
    """

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> "Interruptible":
        self._caller, self._before = sys._getframe(1), signal.getsignal(signal.SIGINT)
        self._listening = threading.current_thread() is threading.main_thread() and (
            raises_interrupt(self._before) or self._before is signal.SIG_DFL
        )
        if self._listening:
            self._alarm, self._unraisable = signal.signal(signal.SIGALRM, self._raise), sys.unraisablehook
            sys.unraisablehook = self._swallowed
            signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_) -> None:
        if self._listening:
            signal.signal(signal.SIGINT, self._before)
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._alarm)
            sys.unraisablehook = self._unraisable

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal."""
        signal.signal(signal.SIGINT, self._before)
        self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        importing = None
        while frame is not None and frame is not self._caller:
            if frame.f_code.co_filename == _IMPORT:
                importing = frame.f_back
            frame = frame.f_back
        if importing is None:
            raise KeyboardInterrupt
        if self._before is signal.SIG_DFL and _package(importing) == _package(self._caller):
            with suppress(OSError):  # nobody may be there to read it
                os.write(2, f"{self.name}: interrupted\n".encode())
            os._exit(128 + signal.SIGINT)
        signal.setitimer(signal.ITIMER_REAL, _PAUSE)

    def _swallowed(self, unraisable) -> None:
        """The hook for what is raised where nothing can catch it, such as in `__del__`: there it is raised anew."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _PAUSE)
        else:
            self._unraisable(unraisable)


def raises_interrupt(handler) -> bool:
    """Whether a handler of Ctrl-C raises KeyboardInterrupt: that of Python, or of a command."""
    return handler is signal.default_int_handler or isinstance(handler, Interruptible)


def _package(frame: FrameType) -> str | None:
    return frame.f_globals.get("__package__")
