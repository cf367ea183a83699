"""Command lines of an earlier README and its documents are understood, and what changed in them is said."""

import re
import shlex
import warnings
from pathlib import Path

import pytest

from hf_attncal.commands.app import call_of
from hf_attncal.commands.old import OLD, respelled
from hf_attncal.errors import CommandError

LINES = Path(__file__).with_name("command_lines.txt").read_text(encoding="utf-8").splitlines()


def test_there_are_command_lines():
    assert len(LINES) > 80


@pytest.mark.parametrize("line", LINES)
def test_it_is_understood(line):
    run, common = call_of(shlex.split(line)[1:])
    assert callable(run)
    assert common == {"verbose": 0, "quiet": False, "debug": False}


@pytest.mark.parametrize("command", sorted(OLD))
def test_each_old_spelling_is_said_with_the_new_one(command):
    for option, old in OLD[command].items():
        tokens = [*command.split(), option, *([] if old.bare else ["1"])]
        if old.refused:
            with pytest.raises(CommandError, match=rf"^{option} is left out: "):
                respelled(command, tokens)
            continue
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert respelled(command, tokens) != tokens
        assert any(re.search(rf"{option}\b", str(warning.message)) for warning in told), option
