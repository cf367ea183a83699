"""The text of a run: each file read once, and the rows of it that are held out."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from hf_attncal.io.files import read_lines


@dataclass
class TextFile:
    """A text file that was read: its lines until they are taken, their number, and the SHA-256 of its bytes."""

    lines: list[str] | None
    size: int
    sha256: str


@dataclass
class Texts:
    """Text files, each of which is read once however often its lines, their number and its SHA-256 are asked for."""

    _files: dict[Path, TextFile] = field(default_factory=dict)

    def read(self, path: Path) -> TextFile:
        """Read a file, unless it has been read.

        Raises:
            ValueError: it cannot be read; see `files.read_lines`.
        """
        if path not in self._files:
            digest = hashlib.sha256()
            lines = read_lines(path, digest)
            self._files[path] = TextFile(lines, len(lines), digest.hexdigest())
        return self._files[path]

    def take(self, path: Path) -> list[str]:
        """Return the lines, which are not kept here any longer; errors are those of `read`."""
        file = self.read(path)
        lines, file.lines = file.lines, None
        return read_lines(path) if lines is None else lines


def held_out_rows(text: dict[str, Dataset], wanted: int) -> frozenset[int]:
    """Return which rows of train become dev: `wanted`, at most a tenth, evenly spread; none beside a dev."""
    size = len(text["train"])
    count = 0 if "dev" in text else min(wanted, size // 10)
    return frozenset(size * (2 * number + 1) // (2 * count) for number in range(count))


def hold_out(text: dict[str, Dataset], rows: Collection[int]) -> dict[str, Dataset]:
    """Return the text with these rows of train as dev."""
    train = text["train"]
    return text | {
        "train": train.select([row for row in range(len(train)) if row not in rows]),
        "dev": train.select(sorted(rows)),
    }
