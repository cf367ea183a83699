"""Files in an output folder are complete: tokenizer, weights of a resume, everything after a power cut."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from helpers import tiny_model
from runs import ROOT, adapter_settings, make_trainer, toy_dataset
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from hf_attncal.training.folder import claimed
from hf_attncal.training.seq2seq import TranslationConfig

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


@pytest.mark.parametrize("what", ["lost", float("nan")])
def test_the_best_checkpoint_is_refused_in_the_same_way(tmp_path, what):
    options = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 2}
    trainer = make_trainer(tmp_path, tiny_model("marian"), toy_dataset(24), **options)
    trainer.train()
    best = tmp_path / "checkpoint-1"
    name = damage(best, what)
    trainer.state.best_model_checkpoint = str(best)
    with pytest.raises(ValueError, match=rf"checkpoint-1.*{name}"):
        trainer._load_best_model()


@pytest.mark.parametrize("beside", [False, True], ids=["PEFT", "transformers"])
def test_the_weights_of_an_adapter_are_finite(base, beside):
    """Of PEFT's models, and of transformers' interface, where a LoRA is trained beside it."""
    adapter = {"calibration": "gated"} | ({"lora": {"r": 2, "target_modules": ["q_proj"]}} if beside else {})
    of_run = [*adapter_settings(base, **adapter), "data.test=null", "data.dev=null", "training.eval_strategy=no"]
    train.main(of_run)
    run = base.parent / "run"
    (run / "results.json").unlink()
    last = run / "checkpoint-4"
    damage(last / "calibration" if beside else last, float("nan"), "adapter_model.safetensors")
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


@pytest.mark.slow
def test_one_of_several_simultaneous_runs_gets_the_folder(tmp_path):
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
