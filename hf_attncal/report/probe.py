"""A probe for a model without masks: what it depends on can be asked then, and what it writes stays as it was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_attncal.adapters.tuner import check_adaptable
from hf_attncal.training.adapter import AdapterConfig, train_adapter


def check_can_have_probe(model) -> None:
    """Refuse a model that no probe can be put into, before text is read for one.

    Raises:
        ValueError: it; the message says how to do without.
    """
    try:
        check_adaptable(model)
    except ValueError as error:
        raise ValueError(f"No probe: {error} To do without one: --no-probe.") from error


def train_probe(
    checkpoint: str,
    sources: Sequence[str],
    targets: Sequence[str],
    folder: str | Path,
    *,
    steps: int | None = None,
    minutes: float | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Train a probe by its preset (`attncal adapt model --preset probe`), or take the same one if it is there.

    Args:
        checkpoint: the model: a folder, or its name on the Hub. Its weights stay as they are.
        sources, targets: sentence pairs to learn from, others than those that will be looked at.
        folder: for the adapter; the text that it learned from is written beside it.
        steps: optimiser steps; None for as many as fit the text.
        minutes: time budget; None for no limit.
        seed: of the adapter and of the order of the text.

    Returns:
        What `train_adapter` gives.

    Raises:
        ValueError: a model that cannot be adapted, and see `train_adapter`.
    """
    folder = Path(folder)
    text = {"source": sources, "target": targets}
    folder.mkdir(parents=True, exist_ok=True)
    for side, lines in text.items():
        (folder / f"text.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    values = {
        "preset": "probe",
        "data": {"train": {side: str((folder / f"text.{side}").resolve()) for side in text}},
        "model": {"checkpoint": checkpoint},
        "training": {"output_dir": str(folder / "adapter"), "seed": seed, "disable_tqdm": True},
    }
    if steps is not None:
        values["training"]["max_steps"] = steps
    if minutes is not None:
        values["minutes"] = minutes
    return train_adapter(AdapterConfig.make(values), resume=True)
