"""Links that guide a training: of a file, between words, or of counts, between tokens."""

from collections.abc import Collection, Sequence
from typing import Any

from datasets import Dataset, List, Value
from transformers import PreTrainedTokenizerBase

from hf_attncal.alignment.gold import read_links
from hf_attncal.data.pharaoh import Link, check_inside_pair

from .counting import CountsConfig, counted_links, counting_seconds
from .folder import Run, in_first_process
from .run import held_out_rows
from .settings import DataConfig


def given_links(data: DataConfig, text: dict[str, Dataset]) -> list[Collection[Link]] | None:
    """The links of the file `data.train.guide`, of each pair of train that is not held out; None without a file.

    Args:
        data: of the run.
        text: its splits, before any pair is held out.

    Raises:
        ValueError: see `read_links`; also a link of words that a pair does not have (with the line).
    """
    if not (data.train or {}).get("guide"):
        return None
    path = data.path(data.train["guide"])
    links = [pair.possible for pair in read_links(path, text["train"])]
    pairs = zip(text["train"]["source"], text["train"]["target"], strict=True)
    for line, (found, pair) in enumerate(zip(links, pairs, strict=True), start=1):
        source, target = (len((side or "").split()) for side in pair)
        try:
            check_inside_pair(found, (source, target))
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error} Check the order of the sides and of the lines.") from error
    rows = held_out_rows(text, data.held_out)
    return [found for row, found in enumerate(links) if row not in rows]


def with_links(text: Dataset, links: Sequence[Sequence[int]]) -> Dataset:
    """A tokenised text with links between tokens, source and target of each in turn."""
    return text.add_column("links", links, feature=List(Value("int32")))


def with_counted_links(
    text: Dataset, tokenizer: PreTrainedTokenizerBase, run: Run
) -> tuple[Dataset, dict[str, Any], float]:
    """The text of an encoder-decoder with the links that its own counts give, without a file of links.

    The first process counts, and tells the others; in a dry run nobody does, and there are no links.

    Args:
        text: tokenised, `input_ids` and `labels`.
        tokenizer: its tokenizer, whose special tokens are not linked.
        run: from `run.start`.

    Returns:
        The text; how counting went, as `counts` in results; and in a dry run about how many seconds it would take.
    """
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    columns, places = {}, []
    for side, column in (("input_ids", "input_ids"), ("target_input_ids", "labels")):
        rows = text[column][:]
        places.append([[n for n, token in enumerate(ids) if token not in special] for ids in rows])
        columns[side] = [[ids[n] for n in inner] for ids, inner in zip(rows, places[-1], strict=True)]
    tokens = Dataset.from_dict(columns)
    largest = max(max(ids, default=0) for side in columns.values() for ids in side)
    settings, fields = CountsConfig(), {"vocab_size": 1 + largest}
    if run.dry:
        return with_links(text, [[]] * len(text)), {}, counting_seconds(tokens, settings, **fields)

    def learned() -> tuple[list[list[int]], dict[str, Any]]:
        links, _, counted = counted_links(tokens, settings, run.args.output_dir, **fields)
        for row, (sources, targets) in enumerate(zip(*places, strict=True)):
            ends = zip(links[row][::2], links[row][1::2], strict=True)
            links[row] = [place for s, t in ends for place in (sources[s], targets[t])]
        return links, {"counts": counted}

    links, counted = in_first_process(run.args.process_index == 0, learned)
    return with_links(text, links), counted, 0.0
