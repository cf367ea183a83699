"""Text of a run: the section `data`, held-out rows, and word links."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from datasets import Dataset, Value
from datasets.fingerprint import generate_random_fingerprint

from hf_attncal.data.corpora import PARALLEL, PLAIN, List, load_parallel, load_plain, lowercased
from hf_attncal.data.linked_pairs import Gold, gold_links, iter_links
from hf_attncal.data.pharaoh import check_index_base
from hf_attncal.data.rows import LinkRows, Rows
from hf_attncal.io.files import read_lines, sha256

from .sections import NotNegative, Positive, check_section

SPLITS = ("train", "dev", "test")
LINKS = ("guide", "gold")
# Split -> key of the file of links that its entry in `data` may have, in jobs that learn links.
LINKS_OF_SPLITS = {"train": "guide", "dev": "gold", "test": "gold"}
MAX_GOLD_BYTES = 10_000  # per side; two such sides take at most 3 GB to align
# Functions for word links and guided heads, by name; `hf_attncal.alignment` registers them.
LINKERS: dict[str, Callable[..., Any]] = {}


def as_list(names: str | list[str]) -> list[str]:
    """Return one name or several as a list."""
    return [names] if isinstance(names, str) else names


# ---- sections ----


@dataclass
class TextConfig:
    """Section `data`; subclasses define the sides of an entry (source and target, or text).

    Args:
        root: folder of the files. Default: the working directory.
        max_length: maximum tokens per side in training; longer lines are left out and counted. Default: 128.
        lowercase: lower-case the text and the annotated pairs; an aligner then lower-cases its input. Default: False.
        train, dev, test: files or lists of files, by side, or a Hub dataset (see `data.corpora`).
    """

    root: str | None = None
    max_length: Annotated[int, 2] = 128
    lowercase: bool = False
    train: dict[str, Any] | None = None
    dev: dict[str, Any] | None = None
    test: dict[str, Any] | None = None

    sides: ClassVar[tuple[str, ...]]
    units: ClassVar[str]  # name of the rows in results
    held_out: ClassVar[property]  # number of train rows to use as dev where there is no dev text

    def load(self, split: str) -> Dataset:
        """Load the text of a split, with a column per side.

        Raises:
            ValueError: the text cannot be read.
        """
        raise NotImplementedError

    def entry(self, split: str) -> dict[str, Any]:
        """Return the entry of a split; {} if there is none."""
        return getattr(self, split) or {}

    def corpus(self, split: str) -> dict[str, Any]:
        """Return the entry of a split as an argument of `data.corpora`, without links."""
        entry, files = self.entry(split), self.files()
        sides = {side: [str(files[name]) for name in as_list(entry[side])] for side in self.sides if side in entry}
        return {key: value for key, value in entry.items() if key not in LINKS} | sides

    def named_files(self) -> Iterator[tuple[str, str, list[str]]]:
        """Yield split, key (side or links) and file names of all entries."""
        for split in SPLITS:
            for key in (*self.sides, *LINKS):
                if names := self.entry(split).get(key):
                    yield split, key, as_list(names)

    def files(self) -> dict[str, Path]:
        """Map each file name in the settings to its path.

        Raises:
            ValueError: a file is a pipe.
        """
        files = {name: Path(self.root or "", name) for _, _, names in self.named_files() for name in names}
        for path in files.values():
            if path.is_fifo():
                raise ValueError(
                    f"{path} must be a file, got a pipe, which cannot be read twice. Write it to a file first."
                )
        return files

    @cached_property
    def _digests(self) -> dict[Path, str]:
        """SHA-256 of each file that was hashed before, as a file may change while a model is trained."""
        return {}

    def hashes(self) -> dict[str, str]:
        """Map each file name in the settings to its SHA-256, or "" for a missing file."""
        files = self.files()
        for path in {*files.values()} - self._digests.keys():
            if path.is_file():
                self._digests[path] = sha256(path)
        return {name: self._digests.get(path, "") for name, path in files.items()}

    def size(self) -> int:
        """Return the number of lines per side of the training text.

        Raises:
            ValueError: there is no training text, or it cannot be read.
        """
        if self.train is None:
            raise ValueError("`data.train` must name the text to train on, got none.")
        return len(self.load("train"))

    def line(self, split: str, row: int) -> str:
        """Describe the origin of a row of a split: line and file, or the row of a Hub dataset."""
        entry = self.corpus(split)
        for file in entry.get(self.sides[0], ()):
            size = len(read_lines(file))
            if row < size:
                return f"line {row + 1} of {file}"
            row -= size
        return f"row {row + 1} of {entry['dataset']}"

    def published_names(self) -> dict[str, str]:
        """Map each file name to its name in results; absolute paths lose their common folder."""
        names = self.files()
        whole = {name: Path(name) for name in names if Path(name).is_absolute()}
        shared = os.path.commonpath([path.parent for path in whole.values()]) if whole else ""
        return {name: str(whole[name].relative_to(shared)) if name in whole else name for name in names}

    def check(self, links: Mapping[str, str]) -> None:
        """Check the entries of the splits; `links` maps a split to its key of a file of links.

        Raises:
            ValueError: an entry without the files of each side or a dataset, or with one file as both sides.
        """
        files = {side: str | list[str] for side in self.sides}
        dataset = {"dataset": str, "config": str | None, "split": str} | {f"{side}_field": str for side in self.sides}
        for split in SPLITS:
            entry = getattr(self, split)
            if entry is None:
                continue
            text = dataset if "dataset" in entry else files
            check_section(entry, text | ({links[split]: str | None} if split in links else {}), f"data.{split}")
            required = [key for key in text if key != "config"]
            if not all(entry.get(key) for key in required):
                named = " and ".join(f"`{key}`" for key in required)
                raise ValueError(f"`data.{split}` must name {named}, got {entry}.")
            names = [name for side in self.sides for name in set(as_list(entry.get(side, [])))]
            if len(set(names)) < len(names):
                repeated = min(name for name in names if names.count(name) > 1)
                raise ValueError(
                    f"`data.{split}` must name a text in each language, got {repeated} as source and as target."
                )


@dataclass
class DataConfig(TextConfig):
    """Section `data` of parallel text.

    Args:
        train, dev, test: files by side, or a Hub dataset. For an aligner or a guided model also files of links in
            Pharaoh format: `guide` (train) to learn from, and `gold` (dev, test) to compute AER.
        train_pairs: number of first pairs of train to use. Default: all.
        held_out_pairs: number of pairs of train, evenly spread and at most a tenth, to use as dev if there is no dev
            text. Default: 0.
    """

    train_pairs: Positive | None = None
    held_out_pairs: NotNegative = 0

    sides = PARALLEL
    units = "sentence_pairs"
    held_out = property(attrgetter("held_out_pairs"))

    @property
    def max_source_length(self) -> int | None:
        """Maximum tokens of a source; None if sources are not truncated."""
        return None

    def load(self, split: str) -> Dataset:
        text = load_parallel(self.corpus(split))
        if split != "train" or self.train_pairs is None:
            return text
        if len(text) < self.train_pairs:
            pairs = f"the {len(text)} pairs of train"
            raise ValueError(f"`data.train_pairs` must be at most {pairs}, got {self.train_pairs}.")
        return text.select(range(self.train_pairs))


@dataclass
class PlainConfig(TextConfig):
    """Section `data` of plain text, one sequence per line.

    Args:
        max_length: maximum tokens of a sequence, special tokens included. Default: 128.
        end_of_sequence: learn to predict `</s>` at the end; False for sequences of a fixed length. Default: True.
        held_out_lines: number of lines of train, evenly spread and at most a tenth, to use as dev if there is no dev
            text. Default: 0.
    """

    end_of_sequence: bool = True
    held_out_lines: NotNegative = 0

    sides = PLAIN
    units = "sequences"
    held_out = property(attrgetter("held_out_lines"))

    def load(self, split: str) -> Dataset:
        return load_plain(self.corpus(split))


# ---- held-out rows ----


def held_out_rows(text: dict[str, Dataset], wanted: int) -> frozenset[int]:
    """Return the rows of train that become dev: `wanted`, at most a tenth, evenly spread; none beside a dev text."""
    size = len(text["train"])
    count = 0 if "dev" in text else min(wanted, size // 10)
    return frozenset(size * (2 * number + 1) // (2 * count) for number in range(count))


def hold_out(text: dict[str, Dataset], rows: Collection[int]) -> dict[str, Dataset]:
    """Return the text with these rows moved from train to dev."""
    train = text["train"]
    if not rows:
        return text
    return text | {
        "train": train.select([row for row in range(len(train)) if row not in rows]),
        "dev": train.select(sorted(rows)),
    }


# ---- links ----


def linker(name: str) -> Callable[..., Any]:
    """Return a function of `LINKERS`; raise ValueError if it is not registered."""
    if name not in LINKERS:
        raise ValueError(
            "A guided training needs `hf_attncal.alignment.counting` for its word links. Import it first."
        )
    return LINKERS[name]


def guide_links(data: TextConfig, train: Dataset, held_out: Collection[int]) -> LinkRows | None:
    """Return the links in `data.train.guide` of the pairs that are not held out; None without such a file.

    Args:
        data: settings of the text.
        train: all pairs of train.
        held_out: rows of train that become dev.

    Raises:
        ValueError: see `iter_links`; also a link to a word that its pair lacks (with the line), or links not counted
            from 0.
    """
    name = data.entry("train").get("guide")
    if not name:
        return None
    path = data.files()[name]
    links = LinkRows.gathered((pair.possible for pair in iter_links(path, train)), len(train))
    words = ([len((line or "").split()) for line in train[side]] for side in ("source", "target"))
    try:
        check_index_base(links, np.array(list(words), dtype=np.int32).T, "take 1 from each index")
    except ValueError as error:
        raise ValueError(f"{path}: {error} Also check the order of the sides and of the lines.") from error
    return links.selected(np.setdiff1d(np.arange(len(train)), list(held_out))) if held_out else links


def annotated(data: TextConfig, lowercase: bool = False) -> dict[str, Gold]:
    """Return the annotated pairs of dev and of test, by split.

    Args:
        data: settings of the text.
        lowercase: lower-case the text. Default: False.

    Raises:
        ValueError: see `gold_links`; a line of more than `MAX_GOLD_BYTES` bytes.
    """
    golds = {}
    for name in SPLITS[1:]:
        if links := data.entry(name).get("gold"):
            text = load_parallel(data.corpus(name))
            text = lowercased(text) if lowercase else text
            pairs = list(zip(text["source"], text["target"], strict=True))
            golds[name] = Gold(pairs, gold_links(data.files()[links], pairs))
            sizes = [max(len(side.encode()) for side in pair) for pair in golds[name].pairs]
            if max(sizes) > MAX_GOLD_BYTES:
                where = data.line(name, sizes.index(max(sizes)))
                raise ValueError(
                    f"{where} (`data.{name}`) has {max(sizes)} bytes, the limit is {MAX_GOLD_BYTES} "
                    "(memory grows with the square of its words). Leave the pair out of all three files."
                )
    return golds


def with_links(text: Dataset, links: Rows) -> Dataset:
    """Add a column `links` to a tokenised text, with source and target token of each link in turn."""
    fingerprint = generate_random_fingerprint()  # computing a real one would copy all links
    return text.add_column("links", links.column(), new_fingerprint=fingerprint, feature=List(Value("int32")))
