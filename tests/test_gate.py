"""One gate for every write: a model, an input and another process's folder stay as they are, whatever is saved."""

import json
import os
import pickle
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import peft
import pytest
from aligner_helpers import PAIRS, counting_aligner
from seq2seq_helpers import bpe_tokenizer, new_text_model, text_model

import hf_attncal
from hf_attncal import AttnCalMarianMTModel
from hf_attncal.adapters.checkpoints import save_adapter
from hf_attncal.adapters.configuration import AttentionCalibrationConfig
from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.commands import main
from hf_attncal.hub import PublishError
from hf_attncal.hub.hub_folder import inspect_folder
from hf_attncal.hub.publication import publish_folder
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import fill_folder, whole_file, write_text
from hf_attncal.io.gate import job, locked, note_inputs, run_record, saving_into
from hf_attncal.layouts import LOCK, RUN


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with an aligner that counts, a translation model, an adapter for it, and text."""
    folder = tmp_path_factory.mktemp("saved")
    aligner = counting_aligner(PAIRS)
    model = new_text_model("marian", "stock").float()
    for name, of, tokenizer in (("aligner", aligner.model, aligner.tokenizer), ("mt", model, bpe_tokenizer())):
        of.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    base, _ = load_seq2seq(folder / "mt")
    base.add_adapter(AttentionCalibrationConfig(), "ours")
    save_adapter(base, folder / "adapter", adapter_name="ours")
    for side, name in enumerate(("source", "target")):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS))
    return folder


@pytest.fixture
def here(saved, tmp_path, monkeypatch):
    """A copy of it, which is the working folder."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def attncal(here, capsys):
    """Run a command; where it fails, nothing that was there has changed, and the error is one line."""

    def run(*arguments):
        before = content(here)
        status = main(list(arguments))
        err = capsys.readouterr().err
        if status:
            assert content(here) == before
            assert err.count("\n") == 1
        return status, err

    return run


TEXT = ("--source", "source", "--target", "target")
ALIGN = ("align", "run", "aligner", *TEXT, "--output")


def test_the_second_process_that_saves_into_a_folder_is_refused_at_once(attncal, here):
    (here / "new").mkdir()
    with locked(here / "new" / LOCK):
        for command in (
            ("align", "select", "mt", *TEXT, "--gold", "source", "--output", "new"),
            ("check", "learn", "aligner", "--source", "source", "--target", "target"),
        ):
            with locked(here / "aligner" / LOCK):
                status, err = attncal(*command)
            assert (status, "is in use by another process" in err) == (1, True), err


def test_a_lock_belongs_to_one_job_and_a_stale_file_does_not_block(tmp_path):
    for _ in range(2):
        (tmp_path / LOCK).touch()
        with locked(tmp_path / LOCK):
            with pytest.raises(BlockingIOError) as raised, locked(tmp_path / LOCK):
                pass
            assert raised.value.filename == str(tmp_path / LOCK)


def test_the_second_of_two_threads_has_no_claim(tmp_path):
    """A claim is the job's, not the process's."""
    with job(), saving_into(tmp_path / "new", "translation"), ThreadPoolExecutor() as threads:
        claim = threads.submit(lambda: saving_into(tmp_path / "new", "translation").__enter__())
        assert isinstance(claim.exception(), CommandError)


def test_a_writer_that_is_killed_half_way_does_not_change_the_file(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("whole")
    child = os.fork()
    if child == 0:
        with whole_file(path) as partial:
            partial.write_text("ha")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.read_text() == "whole"
    write_text("next", path)
    assert path.read_text() == "next"


@pytest.mark.parametrize("name", ["mt/model.safetensors", "hard", "soft", "mt/../mt/CONFIG.json", "mt/check.json"])
def test_no_output_is_a_file_of_a_model(name, attncal, here):
    os.link("aligner/model.safetensors", "hard")
    os.symlink("mt/config.json", "soft")
    status, err = attncal(*ALIGN, name)
    assert (status, f"--output {name} " in err) == (1, True), err
    assert "aligner/model.safetensors, the same file" in err if name == "hard" else "of the model in" in err


def test_a_choice_is_not_saved_with_another_model(attncal):
    for folder in ("aligner", "adapter"):
        status, err = attncal("align", "select", "mt", *TEXT, "--gold", "source", "--output", folder)
        assert (status, f"--output {folder} holds" in err) == (1, True), err


def test_a_command_function_can_be_pickled():
    assert pickle.loads(pickle.dumps(hf_attncal.align)) is hf_attncal.align


# ---- whoever writes ----


def test_a_writer_that_bypasses_the_gate_changes_no_model_and_no_input(here):
    before = content(here)
    with job():
        note_inputs("source", "mt")
        for name in ("source", "mt/config.json", "aligner/tokenizer.json", "adapter/adapter_model.safetensors"):
            with pytest.raises(CommandError, match="would overwrite"):
                write_text("lost", name)
        with pytest.raises(CommandError, match=r"--page mt/check.json has the name of a file of the model"):
            whole_file("mt/check.json", option="--page").__enter__()
        with pytest.raises(CommandError, match=r"config.json would overwrite"):
            fill_folder("mt", lambda staged: (staged / "config.json").write_text("lost"))
    assert content(here) == before
    write_text("kept", "mt/notes.txt")


def test_a_model_is_overwritten_only_by_the_same_kind_of_job(here):
    (here / "mt" / RUN).write_text(json.dumps(run_record("translation")))
    for by in ("aligner", "an adaptation"):
        with pytest.raises(CommandError, match=r"mt holds a model \(config.json\) of translation"):
            saving_into("mt", by).__enter__()
    with saving_into("mt", "translation"):
        write_text("{}", "mt/config.json")
    (here / "new").mkdir()
    (here / "new" / "results.json").write_text("1\n")
    with job():
        note_inputs("new/results.json")
        with pytest.raises(CommandError, match=r"holds new/results.json, which is read"):
            saving_into("new", "translation").__enter__()


# ---- two models in a folder ----


def test_an_adapter_and_a_whole_model_are_not_read_from_one_folder(attncal, here):
    shutil.copytree("adapter", "mt", dirs_exist_ok=True)
    told = (
        r"mt holds two models: an adapter \(adapter_config.json\) and a whole model \(config.json, model.safetensors\)"
    )
    for load in (load_seq2seq, WordAligner.from_pretrained, inspect_folder):
        with pytest.raises((ValueError, OSError), match=told):
            load("mt")
    with pytest.raises(PublishError, match=told):
        publish_folder("mt", "owner/name", dry_run=True)
    for command in (("translate", "mt", "--source", "source"), ("export", "mt"), ("align", "run", "mt")):
        status, err = attncal(*command)
        assert (status, "mt holds two models" in err) == (1, True), err


def test_an_adapter_and_a_whole_model_are_not_saved_into_one_folder(here):
    before = content(here)
    ours = text_model("marian", "ours")
    assert isinstance(ours, AttnCalMarianMTModel)
    with pytest.raises(ValueError, match=r"adapter holds an adapter \(adapter_config.json\).*model.safetensors"):
        ours.save_pretrained("adapter")
    model, _ = load_seq2seq("mt")
    adapted = peft.get_peft_model(model, AttentionCalibrationConfig())
    with pytest.raises(ValueError, match=r"mt would hold two models.*adapter_config.json.*config.json"):
        save_adapter(adapted, "mt", adapter_name="default")
    assert content(here) == before
    with pytest.raises(ValueError, match="mt would hold two models"):
        adapted.save_pretrained("mt")
    assert content(here).keys() - before.keys() <= {str(here / "mt" / "README.md")}
    load_seq2seq("mt")
