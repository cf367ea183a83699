"""The `attncal` command: one function per command, one to three in a file, and the parsing of command lines.

`align.py` holds `align`, the function of `attncal align run`; `command_table.py`, beside this folder, lists all of
them. These files import nothing heavy at the top, so that `attncal --help` does not wait for torch.
"""

import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from hf_attncal.io.errors import CommandError, explain, one_line
from hf_attncal.io.messages import verbosity
from hf_attncal.io.streams import NamedOutput
from hf_attncal.metrics.records import recorded_as

_BROKEN_PIPE_STATUS = 128 + 13  # status of a process killed by SIGPIPE
_INTERRUPT_STATUS = 128 + 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status. Default of `arguments`: sys.argv[1:]."""
    from .app import UsageError, call_of

    tokens = sys.argv[1:] if arguments is None else list(arguments)
    try:
        run, common = call_of(tokens)
    except UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error

    def call() -> None:
        with verbosity(common["verbose"], common["quiet"]), recorded_as("attncal", *tokens):
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
        debug: returns True if the traceback of an error is to be printed.
        refusals: errors whose message is complete; any other error is reported as a bug. Default: CommandError.
    """
    if sys.stderr is None:  # it was closed, and its text would go to standard output
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # file names and terminals may have another encoding
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
    """Return True if Ctrl-C came during an import and the imported library turned it into another error."""
    if not isinstance(error, ImportError | SystemError):
        return False
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _drop_output() -> None:
    """Discard unwritten output: Python would flush it at exit and report the same error again."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
