"""Errors outside or inside of a command: one line with the remedy, and an exit status other than 0."""

import errno
import io
import os
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError

import hf_attncal.commands
from hf_attncal.inference.opening import load_errors
from hf_attncal.io.errors import CommandError, explain
from hf_attncal.io.gate import check_file, job, note_inputs
from hf_attncal.io.streams import output_lines

linux = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is of Linux")


@pytest.fixture
def failing(monkeypatch, capsys):
    """Run a command that raises an error: (error, options) -> (status, standard error)."""

    def run(error: BaseException, *arguments: str) -> tuple[int, str]:
        def fail():
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("hf_attncal.commands.demo.demo", fail)
            status = hf_attncal.commands.main([*arguments])
        return status, capsys.readouterr().err

    return run


# ---- errors ----


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CommandError("mend this."), "mend this."),
        (
            OSError(errno.ENOSPC, "No space left on device", "folder/file"),
            "folder/file: No space left on device. Free space",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (MemoryError(), "there is not enough memory (MemoryError)."),
        (torch.OutOfMemoryError("CUDA out of memory."), "there is not enough memory (CUDA out of memory.)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "there is not enough memory"),
        (KeyError("layer"), "KeyError: 'layer'. Unless a file of the model is damaged, this is a bug"),
        (RecursionError("maximum recursion depth exceeded"), "this is a bug"),
    ],
)
def test_an_error_is_one_line_and_has_a_traceback_only_on_request(failing, error, told):
    status, err = failing(error, "demo")
    assert status == 1
    assert err.startswith("attncal: error: ")
    assert told in err
    assert err.count("\n") == 1
    for arguments in (["demo", "--debug"], ["--debug", "demo"]):
        status, err = failing(error, *arguments)
        assert status == 1
        assert "Traceback" in err
        assert told in err.splitlines()[-1]


def test_interrupts_and_readers_that_leave_are_no_errors(failing):
    assert failing(KeyboardInterrupt(), "demo") == (130, "attncal: interrupted\n")
    assert failing(BrokenPipeError(), "demo") == (141, "")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("no such file\nand more"), "model cannot be loaded: no such file"),
        (ValueError("Pass trust_remote_code=True"), "needs code from another repository"),
        (SafetensorError("header too large"), "do not fit together (SafetensorError: header too large)"),
        (RuntimeError("size mismatch"), "(RuntimeError: size mismatch)"),
        (Exception("data did not match"), "(Exception: data did not match)"),
        (OSError(), "(OSError: )"),
    ],
)
def test_whatever_a_damaged_checkpoint_raises_names_it(error, told, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as raised, load_errors("model"):
        raise error
    assert told in str(raised.value)
    assert raised.value.__cause__ is error
    assert "bug" not in explain(raised.value)


# ---- standard streams ----


def attncal(*arguments: object, shell: str = "", **options) -> subprocess.CompletedProcess:
    """Run the command as a process of a shell, with redirections."""
    script = f'exec "$0" -m hf_attncal "$@" {shell}'
    command = ["bash", "-c", script, sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.fixture
def links(tmp_path):
    (tmp_path / "gold").write_text("0-0\n")
    (tmp_path / "links").write_text("0-0\n")
    return tmp_path / "gold", tmp_path / "links"


@pytest.mark.parametrize(
    ("shell", "told"),
    [
        (">&-", "standard output is closed"),
        pytest.param(">/dev/full", "standard output cannot be written: No space left on device", marks=linux),
        pytest.param("1</dev/null", "standard output cannot be written: Bad file descriptor", marks=pytest.mark.slow),
    ],
)
def test_output_that_cannot_be_written_is_an_error(links, shell, told):
    for unbuffered, arguments in (("", ["score", *links]), ("1", ["--version"])):
        done = attncal(*arguments, shell=shell, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
        assert done.returncode == 1
        assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if told in line]
        assert done.stderr.count("attncal: error: ") == 1


def test_a_closed_standard_error_does_not_send_errors_to_standard_output(links):
    done = attncal("score", links[0], "no_such_file", shell="2>&-")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_closed_standard_input_is_an_error_where_it_is_read(links):
    done = attncal("score", links[0], "-", shell="<&-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("attncal: error: standard input is closed")
    assert attncal("score", *links, shell="<&-").returncode == 0


def test_pipes_in_place_of_files(links):
    done = attncal("score", shell=f"<(cat {links[0]}) <(cat {links[1]}) --format json")
    assert done.returncode == 0, done.stderr
    assert '"aer": 0.0' in done.stdout


# ---- disks ----


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_output_file_on_a_full_disk_names_it_and_keeps_what_was_written(suffix, tmp_path):
    script = """
import os, resource, sys
from hf_attncal.io.errors import CommandError
from hf_attncal.io.streams import output_lines, write_lines
resource.setrlimit(resource.RLIMIT_FSIZE, (45_000, 45_000))
try:
    with output_lines(sys.argv[1]) as target:
        for number in range(30):
            write_lines(target, [os.urandom(5_000).hex()])
except CommandError as error:
    print(error)
"""
    output = tmp_path / f"links{suffix}"
    done = subprocess.run([sys.executable, "-c", script, output], capture_output=True, text=True)
    told = f"--output {output} cannot be written: File too large."
    assert (done.stdout.startswith(told), done.stderr, output.exists()) == (True, "", False)
    if not suffix:
        assert done.stdout == f"{told} What was written before is in {output}.partial.\n"
        assert len((tmp_path / "links.partial").read_text()) == 4 * 10_001  # and no half line


def test_two_processes_do_not_write_one_output(tmp_path):
    output = tmp_path / "links"
    with output_lines(str(output)) as first:
        first.write(b"0-0\n")
        first.flush()
        with pytest.raises(CommandError, match=r"links\.partial is being written by another process"):
            output_lines(str(output)).__enter__()
        first.write(b"1-1\n")
    assert output.read_text() == "0-0\n1-1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["links"]


@linux
def test_a_full_device_is_named():
    message = "--output /dev/full cannot be written: No space left"
    with pytest.raises(CommandError, match=message), output_lines("/dev/full") as target:
        target.write(b"x" * 100_000)
    assert os.path.exists("/dev/full")


def test_an_output_that_is_an_input_is_refused(tmp_path, monkeypatch):
    source, other = tmp_path / "pairs", tmp_path / "other"
    source.write_text("a ||| b\n")
    other.write_text("")
    (tmp_path / "symbolic").symlink_to(source)
    os.link(source, tmp_path / "hard")
    os.link(source, tmp_path / "links.partial")
    for name in ("pairs", "symbolic", "hard", "links"):
        with job():
            note_inputs(other, source)
            with pytest.raises(CommandError, match=f"--output .* would overwrite {source}, the same file"):
                check_file(tmp_path / name, "--output")
    with source.open("rb") as file, monkeypatch.context() as patch, job():
        patch.setattr(sys, "stdin", file)
        with pytest.raises(CommandError, match="would overwrite standard input"):
            check_file(source)
    with job():
        note_inputs(source, other, "no such file", "/dev/null", io.BytesIO())
        check_file(tmp_path / "new")
        check_file("/dev/null")
