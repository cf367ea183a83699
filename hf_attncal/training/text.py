"""The text of a run: each file read once, and the rows of it that are held out."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from hf_attncal.files import read_lines, sha256


@dataclass
class Texts:
    """Text files, each of which is read once however often its lines, their number and its SHA-256 are asked for."""

    _lines: dict[Path, list[str]] = field(default_factory=dict)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _hashes: dict[Path, str] = field(default_factory=dict)

    def _read(self, path: Path) -> list[str]:
        if path not in self._lines:
            digest = hashlib.sha256()
            self._lines[path] = read_lines(path, digest)
            self._hashes[path], self._sizes[path] = digest.hexdigest(), len(self._lines[path])
        return self._lines[path]

    def size(self, path: Path) -> int:
        """Return the number of lines.

        Raises:
            ValueError: see `files.read_lines`.
        """
        return self._sizes[path] if path in self._sizes else len(self._read(path))

    def take(self, path: Path) -> list[str]:
        """Return the lines, which are not kept here any longer.

        Raises:
            ValueError: see `files.read_lines`.
        """
        self._read(path)
        return self._lines.pop(path)

    def sha256(self, path: Path, is_text: bool) -> str:
        """Return the SHA-256 of a file; of a text the lines are kept, because they will be asked for."""
        if path not in self._hashes:
            if is_text:
                self._read(path)
            else:
                self._hashes[path] = sha256(path)
        return self._hashes[path]


def held_out_rows(text: dict[str, Dataset], wanted: int) -> frozenset[int]:
    """Return which rows of train become dev: `wanted`, at most a tenth, evenly spread; none beside a dev."""
    size = len(text["train"])
    count = 0 if "dev" in text else min(wanted, size // 10)
    return frozenset(size * (2 * number + 1) // (2 * count) for number in range(count))


def hold_out(text: dict[str, Dataset], wanted: int) -> dict[str, Dataset]:
    """Return the text with the rows of `held_out_rows` as dev."""
    rows = held_out_rows(text, wanted)
    if not rows:
        return text
    train = text["train"]
    return text | {
        "train": train.select([row for row in range(len(train)) if row not in rows]),
        "dev": train.select(sorted(rows)),
    }
