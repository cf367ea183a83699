"""Names that are not models are refused before torch is imported and without repeated requests to the Hub."""

import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError

from hf_attncal.alignment import WordAligner
from hf_attncal.inference.loading import load_config, load_seq2seq
from hf_attncal.inference.opening import TOKENIZER_FILES, check_name, is_hub_name


@pytest.fixture
def hub(monkeypatch):
    """Replacement of the Hub: records requests, and returns None or raises an error."""
    asked = []

    def answer(url, timeout):
        asked.append(url)
        assert timeout <= 10
        if answer.error is not None:
            raise answer.error
        if url.rpartition("/")[2] not in answer.files:
            raise of_the_hub(RemoteEntryNotFoundError)

    answer.asked, answer.error, answer.files = asked, None, {"config.json", "model.safetensors"}
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)
    monkeypatch.setattr(huggingface_hub, "is_offline_mode", lambda: False)
    return answer


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Working folder with a model, an empty folder, and a run in which only the checkpoints are models."""
    for name in ("aligner", "run/checkpoint-9", "run/checkpoint-10"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "aligner" / "tokenizer.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["", "..", "~/a", "/a", "a/", "a/b/c", "a b", "-a", "a\0"])
def test_names_of_folders_do_not_go_to_the_hub(name, hub, here):
    assert not is_hub_name(name)
    with pytest.raises(OSError, match="folder"):
        check_name(name)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("./alinger", r"There is no folder \./alinger\. Did you mean aligner\?"),
        ("/no/such/folder", r"There is no folder /no/such/folder\.$"),
        ("", r"There is no folder ''\."),
        ("empty", r"empty is an empty folder without config\.json or adapter_config\.json\.$"),
        ("run", r"run is a folder without config\.json or .*\. Did you mean run/checkpoint-"),
        ("aligner/config.json", r"aligner/config\.json is a file, and must be a folder\. Give aligner\."),
        ("file", r"file is a file, and must be a folder\. Give a folder with config\.json or"),
    ],
)
def test_names_without_a_model_get_a_suggestion(name, told, hub, here):
    (here / "file").write_text("")
    with pytest.raises(OSError, match=told):
        check_name(name)
    assert hub.asked == []


def test_a_folder_with_a_model_or_the_requested_file_passes(here, hub):
    for name in ("aligner", here / "aligner", "run/checkpoint-9"):
        check_name(name)
    check_name("aligner", files=TOKENIZER_FILES)
    with pytest.raises(OSError, match=r"tokenizer_config\.json.*tokenizer\.json"):
        check_name("run/checkpoint-9", files=TOKENIZER_FILES)


def test_an_unexpanded_tilde_is_reported(here, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    with pytest.raises(FileNotFoundError, match=f"Did you mean {here}/aligner"):
        check_name("~/aligner")


# ---- the Hub ----


def of_the_hub(kind: type[Exception]) -> Exception:
    return kind.__new__(kind, "told")  # made by a response, of a client whose name changes


def test_a_hub_that_is_not_reached_is_asked_once_and_named(here, hub):
    hub.error = RuntimeError("Name or service not known")
    with pytest.raises(ConnectionError, match=r"runs/alinger.*Name or serv"):
        check_name("runs/alinger")
    assert len(hub.asked) == 1
    with pytest.raises(ConnectionError, match=r"Did you mean aligner\?"):
        check_name("alinger")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RepositoryNotFoundError, "neither a folder no/model here nor a model of this name on the Hub"),
        (GatedRepoError, "no/model is gated"),
        (RemoteEntryNotFoundError, None),  # of an adapter
        (None, None),
    ],
)
def test_answers_of_the_hub_become_messages(here, hub, error, told):
    hub.error = error and of_the_hub(error)
    if told is None:
        check_name("no/model")
    else:
        with pytest.raises(OSError, match=told):
            check_name("no/model")
    assert len(hub.asked) == (1 if error else 2)


def test_two_models_in_a_repository_are_refused_by_both_names(here, hub, monkeypatch):
    hub.files |= {"adapter_config.json"}
    with pytest.raises(OSError, match=r"anna/both holds two models: adapter_config\.json and model\.safetensors"):
        check_name("anna/both")
    check_name("anna/both", files=TOKENIZER_FILES)
    for file in hub.files:  # a snapshot in the cache
        (here / "aligner" / file).write_text("{}")
    config = here / "aligner" / "config.json"
    found = lambda name, file, revision: str(config) if file == "config.json" else None  # noqa: E731
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", found)
    with pytest.raises(OSError, match="aligner holds two models"):
        check_name("anna/both")


def test_cached_models_are_not_requested(here, hub, monkeypatch):
    found = lambda name, file, revision: "path" if (file, revision) == ("adapter_config.json", "v1") else None  # noqa: E731
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", found)
    check_name("some/adapter", "v1")
    assert hub.asked == []
    check_name("some/adapter", "v2")
    assert len(hub.asked) == 2


def test_without_the_hub_by_the_users_will_it_is_not_asked(here, hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "is_offline_mode", lambda: True)
    with pytest.raises(ConnectionError, match="HF_HUB_OFFLINE"):
        check_name("no/model")
    assert hub.asked == []


# ---- who asks ----


@pytest.mark.parametrize("load", [load_config, load_seq2seq, WordAligner.from_pretrained])
def test_everything_that_loads_a_model_asks_first(load, here):
    with pytest.raises(OSError, match="There is no folder"):
        load("./nothing")
    with pytest.raises(OSError, match="empty folder"):
        load("empty")


def test_only_the_standard_library_is_needed_to_refuse_a_folder(tmp_path):
    code = """
import sys
from hf_attncal.inference.opening import check_name
try: check_name('./no')
except FileNotFoundError: print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    modules = set(done.stdout.split())
    assert "hf_attncal.inference.opening" in modules
    assert {"torch", "transformers", "huggingface_hub", "numpy"} & modules == set()


def test_a_name_of_a_hub_that_cannot_be_reached_is_an_error_without_a_long_wait(tmp_path):
    """Nobody listens at the address; the real client is asked, and its waits are added up in place of spent."""
    code = """
import sys, time
waits = []
time.sleep = waits.append
from hf_attncal.commands import main
code = main(['translate', 'no/model'])
print(sum(waits))
sys.exit(code)
"""
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "PATH": "", "HF_HUB_OFFLINE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, input="")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "attncal: error: no/model is neither a folder here nor in the cache of the Hub, and "
    )
    assert done.stderr.count("\n") == 1
    assert float(done.stdout) < 25  # transformers alone: 55 seconds, and ten lines
