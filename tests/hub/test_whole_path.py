"""examples/whole_path.sh on tiny models and a Hub of tests, and a commit of the Hub that a command asks for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from english_german import generate_pairs, write_pairs
from local_hub import Hub

pytestmark = pytest.mark.slow  # a dozen commands, each a process
SCRIPT = Path(__file__).parents[2] / "examples" / "whole_path.sh"
TINY_SETTINGS = [
    "tokenizer.vocab_size=200",
    "model.d_model=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.encoder_attention_heads=2",
    "model.decoder_attention_heads=2",
    "model.encoder_ffn_dim=16",
    "model.decoder_ffn_dim=16",
    "training.max_steps=6",
    "training.save_steps=3",
    "average_last=2",
]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The Hub, the folder and the environment after the script has run."""
    place = tmp_path_factory.mktemp("path")
    for split, number in (("train", 300), ("dev", 20), ("test", 20)):
        pairs = generate_pairs(number, seed=len(split))
        write_pairs(pairs, place / f"{split}.en", place / f"{split}.de")
    with Hub() as hub:
        environment = os.environ | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(place / "home"),
            "HF_TOKEN": "x",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        arguments = [str(place), "en", "de", str(place / "out"), "anna/model", *TINY_SETTINGS]
        done = subprocess.run(["sh", str(SCRIPT), *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        yield hub, place, environment, done.stdout


def test_everything_was_published_and_used_by_name(walked):
    hub, place, _, out = walked
    assert set(hub.repositories) == {"anna/model", "anna/model-aligner"}
    assert all(repository.private for repository in hub.repositories.values())
    assert "anna/model would hold these files. Nothing was sent.\n" in out
    assert len((place / "out" / "test.de").read_text().splitlines()) == 20
    assert len((place / "out" / "links").read_text().splitlines()) == 20
    assert "check.json" in hub.repositories["anna/model-aligner"].files("main")
    assert "20 lines" in out


def test_a_commit_can_be_requested(walked):
    hub, place, environment, _ = walked
    commit = list(hub.repositories["anna/model"].commits)[1]
    hub.repositories["anna/model"].commits["e" * 40] = {"README.md": b"emptied"}  # what comes later is another thing
    command = ["attncal", "translate", "anna/model", "--trust-remote-code", "--source", str(place / "test.en")]
    pinned = subprocess.run([*command, "--revision", commit], env=environment, capture_output=True, text=True)
    assert pinned.returncode == 0, pinned.stderr
    assert pinned.stdout == (place / "out" / "test.de").read_text()
    unknown = subprocess.run([*command, "--revision", "nothing"], env=environment, capture_output=True, text=True)
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("attncal: error: anna/model cannot be fetched at --revision nothing: ")
    folder = [*command[:2], str(place / "out" / "model"), "--revision", commit]
    refused = subprocess.run(folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert "needs a MODEL on the Hub (OWNER/NAME)" in refused.stderr
