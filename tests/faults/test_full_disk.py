"""A full disk and a full standard output: one line that says so and names the file, and nothing lost."""

import subprocess

import full_disk
import pytest
from outcomes import bad

pytestmark = pytest.mark.skipif(not full_disk.FULL.exists(), reason="/dev/full is of Linux")


def test_some_commands(tmp_path):
    outcomes = full_disk.run(tmp_path, full=False)
    assert len(outcomes) == 4
    assert bad(outcomes) == []


@pytest.mark.slow
def test_every_command_that_writes(tmp_path):
    outcomes = full_disk.run(tmp_path, full=True)
    assert len(outcomes) > 20
    assert bad(outcomes) == []


@pytest.mark.parametrize(
    ("status", "err", "result"),
    [
        (1, "attncal: error: folder/file: No space left on device.\n", "refused"),
        (1, "a bar\nattncal: error: folder/file: File too large.\n", "refused"),
        (1, "attncal: error: [Errno 28] No space left on device\n", "traceback"),
        (1, "attncal: error: folder/file: there is no such file.\n", "traceback"),
        (1, "OSError: folder/file: No space left on device\n", "traceback"),
        (1, "Traceback (most recent call last):\nattncal: error: folder/file: File too large.\n", "traceback"),
        (1, "", "traceback"),
        (0, "", "wrong"),
        (None, "", "hung"),
    ],
)
def test_what_is_made_of_an_error(status, err, result):
    done = subprocess.CompletedProcess([], status, "", err)
    assert full_disk.judge(done, "folder/file")[0] == result


def test_what_is_half_written_is_found(tmp_path):
    (tmp_path / "results.json").write_text('{"bleu": 1')
    (tmp_path / "model.safetensors").write_bytes(b"half")
    (tmp_path / "run.json").write_text("{}")
    assert full_disk.half_written(tmp_path) == ["model.safetensors", "results.json"]
