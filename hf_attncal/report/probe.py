"""Train a probe for a model without masks: an adapter that learns masks and changes nothing that the model writes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_attncal.inference.seals import revision_of
from hf_attncal.io.files import read_lines, write_bytes
from hf_attncal.layouts import ADAPTER_CONFIG, RESULTS, RUN
from hf_attncal.report.corpus import Corpus

_ADAPTER = "adapter"
_MOST_AGAIN = 0.1  # of the pairs to look at: short sentences come again in any text
_LOOKED_AT = 500  # pairs to look at, where the probe learns from the same text
_LEAST = 500  # pairs that a probe learns from


@dataclass(frozen=True)
class Probe:
    """Settings of the probe for a model without masks.

    Args:
        pairs: text that the probe learns from; None for all pairs to analyse but the first 500 (at most a fifth),
            which are looked at.
        folder: where the probe is kept, or was kept by an earlier analysis; None to drop it.
        steps: optimiser steps; None for as many as fit the text.
    """

    pairs: Corpus | None = None
    folder: str | Path | None = None
    steps: int | None = None

    def parted(self, corpus: Corpus, checkpoint: str) -> tuple[Corpus, Corpus]:
        """Return the pairs to look at, and those that the probe learns from, or learned from if it was kept.

        Raises:
            ValueError: the text is too little for both; the kept probe has another model, text or number of steps
                than is asked for, or does not state what it learned from.
        """
        count = min(_LOOKED_AT, max(1, len(corpus.sources) // 5))
        text, kept = self.pairs, self._kept(checkpoint)
        if kept is not None:
            if text is None and list(corpus.sources[count:]) == kept.sources:
                return corpus.first(count), kept  # as when it was trained
            text = kept
        if text is not None:
            _check_others(corpus, text)
            return corpus, text
        if corpus.gold is not None or corpus.tags is not None:
            raise ValueError(
                f"{checkpoint} has no masks, and a probe must learn from other text than that with --gold or --tags: "
                "give --probe-text SOURCE TARGET, or --probe none."
            )
        if len(corpus.sources) - count < _LEAST:
            raise ValueError(
                f"the text has {len(corpus.sources)} lines, too few to train a probe on most and to look at the "
                "others: give --probe-text SOURCE TARGET, some thousand pairs, or --probe none."
            )
        return corpus.first(count), corpus.rest(count)

    def _kept(self, checkpoint: str) -> Corpus | None:
        """Return the text of the probe that was kept; None where there is none yet. Errors: see `parted`."""
        if self.folder is None or not (Path(self.folder) / _ADAPTER / ADAPTER_CONFIG).is_file():
            return None
        folder, adapter = Path(self.folder), Path(self.folder) / _ADAPTER
        try:
            run = json.loads((adapter / RUN).read_text(encoding="utf-8"))["run"]
            steps = json.loads((adapter / RESULTS).read_text(encoding="utf-8"))["steps"]
            trained_on = run["model"]["checkpoint"]
            kept = Corpus(*(read_lines(folder / f"text.{side}") for side in ("source", "target")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{folder} has a probe, but not what says what it was trained on ({_ADAPTER}/{RUN}, "
                f"text.source, text.target): {error}. Name another folder with --probe."
            ) from error
        if trained_on != revision_of(checkpoint):
            problem = (
                f"a probe of another model than {checkpoint}, or of an earlier version of it: {trained_on}, not "
                f"{revision_of(checkpoint)}. Name"
            )
        elif self.pairs is not None and (self.pairs.sources, self.pairs.targets) != (kept.sources, kept.targets):
            problem = (
                f"a probe that learned from {len(kept.sources)} other pairs than those of --probe-text. Leave that "
                "out, or name"
            )
        elif self.steps not in (None, steps):
            problem = f"a probe of {steps} steps, got {self.steps}. Leave that out, or name"
        else:
            return kept
        raise ValueError(f"{folder} has {problem} another folder with --probe.")

    @contextmanager
    def trained(self, checkpoint: str, text: Corpus, seed: int, languages: str | None = None) -> Iterator[str]:
        """Train the probe by its preset (`attncal adapt model --config probe`), or take the same one if it was kept.

        Args:
            checkpoint: the model: a folder, or its name on the Hub. Its weights stay as they are.
            text: sentence pairs to learn from.
            seed: of the adapter and of the order of the text.
            languages: of the text, for a model of many.

        Yields:
            The folder of the adapter; it is dropped in the end unless the probe has a folder.

        Raises:
            ValueError: the folder has the text of another probe, and see `train_adapter`.
        """
        if self.folder is None:
            with TemporaryDirectory(prefix="attncal-probe-") as folder:
                yield _train(checkpoint, text, Path(folder), self.steps, seed, languages)
        elif self._kept(checkpoint) is not None:
            yield str(Path(self.folder) / _ADAPTER)
        else:
            yield _train(checkpoint, text, Path(self.folder), self.steps, seed, languages)


USUAL_PROBE = Probe()


def _train(checkpoint: str, text: Corpus, folder: Path, steps: int | None, seed: int, languages: str | None) -> str:
    files = {side: (folder / f"text.{side}").resolve() for side in ("source", "target")}
    for file, lines in zip(files.values(), (text.sources, text.targets), strict=True):
        data = "".join(f"{line}\n" for line in lines).encode()
        if file.exists() and file.read_bytes() != data:
            raise ValueError(f"{file} is the text of another probe. Name another folder with --probe.")
        write_bytes(data, file)
    values = {
        "preset": "probe",
        "data": {"train": {side: str(file) for side, file in files.items()}},
        "model": {"checkpoint": checkpoint},
        "training": {"output_dir": str(folder / _ADAPTER), "seed": seed, "disable_tqdm": True},
    }
    if languages is not None:
        values["languages"] = languages
    if steps is not None:
        values["training"]["max_steps"] = steps
    from hf_attncal.training.adapter import (
        AdapterJob,  # an analysis without a probe needs neither PEFT nor the Trainer
    )

    AdapterJob.train(AdapterJob.settings.make(values), resume=True)
    return values["training"]["output_dir"]


def _check_others(corpus: Corpus, learned: Corpus) -> None:
    """Raise ValueError if many pairs to look at are those of the probe, on which its masks say more than they know."""
    known = set(learned.sources)
    again = sum(source in known for source in corpus.sources)
    if again > _MOST_AGAIN * len(corpus.sources):
        raise ValueError(
            f"{again} of the {len(corpus.sources)} pairs to look at have a source that the probe learns, or has "
            "learned, from. Give other text with --source, or for a kept probe all of the text of its training."
        )


def check_can_have_probe(model, checkpoint: str) -> None:
    """Raise ValueError, before text is read for a probe, if the model cannot have one; the message says what to do."""
    try:
        from hf_attncal.adapters.tuner import check_adaptable

        check_adaptable(model)
        if not checkpoint:
            raise ValueError("the model must be saved, because an adapter names its model. Give its name.")
    except ValueError as error:
        raise ValueError(f"No probe: {error} To do without one: --probe none.") from error
