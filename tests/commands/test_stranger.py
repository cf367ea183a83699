"""Mistakes in the arguments of commands: a message of one line, at once, and no partial output."""

import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from inspect import signature
from pathlib import Path

import huggingface_hub
import pytest
from command_parsers import COMMANDS, values_of

import hf_attncal
from hf_attncal.commands import exit_status, main
from hf_attncal.commands.app import kind_of
from hf_attncal.training.sections import apply_overrides, read_settings

SCRIPT = Path(hf_attncal.__file__).parents[1] / "training" / "train.py"
# What each command takes, with every option that names a file, a folder or a model. What is wrong with one is said
# before a model is loaded: the one here is none.
GIVEN = {
    "train": "--source text --target other --links links --dev text other links --test text other links --config job "
    "--output new model.init_from=model",
    "train --model": "--model summarizer --source text --target other --config settings --output new",
    "train --source": "--source text --dev text --test text --output new",
    "adapt": "model --source text --target other --links links --dev text other links --test text other links "
    "--config settings --output new",
    "align train": "--source text --target other --links links --dev text other links --test text other links "
    "--config settings --encoder model --output new tokenizer.pretrained=model model.init_from=model",
    "analyze": "model --source text --target other --gold links --tags text --probe-text text other "
    "--report figures new.html",
    "align select": "model --source text --target text --gold links --output folder",
    "align calibrate": "model --source text --target text --gold links --output folder",
    "align project": "--source text --target other --tags text --links links --output new",
    "align project --spans": "--source text --target other --spans text --links links --output new",
    "align compare": "links gold --source text --target other",
    "align lexicon": "--source text --target other --links links --output new",
    "align run": "model --source text --target text --output new",
    "align run --source": "model --source pairs",
    "align run --adapt": "model --source pairs --adapt --output new",
    "align run --encoder": "model --source pairs --encoder model",
    "align quick": "--source text --target text --with-source text --with-target other --encoder model --output new",
    "score": "links links --source text --target text",
    "score --metric": "--metric rouge text other --references text",
    "translate": "model --source text --output new --alignments links.txt --aligner model",
    "summarize": "model --source text --output new",
    "check": "model --source text --target other --output new",
    "check --encoder": "--source text --target other --encoder model --output new",
    "check --dismiss": "model --source text --target other --dismiss ids --output new",
    "check learn": "model --source text --target other",
    "check compare": "model --source text --target other --other text --output new",
    "check compare --encoder": "--source text --target other --other text --encoder model --output new",
    "check test": "model --source text --target other --output new",
    "check test --encoder": "--source text --target other --encoder model --output new",
    "export": "model",
    "import": "folder --output new",
    "publish": "model someone/name",
    "times": "text --model model --observer model --text text --output new",
    "show": "model --source text --aligner model --output new",
    "demo": "--output new",
}
# What a command writes: a folder where a file is to be, or a folder that is not there.
WRITTEN = ("--output", "--alignments", "--page")
WRONG = {
    "FILE": ("nothing", "folder"),
    "MODEL": ("./nothing", "nothing/a/b", "text", "empty"),
    "FOLDER": ("text", "text/new"),
}
WRONG["LINKS"] = WRONG["FILE"]


def mistakes() -> list[tuple[str, str, str]]:
    """For everything that names a file, a folder or a model: the command, what it is given, and a mistake in turn."""
    found, seen = [], Counter()
    for command, line in GIVEN.items():
        name, given = command.split(" --")[0], shlex.split(line)
        for place, option, kind in values_of(COMMANDS[name], given):
            bad_ones = WRONG.get(kind.shown, ()) if kind else ()
            if kind and kind.shown == "FILE" and option in WRITTEN:
                bad_ones = ("folder", "nothing/new")
            if option == "--report":  # what does not end in .html is a folder
                bad_ones = ("text/new",)
            if bad_ones:
                bad = bad_ones[seen[bad_ones] % len(bad_ones)]
                seen[bad_ones] += 1
                found.append((name, shlex.join([*given[:place], bad, *given[place + 1 :]]), bad))
    return found


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder, with what `GIVEN` names; nobody asks the Hub."""
    for folder in ("model", "empty", "folder"):
        (tmp_path / folder).mkdir()
    for name, text in {
        "text": "a b\n",
        "other": "c d\n",
        "settings": "{}\n",
        "job": "job: translation\n",
        "pairs": "a ||| b\n",
        "links": "0-0\n",
        "gold": "0-0\n",
        "ids": "3f0c9a1b22de\n",
        "model/config.json": "{}",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", lambda *_, **__: pytest.fail("the Hub was asked"))
    return tmp_path


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_every_command_is_tried():
    assert {command.split(" --")[0] for command in GIVEN} == COMMANDS.keys()
    for name, function in COMMANDS.items():
        given = " ".join(line for command, line in GIVEN.items() if command.split(" --")[0] == name).split()
        for parameter in signature(function).parameters.values():
            kind = kind_of(parameter.annotation)
            if kind and kind.shown in WRONG and parameter.kind is parameter.KEYWORD_ONLY:
                assert f"--{parameter.name.replace('_', '-')}" in given, name


@pytest.mark.parametrize(("command", "given", "bad"), mistakes())
def test_missing_files_and_files_of_another_kind_are_named(command, given, bad, here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a ||| b\n")))
    before = content(here)
    status = main([*command.split(), *shlex.split(given)])
    out, err = capsys.readouterr()
    assert (status, out) == (1, ""), err
    assert re.fullmatch(r"attncal: error: .*\n", err), err
    assert re.search(rf"(?<![\w./]){re.escape(bad)}(?!\w)", err)
    assert "bug" not in err
    assert content(here) == before


# ---- Ctrl-C ----

# What Ctrl-C does before that, while Python starts and reads the package's first lines, is Python's.
START = """
import sys
class Ready:
    def find_spec(self, name, path=None, target=None):
        if name == "hf_attncal.commands":
            print("ready", flush=True)
sys.meta_path.insert(0, Ready())
from hf_attncal.__main__ import main
sys.exit(main())
"""


def interrupted(seconds: float, *arguments: str, prepare=None) -> tuple[int, str, str]:
    """Exit status as a shell tells it, and what was printed by a command that gets Ctrl-C after some seconds."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", START, *arguments]
    with subprocess.Popen(command, text=True, preexec_fn=prepare, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    return 128 - process.returncode if process.returncode < 0 else process.returncode, out, err


SECONDS = (0, 0.05, 0.5)


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        pytest.param(command, SECONDS[row % 3], marks=() if row % 10 == 0 else pytest.mark.slow)
        for row, command in enumerate(GIVEN)
    ],
)
def test_an_interrupt_while_a_command_starts_is_no_traceback(command, seconds, here, capsys):
    """The model is none, so that no command comes to its work; most import what they need for longer than that."""
    arguments = [*command.split(" --")[0].split(), *shlex.split(GIVEN[command])]
    status, out, err = interrupted(seconds, *arguments)
    if status == 130:
        if out and command == "demo":  # it prints as it goes
            assert out.startswith("Gestern habe ich meiner Schwester")
        elif out:  # it was done, and clearing up
            main(arguments)
            assert out == capsys.readouterr().out
        assert re.fullmatch(r"(attncal: warning: no --target.*\n)?(attncal: .*\n)?", err), err
    else:  # it was faster
        assert seconds
        assert status in (0, 1)
        assert "bug" not in err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err


@pytest.mark.parametrize("kind", [ImportError, SystemError])
def test_ctrl_c_that_an_imported_library_turns_into_another_error_is_an_interrupt(kind, capsys):
    def job():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise kind("initialization failed") from interrupt

    assert exit_status(job, "attncal", lambda: False) == 130
    assert capsys.readouterr().err == "attncal: interrupted\n"


SLOW_IMPORT = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
for _ in range(SECONDS * 100):
    time.sleep(0.01)
whole = True
"""
IMPORTING = """
import signal, sys, time
import hf_attncal.__main__
hf_attncal.__main__._MAX_IMPORT_SECONDS = 2
signal.signal(signal.SIGINT, hf_attncal.__main__.interrupt)
try:
    import slow_import
    for _ in range(1000):
        time.sleep(0.01)
except KeyboardInterrupt:
    print(hasattr(sys.modules.get("slow_import"), "whole"))
"""


@pytest.mark.parametrize(("seconds", "whole"), [(0.5, True), (60, False)])
def test_ctrl_c_waits_for_an_import_but_not_for_ever(seconds, whole, tmp_path):
    (tmp_path / "slow_import.py").write_text(SLOW_IMPORT.replace("SECONDS * 100", str(int(seconds * 100))))
    path = os.pathsep.join([str(tmp_path), str(Path(hf_attncal.__file__).parents[1])])
    command = [sys.executable, "-c", IMPORTING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == (f"{whole}\n", "")


def test_an_error_while_ctrl_c_is_handled_is_reported(capsys):
    def job():
        try:
            raise KeyboardInterrupt
        finally:
            raise OSError(28, "No space left on device")

    assert exit_status(job, "attncal", lambda: False) == 1
    assert "No space left" in capsys.readouterr().err


def test_ctrl_c_in_a_destructor_stops_the_command():
    """Python prints such an interrupt and goes on."""
    program = """
import sys
import hf_attncal.commands
class Dropped:
    def __del__(self):
        raise KeyboardInterrupt
def run():
    Dropped()
    for _ in range(10**9):
        pass
    return 0
hf_attncal.commands.main = run
from hf_attncal.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "attncal: interrupted\n")


def test_a_command_that_the_shell_lets_ignore_interrupts_does(here):
    """`attncal ... &` in a script: Ctrl-C is for what runs in front."""
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    status, out, err = interrupted(0, "score", "links", "links", prepare=ignore)
    assert (status, err) == (0, "")
    assert "AER" in out


# ---- standard input ----


@pytest.mark.parametrize("command", ["align run model --output new", "translate model", "score links -"])
def test_closed_standard_input_is_reported_before_a_model_is_loaded(command, here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    before = content(here)
    assert main(command.split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"attncal: error: standard input is closed\..*\n", err)
    assert content(here) == before


@pytest.mark.parametrize("command", ["align run model --source pairs", "score links links"])
def test_commands_that_read_files_do_not_need_standard_input(command, here, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    main(command.split())
    assert "standard input" not in capsys.readouterr().err


# ---- settings ----


@pytest.mark.parametrize(
    ("name", "told"), [("nothing.yaml", "No such file or directory"), ("folder", "Is a directory")]
)
def test_a_file_of_settings_that_cannot_be_read_is_named(name, told, here, capsys):
    exit_status(lambda: runpy.run_path(str(SCRIPT))["main"](["--config", name]), "train.py", lambda: False)
    assert capsys.readouterr().err == f"train.py: error: {name}: {told}.\n"


@pytest.mark.parametrize("text", [b"a: [", b"*.md: %", b"\xff"])
def test_a_file_that_is_no_yaml_is_named(text, here):
    (here / "settings.yaml").write_bytes(text)
    with pytest.raises(ValueError, match=r"^settings\.yaml is not a YAML file: [^\n]*\.$"):
        read_settings("settings.yaml")


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("training:\n  seed: 1\n  max_steps: 2\n  seed: 3\n", "seed", "2 and 4"),
        ("model: {leaky: true, leaky: false}\n", "leaky", "1 and 1"),
        ("a: &a\n  b: 1\nc:\n  <<: *a\n  d: 2\n  d: 2\n", "d", "5 and 6"),
    ],
)
def test_a_key_that_is_given_twice_is_named_with_both_lines(text, key, lines, here):
    """The key may be in a file, in its base file, and in an override."""
    (here / "settings.yaml").write_text(text)
    (here / "derived.yaml").write_text("base: settings.yaml\n")
    told = f"the key `{key}` is given twice, in lines {lines}"
    for name in ("settings.yaml", "derived.yaml"):
        with pytest.raises(ValueError, match=rf"^settings\.yaml is not a YAML file: {told}\.$"):
            read_settings(name)


def test_an_override_with_a_key_twice_is_refused(here):
    with pytest.raises(ValueError, match=r"got 'model=\{leaky: true, leaky: false\}': the key `leaky` is given twice"):
        apply_overrides({}, ["model={leaky: true, leaky: false}"])


def test_a_key_may_override_the_merged_value(here):
    """The section's keys override the keys that `<<` merges; this is not a repeated key."""
    (here / "a.yaml").write_text("a: &a\n  b: 1\n  d: 1\nc: &c\n  <<: *a\n  d: 2\ne:\n  <<: *c\n  d: 3\n")
    assert read_settings("a.yaml") == {"a": {"b": 1, "d": 1}, "c": {"b": 1, "d": 2}, "e": {"b": 1, "d": 3}}
