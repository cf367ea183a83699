"""What has its name in an output folder is whole: a tokenizer, and everything after a power cut."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from runs import ROOT
from transformers import PreTrainedTokenizerFast

from hf_attncal.training.folder import claimed
from hf_attncal.training.translation import TranslationConfig

sys.path.insert(0, str(ROOT / "training"))
import train

# ---- the tokenizer ----


def test_half_a_tokenizer_has_no_name(arguments, tmp_path, monkeypatch):
    save, before = PreTrainedTokenizerFast.save_pretrained, []

    def half(self, folder, *rest, **options):
        save(self, folder, *rest, **options)
        (Path(folder) / "tokenizer.json").write_text("{", encoding="utf-8")
        before.extend(sorted(path.name for path in (tmp_path / "run").iterdir()))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PreTrainedTokenizerFast, "save_pretrained", half)
    with pytest.raises(OSError, match="No space left"):
        train.main(arguments)
    assert before == ["run.json", "run.lock", "unfinished"]  # what a kill would have left
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    assert train.main(arguments)["steps"] == 4


# ---- a loss of power ----


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc is of Linux")
def test_everything_is_on_the_disk_before_it_gets_its_name(arguments, tmp_path, monkeypatch):
    """And so does the name, in the end."""
    events: list[tuple[str, Path]] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def synced(descriptor):
        events.append(("synced", Path(f"/proc/self/fd/{descriptor}").resolve()))
        sync(descriptor)

    def named(give_name):
        def naming(self, target):
            files = [path for path in self.rglob("*") if path.is_file()] if self.is_dir() else [self]
            if self.name == "clock.json.part":  # which says that the checkpoint is whole
                files = [path for path in self.parent.rglob("*") if path.is_file()]
            on_disk = {path for event, path in events if event == "synced"}
            assert {path.resolve() for path in files} <= on_disk, f"{self} is renamed before it is on the disk"
            events.append(("named", Path(target).resolve()))
            return give_name(self, target)

        return naming

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", named(rename))
    monkeypatch.setattr(Path, "replace", named(replace))
    train.main([*arguments, "training.save_total_limit=1"])
    names = [path for event, path in events if event == "named"]
    run = tmp_path / "run"
    expected = ("checkpoint-4/clock.json", "model.safetensors", "results.json", "run.json")
    assert {run / name for name in expected} <= {*names}
    for number, (event, path) in enumerate(events):
        if event == "named" and path.parent == run:
            assert ("synced", run) in events[number:], f"the name of {path} may be lost"


# ---- two runs ----


@pytest.mark.slow
def test_of_runs_that_start_at_once_in_one_folder_one_gets_it(tmp_path):
    config = TranslationConfig.make({"training": {"output_dir": str(tmp_path / "run"), "bf16": False}})
    args = config.arguments()
    for _ in range(5):
        start, write = os.pipe()
        children = []
        for number in range(6):
            children.append(os.fork())
            if children[-1] == 0:
                said = "an error of another kind"
                try:
                    os.close(write)
                    os.read(start, 1)  # ends as the parent closes the pipe
                    with claimed(config, args, resume=False, allow_changes=False, started=time.monotonic()):
                        time.sleep(0.3)
                        said = "mine"
                except ValueError as error:
                    said = str(error)
                finally:
                    (tmp_path / f"{number}").write_text(said, encoding="utf-8")
                    os._exit(0)
        os.close(start)
        os.close(write)
        for child in children:
            os.waitpid(child, 0)
        said = [(tmp_path / f"{number}").read_text(encoding="utf-8") for number in range(6)]
        assert said.count("mine") == 1
        refused = [words for words in said if words != "mine"]
        assert all("in use by another process" in words or "holds another run" in words for words in refused)
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
        shutil.rmtree(tmp_path / "run")
