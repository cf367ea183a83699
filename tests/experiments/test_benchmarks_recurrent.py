"""The benchmark of recurrent models: the whole run on tiny ones, with another program in the place of JoeyNMT's."""

import argparse
import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
# Answers as recurrent_joeynmt.py does, and writes down what it is asked.
PEER = """#!{python} -S
import json, sys
with open({calls!r}, "a", encoding="utf-8") as calls:
    print(sys.argv[1], sys.stdin.readline().strip(), file=calls, sep="\\n")
    print(json.dumps({{"joeynmt": "0.0", "parameters": 3}}), flush=True)
    for line in sys.stdin:
        print(line.strip(), file=calls)
        print("done", flush=True)
"""
TINY = "--d-model 8 --layers 1 --vocab 30 --batch 4 --length 4 --new-tokens 3 --beams 2 --searches 1 3 --threads 1"


@pytest.fixture(scope="module")
def recurrent():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("recurrent")


def peer(tmp_path: Path, text: str) -> tuple[Path, Path]:
    """A program, and the file of its calls."""
    program, calls = tmp_path / "peer", tmp_path / "calls"
    program.write_text(text.format(python=sys.executable, calls=str(calls)), encoding="utf-8")
    program.chmod(0o755)
    return program, calls


def test_the_whole_run(recurrent, tmp_path, monkeypatch):
    program, calls = peer(tmp_path, PEER)
    options = ["--variants", "unfed", "no-attention", "--switches", "uam", "--repeats", "2", "--warmup", "1"]
    output = tmp_path / "out.json"
    monkeypatch.setattr(
        sys, "argv", ["recurrent", *TINY.split(), *options, "--joeynmt", str(program), "--output", str(output)]
    )
    recurrent.main()
    result = json.loads(output.read_text(encoding="utf-8"))
    assert str(tmp_path) not in json.dumps(result)
    assert set(result["variants"]["no-attention"]) == {"parameters", "plain"}  # JoeyNMT always attends
    unfed = result["variants"]["unfed"]
    assert unfed["joeynmt"]["about"]["joeynmt"] == "0.0"
    for compared in (unfed["plain"], unfed["joeynmt"]):
        for what in ("training", "search_1", "search_3"):
            ratios = [a / b for a, b in zip(compared[what]["other_seconds"], compared[what]["seconds"], strict=True)]
            assert compared[what]["speed_ratio"]["max"] == max(ratios)
            assert compared[what]["speed_ratio"]["n"] == 2
    assert result["switches"]["uam"]["search_3"]["time_ratio"]["median"] > 0
    script, settings, *commands = calls.read_text(encoding="utf-8").splitlines()
    assert Path(script) == ROOT / "benchmarks" / "recurrent_joeynmt.py"
    settings = json.loads(settings)
    assert (settings["input_feeding"], settings["cell"], settings["vocab"], settings["d_model"]) == (
        False,
        "lstm",
        30,
        8,
    )
    assert [len(part["input_ids"]) for part in (settings["training"], *settings["searches"])] == [4, 1, 3]
    assert commands == ["training"] * 3 + ["0"] * 3 + ["1"] * 3


def test_the_plain_search_finds_the_best_of_all_sentences(recurrent):
    """With as many beams as there are prefixes it misses none."""
    torch.manual_seed(1)
    args = argparse.Namespace(vocab=6, d_model=8, layers=1)
    model = recurrent.Plain(args).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    batch = {"input_ids": torch.tensor([[3, 4, 5], [5, 3, 1]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    found = model.search(batch, beams=36, steps=3)
    every = torch.cartesian_prod(*[torch.arange(6)] * 3)
    for n in range(2):
        state = model.encode({name: part[n : n + 1].expand(len(every), -1) for name, part in batch.items()})
        read = torch.cat([torch.full((len(every), 1), 2), every[:, :-1]], dim=1)
        with torch.no_grad():
            logs = model.output(model.decoder(model.table(read), state)[0]).log_softmax(dim=-1)
        scores = logs.gather(-1, every.unsqueeze(-1)).sum(dim=(1, 2))
        assert found[n, 1:].tolist() == every[scores.argmax()].tolist()
