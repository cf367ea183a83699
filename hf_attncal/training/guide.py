"""Links that guide a training: of a file, between words, or of counts, between tokens."""

from collections.abc import Collection
from typing import Any

import numpy as np
from datasets import Dataset, Value
from datasets.fingerprint import generate_random_fingerprint
from transformers import PreTrainedTokenizerBase

from hf_attncal.alignment.gold import Gold, iter_links
from hf_attncal.data.corpora import List
from hf_attncal.data.pharaoh import check_index_base
from hf_attncal.data.rows import LinkRows, Rows

from .counting import CountsConfig, counted_links, counting_seconds
from .folder import Run, in_first_process
from .settings import SPLITS, DataConfig

LONGEST_GOLD = 10_000  # bytes: two such sides take at most 3 GB to align


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


def without_links(text: Dataset) -> Dataset:
    """Add a column of links without any, for a dry run, in which nobody counts."""
    return with_links(text, Rows.gathered((), len(text)))


def with_counted_links(
    text: Dataset, tokenizer: PreTrainedTokenizerBase, run: Run
) -> tuple[Dataset, dict[str, Any], float]:
    """Link the tokens of an encoder-decoder's text by the text's own counts.

    The first process counts, and tells the others; in a dry run nobody does, and there are no links.

    Args:
        text: tokenised text with `input_ids` and `labels`.
        tokenizer: its tokenizer, whose special tokens are not linked.
        run: the run.

    Returns:
        The text; how counting went, as `counts` in results; and in a dry run about how many seconds it would take.
    """
    special = list(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
    places, columns, largest = [], {}, 0
    for side, column in (("input_ids", "input_ids"), ("target_input_ids", "labels")):
        rows = Rows.of(text, column)
        inner = ~np.isin(rows.values, special)
        columns[side] = rows.where(inner)
        places.append(Rows(rows.within(), rows.starts).where(inner))
        largest = max(largest, columns[side].values.max(initial=0))
    tokens = Dataset.from_dict({side: rows.column() for side, rows in columns.items()})
    settings, fields = CountsConfig(), {"vocab_size": 1 + int(largest)}
    if run.dry:
        return without_links(text), {}, counting_seconds(tokens, settings, **fields)

    def learned() -> tuple[Rows, dict[str, Any]]:
        links, _, counted = counted_links(tokens, settings, run.args.output_dir, **fields)
        pairs = np.repeat(np.arange(len(links)), np.diff(links.starts))
        for side, of_side in enumerate(places):  # a source and a target token in turn
            half = slice(side, None, 2)
            links.values[half] = of_side.values[of_side.starts[pairs[half]] + links.values[half]]
        return links, {"counts": counted}

    links, counted = in_first_process(run.args.process_index == 0, learned)
    return with_links(text, links), counted, 0.0
