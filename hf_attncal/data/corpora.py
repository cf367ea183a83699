"""Read training text from files or a `datasets` id and tokenise it: sentence pairs, or plain sequences.

Nothing is repaired silently: an unsuitable file raises an error, and pairs that cannot be trained on are dropped,
counted and reported. They are never truncated, as a truncated sentence pair is a wrong translation.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hf_attncal.io.extras import need

need("train")

import numpy as np
import torch
from datasets import Dataset, Features, Value, concatenate_datasets, load_dataset
from datasets.fingerprint import generate_random_fingerprint
from transformers import PreTrainedTokenizerBase

from hf_attncal.io.files import read_lines, read_pairs

from .batching import beginning
from .languages import code_is_last
from .pharaoh import Link
from .rows import Rows
from .segmentation import fold_line, segment
from .tokenizer import CopyTokenizer
from .word_tokens import encode_sources, encode_targets, special_target_id, tokenize_words
from .words import WordTokens

try:
    from datasets import List
except ImportError:  # datasets < 4 calls the same feature `Sequence`
    from datasets import Sequence as List

PARALLEL, PLAIN = ("source", "target"), ("text",)  # columns of the two kinds of text


def read_parallel(source: str | Path, target: str | Path) -> Dataset:
    """Read two parallel files into a Dataset with the columns "source" and "target".

    Pairs with an empty side stay, so row n is line n + 1. `tokenize_pairs` drops and counts them.

    Raises:
        ValueError: a file that `read_pairs` refuses.
    """
    return Dataset.from_dict(dict(zip(PARALLEL, read_pairs(source, target), strict=True)))


def load_parallel(spec: Mapping[str, Any]) -> Dataset:
    """Load a Dataset with the columns "source" and "target" from an entry of a configuration.

    Args:
        spec: entry `{source: path, target: path}`, where both may be lists of files to concatenate, or
            `{dataset: id, split: ..., source_field: ..., target_field: ...}` with an optional `config`, loaded by
            `datasets.load_dataset`. A field may be nested: `translation.en`.

    Raises:
        ValueError: lists of different lengths, a missing field of the dataset, or a file that `read_parallel` refuses.
    """
    if "dataset" in spec:
        return _load_fields(spec, PARALLEL)
    sources, targets = (_as_list(spec[key]) for key in PARALLEL)
    if len(sources) != len(targets):
        raise ValueError(
            f"`source` lists {len(sources)} files and `target` {len(targets)}: give one target file per source file."
        )
    return concatenate_datasets([read_parallel(*pair) for pair in zip(sources, targets, strict=True)])


def load_plain(spec: Mapping[str, Any]) -> Dataset:
    """Load a Dataset with the column "text" from an entry of a configuration; row n is line n + 1.

    Args:
        spec: entry `{text: path}`, where the path may be a list of files to concatenate, or `{dataset: id, split:
            ..., text_field: ...}` with an optional `config`, as in `load_parallel`.

    Raises:
        ValueError: a missing field of the dataset, or a file that `read_lines` refuses.
    """
    if "dataset" in spec:
        return _load_fields(spec, PLAIN)
    return Dataset.from_dict({"text": list(chain.from_iterable(map(read_lines, _as_list(spec["text"]))))})


def _load_fields(spec: Mapping[str, Any], sides: Sequence[str]) -> Dataset:
    """Load fields of a Hub dataset as the columns `sides`; a dot separates nested fields."""
    dataset = load_dataset(spec["dataset"], spec.get("config"), split=spec["split"])
    fields = {side: spec[f"{side}_field"] for side in sides}
    while nested := [field for field in fields.values() if field not in dataset.column_names]:
        flat = dataset.flatten(max_depth=2)
        if flat.column_names == dataset.column_names:
            raise ValueError(f"Dataset `{spec['dataset']}` has no field `{nested[0]}`; it has {dataset.column_names}.")
        dataset = flat
    return Dataset.from_dict({side: dataset[field][:] for side, field in fields.items()})


def all_lines(dataset: Dataset, batch_size: int = 10_000) -> Iterable[str]:
    """Yield all sentences of all sides, to train a joint vocabulary; missing sentences are skipped.

    Args:
        dataset: texts, a column per side.
        batch_size: number of rows that are read at a time. Default: 10,000.
    """
    columns = dataset.select_columns(list(_sides(dataset)))
    batches = (chain.from_iterable(batch.values()) for batch in columns.iter(batch_size))
    return (line for line in chain.from_iterable(batches) if line)


def lowercased(dataset: Dataset) -> Dataset:
    """Lower-case the text; missing sentences stay missing."""
    return _changed(dataset, str.lower, "Lower-casing")


def folded(dataset: Dataset) -> Dataset:
    """Fold the words of the text (`segmentation.fold`); missing sentences stay missing."""
    return _changed(dataset, fold_line, "Folding")


def segmented(dataset: Dataset) -> Dataset:
    """Separate the words of raw text by spaces (`segmentation.segment`); missing sentences stay missing."""
    return _changed(dataset, lambda line: " ".join(segment(line).words), "Segmenting")


def _changed(dataset: Dataset, change: Callable[[str], str], label: str) -> Dataset:
    def change_batch(batch: dict[str, list]) -> dict[str, list]:
        return {side: [line and change(line) for line in batch[side]] for side in _sides(dataset)}

    return dataset.map(change_batch, batched=True, keep_in_memory=True, load_from_cache_file=False, desc=label)


def _as_list(paths: Any) -> list:
    return [paths] if isinstance(paths, (str, Path)) else list(paths)


def _sides(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the text columns."""
    return PARALLEL if PARALLEL[0] in dataset.column_names else PLAIN


# ---- token ids ----


@dataclass(frozen=True)
class TokenizationReport:
    """Numbers of rows kept, and dropped by reason; `str()` returns sentences for users.

    Args:
        max_length: maximum number of tokens of a side; with `max_source_length`, of a target.
        unit: name of the rows. Default: "sentence pairs".
        max_source_length: number of tokens to which sources are truncated. Default: None, they are not.
        kept, too_long, too_short, empty: numbers of rows.
        truncated: number of sources that were truncated.
        unknown: number of kept tokens of plain sequences that are outside the vocabulary.
    """

    max_length: int
    unit: str = "sentence pairs"
    max_source_length: int | None = None
    kept: int = 0
    too_long: int = 0
    too_short: int = 0
    empty: int = 0
    truncated: int = 0
    unknown: int = 0

    def fits(self, lengths: Sequence[int]) -> bool:
        """Return whether sides with these numbers of tokens are short enough."""
        return max(lengths if self.max_source_length is None else lengths[1:]) <= self.max_length

    @property
    def dropped(self) -> int:
        return self.too_long + self.too_short + self.empty

    @property
    def changes(self) -> str:
        """Sentences about rows that were kept and changed; an empty string for none."""
        text = ""
        if self.truncated:
            text += (
                f"Sources truncated to {self.max_source_length} tokens: {self.truncated} (raise `max_source_length` "
                "to read more of them)."
            )
        if self.unknown:
            text += f"Tokens outside the vocabulary, replaced by the unknown token: {self.unknown}."
        return text

    def __str__(self) -> str:
        text = f"Kept {self.kept} of {self.kept + self.dropped} {self.unit}."
        if self.too_long:
            text += (
                f" Dropped {self.too_long} with more than {self.max_length} tokens (raise `max_length` or split long "
                "lines to keep them)."
            )
        if self.too_short:
            text += (
                f" Dropped {self.too_short} with a side of fewer than two tokens: a masked token needs context to be "
                "predicted from."
            )
        if self.empty:
            text += f" Dropped {self.empty} with no text, or an empty side (remove these lines)."
        return f"{text} {self.changes}".strip()


def tokenize_pairs(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_source_length: int | None = None,
    copies: CopyTokenizer | None = None,
    links: Sequence[Collection[Link]] | None = None,
) -> tuple[Dataset, TokenizationReport]:
    """Tokenise sentence pairs; drop and count pairs that are too long or have an empty side.

    The result stays in memory: nothing is written to the cache folder of `datasets`.

    Args:
        dataset: columns "source" and "target", as returned by `load_parallel`.
        tokenizer: tokenizer with an end-of-sentence token. Targets use its target vocabulary if it has one (Marian).
        max_length: maximum number of tokens of a side, the end-of-sentence token included.
        max_source_length: maximum number of source tokens. Longer sources are truncated, and `max_length` applies to
            targets only. This suits summarization, where the beginning of a text is often enough. Default: no
            truncation.
        copies: tokenizer of a model with slots for copied words. Default: none.
        links: (source word, target word) links of every pair, for guided alignment. Linked words have all their tokens
            linked. Excludes `max_source_length`. Default: none.

    Returns:
        Dataset with `input_ids`, `labels` (both end in eos) and `length` (of the longer side), and the report. With
        `copies` it also has `extended_input_ids`, and slots in the labels. With `links` it also has `links`, source
        and target token of each link in turn.

    Warns:
        UserWarning: pairs were dropped or sources truncated (the report), or unknown words had no slot.

    Raises:
        ValueError: `max_length` < 2, no end-of-sentence token, a missing language code, no pair left, unequal numbers
            of pairs and lines of links, a link outside its pair (with the line), or links with `max_source_length`.
    """
    if max_length < 2:
        raise ValueError(f"`max_length` must be >= 2 (one token and the end of the sentence), got {max_length}.")
    if links is not None:
        _check_number(links, dataset)
        if max_source_length is not None:
            raise ValueError(f"`links` need whole sources, got `max_source_length` {max_source_length}.")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"The tokenizer `{tokenizer.name_or_path}` has no `eos_token`; set one before tokenising.")

    truncated, left_before = 0, 0 if copies is None else copies.left_unknown

    def encode(sources: list[str], targets: list[str], rows: list[int]) -> dict[str, list]:
        nonlocal truncated
        columns = (
            _encoded(tokenizer, sources, targets, max_source_length)
            if copies is None
            else _encoded_copies(copies, sources, targets, max_source_length)
        )
        lengths = columns.pop("length")
        if max_source_length is not None:
            targets_fit = (len(ids) <= max_length for ids in columns["labels"])
            pairs = zip(targets_fit, lengths, strict=True)
            truncated += sum(fits and length > max_source_length for fits, length in pairs)
        if links is not None:
            words = tokenize_words(tokenizer, sources), tokenize_words(tokenizer, targets, target=True)
            columns["links"] = _links_of_tokens(links, rows, *words)
        return columns

    optional = {"extended_input_ids": copies, "links": links}
    names = ("input_ids", "labels", *(name for name, value in optional.items() if value is not None))
    unit = "sentence pairs" if max_source_length is None else "pairs"
    tokenized, report = _tokenized(dataset, encode, names, TokenizationReport(max_length, unit, max_source_length))
    if truncated:
        report = replace(report, truncated=truncated)
        warnings.warn(report.changes, stacklevel=2)
    if copies is not None and (unknown := copies.left_unknown - left_before):
        warnings.warn(
            f"Unknown words of sources without a slot: {unknown} (raise `max_copied_tokens`, now {copies.slots}, to "
            "copy them).",
            stacklevel=2,
        )
    return tokenized, report


def _encoded(
    tokenizer: PreTrainedTokenizerBase, sources: list[str], targets: list[str], longest: int | None
) -> dict[str, list]:
    """Return `input_ids` of at most `longest` tokens, `labels` (both end in eos), and `length` of whole sources."""
    eos, end = tokenizer.eos_token_id, special_target_id(tokenizer, "eos_token")
    last = 1 + code_is_last(tokenizer)
    inputs, labels = (
        [ids if end in ids[-last:] else [*ids, end] for ids in side]
        for side, end in ((encode_sources(tokenizer, sources), eos), (encode_targets(tokenizer, targets), end))
    )
    return {
        "input_ids": [beginning(ids, longest) for ids in inputs],
        "labels": labels,
        "length": list(map(len, inputs)),
    }


def _encoded_copies(
    copies: CopyTokenizer, sources: list[str], targets: list[str], longest: int | None
) -> dict[str, list]:
    """Return the columns of `_encoded` and `extended_input_ids`, with slots for the unknown words of each source."""
    inputs = copies.sources(sources, longest)
    labels = copies.targets(targets, inputs["copied_words"])
    names = ("extended_input_ids", "length")
    return {"input_ids": inputs["input_ids"], "labels": labels, **{name: inputs[name] for name in names}}


def tokenize_plain(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int, end: bool
) -> tuple[Dataset, TokenizationReport]:
    """Tokenise sequences as `<s> x_0 ... x_n`; drop and count those that are too long or empty.

    Args:
        dataset: column "text", as returned by `load_plain`.
        tokenizer: tokenizer with a beginning-of-sequence token.
        max_length: maximum number of tokens of a sequence, special tokens included.
        end: True to append the end-of-sentence token.

    Returns:
        Dataset with `input_ids` and `length`, and the report.

    Warns:
        UserWarning: sequences were dropped or tokens are unknown (the report).

    Raises:
        ValueError: the tokenizer lacks a token, a text spells out a special token, or no sequence is left.
    """
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos")[: 1 + end]}
    if missing := next((name for name, token in special.items() if token is None), None):
        raise ValueError(f"The tokenizer `{tokenizer.name_or_path}` has no `{missing}_token`; set one first.")
    begin, ends = [special["bos"]], [special["eos"]] if end else []
    reserved = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def encode(texts: list[str], rows: list[int]) -> dict[str, list]:
        options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
        encoded = tokenizer(texts, **options)["input_ids"]
        for text, ids in zip(texts, encoded, strict=True):
            if token := reserved.intersection(ids):
                mark = tokenizer.convert_ids_to_tokens(min(token))
                raise ValueError(
                    f"The text must not contain the special token {mark!r}, got {text[:80]!r}. Remove or replace it."
                )
        return {"input_ids": [begin + ids + ends for ids in encoded]}

    tokenized, report = _tokenized(dataset, encode, ("input_ids",), TokenizationReport(max_length, "sequences"))
    if unknown := int((Rows.of(tokenized, "input_ids").values == tokenizer.unk_token_id).sum()):
        report = replace(report, unknown=unknown)
        warnings.warn(report.changes, stacklevel=2)
    return tokenized, report


def tokenize_for_alignment(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    links: Sequence[Collection[Link]] | None = None,
    text_target: bool = False,
    shortest: int = 2,
) -> tuple[Dataset, TokenizationReport]:
    """Tokenise sentence pairs without special tokens, and turn word links into token links.

    Pairs with a side that is too long, empty or too short are dropped and counted. A side of one token is too short,
    as it has no context to be predicted from (Mask-Align, sec. 4.1). Nothing is written to a cache folder.

    Args:
        dataset: columns "source" and "target".
        tokenizer: fast tokenizer.
        max_length: maximum number of tokens of a side.
        links: (source word, target word) links of every pair. Linked words have all their tokens linked. Default:
            none.
        text_target: True to tokenise targets as `text_target`, for a tokenizer whose two languages differ (Marian).
        shortest: minimum number of tokens of a side. Default: 2.

    Returns:
        Dataset with `input_ids`, `target_input_ids`, `length` (of the longer side) and optionally `links` (source and
        target token of each in turn), and the report.

    Warns:
        UserWarning: pairs were dropped (the report).

    Raises:
        ValueError: unequal numbers of pairs and lines of links, a link outside its pair (with the line), links with a
            slow tokenizer, or no pair left.
    """
    if links is not None:
        _check_number(links, dataset)
        if not tokenizer.is_fast:
            raise ValueError(f"`links` need a fast tokenizer, got {type(tokenizer).__name__}.")
    names = ("input_ids", "target_input_ids") if links is None else ("input_ids", "target_input_ids", "links")

    def encode(sources: list[str], targets: list[str], rows: list[int]) -> dict[str, list]:
        if links is None:
            options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
            texts = ({"text": sources}, {"text_target" if text_target else "text": targets})
            return dict(zip(names, (tokenizer(**text, **options)["input_ids"] for text in texts), strict=True))
        sides = [tokenize_words(tokenizer, side, special_tokens=False) for side in (sources, targets)]
        ids = ([tokens.ids for tokens in side] for side in sides)
        return dict(zip(names, (*ids, _links_of_tokens(links, rows, *sides)), strict=True))

    return _tokenized(dataset, encode, names, TokenizationReport(max_length), shortest)


def corpus_token_counts(dataset: Dataset, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Count the occurrences of each token in `input_ids` and `target_input_ids`, (vocab_size,) each."""
    sides = (Rows.of(dataset, name).values for name in ("input_ids", "target_input_ids"))
    source, target = (torch.from_numpy(np.bincount(values, minlength=vocab_size)) for values in sides)
    return source, target


def _tokenized(
    dataset: Dataset,
    encode: Callable[..., dict[str, list]],
    names: Sequence[str],
    report: TokenizationReport,
    shortest: int = 1,
) -> tuple[Dataset, TokenizationReport]:
    """Encode text, drop rows that do not fit, and return the rows with a completed copy of `report`.

    Args:
        dataset: text of one or two sides.
        encode: function from the texts of each side and the row numbers to columns, token ids of each side first.
        names: names of these columns.
        report: report, whose `fits` decides which rows are too long.
        shortest: minimum number of tokens of a side. Default: 1.
    """
    sides = _sides(dataset)
    dropped: dict[str, Any] = {"too_long": 0, "too_short": 0, "empty": 0}

    def fitting(batch: dict[str, list], rows: list[int]) -> dict[str, list]:
        pairs = [
            pair
            for pair in zip(*(batch[side] for side in sides), rows, strict=True)
            if all(side and not side.isspace() for side in pair[:-1])
        ]
        dropped["empty"] += len(rows) - len(pairs)
        columns: dict[str, list] = {name: [] for name in (*names, "length")}
        encoded = encode(*map(list, zip(*pairs, strict=True))) if pairs else {}
        for values in zip(*encoded.values(), strict=True):
            lengths = [len(ids) for ids in values[: len(sides)]]
            fits = report.fits(lengths)
            if not fits or min(lengths) < shortest:
                dropped["too_short" if fits else "too_long"] += 1
                continue
            for name, value in zip(columns, (*values, max(lengths)), strict=True):
                columns[name].append(value)
        return columns

    tokenized = dataset.map(
        fitting,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        features=Features({name: List(Value("int32")) for name in names} | {"length": Value("int32")}),
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint=generate_random_fingerprint(),  # a computed one would pickle the tokenizer
        desc="Tokenising",
    )
    report = replace(report, kept=len(tokenized), **dropped)
    if not report.kept:
        raise ValueError(f"No {report.unit.removesuffix('s')} is left. {report}")
    if report.dropped:
        warnings.warn(str(report), stacklevel=3)
    return tokenized, report


def _check_number(links: Sequence[Collection[Link]], dataset: Dataset) -> None:
    if len(links) != len(dataset):
        raise ValueError(
            f"`links` must have one line for each sentence pair, got {len(links)} lines for {len(dataset)} pairs."
        )


def _links_of_tokens(
    links: Sequence[Collection[Link]], rows: list[int], sources: list[WordTokens], targets: list[WordTokens]
) -> list[list[int]]:
    """Return the token links of each of `rows`: source and target token of each link in turn."""
    token_links: list[list[int]] = []
    for row, source, target in zip(rows, sources, targets, strict=True):
        source_tokens, target_tokens = source.tokens_of_words(), target.tokens_of_words()
        token_links.append([])
        for i, j in links[row]:
            if not (0 <= i < source.words and 0 <= j < target.words):
                raise ValueError(
                    f"line {row + 1}: link {i}-{j} lies outside a pair of {source.words} source and {target.words} "
                    "target words (indices count from 0). Check the order of the sides and the index base of the "
                    "links."
                )
            token_links[-1] += [token for s in source_tokens[i] for t in target_tokens[j] for token in (s, t)]
    return token_links
