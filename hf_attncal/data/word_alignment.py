"""Sentence pairs, and links between their words, as training data of the word aligner."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset, Features, Value
from datasets.fingerprint import generate_random_fingerprint
from transformers import PreTrainedTokenizerBase

try:
    from datasets import List
except ImportError:  # datasets < 4 calls the same feature `Sequence`
    from datasets import Sequence as List

from .words import subword_word_ids

Link = tuple[int, int]


@dataclass(frozen=True)
class AlignmentDataReport:
    """How many pairs `tokenize_for_alignment` kept and why it dropped the others. `str()` gives a sentence."""

    kept: int
    too_long: int
    too_short: int
    max_length: int

    def __str__(self) -> str:
        text = f"Kept {self.kept} of {self.kept + self.too_long + self.too_short} sentence pairs."
        if self.too_long:
            text += f" Dropped {self.too_long} with a side of more than {self.max_length} tokens (`max_length`)."
        if self.too_short:
            text += (
                f" Dropped {self.too_short} with a side of fewer than two tokens: a hidden token needs context to be "
                "predicted from."
            )
        return text


def lowercased(dataset: Dataset) -> Dataset:
    """The pairs in lower case."""

    def lower(batch: dict[str, list]) -> dict[str, list]:
        return {side: [line.lower() for line in batch[side]] for side in ("source", "target")}

    return dataset.map(lower, batched=True, keep_in_memory=True, load_from_cache_file=False, desc="Lower-casing")


def tokenize_for_alignment(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    links: Sequence[Sequence[Link]] | None = None,
) -> tuple[Dataset, AlignmentDataReport]:
    """Token ids of sentence pairs without special tokens, and word links as links between their tokens.

    Pairs with a side of one token are dropped (Mask-Align, sec. 4.1: it would have nothing to be predicted from), and
    those that are too long; both are counted.

    Args:
        dataset: columns "source" and "target".
        tokenizer: a fast tokenizer.
        max_length: most tokens of a side.
        links: (i source word, j target word) of every pair; a link between words links all their tokens.

    Returns:
        A Dataset with `input_ids`, `target_input_ids`, `length` (of the longer side) and, with links, `links` (source
        and target token of each in turn), and the report.

    Warns:
        UserWarning: with the report, if a pair was dropped.

    Raises:
        ValueError: another number of lines of links than of pairs, a link outside its pair (with the line), a slow
            tokenizer with links, or no pair left.
    """
    if links is not None and len(links) != len(dataset):
        raise ValueError(
            f"`links` must have one line for each sentence pair, got {len(links)} lines for {len(dataset)} pairs."
        )
    if links is not None and not tokenizer.is_fast:
        raise ValueError(f"`links` need a fast tokenizer, got {type(tokenizer).__name__}.")
    counts = {"too_long": 0, "too_short": 0}
    columns = {"input_ids": List(Value("int32")), "target_input_ids": List(Value("int32")), "length": Value("int32")}
    if links is not None:
        columns["links"] = List(Value("int32"))
    options = {"add_special_tokens": False, "verbose": False, "return_offsets_mapping": links is not None}

    def encode(batch: dict[str, list], indices: list[int]) -> dict[str, list]:
        rows: dict[str, list] = {name: [] for name in columns}
        source, target = tokenizer(batch["source"], **options), tokenizer(batch["target"], **options)
        for row, (source_ids, target_ids) in enumerate(zip(source["input_ids"], target["input_ids"], strict=True)):
            length = max(len(source_ids), len(target_ids))
            if length > max_length:
                counts["too_long"] += 1
            elif min(len(source_ids), len(target_ids)) < 2:
                counts["too_short"] += 1
            else:
                rows["input_ids"].append(source_ids)
                rows["target_input_ids"].append(target_ids)
                rows["length"].append(length)
                if links is not None:
                    sides = (
                        tokens_of_words(batch["source"][row], source["offset_mapping"][row]),
                        tokens_of_words(batch["target"][row], target["offset_mapping"][row]),
                    )
                    rows["links"].append(_token_links(links[indices[row]], sides, indices[row] + 1))
        return rows

    tokenized = dataset.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features(columns),
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint=generate_random_fingerprint(),  # computing one would pickle the tokenizer
        desc="Tokenising",
    )
    report = AlignmentDataReport(kept=len(tokenized), max_length=max_length, **counts)
    if not report.kept:
        raise ValueError(f"No sentence pair is left to train on. {report}")
    if report.too_long or report.too_short:
        warnings.warn(str(report), stacklevel=2)
    return tokenized, report


def tokens_of_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The tokens of each whitespace-separated word of `text`."""
    words: list[list[int]] = [[] for _ in text.split()]
    for token, word in enumerate(subword_word_ids(text, offsets)):
        if word is not None:
            words[word].append(token)
    return words


def _token_links(links: Sequence[Link], sides: tuple[list[list[int]], list[list[int]]], line: int) -> list[int]:
    """Links between words as a flat list of source and target tokens in turn."""
    source, target = sides
    flat: list[int] = []
    for i, j in links:
        if not (0 <= i < len(source) and 0 <= j < len(target)):
            raise ValueError(
                f"line {line}: link {i}-{j} lies outside a pair of {len(source)} source and {len(target)} target "
                "words (indices count from 0). Check the order of the sides and the index base of the links."
            )
        flat += [token for s in source[i] for t in target[j] for token in (s, t)]
    return flat


class AlignmentCollator:
    """Right-padded batches of what `tokenize_for_alignment` returns, as `MaskAlignModel` takes them.

    Args:
        pad_token_id: what fills the shorter sentences.
    """

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor | bool]:
        batch: dict[str, torch.Tensor | bool] = {"return_loss": True}
        for ids, mask in (("input_ids", "attention_mask"), ("target_input_ids", "target_attention_mask")):
            lengths = np.array([len(example[ids]) for example in examples])
            real = np.arange(lengths.max()) < lengths[:, None]
            padded = np.full(real.shape, self.pad_token_id, dtype=np.int64)
            padded[real] = np.concatenate([example[ids] for example in examples])
            batch[ids], batch[mask] = torch.from_numpy(padded), torch.from_numpy(real.astype(np.int64))
        if "links" in examples[0]:
            links = torch.zeros(len(examples), batch["target_input_ids"].shape[1], batch["input_ids"].shape[1])
            for row, example in enumerate(examples):
                pairs = torch.as_tensor(example["links"], dtype=torch.long).view(-1, 2)
                links[row, pairs[:, 1], pairs[:, 0]] = 1
            batch["links"] = links
        return batch


def token_counts(dataset: Dataset, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How often each token occurs on the source and on the target side, (vocab_size,) each."""
    return tuple(
        torch.from_numpy(np.bincount(_flat(dataset, name), minlength=vocab_size))
        for name in ("input_ids", "target_input_ids")
    )


def _flat(dataset: Dataset, column: str) -> np.ndarray:
    chunks = dataset.with_format("arrow").iter(10_000)
    return np.concatenate([np.asarray(chunk[column].combine_chunks().flatten()) for chunk in chunks])
