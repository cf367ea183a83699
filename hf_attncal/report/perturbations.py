"""Log-probability of each target word after source words are removed by an operator.

- `replace`: another word, drawn by frequency, replaces the word, so that the source still looks like text;
- `hide`: its tokens are masked in the cross-attention, and the encoder states do not change;
- `unk`: the unknown token replaces each of its tokens;
- `delete`: the word is deleted from the source.

Special tokens are never removed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.words import WordTokens, tokenize_words
from hf_attncal.inference.reading import (
    PairTooLongError,
    TokenPair,
    check_attends,
    check_lengths,
    padded_batch,
    readable,
    teacher_forced,
)

from .attribution import encode, log_probabilities

OPERATORS = ("replace", "hide", "unk", "delete")


class Change(NamedTuple):
    """A change of a source: the operator, and a byte per word, 1 if the word stays."""

    operator: str
    kept: bytes


class WordFrequencies:
    """Table of words, from which words are drawn in proportion to their counts.

    Args:
        counts: count of each word.

    Raises:
        ValueError: fewer than two words.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        if len(counts) < 2:
            raise ValueError(
                f"`frequencies` must have at least two words (one to replace the other), got {len(counts)}."
            )
        self.words = sorted(counts)
        self._sums = np.array(list(accumulate(counts[word] for word in self.words)))

    def others(self, words: Sequence[str], generator: np.random.Generator) -> list[str]:
        """Draw a different word for each word."""
        drawn = [""] * len(words)
        same = list(range(len(words)))
        while same:
            numbers = generator.random(len(same)) * self._sums[-1]
            for place, number in zip(same, np.searchsorted(self._sums, numbers, side="right"), strict=True):
                drawn[place] = self.words[number]
            same = [place for place in same if drawn[place] == words[place]]
        return drawn


class _Row:
    """Forward pass of a pair: its number in the batch, a source, and the target words to score."""

    def __init__(self, number: int, pair: TokenPair, source: np.ndarray, words: Collection[int]) -> None:
        self.number, self.source = number, source
        self.wanted = np.zeros(pair.target.words, dtype=bool)
        self.wanted[list(words)] = True
        self.places = np.flatnonzero(_token_mask(pair.target, self.wanted))  # tokens of these words
        self.length = int(self.places.max(initial=0)) + 1


class _Encoded(NamedTuple):
    """Batch of unchanged pairs with its encoder states, and the positions to hide from the decoder per row."""

    inputs: dict[str, Tensor]
    labels: Tensor
    states: Any
    hidden: Sequence[np.ndarray]


@dataclass(frozen=True)
class Perturber:
    """A model that scores targets of perturbed sources.

    Args:
        model: encoder-decoder of transformers, on the device to use.
        tokenizer: tokenizer of the model.
        operators: operators to use. Default: all.
        frequencies: words that `replace` draws. Default: none.
        seed: seed of the draws, which otherwise depend only on the pair. Default: 0.
        batch_size: maximum number of sources per batch. Default: 32.

    Raises:
        ValueError: no operator or an unknown one, `replace` without frequencies, a tokenizer without unknown token for
            `unk`, or a model without cross-attention for `hide`.
    """

    model: Any
    tokenizer: Any
    operators: tuple[str, ...] = OPERATORS
    frequencies: WordFrequencies | None = None
    seed: int = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        if not self.operators or len(set(self.operators)) < len(self.operators) or set(self.operators) - {*OPERATORS}:
            raise ValueError(f"`operators` must be some of {', '.join(OPERATORS)}, each once, got {self.operators!r}.")
        if "unk" in self.operators and getattr(self.tokenizer, "unk_token_id", None) is None:
            raise ValueError("`operators` has 'unk', but the tokenizer has no `unk_token_id`. Leave 'unk' out.")
        if "hide" in self.operators:
            check_attends(self.model.config)

    def others(self, pair: TokenPair, words: Sequence[str]) -> list[str]:
        """Draw a different word for each word of a pair's source; the draws depend only on pair and seed."""
        if self.frequencies is None:
            raise ValueError("`frequencies` must be given for the operator 'replace', got None.")
        content = (len(pair.source.ids), *pair.source.ids.tolist(), *pair.target.ids.tolist())
        return self.frequencies.others(words, np.random.default_rng([self.seed, 0, 0, *content]))

    @torch.no_grad()
    def log_probabilities(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], changes: Sequence[Mapping[Change, Collection[int]]]
    ) -> list[tuple[np.ndarray, dict[Change, np.ndarray]]]:
        """Return log-probabilities of target words (sums over their tokens), teacher-forced on the target.

        Args:
            pairs: pairs of similar lengths.
            sources: source texts of the pairs.
            changes: change -> target words to score, per pair.

        Returns:
            Per pair, the log-probabilities with the unchanged source, (target words,) float64, and change ->
            log-probabilities; NaN for target words that were not to be scored.

        Raises:
            ValueError: a changed source without tokens, or too long for the model.
        """
        all_changes = [
            (row, change) for row, by_change in enumerate(changes) for change in by_change if 0 in change.kept
        ]
        rewritten = [(row, change) for row, change in all_changes if change.operator != "hide"]
        hidden = [(row, change) for row, change in all_changes if change.operator == "hide"]
        whole = [_Row(row, pair, pair.source.ids, range(pair.target.words)) for row, pair in enumerate(pairs)]
        with readable(self.model, attentions=False):
            unchanged = self._read(pairs, whole)
            rows = [
                _Row(row, pairs[row], ids, changes[row][change])
                for (row, change), ids in zip(rewritten, self._changed_sources(pairs, sources, rewritten), strict=True)
            ]
            changed = dict(zip(rewritten, self._read(pairs, rows), strict=True))
            if hidden:
                sides = [pair.source.ids for pair in pairs], [pair.target.ids for pair in pairs]
                inputs, labels = teacher_forced(self.model, padded_batch(self.model, self.tokenizer, *sides))
                rows = [_Row(row, pairs[row], pairs[row].source.ids, changes[row][change]) for row, change in hidden]
                places = [np.flatnonzero(_removed(pairs[row].source, change)) for row, change in hidden]
                for (row, _), of_row in zip(hidden, places, strict=True):
                    _check_not_empty(pairs[row].index, len(pairs[row].source.ids) - len(of_row), "hide")
                encoded = _Encoded(inputs, labels, encode(self.model, inputs), places)
                changed |= zip(hidden, self._read(pairs, rows, encoded), strict=True)
        return [
            # A change that removes no word has the log-probabilities of the unchanged source.
            (values, {change: changed.get((row, change), values) for change in changes[row]})
            for row, values in enumerate(unchanged)
        ]

    def _changed_sources(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], changes: Sequence[tuple[int, Change]]
    ) -> list[np.ndarray]:
        """Return the tokens of changed sources."""
        tokens: dict[int, WordTokens] = {}
        texts: dict[int, str] = {}
        others: dict[int, list[str]] = {}
        for number, (row, change) in enumerate(changes):
            pair, words = pairs[row], sources[row].split()
            if change.operator == "unk":
                ids = np.where(_removed(pair.source, change), self.tokenizer.unk_token_id, pair.source.ids)
                tokens[number] = pair.source._replace(ids=ids)
            elif change.operator == "delete":
                texts[number] = " ".join(compress(words, change.kept))
            else:
                if row not in others:
                    others[row] = self.others(pair, words)
                chosen = zip(words, others[row], change.kept, strict=True)
                texts[number] = " ".join(word if stays else drawn for word, drawn, stays in chosen)
        tokens |= zip(texts, tokenize_words(self.tokenizer, [*texts.values()]), strict=True)
        rows = [replace(pairs[row], source=tokens[number]) for number, (row, _) in enumerate(changes)]
        try:
            check_lengths(self.model, self.tokenizer, rows)
        except PairTooLongError as error:
            raise ValueError(
                f"`operators` has 'replace', which makes {error.tokens} tokens of the source of pair {error.index} "
                f"(counted from 0); the model takes at most {error.limit}. Leave out the pair or the operator."
            ) from error
        for pair in rows:
            _check_not_empty(pair.index, len(pair.source.ids), "delete")
        return [pair.source.ids for pair in rows]

    def _read(
        self, pairs: Sequence[TokenPair], rows: Sequence[_Row], encoded: _Encoded | None = None
    ) -> list[np.ndarray]:
        """Return the log-probabilities of the wanted target words of each row, NaN for other words.

        Args:
            pairs: pairs of the batch.
            rows: forward passes of the pairs.
            encoded: encoded sources with positions to hide. Default: encode the sources of the rows.
        """
        values: dict[int, np.ndarray] = {}
        lengths = [(row.length, len(row.source) if encoded is None else 0) for row in rows]
        for numbers in batches_by_length(lengths, self.batch_size):
            chosen = [rows[number] for number in numbers]
            states = None
            if encoded is None:
                targets = [pairs[row.number].target.ids[: row.length] for row in chosen]
                batch = padded_batch(self.model, self.tokenizer, [row.source for row in chosen], targets)
                inputs, labels = teacher_forced(self.model, batch)
            else:
                places = torch.tensor([row.number for row in chosen], device=self.model.device)
                longest = max(row.length for row in chosen)
                inputs = {name: tensor[places] for name, tensor in encoded.inputs.items()}
                inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, :longest]
                for copy, number in enumerate(numbers):
                    inputs["attention_mask"][copy, encoded.hidden[number]] = 0
                labels = encoded.labels[places][:, :longest]
                tensors = {name: tensor[places] for name, tensor in encoded.states.items() if torch.is_tensor(tensor)}
                states = type(encoded.states)(**tensors)
            steps, _ = padded([np.append(row.places, 0) for row in chosen], 0)  # every row needs a step
            tokens = log_probabilities(self.model, inputs, labels, states, steps.to(self.model.device))
            for number, row, of_tokens in zip(numbers, chosen, tokens.double().cpu().numpy(), strict=True):
                target = pairs[row.number].target
                word_ids = target.word_ids[row.places]
                sums = np.bincount(word_ids, weights=of_tokens[: len(word_ids)], minlength=target.words)
                values[number] = np.where(row.wanted, sums, np.nan)
        return [values[number] for number in range(len(rows))]


def _token_mask(tokens: WordTokens, chosen: np.ndarray) -> np.ndarray:
    """Return a mask of the tokens of the chosen words, (tokens,)."""
    return np.append(chosen, False)[tokens.word_ids]  # NO_WORD (-1) selects the False


def _removed(tokens: WordTokens, change: Change) -> np.ndarray:
    """Return a mask of the tokens that a change removes, (tokens,)."""
    return _token_mask(tokens, ~np.frombuffer(change.kept, dtype=bool))


def _check_not_empty(index: int, tokens: int, operator: str) -> None:
    if not tokens:
        raise ValueError(
            f"`operators` has {operator!r}, which removes all source tokens of pair {index} (counted from 0). Use a "
            "tokenizer that ends every source with a special token, or leave out the operator."
        )
