"""The parser of every command: how it reads options and shows help.

A command gets it by `commands.add_parser(name, help=, description=, epilog=)`. Its epilog has at least one example, on
a line that begins with two spaces. The help of an option with a value states its default, or what happens `without
it`; a number is `N` or `X` in usage lines.
"""

import argparse
import sys
import textwrap
from typing import NoReturn

_BOOLEAN_DEFAULT = " (default: %(default)s)"  # argparse adds it to boolean options up to Python 3.12


class HelpFormatter(argparse.HelpFormatter):
    """Shows defaults, calls numbers N or X, keeps line ends, and does not wrap lines that begin with a space."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (action.help or "").removesuffix(_BOOLEAN_DEFAULT)
        if not action.option_strings or "(default: " in text or action.default in (None, False, argparse.SUPPRESS):
            return text
        if action.default is True:  # an option `--x | --no-x`
            return f"{text} (default: {action.option_strings[0]})"
        return f"{text} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        numbers = {int: "N", float: "X"}
        return getattr(action.type, "metavar", None) or numbers.get(action.type) or action.dest.upper()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [line if line.startswith(" ") else textwrap.fill(line, width) for line in text.strip().splitlines()]
        return textwrap.indent("\n".join(lines), indent)


class Parser(argparse.ArgumentParser):
    """Parser of `attncal` and each of its commands, with their common options and helpful errors."""

    def __init__(self, *arguments, **options):
        ours = {"add_help": False, "allow_abbrev": False, "formatter_class": HelpFormatter}
        super().__init__(*arguments, **options | ours)
        self.suggest_on_error = False  # Python 3.14's suggestions would repeat ours
        self._common = self.add_argument_group("for every command")
        # SUPPRESS keeps an option that was given before the name of a command.
        self._common.add_argument("-h", "--help", action="help", help="show this help and exit")
        loudness = self._common.add_mutually_exclusive_group()
        loudness.add_argument(
            "-v",
            "--verbose",
            action="count",
            default=argparse.SUPPRESS,
            help="also print what is being done: files, models, seconds, memory; -vv: also messages of libraries",
        )
        loudness.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print only results and errors: no progress, no warnings",
        )
        self._common.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: group is self._common)  # common options come last
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print an error as argparse does; if only the name of a command is missing, print the help with all names."""
        missing = [action.metavar for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        if missing and message.endswith(f"required: {missing[0]}"):
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: error: no {missing[0]} given: name one of them.\n")
        super().error(message)

    def parse_known_args(self, args=None, namespace=None):
        """Report unknown arguments here, with the usage of the command that got them and not of `attncal`."""
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            names = [name.partition("=")[0] for name in unknown if name.startswith("-")]
            near = _nearest(names[0], self._option_string_actions) if names else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return namespace, unknown

    def _check_value(self, action: argparse.Action, value) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _nearest(value, action.choices)
            raise


def _nearest(name: str, known) -> str:
    from difflib import get_close_matches

    matches = get_close_matches(str(name), known, n=1)
    return f". Did you mean {matches[0]}?" if matches else ""
