"""Alignment as a function of batches of columns, for `datasets.map`, Ray Data's `map_batches` and the like."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .aligner import WordAligner


class AlignBatch:
    """A function from columns to columns, the links of each pair among them. Each process loads the model once.

    It can be pickled, before and after it was called: the model stays behind, so that what caches by the pickle
    (`datasets`) finds the same.

    Args:
        model: folder or Hub name of what `WordAligner.from_pretrained` loads.
        source, target: columns of the sentences, as text or as lists of words; None, and NaN or NA as pandas has
            them for what is missing, are empty sentences.
        links: column of the links, as text in Pharaoh format (`i-j i-j`).
        score: column of the scores of the pairs; None: no such column.
        offsets: write the characters of words, `start:end-start:end`, in place of their numbers.
        device: None for the GPU of the process's rank if there are some, or else the CPU.
        threads: of PyTorch on a CPU, where a rank is given: processes that share cores have one each.
        loading: what else `WordAligner.from_pretrained` takes (`dtype`, `revision`, ...).
        aligning: what else `WordAligner.align` takes (`tokenize`, `threshold`, `batch_tokens`, ...).
    """

    def __init__(
        self,
        model: str | Path,
        *,
        source: str = "source",
        target: str = "target",
        links: str = "links",
        score: str | None = None,
        offsets: bool = False,
        device: str | None = None,
        threads: int = 1,
        loading: Mapping[str, Any] | None = None,
        **aligning: Any,
    ):
        self.model, self.source, self.target, self.links, self.score = str(model), source, target, links, score
        self.offsets, self.device, self.threads = offsets, device, threads
        self.loading, self.aligning = dict(loading or {}), aligning
        self._aligner: WordAligner | None = None
        self._process: int | None = None  # that loaded it

    def __call__(self, batch: Mapping[str, Sequence], rank: int | None = None) -> dict[str, Sequence]:
        """Return the columns, and those of the links.

        Args:
            batch: columns of one length.
            rank: of this process among those that share the work; None where there is but one.

        Raises:
            ValueError: a column is not there, or has something else than sentences (with the row); see also
                `WordAligner.align`.
        """
        if missing := [name for name in (self.source, self.target) if name not in batch]:
            raise ValueError(
                f"The batch has no column {missing[0]!r}, it has {sorted(batch)}: name `source`, `target`."
            )
        pairs = zip(*(_sentences(batch[name], name) for name in (self.source, self.target)), strict=True)
        found = self._loaded(rank).align(pairs, spans=self.offsets, **self.aligning)
        columns = {self.links: [one.offsets() if self.offsets else one.pharaoh() for one in found]}
        if self.score is not None:
            columns[self.score] = [one.score for one in found]
        return {**batch, **columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_aligner": None, "_process": None}

    def _loaded(self, rank: int | None) -> WordAligner:
        if self._aligner is None or self._process != os.getpid():
            device = self.device
            if device is None and torch.cuda.is_available():
                device = f"cuda:{(rank or 0) % torch.cuda.device_count()}"
            if rank is not None and torch.device(device or "cpu").type == "cpu":
                torch.set_num_threads(self.threads)
            self._aligner = WordAligner.from_pretrained(self.model, device=device or "cpu", **self.loading)
            self._process = os.getpid()
        return self._aligner


def _sentences(column: Sequence, name: str) -> list[str | list[str]]:
    """Return the sentences of a column, for `WordAligner.align`."""
    found: list[str | list[str]] = []
    for row, value in enumerate(column):
        sentence = value.tolist() if hasattr(value, "tolist") else value  # of numpy: a list of words, a text, NaN
        if sentence is None or type(sentence).__name__ == "NAType" or sentence != sentence:
            sentence = ""
        words = sentence if isinstance(sentence, list | tuple) else [sentence]
        if not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"Column {name!r} must have sentences, as text or lists of words, got {value!r} in row {row} of the "
                "batch."
            )
        found.append(sentence)
    return found
