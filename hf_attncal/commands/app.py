"""The command line of the functions of this folder: their signatures are the options, their docstrings the help.

cyclopts parses. This file adds the types of `kinds.py`, `-v`, `-q` and `--debug` for every command, and errors on one
line. In a docstring, `[default: ...]` at the end of an argument is for a default that the signature does not show.
The help leaves out sentences that begin with "In Python", and examples that begin with `>>>`.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pkgutil import resolve_name
from typing import Annotated, Any, get_args

from cyclopts import App, CycloptsError, Group, Parameter, Token
from docstring_parser import parse

from hf_attncal.command_table import COMMANDS
from hf_attncal.inference.running import TextLanguages

from .guarded import choices_of, guarded
from .kinds import STANDARD, Kind, Languages, Setting, Values, kind_of, metavar_of, running_options

_SETTING = re.compile(r"[a-z_]+(\.\w+)*=")
_DASH = "\0"  # stands for `-`; no token of a command line contains it
_PARENTS = {"align": "Align the words of sentence pairs."}  # help of a first word that is no command by itself
_IN_PYTHON = re.compile(r"\s*In Python\b.*?\.(?=\s|$)")
_NUMBERS = (int, int | None, float, float | None)
_RUNNING = Group("Running", sort_key=90)
_COMMON = """For every command:
  -h, --help     show this help
  -v, --verbose  also print each step and the time; -vv: also messages of libraries
  -q, --quiet    print only results and errors: no progress, no warnings
  --debug        show the traceback of an error"""


class UsageError(Exception):
    """A command line that cannot be parsed."""


def command_of(tokens: Sequence[str]) -> str | None:
    """Return the name of the command that a command line begins with, or None."""
    words = [token for token in tokens if not token.startswith("-")]
    for size in (2, 1):
        name = " ".join(words[:size])
        if name in COMMANDS:
            return name
    return None


def signature_of(function: Callable) -> inspect.Signature:
    """Return the parameters of a function as the command line has them, annotated for cyclopts.

    The fields of `Running` that the function takes are options of their own, which `guarded` takes by name.
    """
    groups = getattr(inspect.getmodule(function), "GROUPS", {})
    group_of = {
        name: Group(title, sort_key=10 + place)
        for place, (title, names) in enumerate(groups.items())
        for name in names
    }
    texts = texts_of(function)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "running":
            parameters += _running_options(parameter.annotation)
        elif parameter.annotation is not inspect.Parameter.empty:
            parameters.append(_option(parameter, texts.get(parameter.name, ""), group_of.get(parameter.name)))
    return inspect.Signature(parameters)


def _option(parameter: inspect.Parameter, text: str, group: Group | None) -> inspect.Parameter:
    """Return a parameter annotated for cyclopts.

    A switch has a `--no-...` only if it is on by default, or if the text or the model decides.
    """
    kind, annotation = kind_of(parameter.annotation), parameter.annotation
    text, _, default = text.partition("[default: ")
    details: dict[str, Any] = {"help": text.strip().removesuffix(".")}
    if group is not None:
        details["group"] = group
    if group is _RUNNING or (annotation != bool | None and parameter.default is not True):
        details["negative"] = ""
    if metavar := _metavar(parameter, kind):
        details["metavar"] = metavar
    if annotation in (int, int | None):
        details["converter"] = _whole_number
    if default:
        details["show_default"] = default.removesuffix("]")
    elif kind is not None and kind.standard:
        details["show_default"] = "standard output" if kind.written else "standard input"
    elif parameter.default is True:
        details["show_default"] = _flag(parameter)
    elif not parameter.default:
        details["show_default"] = False
    if kind is not None:
        parameter, annotation = _as_names(parameter, kind)
    return parameter.replace(annotation=Annotated[annotation, Parameter(**details)])


def _metavar(parameter: inspect.Parameter, kind: Kind | None) -> str:
    """Return the placeholder of the value of an option: FILE, MODEL, NUMBER; "" for a switch or a choice."""
    if kind is not None:
        return f"{kind.shown}..." if kind.many else kind.shown
    annotation = parameter.annotation
    if annotation in _NUMBERS:
        return "NUMBER"
    if annotation in (bool, bool | None) or choices_of(annotation):
        return ""
    return metavar_of(annotation) or parameter.name.upper().replace("_", "-")


def _flag(parameter: inspect.Parameter) -> str:
    """Return the name of an option, `--dry-run`."""
    return f"--{parameter.name.replace('_', '-')}"


def _as_names(parameter: inspect.Parameter, kind: Kind) -> tuple[inspect.Parameter, Any]:
    """Return a parameter whose values are names or `key=value`, and its type on the command line."""
    several = kind.many and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    value: Any = list[str] if several else str
    default = STANDARD if kind.standard else parameter.default
    optional = default is None or type(None) in get_args(parameter.annotation)
    return parameter.replace(default=default), value | None if optional else value


def _running_options(annotation: Any) -> Iterator[inspect.Parameter]:
    """Yield the fields of a parameter `running` as options."""
    running: type[TextLanguages] = getattr(annotation, "__origin__", annotation)
    texts = {name: text for base in running.__mro__ for name, text in texts_of(base).items()}
    defaults = running_options(annotation)
    for field in fields(running):
        if defaults is not None:
            if field.name not in defaults:
                continue
            if default := defaults[field.name]:
                texts[field.name] = f"{texts[field.name].partition('[default: ')[0]}[default: {default}]"
        annotation = Languages if field.name == "languages" else field.type
        parameter = inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
        )
        yield _option(parameter, texts[field.name], _RUNNING)


def texts_of(documented: Callable) -> dict[str, str]:
    """Return the help texts of the parameters of a function or the fields of a class, from its docstring."""
    entries = parse(documented.__doc__ or "").params
    return {entry.arg_name: _IN_PYTHON.sub("", " ".join((entry.description or "").split())) for entry in entries}


def _whole_number(_, tokens: Sequence[Token]) -> int:
    """Read an integer; cyclopts by itself would round 1.5."""
    try:
        return int(tokens[0].value)
    except ValueError as error:
        raise ValueError(f"it must be a whole number, got {tokens[0].value[:30]!r}") from error


def command_function(function: Callable) -> Callable:
    """Return a function for cyclopts: it has `signature_of` the given function, and calls it behind the gate."""
    signature = signature_of(function)

    def call(*arguments, **options):
        return guarded(function)(*arguments, **options)

    call.__name__, call.__module__ = function.__name__, function.__module__
    description = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:")[0].partition("\nExamples:")[0]
    call.__doc__ = re.sub(r"(?<=\S)\n(?=\S)", " ", description)
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
        function = resolve_name(COMMANDS[name])
        epilogue = f"{examples_of(function)}\n\n{_COMMON}".strip()
        parent.command(command_function(function), name=last, usage=_usage(name, function), help_epilogue=epilogue)
    return app


def _usage(name: str, function: Callable) -> str:
    """Return the usage line of a command: its arguments in their order, then the options that it needs."""
    words = []
    for parameter in signature_of(function).parameters.values():
        label, required = parameter.name.upper(), parameter.default is parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            words.append(f"[{label}...]")
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            words.append(label if required else f"[{label}]")
        elif required:
            metavar = parameter.annotation.__metadata__[0].metavar
            words.append(f"{_flag(parameter)} {metavar}")
    return " ".join(["Usage: attncal", name, *words, "[OPTIONS]"])


def examples_of(function: Callable) -> str:
    """Return the command lines among the examples of a docstring, for the end of the help."""
    entries = parse(function.__doc__ or "").meta
    text = "\n".join(entry.description or "" for entry in entries if entry.args[0] == "examples")
    lines = [line.strip() for line in text.splitlines() if not line.strip().startswith((">>>", "..."))]
    return "\n".join(["Examples:", *(f"  {line}" for line in lines if line)]) if lines else ""


# ---- reading a command line ----


def call_of(tokens: Sequence[str]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Parse a command line. Return the call that it stands for, and the options `verbose`, `quiet` and `debug`.

    Raises:
        UsageError: the command line cannot be parsed.
    """
    name = command_of(tokens)
    rest, common = _common(tokens)
    if name is not None:
        rest = _settings_behind(rest, name)
    if name is None or {"-h", "--help"} & set(rest):  # the help of a command names those under it
        app = app_of([command for command in COMMANDS if name is None or f"{command} ".startswith(f"{name} ")])
    else:
        app = app_of([name])
    if name is None and (not rest or rest == ["align"]):
        from rich.console import Console

        app.help_print(rest, console=Console(stderr=True))
        prefix = " ".join(["attncal", *rest])
        raise UsageError(f"\n{prefix}: error: no COMMAND given: name one of them.")
    try:
        # cyclopts would read a single `-` as an option.
        dashed = [_DASH if token == STANDARD else token for token in rest]
        function, bound, _ = app.parse_args(dashed, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        prefix = f"attncal {name}" if name else "attncal"
        message = " ".join(str(error).split()).replace(_DASH, STANDARD)
        message = re.sub(r'Command ".*?" parameter (\S+) requires an argument', r"\1 must be given", message)
        if name is None and rest[0] in _PARENTS and rest[1:2] and "Did you mean" not in message:
            message += f' Did you mean "attncal {rest[0]} run {rest[1]}"?'
        raise UsageError(f"{prefix}: error: {message}") from error
    bound.apply_defaults()
    bound.arguments = {name: _undashed(value) for name, value in bound.arguments.items()}

    return partial(function, *bound.args, **bound.kwargs), common


def _undashed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_undashed, value))
    return STANDARD if value == _DASH else value


def _common(tokens: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Remove -v, -q and --debug from a command line, wherever they stand before `--`, and return both parts."""
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
    """Move each `key=value` behind `--`, or behind the option of the function that takes them.

    Behind `--source` it would be taken for a file name.
    """
    parameters = inspect.signature(resolve_name(COMMANDS[name])).parameters.values()
    settings = [token for token in tokens if _SETTING.match(token)]
    option = next((f"--{parameter.name}" for parameter in parameters if parameter.annotation == Values), None)
    takes_settings = option or any(parameter.annotation == Setting for parameter in parameters)
    if "--" in tokens or not settings or not takes_settings:
        return tokens
    return [*(token for token in tokens if token not in (*settings, option)), option or "--", *settings]
