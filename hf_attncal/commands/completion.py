"""`attncal completion`: write the script with which a shell completes commands, options and their values."""

import argparse
from collections.abc import Iterator
from functools import partial

_FILES, _FOLDERS = ("FILE", "GOLD", "HYP"), ("FOLDER", "MODEL")


def add_completion(commands: argparse._SubParsersAction, attncal: argparse.ArgumentParser) -> None:
    """Add the sub-command `completion` of the command `attncal`, whose parser it reads."""
    parser = commands.add_parser(
        "completion",
        help="write what bash, zsh or fish needs to complete commands and options",
        description="Write the script from which a shell completes the commands, options and values of attncal.",
        epilog="examples (new shells read them; in zsh, ~/.zfunc must be in fpath):\n"
        "  attncal completion bash > ~/.local/share/bash-completion/completions/attncal\n"
        "  attncal completion zsh > ~/.zfunc/_attncal\n"
        "  attncal completion fish > ~/.config/fish/completions/attncal.fish",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that will read it")
    parser.set_defaults(run=partial(_run_completion, attncal))


def _run_completion(attncal: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from hf_attncal.extras import need

    need("completion")
    import shtab

    for action in _actions(attncal):
        if action.metavar in (*_FILES, *_FOLDERS):
            action.complete = shtab.FILE if action.metavar in _FILES else shtab.DIRECTORY
    print(shtab.complete(attncal, shell=options.shell), end="")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of a parser and of all commands below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)
