"""Parallel text: files or a `datasets` id in, tokenised pairs out.

Nothing is repaired in silence: a file that cannot be what the caller thinks it is stops the program, and pairs that
cannot be trained on are dropped, counted and reported, never truncated (a cut sentence pair is a wrong translation).
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value, concatenate_datasets, load_dataset
from datasets.fingerprint import generate_random_fingerprint
from transformers import PreTrainedTokenizerBase

from hf_attncal.data.text import read_lines

try:
    from datasets import List
except ImportError:  # datasets < 4 calls the same feature `Sequence`
    from datasets import Sequence as List

FILE_KEYS = {"source", "target"}
DATASET_KEYS = {"dataset", "config", "split", "source_field", "target_field"}


def read_parallel(source: str | Path, target: str | Path) -> Dataset:
    """Two files, line n of one belonging to line n of the other, as a Dataset with columns "source" and "target".

    Pairs with an empty side are kept here, so that row n is line n + 1; `tokenize_pairs` drops and counts them.

    Raises:
        ValueError: see `read_lines`; also if the numbers of lines differ.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    if len(source_lines) != len(target_lines):
        raise ValueError(
            f"Parallel files must have the same number of lines, but `{source}` has {len(source_lines)} and "
            f"`{target}` has {len(target_lines)}. Check that both are of the same split and were not filtered apart."
        )
    return Dataset.from_dict({"source": source_lines, "target": target_lines})


def load_parallel(spec: Mapping[str, Any]) -> Dataset:
    """A Dataset with the columns "source" and "target" from an entry of a configuration.

    Args:
        spec: either `{source: path, target: path}`, where both may be lists of files to concatenate, or
            `{dataset: id, split: ..., source_field: ..., target_field: ...}` with an optional `config`, loaded by
            `datasets.load_dataset`. A field may be nested: `translation.en`.

    Raises:
        ValueError: keys that are unknown or missing, lists of different lengths, a field that the dataset does not
            have; and the errors of `read_parallel`.
    """
    allowed = DATASET_KEYS if "dataset" in spec else FILE_KEYS
    required = allowed - {"config"}
    if unknown := sorted(set(spec) - allowed):
        raise ValueError(f"Unknown keys {unknown} in a corpus: use {sorted(FILE_KEYS)} or {sorted(DATASET_KEYS)}.")
    if missing := sorted(key for key in required if not spec.get(key)):
        raise ValueError(f"Corpus {dict(spec)} lacks {missing}: it needs all of {sorted(required)}.")
    if "dataset" in spec:
        dataset = load_dataset(spec["dataset"], spec.get("config"), split=spec["split"])
        return _select_fields(dataset, spec["source_field"], spec["target_field"], name=spec["dataset"])
    sources, targets = (_as_list(spec[key]) for key in ("source", "target"))
    if len(sources) != len(targets):
        raise ValueError(
            f"`source` lists {len(sources)} files and `target` {len(targets)}: give one target file per source file."
        )
    return concatenate_datasets([read_parallel(*pair) for pair in zip(sources, targets, strict=True)])


def all_lines(dataset: Dataset, batch_size: int = 10_000) -> Iterable[str]:
    """Every sentence of both columns, for training a joint vocabulary; sentences that are missing are left out."""
    columns = dataset.select_columns(["source", "target"])
    batches = (chain(batch["source"], batch["target"]) for batch in columns.iter(batch_size))
    return (line for line in chain.from_iterable(batches) if line)


@dataclass(frozen=True)
class TokenizationReport:
    """How many pairs `tokenize_pairs` kept and why it dropped the others. `str()` gives a sentence for people."""

    kept: int
    too_long: int
    empty: int
    max_length: int

    @property
    def dropped(self) -> int:
        return self.too_long + self.empty

    def __str__(self) -> str:
        text = f"Kept {self.kept} of {self.kept + self.dropped} sentence pairs."
        if self.too_long:
            text += (
                f" Dropped {self.too_long} with a side of more than {self.max_length} tokens"
                " (raise `max_length` or split long lines to keep them)."
            )
        if self.empty:
            text += f" Dropped {self.empty} with an empty side (remove these lines from both files)."
        return text


def tokenize_pairs(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> tuple[Dataset, TokenizationReport]:
    """Token ids of sentence pairs; pairs that are too long or have an empty side are dropped and counted.

    The result stays in memory: nothing is written to the cache folder of `datasets`.

    Args:
        dataset: columns "source" and "target", as `load_parallel` returns.
        tokenizer: any tokenizer with an end-of-sentence token; one with different source and target vocabularies
            (Marian's) is asked for the target one.
        max_length: largest number of tokens of a side, the end-of-sentence token included.

    Returns:
        A Dataset with `input_ids`, `labels` (both end in eos) and `length` (of the longer side), and the report.

    Warns:
        UserWarning: with the report, if a pair was dropped.

    Raises:
        ValueError: `max_length` < 2, no end-of-sentence token, or no pair left.
    """
    if max_length < 2:
        raise ValueError(f"`max_length` must be >= 2 (one token and the end of the sentence), got {max_length}.")
    eos = tokenizer.eos_token_id
    if eos is None:
        raise ValueError(f"The tokenizer `{tokenizer.name_or_path}` has no `eos_token`; set one before tokenising.")
    counts = {"too_long": 0, "empty": 0}

    def encode(batch: dict[str, list]) -> dict[str, list]:
        rows = zip(batch["source"], batch["target"], strict=True)
        pairs = [row for row in rows if all(side and not side.isspace() for side in row)]
        counts["empty"] += len(batch["source"]) - len(pairs)
        columns: dict[str, list] = {"input_ids": [], "labels": [], "length": []}
        if not pairs:
            return columns
        # `verbose=False`: without it every over-long line is announced as an indexing error to come
        options = {"add_special_tokens": True, "truncation": False, "padding": False, "verbose": False}
        sources = tokenizer([source for source, _ in pairs], **options)["input_ids"]
        targets = tokenizer(text_target=[target for _, target in pairs], **options)["input_ids"]
        for source_ids, target_ids in zip(sources, targets, strict=True):
            for ids in (source_ids, target_ids):
                if not ids or ids[-1] != eos:
                    ids.append(eos)
            length = max(len(source_ids), len(target_ids))
            if length > max_length:
                counts["too_long"] += 1
                continue
            columns["input_ids"].append(source_ids)
            columns["labels"].append(target_ids)
            columns["length"].append(length)
        return columns

    tokenized = dataset.map(
        encode,
        batched=True,
        remove_columns=dataset.column_names,
        features=Features(
            {"input_ids": List(Value("int32")), "labels": List(Value("int32")), "length": Value("int32")}
        ),
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint=generate_random_fingerprint(),  # computing one would pickle the tokenizer
        desc="Tokenising",
    )
    report = TokenizationReport(kept=len(tokenized), max_length=max_length, **counts)
    if not report.kept:
        raise ValueError(f"No sentence pair is left to work with. {report}")
    if report.dropped:
        warnings.warn(str(report), stacklevel=2)
    return tokenized, report


def _as_list(paths: Any) -> list:
    return [paths] if isinstance(paths, (str, Path)) else list(paths)


def _select_fields(dataset: Dataset, source_field: str, target_field: str, name: str) -> Dataset:
    """The two fields of a Dataset, renamed; dots lead into nested fields."""
    while nested := [field for field in (source_field, target_field) if field not in dataset.column_names]:
        flat = dataset.flatten(max_depth=2)
        if flat.column_names == dataset.column_names:
            raise ValueError(f"Dataset `{name}` has no field `{nested[0]}`; it has {dataset.column_names}.")
        dataset = flat
    return Dataset.from_dict({"source": dataset[source_field][:], "target": dataset[target_field][:]})
