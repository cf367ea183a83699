"""Files in an output folder are complete: tokenizer, weights of a resume, everything after a power cut."""

import os
import sys
from pathlib import Path

import pytest
from runs import ROOT, adapter_settings
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

sys.path.insert(0, str(ROOT / "training"))
import train

# ---- the tokenizer ----


def test_an_incomplete_tokenizer_does_not_get_its_name(arguments, tmp_path, monkeypatch):
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


# ---- weights that a resume reads ----


def damage(checkpoint: Path, what: str | float, file: str = "model.safetensors") -> str:
    """Take one weight out of a checkpoint ("lost"), or put a value into it; return its name."""
    weights = load_file(checkpoint / file)
    name = max(name for name in weights if "encoder_attn" in name)
    if what == "lost":
        del weights[name]
    else:
        weights[name].view(-1)[-1] = what
    save_file(weights, checkpoint / file, metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("what", ["lost", float("nan")])
def test_a_resume_refuses_weights_that_are_missing_or_not_finite(stopped, tmp_path, what):
    name = damage(tmp_path / "run" / "checkpoint-2", what)
    with pytest.raises(ValueError, match=rf"checkpoint-2.*{name}"):
        train.main([*stopped, "--resume"])


def test_the_weights_of_an_adapter_are_finite(base):
    of_run = [
        *adapter_settings(base, calibration="gated"),
        "data.test=null",
        "data.dev=null",
        "training.eval_strategy=no",
    ]
    train.main(of_run)
    run = base.parent / "run"
    (run / "results.json").unlink()
    last = run / "checkpoint-4"
    damage(last, float("nan"), "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"checkpoint-4.*not finite"):
        train.main([*of_run, "--resume"])


# ---- a loss of power ----


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc is of Linux")
def test_everything_is_on_the_disk_before_it_gets_its_name(arguments, tmp_path, monkeypatch):
    """The name is also on the disk at the end."""
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
