"""The `attncal` command: the functions that its commands call, one or two in a file, and what reads command lines.

`align.py` holds `align`, the function of `attncal align run`; `command_table.py`, beside this folder, has all of them.
These files import nothing heavy at the top, so that `attncal --help` does not wait for torch.
"""

import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from hf_attncal.io.errors import CommandError, explain, one_line
from hf_attncal.io.messages import loudness
from hf_attncal.io.streams import NamedOutput
from hf_attncal.metrics.records import recorded_as

_BROKEN_PIPE_STATUS = 128 + 13  # what a process killed by SIGPIPE leaves, as `yes | head` does
_INTERRUPT_STATUS = 128 + 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status; `arguments` are those of the process by default."""
    from .app import UsageError, call_of

    tokens = sys.argv[1:] if arguments is None else list(arguments)
    try:
        run, common = call_of(tokens)
    except UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error

    def call() -> None:
        with loudness(common["verbose"], common["quiet"]), recorded_as("attncal", *tokens):
            result = run()
        if result is not None and (text := str(result)):
            print(text)

    return exit_status(call, "attncal", lambda: common["debug"])


def exit_status(
    job: Callable[[], Any], name: str, debug: Callable[[], bool], refusals: type[Exception] = CommandError
) -> int:
    """Run a job as a command: print any error as one line on standard error, and return the exit status.

    Args:
        job: the job; its return value is dropped.
        name: name of the command, which begins the line.
        debug: returns whether to show the traceback of an error.
        refusals: errors whose message tells the user what to do; any other error is reported as a bug.
    """
    if sys.stderr is None:  # closed: its text would go to standard output
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # file names and terminals need not be UTF-8
    try:
        if sys.stdout is None:
            raise CommandError("standard output is closed. Give the command a file or a pipe to write (`> FILE`).")
        with redirect_stdout(NamedOutput(sys.stdout)) as output:
            try:
                job()
                return 0
            finally:
                output.flush()
    except KeyboardInterrupt as interrupt:
        print(f"{name}: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        return _INTERRUPT_STATUS
    except BrokenPipeError:  # the reader has left (`| head`)
        _drop_output()
        return _BROKEN_PIPE_STATUS
    except Exception as error:
        if debug():
            traceback.print_exc()
        if _is_interrupt(error):
            print(f"{name}: interrupted", file=sys.stderr)
            return _INTERRUPT_STATUS
        print(f"{name}: error: {one_line(error) if isinstance(error, refusals) else explain(error)}", file=sys.stderr)
        _drop_output()
        return getattr(error, "exit_status", 1)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether Ctrl-C came during an import, and the imported library made another error of it."""
    if not isinstance(error, ImportError | SystemError):
        return False
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _drop_output() -> None:
    """Discard unwritten output, as Python flushes it at exit and would report the same error again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
