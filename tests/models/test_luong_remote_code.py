"""A saved recurrent model works where this package is not installed: generates the same, can be saved again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import scatter, tiny_batch
from warm import warm

from hf_attncal import LuongConfig, LuongForConditionalGeneration

PROGRAM = Path(__file__).with_name("load_luong_without_package.py")
SETTINGS = {
    "vocab_size": 11,
    "d_model": 8,
    "embedding_size": 6,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "bidirectional": True,
    "selective_gate": True,
    "calibration": "gated",
    "leaky": True,
    "uam": True,
    "null_token_id": 9,
    "copy": True,
    "dropout": 0.0,
}


def in_fresh_process(source: Path, destination: Path, home: Path, batch: dict) -> dict:
    """Run PROGRAM on the folder `source`, with an empty module cache, and return what it printed."""
    home.mkdir()
    request = {"source": str(source), "destination": str(destination)}
    request["batch"] = {name: tensor.tolist() for name, tensor in batch.items()}
    environment = {"HF_HOME": str(home), "HF_MODULES_CACHE": str(home / "modules"), "HF_HUB_OFFLINE": "1"}
    environment |= {"OMP_NUM_THREADS": "1", "PATH": ""}
    command = warm([sys.executable, "-W", "error::FutureWarning", PROGRAM, json.dumps(request)], "bare")
    run = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    (answer,) = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    return json.loads(answer.removeprefix("ANSWER "))


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict:
    """Return outputs of the model here, in a process without the package, and loaded from that process's folder."""
    root, batch = tmp_path_factory.mktemp("luong"), tiny_batch()
    torch.manual_seed(3)
    model = LuongForConditionalGeneration(LuongConfig(**SETTINGS)).eval()
    scatter(model, 1.5)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        tokens = model.generate(**inputs, num_beams=3, max_new_tokens=6, min_new_tokens=6).tolist()
        loss = model(**batch).loss.item()
    model.save_pretrained(root / "here")
    there = in_fresh_process(root / "here", root / "there", root / "home", batch)
    again = in_fresh_process(root / "there", root / "again", root / "another home", batch)
    return {"here": {"tokens": tokens, "loss": loss}, "there": there, "again": again, "root": root}


@pytest.mark.parametrize("place", ["there", "again"])
def test_the_same_tokens_and_loss(answers: dict, place: str):
    assert answers[place]["tokens"] == answers["here"]["tokens"]
    assert len({str(row) for row in answers["here"]["tokens"]}) == 2
    assert answers[place]["loss"] == pytest.approx(answers["here"]["loss"], rel=1e-6)
    assert all(".mask_network." in name for name in answers[place]["untrained"])  # in evaluation it is not trained
    assert answers[place]["bare"] == "LuongModel"


@pytest.mark.parametrize("place", ["here", "there", "again"])
def test_the_folder(answers: dict, place: str):
    folder = answers["root"] / place
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert {name: reference.rpartition("--")[2] for name, reference in auto_map.items()} == {
        "AutoConfig": "configuration_luong.LuongConfig",
        "AutoModel": "modeling_luong.LuongModel",
        "AutoModelForSeq2SeqLM": "modeling_luong.LuongForConditionalGeneration",
    }
    code = {path.name for path in folder.glob("*.py")}
    assert {"cache.py", "functional_luong.py", "luong_encoder_decoder.py", "uam.py"} <= code
    assert not {"modeling_attncal_marian.py", "modeling_attncal_bart.py", "modeling_mask_align.py"} & code
