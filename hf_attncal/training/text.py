"""The text of a run: the sections `data`, each file read once, rows that are held out, and links of words."""

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from datasets import Dataset, Value
from datasets.fingerprint import generate_random_fingerprint

from hf_attncal.data.corpora import PARALLEL, PLAIN, List, load_parallel, load_plain
from hf_attncal.data.linked_pairs import Gold, iter_links
from hf_attncal.data.pharaoh import check_index_base
from hf_attncal.data.rows import LinkRows, Rows
from hf_attncal.io.files import read_lines, sha256

from .sections import NotNegative, Positive, check_section

SPLITS = ("train", "dev", "test")
LINKS = ("guide", "gold")
# The files of links that an entry of `data` may name besides text, where links are learned.
LINKS_OF_SPLITS = {"train": "guide", "dev": "gold", "test": "gold"}
LONGEST_GOLD = 10_000  # bytes: two such sides take at most 3 GB to align
# Functions that make word links and find the heads that learn them, by name. The wing of alignment puts its own here.
LINKERS: dict[str, Callable[..., Any]] = {}


# ---- files ----


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


def as_list(names: str | list[str]) -> list[str]:
    """Return one name or several, as YAML has them, as a list."""
    return [names] if isinstance(names, str) else names


# ---- sections ----


@dataclass
class TextConfig:
    """Text; file names are under `root`. A kind of text has a class, with the sides that an entry names.

    Args:
        root: folder of the files.
        max_length: most tokens of a side in training; what is longer is left out and counted.
        lowercase: lower-case the text, annotated pairs too. An aligner then lower-cases what it aligns.
        train, dev, test: files or lists of files, by side, or a Hub dataset (see `data.corpora`).
    """

    root: str | None = None
    max_length: Annotated[int, 2] = 128
    lowercase: bool = False
    train: dict[str, Any] | None = None
    dev: dict[str, Any] | None = None
    test: dict[str, Any] | None = None

    sides: ClassVar[tuple[str, ...]]
    units: ClassVar[str]  # what results call the rows that were kept
    held_out: ClassVar[property]  # where there is no dev text, so many rows of train are taken for it, evenly spread

    @cached_property
    def texts(self) -> Texts:
        """Reader of the files; `Settings.make` sets the one that has read some of them already."""
        return Texts()

    def load(self, split: str) -> Dataset:
        """Load the text of a split, with a column a side.

        Raises:
            ValueError: it cannot be read.
        """
        raise NotImplementedError

    def entry(self, split: str) -> dict[str, Any]:
        """Return the entry of a split; empty where there is none."""
        return getattr(self, split) or {}

    def corpus(self, split: str) -> dict[str, Any]:
        """Return the text of a split in the form that `data.corpora` takes."""
        entry, files = self.entry(split), self.files()
        sides = {side: [str(files[name]) for name in as_list(entry[side])] for side in self.sides if side in entry}
        return {key: value for key, value in entry.items() if key not in LINKS} | sides

    def named_files(self) -> Iterator[tuple[str, str, list[str]]]:
        """Yield split, key (a side, or links) and names of all files of the settings."""
        for split in SPLITS:
            for key in (*self.sides, *LINKS):
                if names := self.entry(split).get(key):
                    yield split, key, as_list(names)

    def files(self) -> dict[str, Path]:
        """Return the path of every file by the name that the settings give it.

        Raises:
            ValueError: one is a pipe.
        """
        files = {name: Path(self.root or "", name) for _, _, names in self.named_files() for name in names}
        for path in files.values():
            if path.is_fifo():
                raise ValueError(
                    f"{path} must be a file, got a pipe: a run that goes on reads its text again. Write it to a file "
                    "first."
                )
        return files

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of every file, by the name that the settings give it, or "" if it does not exist."""
        files, hashes = self.files(), {}
        for _, key, names in self.named_files():
            for name in names:
                if not files[name].is_file():
                    hashes[name] = ""
                else:
                    hashes[name] = sha256(files[name]) if key in LINKS else self.texts.read(files[name]).sha256
        return hashes

    def size(self) -> int:
        """Return the number of lines of the training text, of each side.

        Raises:
            ValueError: no text is named, or it cannot be read.
        """
        if self.train is None:
            raise ValueError("`data.train` must name the text to train on, got none.")
        entry = self.corpus("train")
        if "dataset" in entry:
            return len(self.load("train"))
        return sum(self.texts.read(Path(file)).size for file in entry[self.sides[0]])

    def line(self, split: str, row: int) -> str:
        """Return where a row of a split's text comes from: its line and file, or the row of a Hub dataset."""
        entry = self.corpus(split)
        for file in map(Path, entry.get(self.sides[0], ())):
            size = self.texts.read(file).size
            if row < size:
                return f"line {row + 1} of {file}"
            row -= size
        return f"row {row + 1} of {entry['dataset']}"

    def published_names(self) -> dict[str, str]:
        """Return the name of each file in results: as in the settings, without the common folder of absolute paths."""
        names = self.files()
        whole = {name: Path(name) for name in names if Path(name).is_absolute()}
        shared = os.path.commonpath([path.parent for path in whole.values()]) if whole else ""
        return {name: str(whole[name].relative_to(shared)) if name in whole else name for name in names}

    def check(self, links: Mapping[str, str]) -> None:
        """Check the entries of the splits; `links` are what they may name besides text, by split.

        Raises:
            ValueError: an entry that names neither the files of each side nor a dataset, or one file as both sides.
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
                both = min(name for name in names if names.count(name) > 1)
                raise ValueError(
                    f"`data.{split}` must name a text in each language, got {both} as source and as target."
                )


@dataclass
class DataConfig(TextConfig):
    """Parallel text.

    Args:
        train, dev, test: as in `TextConfig`. In the job of an aligner and of a guided model `guide` and `gold` name
            files of links of the pairs in Pharaoh format: links to learn from, and annotated ones to measure with.
        train_pairs: the first so many pairs of train are all that there is; None for all of it.
        held_out_pairs: where there is no dev text, so many pairs of train are taken for it, evenly spread, at most a
            tenth.
    """

    train_pairs: Positive | None = None
    held_out_pairs: NotNegative = 0

    sides = PARALLEL
    units = "sentence_pairs"
    held_out = property(attrgetter("held_out_pairs"))

    @property
    def max_source_length(self) -> int | None:
        """Tokens that are read of a source; None if sources are not truncated."""
        return None

    def size(self) -> int:
        size = super().size()
        return min(size, self.train_pairs or size)

    def load(self, split: str) -> Dataset:
        text = load_parallel(self.corpus(split), self.texts.take)
        if split != "train" or self.train_pairs is None:
            return text
        if len(text) < self.train_pairs:
            pairs = f"the {len(text)} pairs of train"
            raise ValueError(f"`data.train_pairs` must be at most {pairs}, got {self.train_pairs}.")
        return text.select(range(self.train_pairs))


@dataclass
class PlainConfig(TextConfig):
    """Plain text, a sequence a line.

    Args:
        max_length: most tokens of a sequence, special tokens included.
        end_of_sequence: a sequence ends in `</s>`, which the model learns to predict; False for sequences of a fixed
            length, whose end says nothing.
        held_out_lines: as `DataConfig.held_out_pairs`.
    """

    end_of_sequence: bool = True
    held_out_lines: NotNegative = 0

    sides = PLAIN
    units = "sequences"
    held_out = property(attrgetter("held_out_lines"))

    def load(self, split: str) -> Dataset:
        return load_plain(self.corpus(split), self.texts.take)


# ---- held-out rows ----


def held_out_rows(text: dict[str, Dataset], wanted: int) -> frozenset[int]:
    """Return which rows of train become dev: `wanted`, at most a tenth, evenly spread; none beside a dev."""
    size = len(text["train"])
    count = 0 if "dev" in text else min(wanted, size // 10)
    return frozenset(size * (2 * number + 1) // (2 * count) for number in range(count))


def hold_out(text: dict[str, Dataset], rows: Collection[int]) -> dict[str, Dataset]:
    """Return the text with these rows of train as dev, if there are any."""
    train = text["train"]
    if not rows:
        return text
    return text | {
        "train": train.select([row for row in range(len(train)) if row not in rows]),
        "dev": train.select(sorted(rows)),
    }


# ---- links ----


def linker(name: str) -> Callable[..., Any]:
    """Return one of `LINKERS`; raise ValueError if nothing was imported that makes links."""
    if name not in LINKERS:
        raise ValueError(
            "Nothing makes the word links of a guided training. Import hf_attncal.alignment.counting first: it does."
        )
    return LINKERS[name]


def given_links(data: TextConfig, train: Dataset, held_out: Collection[int]) -> LinkRows | None:
    """Return the links in the file `data.train.guide` of each pair of train that is not held out, if there is one.

    Args:
        data: settings of the text.
        train: its pairs, before any is held out.
        held_out: their rows that are.

    Raises:
        ValueError: see `iter_links`; also a link of words that a pair does not have (with the line), or links that do
            not count from 0.
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
        raise ValueError(f"{path}: {error} Check the order of the sides and of the lines, too.") from error
    return links.selected(np.setdiff1d(np.arange(len(train)), list(held_out))) if held_out else links


def annotated(data: TextConfig, lowercase: bool = False) -> dict[str, Gold]:
    """Return the annotated pairs of dev and of test, where there are some.

    Args:
        data: settings of the text.
        lowercase: read text in lower case, for a model whose training text is.

    Raises:
        ValueError: see `Gold.load`; a line of more than `LONGEST_GOLD` bytes.
    """
    golds = {}
    for name in SPLITS[1:]:
        if links := data.entry(name).get("gold"):
            golds[name] = Gold.load(data.corpus(name), data.files()[links], lowercase)
            sizes = [max(len(side.encode()) for side in pair) for pair in golds[name].pairs]
            if max(sizes) > LONGEST_GOLD:
                where = data.line(name, sizes.index(max(sizes)))
                raise ValueError(
                    f"{where} (`data.{name}`) has a side of {max(sizes)} bytes, an annotated pair may have "
                    f"{LONGEST_GOLD}: aligning takes memory by the square of its words. Leave the pair out of all "
                    "three files."
                )
    return golds


def with_links(text: Dataset, links: Rows) -> Dataset:
    """Add a column of links to a tokenised text: source and target token of each link in turn."""
    fingerprint = generate_random_fingerprint()  # computing one would copy all links
    return text.add_column("links", links.column(), new_fingerprint=fingerprint, feature=List(Value("int32")))
