"""How every command reads its options and shows its help.

A command gets this with `commands.add_parser(name, help=, description=, epilog=)` and nothing else. Its epilog has an
example or more, each on a line that begins with two spaces. An option with a value says its default, or what happens
`without it`; a number is `N` or `X` in usage lines.
"""

import argparse
import sys
import textwrap
from typing import NoReturn

_OF_BOOLEAN_OPTION = " (default: %(default)s)"  # argparse's own, up to Python 3.12


class HelpFormatter(argparse.HelpFormatter):
    """Shows defaults, calls numbers N or X, keeps the ends of lines, and wraps none that begins with a space."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told = (action.help or "").removesuffix(_OF_BOOLEAN_OPTION)
        if not action.option_strings or "(default: " in told or action.default in (None, False, argparse.SUPPRESS):
            return told
        if action.default is True:  # of `--x | --no-x`
            return f"{told} (default: {action.option_strings[0]})"
        return f"{told} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        numbers = {int: "N", float: "X"}
        return getattr(action.type, "metavar", None) or numbers.get(action.type) or action.dest.upper()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = [line if line.startswith(" ") else textwrap.fill(line, width) for line in text.strip().splitlines()]
        return textwrap.indent("\n".join(lines), indent)


class Parser(argparse.ArgumentParser):
    """The parser of `attncal` and of each of its commands: what all of them have, and errors that help."""

    def __init__(self, *arguments, **options):
        ours = {"add_help": False, "allow_abbrev": False, "formatter_class": HelpFormatter}
        super().__init__(*arguments, **options | ours)
        self.suggest_on_error = False  # Python 3.14's: ours is older
        self._common = self.add_argument_group("for every command")
        # SUPPRESS: given before the name of a command, none is forgotten after it.
        self._common.add_argument("-h", "--help", action="help", help="show this help and exit")
        loudness = self._common.add_mutually_exclusive_group()
        loudness.add_argument(
            "-v",
            "--verbose",
            action="count",
            default=argparse.SUPPRESS,
            help="tell what is being done, too: files, models, seconds, memory; -vv: what the libraries log, too",
        )
        loudness.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            default=argparse.SUPPRESS,
            help="only results and errors: no progress, no warnings",
        )
        self._common.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show where in the code an error arose"
        )

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: group is self._common)  # to the end
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """As argparse's; where nothing but the name of a command is missing, the help shows which there are."""
        missing = [action.metavar for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        if missing and message.endswith(f"required: {missing[0]}"):
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: error: no {missing[0]} given: name one of them.\n")
        super().error(message)

    def parse_known_args(self, args=None, namespace=None):
        """Unknown arguments are an error here, with the usage of the command that got them, and not at the top."""
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

    found = get_close_matches(str(name), known, n=1)
    return f". Did you mean {found[0]}?" if found else ""
