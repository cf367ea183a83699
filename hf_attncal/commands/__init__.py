"""The `attncal` command: one file for each command (`align.py` for `attncal align run`), and shared parts.

These files import only the standard library at the top, so that `attncal --help` does not wait for torch.
"""

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

from hf_attncal.data.streams import NamedOutput
from hf_attncal.errors import CommandError, explain, one_line
from hf_attncal.inference.opening import fetched
from hf_attncal.messages import loudness
from hf_attncal.metrics.records import recorded_as

from .align_select import add_select
from .common import running_of
from .completion import add_completion
from .parser import Parser

ALIGN_ACTIONS = {
    "select": add_select,
}
PARSED = {}
_BROKEN_PIPE_STATUS = 128 + 13  # what a process killed by SIGPIPE leaves, as `yes | head` does
_INTERRUPT_STATUS = 128 + 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status; `arguments` are those of the process by default."""
    from .app import UsageError, call_of, command_of

    tokens = sys.argv[1:] if arguments is None else list(arguments)
    if command_of(tokens) is not None:
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
    options = argparse.Namespace(debug=False, verbose=0, quiet=False)

    def command() -> None:
        build_parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments, options)
        with loudness(options.verbose, options.quiet):
            if getattr(options, "revision", None) is not None:
                options.model = fetched(options.model, running_of(options))
            options.run(options)

    return exit_status(command, "attncal", lambda: options.debug)


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
        return 1


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


def build_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Build the parser of `attncal` and its sub-commands; the parsed `options.run` is the function to call.

    Args:
        arguments: what will be parsed. If they name a command, only the options of that one are built.
    """
    from hf_attncal import __version__

    parser = Parser(
        prog="attncal",
        description="Attention that can be trusted: translate, summarise, align words, train.",
        epilog="Each command has a help page of its own, with examples:\n  attncal align run --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    # The options before the name of a command take no value, so the first words are its name.
    name, action, *_ = [*(word for word in arguments if not word.startswith("-")), "", ""]
    if name in PARSED:
        PARSED[name](commands)
        return parser
    align = commands.add_parser(
        "align", help="align the words of sentence pairs", description="Align the words of sentence pairs."
    )
    actions = align.add_subparsers(title="actions", required=True, metavar="ACTION")
    if name == "align" and action in ALIGN_ACTIONS:
        ALIGN_ACTIONS[action](actions)
        return parser
    for add in ALIGN_ACTIONS.values():
        add(actions)
    for add in PARSED.values():
        add(commands)
    add_completion(commands, parser)
    return parser
