"""The gate before a command: refuse a call whose outputs would overwrite an input or a file of another kind.

The signature of a function names its inputs and outputs (`kinds.py`), so a new command is also covered.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hf_attncal.alignment.ready import ready_or_named
from hf_attncal.io.errors import check_choice, user_errors
from hf_attncal.io.gate import check_apart, check_file, check_folder, job, note_inputs
from hf_attncal.layouts import check_one_model

from .kinds import STANDARD, Kind, kind_of, running_options, type_text

_MODELS = ("MODEL", "LINKS")  # kinds for which the name of a ready aligner may stand


def choices_of(annotation: Any) -> tuple:
    """Return the values of a Literal, optional or not; () for another type."""
    annotation = getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    literals = [part for part in parts if part is not type(None)]
    return get_args(literals[0]) if len(literals) == 1 and get_origin(literals[0]) is Literal else ()


@cache
def guarded(function: Callable) -> Callable:
    """Return the function of a command, behind the gate, with a signature that `help()` shows in plain types."""
    described = signature(function)
    kinds = {name: kind_of(parameter.annotation) for name, parameter in described.parameters.items()}
    # The command line checks these itself; a call from Python does not.
    choices = {name: choices_of(parameter.annotation) for name, parameter in described.parameters.items()}
    choices = {name: allowed for name, allowed in choices.items() if allowed}

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        arguments, options = _normalised_arguments(described, arguments, options)
        try:
            bound = described.bind(*arguments, **options)
        except TypeError:
            return function(*arguments, **options)  # Python's own message
        bound.apply_defaults()
        for name, allowed in choices.items():
            check_choice(f"`{name}`", bound.arguments[name], allowed)
        for name, kind in kinds.items():
            if kind is None or kind.shown not in _MODELS:
                continue
            if isinstance(bound.arguments[name], str | os.PathLike):
                bound.arguments[name] = ready_or_named(bound.arguments[name])
        values = [(name, kind, bound.arguments[name]) for name, kind in kinds.items() if kind is not None]
        with job():
            for name, kind, value in values:
                if not kind.written:
                    several = kind.many or described.parameters[name].kind is Parameter.VAR_POSITIONAL
                    for path in _names(value, several):
                        note_inputs(path)
                        with user_errors():
                            check_one_model(Path(path))
            _check_outputs(values, bound.arguments)
            return function(*bound.args, **bound.kwargs)

    parameters = [
        parameter.replace(annotation=type_text(parameter.annotation)) for parameter in described.parameters.values()
    ]
    shown = described.replace(parameters=parameters, return_annotation=type_text(described.return_annotation))
    call.__signature__ = shown  # type: ignore[attr-defined]
    return call


def _normalised_arguments(
    described: Signature, arguments: tuple, options: dict[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Accept fields of `Running` by name, `device="cpu"`, and the text first, `translate(lines, model=name)`."""
    if (running := described.parameters.get("running")) is not None:
        names = {field.name for field in fields(running.default)} - described.parameters.keys()
        if changes := {name: options.pop(name) for name in names & options.keys()}:
            options["running"] = replace(options.get("running", running.default), **changes)
        if (names_taken := running_options(running.annotation)) is not None:
            options.get("running", running.default).takes(*names_taken)
    first = next(iter(described.parameters), None)
    if first == "model" and "model" in options and arguments:
        arguments = (options.pop("model"), *arguments)
    return arguments, options


def _check_outputs(values: list[tuple[str, Kind, Any]], arguments: dict[str, Any]) -> None:
    """Raise CommandError for an output that must not be written; see `io.gate`."""
    outputs = []
    for name, kind, value in values:
        option = f"--{name.replace('_', '-')}"
        for path in _names(value, kind.many) if kind.written else ():
            if path == STANDARD:
                continue
            page = kind.written == "file" or (kind.written == "place" and path.endswith(".html"))
            if page and not os.path.isdir(path):
                check_file(path, option)
            else:
                model = arguments.get("model") if kind.written == "beside" else None
                check_folder(path, option, marked=kind.written == "model", model=model)
            outputs.append((option, path))
    check_apart(outputs)


def _names(value: Any, several: bool) -> Iterator[str]:
    """Yield the files and folders in an argument; for a loaded model, the folder that it was loaded from."""
    if isinstance(value, str | os.PathLike):
        yield os.fspath(value)
    elif several and isinstance(value, list | tuple):
        for item in value:
            yield from _names(item, False)
    else:
        for part in value if isinstance(value, tuple) else (value,):
            model = getattr(getattr(part, "aligner", part), "model", part)
            yield from _names(getattr(model, "name_or_path", None) or (), False)
