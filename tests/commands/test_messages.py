"""-q, -v and -vv: the messages of a command, and that the settings end with the command."""

import logging
import os
import re
import sys
import time
import warnings

import pytest

from hf_attncal.commands import main
from hf_attncal.io import messages
from hf_attncal.io.messages import LOG, is_quiet, silenced_if_quiet, silenced_libraries, verbosity


@pytest.fixture
def links(tmp_path, monkeypatch):
    (tmp_path / "links").write_text("0-0\n")
    monkeypatch.chdir(tmp_path)


def test_v_logs_progress_and_q_nothing_only_on_standard_error(links, capsys):
    shown = {}
    for option in ("", "-q", "-v", "-vv"):
        assert main(["score", "links", "links", *option.split()]) == 0
        shown[option] = capsys.readouterr()
    assert len({one.out for one in shown.values()}) == 1
    assert (shown[""].err, shown["-q"].err) == ("", "")
    first, second, last = shown["-v"].err.splitlines()
    assert (first, second) == ("attncal: reading links", "attncal: reading links")
    assert last.startswith("attncal: done in ")
    assert shown["-vv"].err.startswith("attncal: reading links\n")


def test_the_options_go_before_the_name_of_a_command_too(links, capsys):
    assert main(["-v", "score", "links", "links"]) == 0
    assert "attncal: reading links" in capsys.readouterr().err


def test_more_and_less_at_once_are_refused(links, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["score", "links", "links", "-q", "-v"])
    assert raised.value.code == 2
    assert "-v and -q cannot go together" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["-q"], ["-vv"]])
def test_errors_are_always_shown_and_settings_end_with_the_command(options, links, capsys):
    before = dict(os.environ), LOG.level, list(LOG.handlers), warnings.showwarning
    assert main(["score", "links", "nothing", *options]) == 1
    assert "attncal: error: Text file `nothing` does not exist" in capsys.readouterr().err
    assert (dict(os.environ), LOG.level, list(LOG.handlers), warnings.showwarning) == before


@pytest.mark.parametrize(
    ("verbose", "quiet", "told", "level"),
    [
        (0, True, "", "error"),
        (0, False, "attncal: warning: of two lines\n", None),
        (2, False, "attncal: warning: of two lines\n", "info"),
    ],
)
def test_warnings_are_one_line_also_those_of_libraries(verbose, quiet, told, level, capsys, monkeypatch):
    monkeypatch.delenv("TRANSFORMERS_VERBOSITY", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with verbosity(verbose, quiet):
        for _ in range(2):
            warnings.warn("of\n  two lines", stacklevel=1)
            warnings.filterwarnings("default", message="another")  # as libraries do: what was shown is forgotten
        assert os.environ.get("TRANSFORMERS_VERBOSITY") == level
        assert ("TQDM_DISABLE" in os.environ, is_quiet(), LOG.isEnabledFor(logging.DEBUG)) == (
            quiet,
            quiet,
            verbose == 2,
        )
    assert capsys.readouterr().err.replace("attncal: done", "\0").partition("\0")[0] == told


def test_the_libraries_draw_no_bars_where_nobody_watches(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    for watched in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda watched=watched: watched, raising=False)
        with verbosity(0, False):
            assert ("TQDM_DISABLE" in os.environ) != watched


def test_only_q_drops_the_output_of_a_job(capsys):
    for quiet in (False, True):
        with verbosity(0, quiet), silenced_if_quiet():
            print("step 1")
        print("result")
    assert capsys.readouterr().out == "step 1\nresult\nresult\n"


@pytest.mark.parametrize("verbose", [0, 2])
def test_chatter_is_dropped_by_default(capfd, verbose):
    with verbosity(verbose, False):
        with silenced_libraries():
            print("printed")
            os.write(2, b"written\n")
            warnings.warn("warned", UserWarning, stacklevel=1)
        print("after", file=sys.stderr)
    out, err = capfd.readouterr()
    assert [word in out + err for word in ("printed", "written", "warned")] == [verbose == 2] * 3
    assert "after\n" in err
    assert not out or verbose


def test_an_error_in_the_block_without_chatter_can_still_be_shown(capfd):
    with pytest.raises(ValueError, match="x"), silenced_libraries():
        raise ValueError(f"x after {os.write(1, b'written')} bytes")
    print("told")
    assert capfd.readouterr().out == "told\n"


@pytest.mark.parametrize(
    ("on_path", "script", "shown"),
    [
        (True, "/x/attncal", "attncal"),
        (False, ".venv/bin/attncal", ".venv/bin/attncal"),
        (False, "/x/__main__.py", f"{sys.executable} -m hf_attncal"),
    ],
)
def test_the_next_command_can_be_typed_as_it_is_shown(on_path, script, shown, monkeypatch):
    monkeypatch.setattr(messages.shutil, "which", lambda name: f"/usr/bin/{name}" if on_path else None)
    monkeypatch.setattr(sys, "argv", [script])
    assert messages.command_prefix() == shown


def test_a_long_job_reports_its_progress(monkeypatch, capsys):
    monkeypatch.setattr(messages, "SILENCE", 0.05)
    for quiet in (False, True):
        with messages.verbosity(0, quiet), messages.progress_reports("learning") as step:
            time.sleep(0.2)
            step("the first part")
            time.sleep(0.2)
            step("the second part", 0.5)
            time.sleep(0.2)
        said = capsys.readouterr().err.splitlines()
        if quiet:
            assert said == []
        else:
            assert re.fullmatch(r"attncal: learning, \d+ seconds so far", said[0])
            assert any(re.fullmatch(r"attncal: learning: the first part, \d+ seconds so far", line) for line in said)
            assert re.search(r"the second part, \d+ seconds so far(, about \d+ seconds left)?$", said[-1])
    with messages.progress_reports("in Python"):  # nobody is spoken to
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
