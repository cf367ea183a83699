"""Two processes (gloo) train the word aligner that one process trains.

This file is both the test and, run as a script, each of the two processes.
"""

import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import run_in_two_processes
from runs import tiny_aligner

from hf_attncal.alignment.aligner_job import AlignerTrainer, AlignerTrainingArguments
from hf_attncal.data.collators import AlignmentCollator

SCENARIOS = {
    "attention": {"share_embeddings": True},
    "mixture": {"prediction": "mixture", "diagonal_bias": 1.0, "sampled_softmax": True},
}


def train(folder: Path, accumulation: int, **config) -> AlignerTrainer:
    """The trainer after 4 optimiser steps."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 7, (24, 2), generator=generator).tolist()
    pairs = [[torch.randint(1, 11, (n,), generator=generator).tolist() for n in both] for both in lengths]
    columns = {"input_ids": [source for source, _ in pairs], "target_input_ids": [target for _, target in pairs]}
    args = AlignerTrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        max_steps=4,
        tokens_per_batch=12,
        gradient_accumulation_steps=accumulation,
        learning_rate=0.01,
        agreement_warmup_steps=3,
        max_grad_norm=0.5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    dataset = Dataset.from_dict(columns | {"length": [max(both) for both in lengths]})
    trainer = AlignerTrainer(
        model=tiny_aligner(**config), args=args, train_dataset=dataset, data_collator=AlignmentCollator(0)
    )
    trainer.train()
    return trainer


def logged(trainer: AlignerTrainer) -> list[list[float]]:
    names = ("loss", "prediction_loss", "agreement_loss", "entropy_loss", "grad_norm")
    return [[entry[name] for name in names] for entry in trainer.state.log_history if "grad_norm" in entry]


def worker(folder: Path) -> None:
    """One of two processes."""
    for name, config in SCENARIOS.items():
        trainer = train(folder / name, 2, **config)
        if trainer.is_world_process_zero():
            found = {
                "weights": trainer.model.state_dict(),
                "log": logged(trainer),
                "processes": trainer.args.world_size,
            }
            torch.save(found, folder / f"{name}.pt")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory) -> Path:
    """The folder that a run of `worker` in two processes filled."""
    folder = tmp_path_factory.mktemp("two")
    return run_in_two_processes(__file__, folder)


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_processes_equal_one(name, two_processes, tmp_path):
    """2 processes x 2 steps of accumulation = 1 process x 4 steps of accumulation: weights and log."""
    both, one = torch.load(two_processes / f"{name}.pt"), train(tmp_path, 4, **SCENARIOS[name])
    assert both["processes"] == 2
    before = tiny_aligner(**SCENARIOS[name]).state_dict()
    moved = 0.0
    for key, value in one.model.state_dict().items():
        assert float((both["weights"][key] - value).abs().max()) < 1e-6, key
        moved = max(moved, float((before[key] - value).abs().max()))
    assert moved > 1e-3  # half of the gradients would have been seen
    assert len(both["log"]) == 4
    for found, expected in zip(both["log"], logged(one), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]))
