"""Links that guide a training, and the annotated pairs that it is measured on."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from datasets import Dataset, Value
from datasets.fingerprint import generate_random_fingerprint

from hf_attncal.data.annotated_pairs import Gold, iter_links
from hf_attncal.data.corpora import List
from hf_attncal.data.pharaoh import check_index_base
from hf_attncal.data.rows import LinkRows, Rows
from hf_attncal.training.settings import SPLITS, DataConfig

# Functions that make word links and find the heads that learn them, by name. The wing of alignment puts its own here.
LINKERS: dict[str, Callable[..., Any]] = {}
LONGEST_GOLD = 10_000  # bytes: two such sides take at most 3 GB to align


def linker(name: str) -> Callable[..., Any]:
    """Return one of `LINKERS`; raise ValueError if nothing was imported that makes links."""
    if name not in LINKERS:
        raise ValueError(
            "Nothing makes the word links of a guided training. Import hf_attncal.alignment.counting first: it does."
        )
    return LINKERS[name]


def given_links(data: DataConfig, train: Dataset, held_out: Collection[int]) -> LinkRows:
    """Return the links in the file `data.train.guide` of each pair of train that is not held out.

    Args:
        data: settings of the text.
        train: its pairs, before any is held out.
        held_out: their rows that are.

    Raises:
        ValueError: see `iter_links`; also a link of words that a pair does not have (with the line), or links that do
            not count from 0.
    """
    path = data.files()[data.train["guide"]]
    links = LinkRows.gathered((pair.possible for pair in iter_links(path, train)), len(train))
    words = ([len((line or "").split()) for line in train[side]] for side in ("source", "target"))
    try:
        check_index_base(links, np.array(list(words), dtype=np.int32).T, "take 1 from each index")
    except ValueError as error:
        raise ValueError(f"{path}: {error} Check the order of the sides and of the lines, too.") from error
    return links.selected(np.setdiff1d(np.arange(len(train)), list(held_out))) if held_out else links


def annotated(data: DataConfig, lowercase: bool = False) -> dict[str, Gold]:
    """Return the annotated pairs of dev and of test, where there are some.

    Args:
        data: settings of the text.
        lowercase: read text in lower case, for a model whose training text is.

    Raises:
        ValueError: see `Gold.load`; a line of more than `LONGEST_GOLD` bytes.
    """
    golds = {}
    for name in SPLITS[1:]:
        entry = getattr(data, name) or {}
        if entry.get("gold"):
            golds[name] = Gold.load(data.corpus(name), data.files()[entry["gold"]], lowercase)
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
