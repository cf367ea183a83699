"""Results files: what they begin with, and that they are whole."""

import errno
import json
import os
import stat
import subprocess
from importlib.metadata import version

import pytest
import torch
from safetensors import SafetensorError

from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import write_json, write_text, writing
from hf_attncal.metrics import records


def test_a_record_states_settings_software_hardware_and_data(tmp_path):
    data = tmp_path / "text"
    data.write_bytes(b"abc")
    record = records.record({"seed": 1}, {"train": data}, processes=2)
    assert list(record) == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert record["config"] == {"seed": 1}
    assert record["software"]["torch"] == version("torch")
    assert {"cpu", "cpu_capability", "cpu_cores", "threads", "load_average"} <= record["hardware"].keys()
    assert record["hardware"]["cpu"]
    assert record["hardware"]["processes"] == 2
    assert record["data_sha256"] == {"train": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    json.dumps(record)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of one commit, as the folder that the package runs from."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    (tmp_path / "code.py").write_text("a = 1\n")
    for arguments in (["init", "-q"], ["add", "code.py"], ["commit", "-q", "-m", "first"], ["tag", "v1"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr(records, "_ROOT", tmp_path)
    records.commit.cache_clear()
    yield tmp_path
    records.commit.cache_clear()


def test_the_commit_is_stated_and_marked_where_the_code_differs_from_it(clone):
    head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert records.commit() == head.strip()
    (clone / "code.py").write_text("a = 2\n")
    assert records.commit() == head.strip()  # as it was when this process asked first
    records.commit.cache_clear()
    assert records.commit() == f"{head.strip()}-dirty"


def test_an_installed_package_states_no_commit_of_somebody_elses_clone(clone, monkeypatch):
    inside = clone / "site-packages"
    inside.mkdir()
    monkeypatch.setattr(records, "_ROOT", inside)
    assert records.commit() is None
    monkeypatch.setattr(records, "_ROOT", clone)
    monkeypatch.setenv("PATH", str(inside))  # no git there
    assert records.commit() is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/home/eve/bin/attncal", "train", "--source", "/home/eve/a b.txt"], "attncal train --source 'a b.txt'"),
        (["{root}/experiments/ablation.py", "--data=/home/eve/data"], "python experiments/ablation.py --data=data"),
        (["/home/eve/mine.py", "data.root=/home/eve/data", "x=1"], "python mine.py data.root=data x=1"),
    ],
)
def test_the_command_is_stated_without_the_places_of_this_machine(arguments, expected):
    arguments = [argument.format(root=records._ROOT) for argument in arguments]
    assert records.command(arguments) == expected


def test_a_gpu_is_stated_unless_the_numbers_come_from_the_processor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    assert records.hardware()["gpu"] == "GPU None"
    assert "device" not in records.hardware()
    assert records.hardware("cuda:1") | {"gpu": "GPU cuda:1", "device": "cuda:1"} == records.hardware("cuda:1")
    assert {"gpu", "cuda"} & records.hardware("cpu").keys() == set()


def test_results_are_written_to_every_path_with_the_usual_rights(tmp_path):
    paths = [tmp_path / "a.json", tmp_path / "new" / "folder" / "b.json"]
    umask = os.umask(0o027)
    try:
        write_json({"name": "Größe", "value": 0.5}, *paths)
    finally:
        os.umask(umask)
    for path in paths:
        assert path.read_text(encoding="utf-8") == '{\n "name": "Größe",\n "value": 0.5\n}\n'
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert list(path.parent.glob("*.json*")) == [path]  # nothing is left beside it


def test_an_error_does_not_change_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json({"value": 1}, path)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json({"value": {1}}, path)

    def full(self, data):
        self.touch()
        raise OSError("No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_json({"value": 2}, path)
    assert json.loads(path.read_text()) == {"value": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_to_the_results_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_json({}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "{}\n"


# ---- full disks ----


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "folder/file"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "another"), "another"),
        # A copy has the names of both files, and it is the second that found no room.
        (OSError(errno.EFBIG, "File too large", "package/model.py", None, "folder/model.py"), "folder/model.py"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "folder/file"),
        (Exception("File too large (os error 27)"), "folder/file"),  # tokenizers
        (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"), "folder/file"),
    ],
)
def test_a_full_disk_is_an_error_that_names_the_file(error, named):
    with pytest.raises(OSError, match=r"No space|too large|quota") as raised, writing("folder/file"):
        raise error
    assert raised.value.filename == named


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_text("whole", pipe)
        assert reader.communicate(timeout=10)[0] == b"whole"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_open_file_is_refused(tmp_path):
    """With `--report /dev/stdout >> log`, replacing the file would lose what the shell has written to it."""
    (tmp_path / "log").write_text("before\n")
    with open(tmp_path / "log", "a") as log, pytest.raises(CommandError, match="the shell has opened"):
        write_text("made\n", f"/dev/fd/{log.fileno()}")
    assert (tmp_path / "log").read_text() == "before\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
