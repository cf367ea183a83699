"""A probe for a model without masks: what it depends on can be asked then, and what it writes stays as it was."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_attncal.adapters.tuner import check_adaptable
from hf_attncal.files import read_lines, write_bytes
from hf_attncal.inference.revision import revision_of
from hf_attncal.training.adapter import AdapterConfig, train_adapter
from hf_attncal.training.folder import RESULTS, RUN

_ADAPTER = "adapter"
_MOST_AGAIN = 0.1  # of the pairs to look at: short sentences come again in any text


@dataclass(frozen=True)
class KeptProbe:
    """A probe that an earlier analysis has left.

    Args:
        folder: where it is.
        steps: that it was trained for.
        sources, targets: what it learned from.
    """

    folder: Path
    steps: int
    sources: Sequence[str]
    targets: Sequence[str]

    @classmethod
    def find(cls, folder: str | Path, checkpoint: str) -> "KeptProbe | None":
        """The probe of a model in a folder; None where there is none yet.

        Raises:
            ValueError: one of another model, or one that does not say what it learned from.
        """
        folder = Path(folder)
        adapter = folder / _ADAPTER
        if not (adapter / "adapter_config.json").is_file():
            return None
        try:
            run = json.loads((adapter / RUN).read_text(encoding="utf-8"))["run"]
            steps = json.loads((adapter / RESULTS).read_text(encoding="utf-8"))["steps"]
            trained_on = run["model"]["checkpoint"]
            text = [read_lines(folder / f"text.{side}") for side in ("source", "target")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder} has a probe, and not what says what it was trained on ({_ADAPTER}/{RUN}, text.source, "
                f"text.target): {error}. Name another folder with --probe."
            ) from error
        if trained_on != revision_of(checkpoint):
            raise ValueError(
                f"{folder} has a probe of another model than {checkpoint}, or of what it was before: of {trained_on}, "
                f"not {revision_of(checkpoint)}. Name another folder with --probe."
            )
        return cls(folder, steps, *text)

    @property
    def adapter(self) -> str:
        """Its folder for `from_pretrained`."""
        return str(self.folder / _ADAPTER)

    def check_asked(self, pairs: tuple[Sequence[str], Sequence[str]] | None, steps: int | None) -> None:
        """Raises ValueError where it was trained on other pairs, or for another number of steps, than is asked."""
        if pairs is not None and list(map(list, pairs)) != [list(self.sources), list(self.targets)]:
            raise ValueError(
                f"{self.folder} has a probe that learned from {len(self.sources)} other pairs than those of "
                "--probe-source. Leave that out, or name another folder with --probe."
            )
        if steps not in (None, self.steps):
            raise ValueError(
                f"{self.folder} has a probe of {self.steps} steps, got --probe-steps {steps}. Leave that out, or name "
                "another folder with --probe."
            )


def check_others(sources: Sequence[str], learned: Sequence[str]) -> None:
    """Refuse to look at what a probe learns from, on which its masks say more than they know.

    Raises:
        ValueError: more than a tenth of the sources to look at are among those.
    """
    its = set(learned)
    again = sum(source in its for source in sources)
    if again > _MOST_AGAIN * len(sources):
        raise ValueError(
            f"{again} of the {len(sources)} pairs to look at have a source that the probe learns, or has learned, "
            "from. Give other text with --source, or for a probe that is kept all of the text of its training."
        )


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
        ValueError: a model that cannot be adapted, a folder with the text of another probe, and see `train_adapter`.
    """
    folder, files = Path(folder), {}
    for side, lines in {"source": sources, "target": targets}.items():
        files[side] = (folder / f"text.{side}").resolve()
        text = "".join(f"{line}\n" for line in lines).encode()
        if files[side].exists() and files[side].read_bytes() != text:
            raise ValueError(f"{files[side]} is the text of another probe. Name another folder with --probe.")
        write_bytes(text, files[side])
    values = {
        "preset": "probe",
        "data": {"train": {side: str(file) for side, file in files.items()}},
        "model": {"checkpoint": checkpoint},
        "training": {"output_dir": str(folder / _ADAPTER), "seed": seed, "disable_tqdm": True},
    }
    if steps is not None:
        values["training"]["max_steps"] = steps
    if minutes is not None:
        values["minutes"] = minutes
    return train_adapter(AdapterConfig.make(values), resume=True)
