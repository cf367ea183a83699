"""The command line over the functions of this folder: their signatures are the options, their docstrings the help.

cyclopts parses. What is ours: which types a command line has (`kinds.py`), `-v`, `-q` and `--debug` for every command,
and errors on one line.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Annotated, Any, get_args

from cyclopts import App, CycloptsError, Group, Parameter, Token
from docstring_parser import parse

from hf_attncal.command_table import COMMANDS
from hf_attncal.inference.running import Running, Spoken

from .guarded import guarded, kind_of
from .kinds import STANDARD, Kind, Setting, Values

_SETTING = re.compile(r"[a-z_]+(\.\w+)*=")
_DASH = "\0"  # which no token of a command line holds
_PARENTS = {"align": "Align the words of sentence pairs."}  # help of words that are no command by themselves
_RUNNING = Group("Running", sort_key=90)
_COMMON = """For every command:
  -h, --help     show this help
  -v, --verbose  also say what is done, in which time and memory; -vv: libraries
  -q, --quiet    print results and errors alone: no progress, no warnings
  --debug        show the traceback of an error"""


class UsageError(Exception):
    """A command line that cannot be understood."""


@cache
def functions() -> dict[str, str]:
    """Return the function of each command, `module:function`: ours, and those of entry points `attncal.commands`."""
    others = {entry.name: entry.value for entry in entry_points(group="attncal.commands")}
    return others | COMMANDS


def command_of(tokens: Sequence[str]) -> str | None:
    """Return the name of the command that a command line begins with, if there is one."""
    words = [token for token in tokens if not token.startswith("-")]
    for size in (2, 1):
        name = " ".join(words[:size])
        if name in COMMANDS or (name and name in functions()):
            return name
    return None


def signature_of(function: Callable) -> inspect.Signature:
    """Return the parameters of a function as the command line has them, with what cyclopts wants to know of each.

    The fields of `Running` are options of their own, which `guarded` takes by name.
    """
    groups = getattr(inspect.getmodule(function), "GROUPS", {})
    group_of = {
        name: Group(title, sort_key=10 + place)
        for place, (title, names) in enumerate(groups.items())
        for name in names
    }
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        group, text = group_of.get(parameter.name), texts_of(function).get(parameter.name, "")
        if parameter.annotation in (Running, Spoken):
            parameters += _running_options(parameter.annotation)
        elif (kind := kind_of(parameter.annotation)) is not None:
            parameters.append(_option(*_as_names(parameter, kind), text, group))
        elif parameter.annotation is not inspect.Parameter.empty and not _python_only(parameter.annotation):
            negated = parameter.annotation == bool | None or parameter.default is True
            parameters.append(_option(parameter, parameter.annotation, text, group, negated=negated))
    return inspect.Signature(parameters)


def _option(
    parameter: inspect.Parameter, annotation: Any, text: str, group: Group | None, *, negated: bool = False
) -> inspect.Parameter:
    """Return a parameter with what cyclopts wants to know; a switch that is `negated` has a --no-switch beside it."""
    how: dict[str, Any] = {} if group is None else {"group": group}
    if annotation in (int, int | None):
        how["converter"] = _whole_number
    if not parameter.default or parameter.default == STANDARD:
        how["show_default"] = False
    if not negated:
        how["negative"] = ""
    return parameter.replace(annotation=Annotated[annotation, Parameter(help=text, **how)])


def _as_names(parameter: inspect.Parameter, kind: Kind) -> tuple[inspect.Parameter, Any]:
    """Return a parameter whose values are names or `key=value`, with its default and type on the command line."""
    several = kind.many and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    value: Any = list[str] if several else str
    default = STANDARD if kind.standard else parameter.default
    optional = default is None or type(None) in get_args(parameter.annotation)
    return parameter.replace(default=default), value | None if optional else value


def _running_options(running: type[Spoken]) -> Iterator[inspect.Parameter]:
    """Yield the fields of `running` as options."""
    texts = {name: text for base in running.__mro__ for name, text in texts_of(base).items()}
    for field in fields(running):
        parameter = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        annotation = str | None if field.name == "languages" else field.type
        yield _option(parameter, annotation, texts[field.name], _RUNNING)


def texts_of(documented: Callable) -> dict[str, str]:
    """Return the help texts of the parameters of a function or the fields of a class, from its docstring."""
    entries = parse(documented.__doc__ or "").params
    return {entry.arg_name: " ".join((entry.description or "").split()) for entry in entries}


def _whole_number(_, tokens: Sequence[Token]) -> int:
    """Read an integer; cyclopts by itself would round 1.5."""
    try:
        return int(tokens[0].value)
    except ValueError as error:
        raise ValueError(f"it must be a whole number, got {tokens[0].value[:30]!r}") from error


def _python_only(annotation: Any) -> bool:
    """Return whether a parameter is for Python alone: its type is not one that a word can be read as."""
    return "PYTHON_ONLY" in getattr(annotation, "__metadata__", ())


def dressed(function: Callable) -> Callable:
    """Return a function that cyclopts can read: it calls the other, and has `signature_of` it."""
    signature = signature_of(function)

    def call(*arguments, **options):
        return guarded(function)(*arguments, **options)

    call.__name__, call.__module__ = function.__name__, function.__module__
    told = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:")[0].partition("\nExamples:")[0]
    call.__doc__ = re.sub(r"(?<=\S)\n(?=\S)", " ", told)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return call


def app_of(names: Sequence[str]) -> App:
    """Return the parser of the commands of these names."""
    from hf_attncal._version import __version__

    shared = partial(App, help_format="plaintext", default_parameter=Parameter(consume_multiple=True))
    app = shared(
        name="attncal",
        help="Attention that can be trusted: translate, summarise, align words, check, train.",
        help_epilogue=f"{_COMMON}\n\nEach command has a help page of its own: attncal align run --help",
        version=__version__,
    )
    for name in names:
        *above, last = name.split()
        parent = app
        for word in above:
            if word not in parent:
                parent.command(shared(name=word, help=_PARENTS.get(word, "")))
            parent = parent[word]
        function = resolve_name(functions()[name])
        epilogue = f"{examples_of(function)}\n\n{_COMMON}".strip()
        parent.command(dressed(function), name=last, help_epilogue=epilogue)
    return app


def examples_of(function: Callable) -> str:
    """Return the examples in the docstring of a function, as the help shows them behind its options."""
    entries = parse(function.__doc__ or "").meta
    lines = "\n".join(entry.description or "" for entry in entries if entry.args[0] == "examples").splitlines()
    return "\n".join(["Examples:", *(f"  {line.strip()}" for line in lines)]) if lines else ""


# ---- reading a command line ----


def call_of(tokens: Sequence[str]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Read a command line; return what it runs, and the options `verbose`, `quiet` and `debug`.

    Raises:
        UsageError: it cannot be understood; the message says why.
    """
    name = command_of(tokens)
    rest, common = _common(tokens)
    if name is not None:
        rest = _settings_behind(rest, name)
    if name is None or {"-h", "--help"} & set(rest):  # the help of a command names those under it
        app = app_of([command for command in functions() if name is None or f"{command} ".startswith(f"{name} ")])
    else:
        app = app_of([name])
    if name is None and (not rest or rest == ["align"]):
        from rich.console import Console

        app.help_print(rest, console=Console(stderr=True))
        prefix = " ".join(["attncal", *rest])
        raise UsageError(f"\n{prefix}: error: no COMMAND given: name one of them.")
    try:
        # To cyclopts a - alone is an option.
        dashed = [_DASH if token == STANDARD else token for token in rest]
        function, bound, _ = app.parse_args(dashed, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        prefix = f"attncal {name}" if name else "attncal"
        said = " ".join(str(error).split()).replace(_DASH, STANDARD)
        said = re.sub(r'Command ".*?" parameter (\S+) requires an argument', r"\1 must be given", said)
        raise UsageError(f"{prefix}: error: {said}") from error
    bound.apply_defaults()  # standard input and output are those of the command line
    bound.arguments = {name: _undashed(value) for name, value in bound.arguments.items()}

    return partial(function, *bound.args, **bound.kwargs), common


def _undashed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_undashed, value))
    return STANDARD if value == _DASH else value


def _common(tokens: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Take -v, -q and --debug out of a command line, wherever they stand before `--`."""
    rest, common = [], {"verbose": 0, "quiet": False, "debug": False}
    end = tokens.index("--") if "--" in tokens else len(tokens)
    for place, token in enumerate(tokens):
        if place < end and (token == "--verbose" or re.fullmatch(r"-v+", token)):
            common["verbose"] += 1 if token == "--verbose" else len(token) - 1
        elif place < end and token in ("-q", "--quiet"):
            common["quiet"] = True
        elif place < end and token == "--debug":
            common["debug"] = True
        else:
            rest.append(token)
    if common["verbose"] and common["quiet"]:
        raise UsageError("attncal: error: -v and -q cannot go together: leave one out.")
    return rest, common


def _settings_behind(tokens: list[str], name: str) -> list[str]:
    """Put `key=value` behind `--`: behind `--source` it would be taken for a file of it.

    Where the function has an option for them, they go behind that.
    """
    parameters = inspect.signature(resolve_name(functions()[name])).parameters.values()
    settings = [token for token in tokens if _SETTING.match(token)]
    own = next((f"--{parameter.name}" for parameter in parameters if parameter.annotation == Values), None)
    if "--" in tokens or not settings or not (own or any(parameter.annotation == Setting for parameter in parameters)):
        return tokens
    return [*(token for token in tokens if token not in (*settings, own)), own or "--", *settings]
