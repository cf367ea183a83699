"""The functions of all commands, as the command line has them."""

import inspect
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any, get_args

from hf_attncal.command_table import COMMANDS as TABLE
from hf_attncal.commands.app import kind_of, signature_of
from hf_attncal.commands.kinds import Kind

COMMANDS: dict[str, Callable] = {name: resolve_name(function) for name, function in TABLE.items()}


def options_of(function: Callable) -> list[str]:
    """Return the options of a command, without the shared ones of `Running`."""
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters
    shown = signature_of(function).parameters.keys()
    return [name for name, parameter in parameters.items() if name in shown and parameter.kind in named]


def values_of(
    function: Callable, given: list[str]
) -> Iterator[tuple[int, str | None, inspect.Parameter, Kind | None]]:
    """For each word that is a value: its place, its option if it follows one, its parameter, and the kind of that."""
    parameters = inspect.signature(function).parameters
    by_place = [
        parameter
        for parameter in parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    option, position = None, 0
    for place, word in enumerate(given):
        if word.startswith("--"):
            option = word
            if _is_switch(parameters[name_of(option)].annotation):
                option = None
            continue
        if option is not None:
            parameter = parameters[name_of(option)]
            kind = kind_of(parameter.annotation)
            yield place, option, kind
            if kind is None or not kind.many:
                option = None
        else:
            parameter = by_place[min(position, len(by_place) - 1)]
            position += 1
            yield place, None, kind_of(parameter.annotation)


def name_of(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _is_switch(annotation: Any) -> bool:
    return annotation is bool or bool in get_args(annotation)
