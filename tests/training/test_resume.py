"""`--resume` and the output folder: what is refused, what goes on, what is kept; in one process and in two.

This file is both the test and, run as a script by `torch.distributed.run`, each of the two processes.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from accelerate import PartialState
from helpers import assert_results_agree, tiny_model
from peft import AutoPeftModelForSeq2SeqLM
from runs import ROOT, adapter_settings, make_trainer, toy_dataset
from safetensors.torch import load_file
from transformers.trainer_utils import IntervalStrategy

from hf_attncal.io.gate import locked
from hf_attncal.training.checkpoints import last_checkpoints
from hf_attncal.training.settings import DataConfig

sys.path.insert(0, str(ROOT / "training"))
import train as script


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The bytes of every file, and when it was written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def full_disk(save: Callable) -> Callable:
    """`torch.save` on a disk that the third checkpoint fills up."""

    def saving(state, file, *rest):
        if "checkpoint-3" in str(file):
            raise OSError(28, "No space left on device")
        save(state, file, *rest)

    return saving


# ---- a finished run ----


def test_nothing_is_trained_once_a_run_is_finished(arguments, tmp_path, capsys):
    results = script.main(arguments)
    before = contents(tmp_path / "run")
    capsys.readouterr()
    copy = tmp_path / "copy.json"
    again = script.main([*arguments, "--resume", "--results", str(copy), "training.logging_steps=3"])
    assert "the run is finished (4 steps). Nothing to train." in capsys.readouterr().out
    assert again == json.loads(copy.read_text(encoding="utf-8")) == json.loads(json.dumps(results))
    assert contents(tmp_path / "run") == before


def test_a_run_that_was_killed_after_its_last_step_is_scored_and_saved(arguments, tmp_path):
    results = script.main(arguments)
    run = tmp_path / "run"
    weights = (run / "model.safetensors").read_bytes()
    for name in ("model.safetensors", "results.json"):
        (run / name).unlink()
    resumed = script.main([*arguments, "--resume"])
    assert_results_agree(resumed, results)
    assert (run / "model.safetensors").read_bytes() == weights


# ---- what changes a run ----


def test_other_settings_are_refused(stopped, tmp_path):
    """They change nothing in the folder, so that one run serves all of them."""
    before = contents(tmp_path / "run")
    for setting, key, new, was in (
        ("training.seed=2", "training.seed", "2", "1"),
        ("training.learning_rate=1", "training.learning_rate", "1", "0.01"),
        ("training.max_steps=9", "training.max_steps", "9", "4"),
        ("training.weight_decay=0.5", "training.weight_decay", "0.5", "0.0"),
        ("model.dropout=0.2", "model.dropout", "0.2", "null"),
        ("tokenizer.vocab_size=70", "tokenizer.vocab_size", "70", "60"),
        ("evaluation.num_beams=3", "evaluation.num_beams", "3", "2"),
        ("data.lowercase=true", "data.lowercase", "true", "false"),
        ("data.train.source=dev.en", "data.train.source", '["sha256:', '["sha256:'),
    ):
        with pytest.raises(ValueError, match="or name another folder") as caught:
            script.main([*stopped, "--resume", setting])
        assert str(caught.value).startswith(f"`{key}` is {new}")
        assert f"began with {was}" in str(caught.value)
        assert contents(tmp_path / "run") == before, setting


def test_other_data_are_refused(stopped, corpus):
    text = (corpus / "train.en").read_text(encoding="utf-8")
    (corpus / "train.en").write_text(text.replace("dog", "cow"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`data.train.source`.*sha256:.*began with.*sha256:"):
        script.main([*stopped, "--resume"])
    (corpus / "train.en").write_text(text, encoding="utf-8")
    assert script.main([*stopped, "--resume"])["steps"] == 4


def test_another_number_of_processes_is_refused(stopped, tmp_path):
    file = tmp_path / "run" / "run.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    run["run"]["processes"] = 2
    file.write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`processes`.*1.*2"):
        script.main([*stopped, "--resume"])


def test_settings_that_do_not_change_a_run_may_differ(stopped, tmp_path, corpus):
    """The folders may also have moved."""
    free = ["logging_steps=2", "save_total_limit=5", "dataloader_num_workers=1", "run_name=x", "report_to=none"]
    shutil.move(tmp_path / "run", tmp_path / "moved")
    shutil.move(corpus, tmp_path / "text")
    places = ["--data", str(tmp_path / "text"), f"training.output_dir={tmp_path / 'moved'}"]
    results = script.main([*stopped, *places, "--resume", *(f"training.{setting}" for setting in free)])
    assert results["steps"] == 4


def test_another_base_of_an_adapter_is_refused(base):
    arguments = [*adapter_settings(base, calibration="gated"), "data.test=null", "data.dev=null"]
    arguments.append("training.eval_strategy=no")
    script.main(arguments)
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    (base / "config.json").write_text(json.dumps(config | {"dropout": 0.5}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`model.checkpoint`.*sha256:"):
        script.main([*arguments, "--resume"])


def test_another_commit_of_a_base_on_the_hub_is_refused(base, tmp_path, monkeypatch):
    cache = tmp_path / "hub" / "models--someone--base"
    commits = ["1" * 40, "2" * 40]
    for commit in commits:
        shutil.copytree(base, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    main = cache / "refs" / "main"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    arguments = [*adapter_settings(base, calibration="gated"), "model.checkpoint=someone/base"]
    arguments += ["data.test=null", "data.dev=null", "training.eval_strategy=no"]
    main.write_text(commits[0], encoding="utf-8")
    results = script.main(arguments)
    main.write_text(commits[1], encoding="utf-8")
    with pytest.raises(ValueError, match=rf"`model.checkpoint`.*@{commits[1]}.*@1111"):
        script.main([*arguments, "--resume"])
    main.write_text(commits[0], encoding="utf-8")
    assert script.main([*arguments, "--resume"])["steps"] == results["steps"]


def test_without_an_optimizer_there_is_no_going_on(arguments, tmp_path):
    arguments = [*arguments, "training.save_only_model=true"]
    script.main(arguments)
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(ValueError, match=r"`training.save_only_model`.*checkpoint-4"):
        script.main([*arguments, "--resume"])


# ---- going on ----


def test_half_a_checkpoint_is_removed(stopped, tmp_path):
    assert script.main([*stopped, "--resume"])["steps"] == 4
    assert not (tmp_path / "run" / "checkpoint-3").exists()


def test_resume_before_the_first_checkpoint_starts(arguments, tmp_path):
    assert script.main([*arguments, "--resume"])["steps"] == 4
    shutil.rmtree(tmp_path / "run")
    script.main(arguments)
    # As if it had been killed with `run.json` and the tokenizer written.
    for path in (tmp_path / "run").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in ("run.json", "tokenizer.json"):
            path.unlink()
    with pytest.raises(ValueError, match=r"another run.*run\.json"):
        script.main(arguments)
    assert script.main([*arguments, "--resume", "training.seed=2"])["steps"] == 4


def test_the_best_checkpoint_and_the_last_are_kept(tmp_path):
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "eval_steps": 1}
    options |= {"per_device_train_batch_size": 2, "save_total_limit": 2, "metric_for_best_model": "loss"}
    dataset = toy_dataset(24)
    # A loss that falls makes the first step the best.
    trainer = make_trainer(tmp_path, tiny_model("marian"), dataset, greater_is_better=True, **options)
    trainer.eval_dataset, trainer.args.eval_strategy = dataset, IntervalStrategy.STEPS
    trainer.train()
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-4"]
    for name in ("checkpoint-1", "checkpoint-4"):
        state = json.loads((tmp_path / name / "trainer_state.json").read_text(encoding="utf-8"))
        assert state["best_model_checkpoint"] == str(tmp_path / "checkpoint-1")
    assert not (tmp_path / "unfinished").exists()

    shutil.move(tmp_path / "checkpoint-1", tmp_path / "moved" / "checkpoint-1")
    shutil.move(tmp_path / "checkpoint-4", tmp_path / "moved" / "checkpoint-4")
    best = load_file(tmp_path / "moved" / "checkpoint-1" / "model.safetensors")
    again = make_trainer(tmp_path / "moved", tiny_model("marian"), dataset, **options)
    again.args.load_best_model_at_end = True
    again.train(resume_from_checkpoint=True)
    found = again.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in best.items())


# ---- the folder ----


def test_a_folder_is_refused_from_the_first_second(arguments, tmp_path, monkeypatch):
    """The error comes before any text is loaded; a second run is also refused with --resume."""
    run, held = tmp_path / "run", []
    load = DataConfig.load

    def loading(*args):
        held.append((run / "run.json").is_file())
        with pytest.raises(BlockingIOError), locked(run / "run.lock"):
            pass
        return load(*args)

    monkeypatch.setattr(DataConfig, "load", loading)
    script.main(arguments)
    assert held
    assert all(held)
    before = contents(run)
    with locked(run / "run.lock"):
        for options in ([], ["--resume"]):
            with pytest.raises(ValueError, match="in use"):
                script.main([*arguments, *options])
    assert {name: file for name, file in contents(run).items() if not name.endswith(".lock")} == before


def test_a_folder_of_something_else_is_refused(arguments, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(b"of somebody else")
    with pytest.raises(ValueError, match=r"output_dir.*holds a model \(model.safetensors\)"):
        script.main(arguments)
    with pytest.raises(ValueError, match=r"model.safetensors.*not overwritten"):
        script.main([*arguments, "--resume"])
    for text in ("{", "{}", "3"):
        (run / "run.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"holds a run \(run.json\)"):
            script.main([*arguments, "--resume"])
    assert sorted(path.name for path in run.iterdir()) == ["model.safetensors", "run.json"]


def test_an_error_before_the_first_checkpoint_gives_the_folder_back(arguments, corpus, tmp_path):
    text = (corpus / "test.de").read_text(encoding="utf-8")
    (corpus / "test.de").write_text("ein\n", encoding="utf-8")
    with pytest.raises(ValueError, match="same number of lines"):
        script.main(arguments)
    assert not (tmp_path / "run").exists()
    (corpus / "test.de").write_text(text, encoding="utf-8")
    assert script.main(arguments)["steps"] == 4


def test_an_error_in_a_save_leaves_the_last_checkpoint(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "save", full_disk(torch.save))
    with pytest.raises(OSError, match="No space left"):
        script.main(arguments)
    assert last_checkpoints(tmp_path / "run")[-1].name == "checkpoint-2"
    monkeypatch.undo()
    assert script.main([*arguments, "--resume"])["steps"] == 4


@pytest.mark.parametrize("name", ["base", "ours"])
def test_an_adapter_works_from_any_folder(base, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapter = {"calibration": None, "leaky": True}
    arguments = [*adapter_settings(base, **adapter), "data.test=null", "data.dev=null", "training.eval_strategy=no"]
    script.main([*arguments, f"model.checkpoint={name}", "training.output_dir=run", "training.max_steps=1"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    assert str(tmp_path) not in (tmp_path / "run" / "results.json").read_text(encoding="utf-8")


# ---- two processes ----


def worker(folder: Path, attempts: list, arguments: list[str]) -> None:
    """One of two processes: a run for each list of options; "kill" in between leaves what a kill in step 3 does."""
    state, said, run = PartialState(), [], folder / "run"
    if os.environ.get("FULL_DISK_OF") == os.environ["RANK"]:
        torch.save = full_disk(torch.save)
    for options in attempts:
        if options != "kill":
            try:
                said.append(f"{script.main([*arguments, *options])['steps']} steps")
            except ValueError as error:
                said.append(str(error))
        elif state.is_main_process:
            (run / "model.safetensors").rename(folder / "whole.safetensors")
            (run / "results.json").unlink()
            for step in (3, 4):
                shutil.rmtree(run / f"checkpoint-{step}")
        state.wait_for_everyone()
    (folder / f"said.{os.environ['RANK']}").write_text(json.dumps(said), encoding="utf-8")


def in_two_processes(folder: Path, attempts: list, arguments: list[str], **variables: str) -> list[list[str]] | None:
    """Return the messages of two processes about their attempts; None if one failed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__]
    arguments = [*arguments, "training.tokens_per_batch=64", "training.save_total_limit=9"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)}
    environment |= variables
    done = subprocess.run(
        [*command, folder, json.dumps(attempts), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 or variables, done.stderr[-4000:]
    return None if done.returncode else [json.loads((folder / f"said.{rank}").read_text()) for rank in range(2)]


@pytest.mark.slow
def test_two_processes_decide_together(arguments, tmp_path):
    """A run, what is refused in both, and a resume after a kill with the weights of the whole run."""
    attempts = [[], [], "kill", ["--resume", "training.seed=2"], ["--resume"], ["--resume"]]
    for said in in_two_processes(tmp_path, attempts, arguments):
        assert [said[n] for n in (0, 3, 4)] == ["4 steps"] * 3
        assert "holds another run" in said[1]
        assert said[2].startswith("`training.seed` is 2")
    assert (tmp_path / "run" / "checkpoint-4" / "rng_state_1.pth").is_file()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.slow
def test_an_error_in_one_process_ends_both(arguments, tmp_path):
    assert in_two_processes(tmp_path, [[]], arguments, FULL_DISK_OF="1") is None
    assert [path.name for path in last_checkpoints(tmp_path / "run")] == ["checkpoint-1", "checkpoint-2"]
    assert in_two_processes(tmp_path, [["--resume"]], arguments) == [["4 steps"]] * 2


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
