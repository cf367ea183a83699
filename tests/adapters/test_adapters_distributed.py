"""Two processes (gloo) train the adapter that one process trains.

This file is both the test and, run as a script by `torch.distributed.run`, each of the two processes.
"""

import sys
from pathlib import Path

import pytest
import torch
from adapter_helpers import adapted, save_base
from helpers import run_in_two_processes
from peft import PeftModel
from runs import largest_difference, logged, make_trainer, toy_dataset, weights

pytestmark = pytest.mark.slow
SETTINGS = {
    "gated, leaky": {"calibration": "gated", "leaky": True},
    "annealed": {"calibration": "annealed", "annealing_steps": 10},
}
LOGGED = ("loss", "nmt_loss", "mask_loss", "mask_penalty", "grad_norm", "mask_grad_norm")


def train(folder: Path, accumulation: int, settings: dict):
    """The trainer after three optimiser steps of 8 sentences."""
    model: PeftModel = adapted(folder / "bases" / "marian", **settings)
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": accumulation, "max_steps": 3}
    trainer = make_trainer(folder, model, toy_dataset(24), **options)
    trainer.train()
    return trainer


def worker(folder: Path) -> None:
    for name, settings in SETTINGS.items():
        trainer = train(folder, 2, settings)
        if trainer.is_world_process_zero():
            log = {key: logged(trainer, key) for key in LOGGED}
            torch.save({"weights": weights(trainer.model), "log": log}, folder / f"{name}.pt")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """The folder that a run of `worker` in two processes filled."""
    folder = tmp_path_factory.mktemp("two")
    save_base(folder / "bases", "marian")
    return run_in_two_processes(__file__, folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_equal_one(name, two_processes):
    both = torch.load(two_processes / f"{name}.pt")
    one = train(two_processes, 4, SETTINGS[name])
    assert largest_difference(weights(one.model), both["weights"]) < 1e-6
    for key in LOGGED:
        assert both["log"][key] == pytest.approx(logged(one, key), abs=1e-5), key
    assert len(both["log"]["mask_loss"]) == 3
    other = adapted(two_processes / "bases" / "marian", **SETTINGS[name])
    assert largest_difference(weights(other), both["weights"]) > 1e-3  # it has moved


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]))
