"""`attncal demo`: what is refused before anything is trained."""

import pytest

import hf_attncal
from hf_attncal.commands import main
from hf_attncal.errors import CommandError


def test_what_cannot_be_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for arguments, told in (
        (["--steps", "0"], "--steps must be from 1 to "),
        (["--output", str(tmp_path / "file")], "cannot be a folder"),
    ):
        assert main(["demo", *arguments]) == 1
        assert told in capsys.readouterr().err
    with pytest.raises(CommandError, match=r"^--steps must be from 1 to \d+, got 0\.$"):
        hf_attncal.demo(steps=0)
