"""Help and usage errors that all commands share."""

import ast
import inspect
import re
import shlex

import pytest
from command_parsers import COMMANDS, options_of
from docstring_parser import parse

import hf_attncal
from hf_attncal.commands import main
from hf_attncal.commands.app import call_of, signature_of

every_command = pytest.mark.parametrize("name", COMMANDS)


def examples_of(name: str) -> list[str]:
    sections = [part.description for part in parse(COMMANDS[name].__doc__).meta if part.args[0] == "examples"]
    return [line.strip() for line in "\n".join(sections).splitlines() if line.strip()]


def test_the_commands_are_found():
    assert {"align run", "align train", "score", "translate"} <= COMMANDS.keys()


@every_command
def test_each_parameter_has_a_help_text_and_shows_its_default(name):
    documented = [entry.arg_name for entry in parse(COMMANDS[name].__doc__).params]
    assert documented == list(inspect.signature(COMMANDS[name]).parameters)
    for parameter in signature_of(COMMANDS[name]).parameters.values():
        details = parameter.annotation.__metadata__[-1]
        assert details.help, parameter.name
        assert "without it" not in details.help, parameter.name
        if parameter.default is None and "must be given" not in details.help:
            assert isinstance(details.show_default, str), f"{parameter.name} needs [default: ...]"


@every_command
def test_the_docstring_describes_results_and_errors(name):
    doc = parse(COMMANDS[name].__doc__)
    assert doc.short_description.endswith(".")
    assert doc.returns is not None
    assert doc.returns.description
    assert doc.raises


@every_command
def test_every_command_has_an_example_that_it_understands(name):
    lines = [line for line in examples_of(name) if not line.startswith(">>>")]
    assert any(f"attncal {name}" in line for line in lines)
    for line in lines:
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        stops = [place for place, word in enumerate(words) if word in ("|", "<", ">")] + [len(words)]
        for start in (place for place, word in enumerate(words) if word == "attncal"):
            call_of(words[start + 1 : min(stop for stop in stops if stop > start)])


@every_command
def test_every_function_has_an_example_in_python_that_it_accepts(name):
    function = COMMANDS[name]
    lines = [line for line in examples_of(name) if line.startswith(">>>")]
    calls = [
        node
        for line in lines
        for node in ast.walk(ast.parse(line.removeprefix(">>> ")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"hf_attncal.{function.__name__}"
    ]
    assert calls
    for call in calls:
        values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        inspect.signature(function).bind(*map(ast.literal_eval, call.args), **values)


@every_command
def test_help_is_printed_without_an_error(name, capsys):
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: attncal {name} " in out
    assert "For every command:" in out
    assert not re.search(r"--[\w-]+ (STR|INT|FLOAT)\b|>>>|In Python", out)


@every_command
def test_python_shows_plain_types(name):
    function = COMMANDS[name]
    shown = inspect.signature(getattr(hf_attncal, function.__name__))
    assert list(shown.parameters) == list(inspect.signature(function).parameters)
    assert not re.search(r"Annotated|Kind|typing\.|pathlib|ForwardRef|[ >]'\w+\[", str(shown))


@every_command
def test_the_first_screen_has_at_most_a_dozen_options(name):
    function = COMMANDS[name]
    grouped = {option for names in getattr(inspect.getmodule(function), "GROUPS", {}).values() for option in names}
    assert len(set(options_of(function)) - grouped) <= 12
    assert grouped <= set(inspect.signature(function).parameters)


def test_there_are_no_more_options_than_a_user_can_look_through():
    assert sum(len(options_of(function)) for function in COMMANDS.values()) <= 177


NO_EFFECT = {"align quick": "dtype", "align project": "dtype", "analyze": "progress", "check learn": "revision"}


@pytest.mark.parametrize("name", NO_EFFECT)
def test_an_option_without_effect_is_neither_shown_nor_taken(name, capsys):
    option = f"--{NO_EFFECT[name]}"
    main([*name.split(), "--help"])
    assert option not in capsys.readouterr().out
    with pytest.raises(ValueError, match=f"^{option} has no effect on this command. Leave it out."):
        getattr(hf_attncal, COMMANDS[name].__name__)(["a"], **{NO_EFFECT[name]: "float32"})


# ---- usage errors ----


@every_command
def test_an_unknown_option_is_reported_with_the_name_of_its_command(name, capsys):
    given = []
    for parameter in signature_of(COMMANDS[name]).parameters.values():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            given += [] if parameter.kind is parameter.POSITIONAL_ONLY else [f"--{parameter.name.replace('_', '-')}"]
            given.append("value")
    with pytest.raises(SystemExit) as raised:
        main([*name.split(), *given, "--no-such-option"])
    told = capsys.readouterr().err
    assert raised.value.code == 2
    assert told.startswith(f"attncal {name}: error: ")
    assert "--no-such-option" in told


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("translat model", "translate"),
        ("align rum model", "run"),
        ("score gold links --format jsn", "json"),
        ("translate model --beam=3", "--beams"),
        ("align deen --source text", "attncal align run deen"),
    ],
)
def test_the_nearest_name_is_suggested(arguments, meant, capsys):
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert re.search(rf'Did you mean "?{meant}"?\?', capsys.readouterr().err)


@pytest.mark.parametrize("words", [[], ["align"]])
def test_a_command_that_is_not_complete_shows_the_help(words, capsys):
    with pytest.raises(SystemExit) as raised:
        main(words)
    shown = capsys.readouterr()
    assert (raised.value.code, shown.out) == (2, "")
    assert shown.err.startswith(f"Usage: {' '.join(['attncal', *words])} ")
    assert shown.err.splitlines()[-1].endswith("name one of them.")
