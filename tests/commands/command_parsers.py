"""The parsers of all commands."""

import argparse

from hf_attncal.commands import build_parser


def leaves(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """Every command by its words, without those that only have commands below them."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return {path: parser}
    return {
        words: leaf for name, child in below[0].choices.items() for words, leaf in leaves(child, (*path, name)).items()
    }


COMMANDS = leaves(build_parser())
