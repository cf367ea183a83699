"""What is the same in the help and the usage errors of every command: defaults, names of values, examples, hints."""

import argparse
import re
import shlex

import pytest
from command_parsers import COMMANDS, leaves

from hf_attncal.commands import build_parser, main

every_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=map(" ".join, COMMANDS))


def options_of(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in command._actions if action.option_strings]


def heading_of(command: argparse.ArgumentParser, option: argparse.Action) -> str:
    return next(group.title or "" for group in command._action_groups if option in group._group_actions)


def test_the_commands_are_found():
    assert {("align", "run"), ("align", "train"), ("score",), ("translate",)} <= COMMANDS.keys()


@pytest.mark.parametrize("words", sorted(COMMANDS.keys() - {("completion",)}), ids=" ".join)
def test_only_the_options_of_the_named_command_are_built(words):
    built = leaves(build_parser(["-q", *words, "--debug", "name"]))
    assert built.keys() == {words}
    assert built[words].format_help() == COMMANDS[words].format_help()


@every_command
def test_every_option_has_a_help_text_and_says_what_happens_without_it(command):
    page = " ".join(command.format_help().split())
    assert "(default: None)" not in page
    for option in options_of(command):
        assert option.help, option.option_strings
        told = f"{option.help} {heading_of(command, option)}"
        takes_none = option.nargs == 0 and not isinstance(option, argparse.BooleanOptionalAction)
        if option.default is None and not option.required and not takes_none:
            assert "without" in told, f"{option.option_strings}: what happens without it?"
        elif option.default not in (None, False, argparse.SUPPRESS):
            shown = option.option_strings[0] if option.default is True else option.default
            assert f"(default: {shown})" in page, option.option_strings


@every_command
def test_help_texts_that_are_put_together_read_as_one_sentence(command):
    """No punctuation mark beside another, nor a space before one: parts that were written apart leave those."""
    page = " ".join(command.format_help().partition("\n\n")[2].partition("examples:")[0].replace("...", "etc").split())
    wrong = re.search(r".{,30}([,;:.] ?[,;:]|[,;:.] ?\.(?!\w)|\( | [,;)]).{,30}", page)
    assert wrong is None, wrong


@every_command
def test_values_have_the_same_names_everywhere(command):
    names = {"FILE", "FOLDER", "MODEL", "NAME", "TEXT", "N", "X", "BYTES", "TAU", "H,H", "I/N", "GOLD", "HYP", "SHELL"}
    names |= {"COMMIT", "OWNER/NAME", "CODE", "ID"}
    for action in command._actions:
        if action.nargs == 0 or action.choices is not None:
            continue
        shown = action.metavar or command._get_formatter()._get_default_metavar_for_optional(action)
        assert shown in names | {"REFERENCE", "section.key=value"}, action.dest


@every_command
def test_every_command_has_an_example_that_it_understands(command):
    examples = re.findall(r"(?m)^  (.+)$", command.epilog or "")
    assert any(command.prog in example for example in examples)
    for example in examples:
        words = list(shlex.shlex(example, posix=True, punctuation_chars=True))
        stops = [place for place, word in enumerate(words) if word in ("|", "<", ">")] + [len(words)]
        for start in (place for place, word in enumerate(words) if word == "attncal"):
            build_parser().parse_args(words[start + 1 : min(stop for stop in stops if stop > start)])


@every_command
def test_help_is_printed_without_an_error(command, capsys):
    with pytest.raises(SystemExit) as raised:
        main([*command.prog.split()[1:], "--help"])
    assert raised.value.code == 0
    assert command.prog in capsys.readouterr().out


# ---- usage errors ----


@every_command
def test_an_unknown_argument_is_told_under_the_usage_of_its_command(command, capsys):
    required = [action for action in command._actions if action.required]
    required += [group._group_actions[0] for group in command._mutually_exclusive_groups if group.required]
    given = []
    for action in required:
        given += [*action.option_strings[:1], next(iter(action.choices)) if action.choices else "value"]
    with pytest.raises(SystemExit) as raised:
        main([*command.prog.split()[1:], *given, "--verbos"])
    told = capsys.readouterr().err
    assert raised.value.code == 2
    assert told.startswith(f"usage: {command.prog} [-h]")
    assert f"{command.prog}: error: unrecognized arguments: --verbos. Did you mean --verbose?" in told


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("translat model", "translate"),
        ("align rum model", "run"),
        ("score gold links --format jsn", "json"),
        ("translate model --beam=3", "--beams"),
    ],
)
def test_the_nearest_name_is_suggested(arguments, meant, capsys):
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert capsys.readouterr().err.endswith(f". Did you mean {meant}?\n")


def test_what_is_near_to_nothing_is_not_guessed(capsys):
    with pytest.raises(SystemExit):
        main(["translate", "model", "--xyz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --xyz\n")


@pytest.mark.parametrize("words", [[], ["align"]])
def test_a_command_that_is_not_complete_shows_the_help(words, capsys):
    with pytest.raises(SystemExit) as raised:
        main(words)
    shown = capsys.readouterr()
    assert (raised.value.code, shown.out) == (2, "")
    assert shown.err.startswith(f"usage: {' '.join(['attncal', *words])} [-h]")
    assert "for every command:" in shown.err
    assert shown.err.splitlines()[-1].endswith("name one of them.")
