"""`attncal completion`: the script is one that the shell takes, and completes what the parser knows."""

import os
import shutil
import subprocess

import pytest

from hf_attncal.commands import main


def script(shell: str, capsys) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_commands_options_and_values(shell, capsys):
    text = script(shell, capsys)
    for word in ("translate", "align", "select", "symmetrize", "grow-diag-final-and", "too-long", "truncate"):
        assert word in text
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.half("typed")
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("al", {"align"}),
        ("align ", {"train", "select", "run", "calibrate", "project", "lexicon", "compare", "quick"}),
        ("align run model --sym", {"--symmetrize"}),
        ("align run model --symmetrize inter", {"intersection"}),
        ("score --format ", {"text", "json"}),
        ("score go", {"gold.align"}),
        ("translate ", {"attncal.bash", "gold.align", "model"}),
    ],
)
def test_bash_completes_what_is_typed(typed, offered, capsys, tmp_path):
    (tmp_path / "attncal.bash").write_text(script("bash", capsys))
    (tmp_path / "gold.align").write_text("")
    (tmp_path / "model").mkdir()
    ask = """
source ./attncal.bash
COMP_WORDS=(attncal "$@")
COMP_CWORD=$#
COMP_LINE="attncal $*" COMP_POINT=$((8 + ${#*}))
$(complete -p attncal | sed -E 's/.*-F ([^ ]+).*/\\1/') attncal "${@: -1}" "${COMP_WORDS[$(($# - 1))]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    command = ["bash", "-c", ask, "bash", *typed.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    assert {word.strip() for word in done.stdout.split()} == offered, done.stderr


def test_other_shells_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert 'Invalid value "tcsh" for SHELL' in capsys.readouterr().err
