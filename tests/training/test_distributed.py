"""Two processes (gloo) train the model that one process trains.

This file is both the test and, run as a script, each of the two processes.
"""

import gc
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from discrete_helpers import tiny_discrete
from helpers import run_in_two_processes, tiny_model
from luong_helpers import tiny_luong
from runs import collate, largest_difference, logged, make_trainer, toy_dataset, weights

from hf_attncal.data.collators import LinkCollator

STEPS = 5
# Settings of one process; two processes take half of the accumulation steps.
SCENARIOS = {
    "gated": {"switches": {"calibration": "gated"}, "per_device_train_batch_size": 2},
    "annealed, head": {
        "switches": {
            "calibration": "annealed",
            "annealing_steps": 10,
            "mask_projection": "head",
            "mask_inputs": "trained",
        },
        "per_device_train_batch_size": 2,
    },
    "off": {"switches": {}, "per_device_train_batch_size": 2},
    "discrete": {
        "switches": {"streams": 2, "gumbel_noise": 0, "receptive_field_penalty": 0.1, "penalty_warmup_steps": 3},
        "per_device_train_batch_size": 2,
    },
    "gated, leaky, tokens": {
        "switches": {"calibration": "gated", "leaky": True, "output_gate": True},
        "tokens_per_batch": 24,
    },
    "recurrent": {"switches": {"cell": "gru", "attention_window": "local-p"}, "per_device_train_batch_size": 2},
    "recurrent, gated": {
        "switches": {"cell": "lstm", "bidirectional": True, "calibration": "gated"},
        "tokens_per_batch": 24,
    },
    "recurrent, uam": {
        "switches": {"cell": "lstm", "uam": True, "null_token_id": 5},
        "per_device_train_batch_size": 2,
    },
    "copying": {"switches": {"calibration": "gated", "copy": True}, "per_device_train_batch_size": 2},
    "guided, leaky": {"switches": {"guided": True, "guided_weight": 0.5, "leaky": True}, "tokens_per_batch": 24},
    "gated, float32": {
        "switches": {"calibration": "gated", "dtype": torch.float32},
        "per_device_train_batch_size": 2,
        "optim": "sgd",
        "learning_rate": 0.01,
    },
}
# Those of the usual run: batches by tokens, each kind of model, each further loss.
USUAL = ("discrete", "gated, leaky, tokens", "recurrent, uam", "copying", "guided, leaky")
LOGGED = (
    "loss",
    "nmt_loss",
    "mask_loss",
    "uam_loss",
    "guided_loss",
    "mask_penalty",
    "grad_norm",
    "mask_grad_norm",
    "receptive_field_size",
)
RESUME = {"switches": {"calibration": "annealed", "annealing_steps": 10}, "tokens_per_batch": 24}


class Padding:
    """`collate` as a collator that knows on which side it pads."""

    tokenizer = SimpleNamespace(padding_side="right")
    __call__ = staticmethod(collate)


def build(switches: dict):
    """With streams a Discrete Transformer, with a cell a recurrent model, else a calibrated Marian."""
    if "cell" in switches:
        return tiny_luong(**switches)
    return tiny_discrete("seq2seq", **switches) if "streams" in switches else tiny_model("marian", **switches)


def train(folder: Path, accumulation: int, switches: dict, resume: str | None = None, **arguments):
    """The trainer after `STEPS` optimiser steps."""
    model = build(switches)
    arguments = {"max_steps": STEPS, "gradient_accumulation_steps": accumulation, "max_grad_norm": 0.5, **arguments}
    text, guided = toy_dataset(24), switches.get("guided", False)
    if guided:
        text = text.add_column("links", [[0, 0, 1, 0, 0, len(labels) - 1] for labels in text["labels"]])
    trainer = make_trainer(folder, model, text, **arguments)
    if guided:
        trainer.data_collator = LinkCollator(Padding())
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def worker(folder: Path) -> None:
    """One of two processes: the scenarios asked for, then a run that stops in its second epoch and goes on."""
    gc.freeze()  # every Trainer has the garbage collector look through all that is there
    for name in json.loads((folder / "names.json").read_text(encoding="utf-8")):
        trainer = train(folder / name, 2, **SCENARIOS[name])
        if trainer.is_world_process_zero():
            log = {key: logged(trainer, key) for key in LOGGED}
            torch.save({"weights": weights(trainer.model), "log": log}, folder / f"{name}.pt")
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 8}
    whole = train(folder / "resume", 1, **RESUME, **saving)
    epochs = [(entry["step"], entry["epoch"]) for entry in whole.state.log_history]
    stop = next(step for step, epoch in epochs if epoch > 1 and epoch % 1)
    resumed = train(folder / "resumed", 1, **RESUME, max_steps=8, resume=str(folder / "resume" / f"checkpoint-{stop}"))
    if whole.is_world_process_zero():
        report = {
            "difference": largest_difference(weights(whole.model), weights(resumed.model)),
            "annealing_step": resumed.model.annealing_step,
            "stop": stop,
            "processes": whole.args.world_size,
        }
        (folder / "resume.json").write_text(json.dumps(report), encoding="utf-8")


@pytest.fixture(scope="module")
def two_processes(request, tmp_path_factory) -> Path:
    """The folder that a run of `worker` in two processes filled, with the scenarios of the tests that were chosen."""
    folder = tmp_path_factory.mktemp("two")
    chosen = [
        item.callspec.params
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    (folder / "names.json").write_text(json.dumps([params["name"] for params in chosen]), encoding="utf-8")
    return run_in_two_processes(__file__, folder)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in SCENARIOS]
)
def test_two_processes_equal_one(name, two_processes, tmp_path):
    """Batches of 2 sentences: 2 processes x 2 steps of accumulation = 1 process x 4; weights and log."""
    both = torch.load(two_processes / f"{name}.pt")
    one = train(tmp_path, 4, **SCENARIOS[name])
    tolerance = 1e-6
    assert largest_difference(weights(one.model), both["weights"]) < tolerance
    for key in LOGGED:
        assert both["log"][key] == pytest.approx(logged(one, key), abs=1e-5), key
    assert len(both["log"]["nmt_loss"]) == STEPS
    assert ("mask_loss" in str(one.state.log_history)) == ("calibration" in SCENARIOS[name]["switches"])
    # The comparison can fail: half of the gradient would have been seen.
    assert largest_difference(weights(one.model), weights(build(SCENARIOS[name]["switches"]))) > 1e-3


def test_resume_in_two_processes(two_processes):
    """A run that stops inside its second epoch goes on with the batches, the step and the weights of the whole run."""
    report = json.loads((two_processes / "resume.json").read_text(encoding="utf-8"))
    assert report["processes"] == 2
    assert report["stop"] < 8
    assert report["difference"] == 0.0
    assert report["annealing_step"] == 4 + 8  # the tiny model starts at 4


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]))
