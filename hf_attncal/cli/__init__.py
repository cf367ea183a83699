"""The `attncal` command: a file for each command, `align_run.py` for `attncal align run`, and what they share.

At the top of these files only the standard library is imported: `attncal --help` must not wait for torch.
"""

import argparse
import os
import sys
from importlib.metadata import version

from .align_run import add_run
from .align_select import add_select
from .align_train import add_train
from .common import CommandError
from .demo import add_demo
from .score import add_score
from .translate import add_translate

_BROKEN_PIPE_STATUS = 128 + 13  # what a process killed by SIGPIPE leaves, as `yes | head` does
_INTERRUPT_STATUS = 128 + 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status; `arguments` are those of the process by default."""
    options = build_parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except CommandError as error:
        print(f"attncal: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has left (`| head`). Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE_STATUS
    except KeyboardInterrupt:
        return _INTERRUPT_STATUS


def build_parser() -> argparse.ArgumentParser:
    """The parser of `attncal` and its sub-commands; `options.run` is the function to call."""
    parser = argparse.ArgumentParser(prog="attncal", description="Attention that can be trusted.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('hf_attncal')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    align = commands.add_parser(
        "align", help="align the words of sentence pairs", description="Align the words of sentence pairs."
    )
    actions = align.add_subparsers(title="actions", required=True, metavar="ACTION")
    for add in (add_train, add_select, add_run):
        add(actions)
    for add in (add_score, add_translate, add_demo):
        add(commands)
    return parser
