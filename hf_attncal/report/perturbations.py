"""Read the log-probability of each target word after some words of the source are taken away.

An operator says how a word is taken away:

- `replace`: another word stands in its place, drawn from the frequencies of words; the source still looks like text;
- `hide`: its tokens are masked out of the cross-attention, the states of the encoder stay as they are;
- `unk`: the tokenizer's unknown token stands in the place of each of its tokens;
- `delete`: the source is written without it.

Tokens of no word, such as the end of the sentence, are never touched.
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
    """A change of a source: how words are taken away, and a byte for each word, 1 where it is kept."""

    operator: str
    kept: bytes


class WordFrequencies:
    """A table of words to draw from, in proportion to how often each was counted.

    Args:
        counts: how often each word was seen; the order of words does not matter.

    Raises:
        ValueError: fewer than two words.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        if len(counts) < 2:
            raise ValueError(
                f"`frequencies` must have at least two words, one to replace the other, got {len(counts)}."
            )
        self.words = sorted(counts)
        self._sums = np.array(list(accumulate(counts[word] for word in self.words)))

    def others(self, words: Sequence[str], generator: np.random.Generator) -> list[str]:
        """Draw another word for each word."""
        drawn = [""] * len(words)
        same = list(range(len(words)))
        while same:
            numbers = generator.random(len(same)) * self._sums[-1]
            for place, number in zip(same, np.searchsorted(self._sums, numbers, side="right"), strict=True):
                drawn[place] = self.words[number]
            same = [place for place in same if drawn[place] == words[place]]
        return drawn


class _Row:
    """One reading of a pair: its number in the batch, a source, and the target words to read."""

    def __init__(self, number: int, pair: TokenPair, source: np.ndarray, words: Collection[int]) -> None:
        self.number, self.source = number, source
        self.wanted = np.zeros(pair.target.words, dtype=bool)
        self.wanted[list(words)] = True
        self.places = np.flatnonzero(_of_words(pair.target, self.wanted))  # the tokens of these words
        self.length = int(self.places.max(initial=0)) + 1


class _Encoded(NamedTuple):
    """The batch of whole pairs with its encoder states, and the places to hide from the decoder in each row."""

    inputs: dict[str, Tensor]
    labels: Tensor
    states: Any
    hidden: Sequence[np.ndarray]


@dataclass(frozen=True)
class Perturber:
    """A model that reads perturbed sources.

    Args:
        model: an encoder-decoder of transformers, on the device to use.
        tokenizer: the model's.
        operators: those that will be used.
        frequencies: where `replace` draws words; None without it.
        seed: of the draws, which depend on the pair alone besides: not on its place nor on its batch.
        batch_size: most sources at once.

    Raises:
        ValueError: no operator or one that there is not, `replace` without frequencies, a tokenizer without the token
            of an operator, or a model without attention to hide from.
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
            raise ValueError("`operators` has 'unk', but the tokenizer has no `unk_token_id`. Leave it out.")
        if "hide" in self.operators:
            check_attends(self.model.config)

    def others(self, pair: TokenPair, words: Sequence[str]) -> list[str]:
        """Draw another word for each word of a pair's source, the same ones wherever the pair stands."""
        if self.frequencies is None:
            raise ValueError("`frequencies` must be given for the operator 'replace', got None.")
        content = (len(pair.source.ids), *pair.source.ids.tolist(), *pair.target.ids.tolist())
        return self.frequencies.others(words, np.random.default_rng([self.seed, 0, 0, *content]))

    @torch.no_grad()
    def log_probabilities(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], changes: Sequence[Mapping[Change, Collection[int]]]
    ) -> list[tuple[np.ndarray, dict[Change, np.ndarray]]]:
        """Return log-probabilities of target words, sums over their tokens, teacher-forced on the target.

        Args:
            pairs: pairs of similar lengths.
            sources: their source texts.
            changes: for each pair the changes to try, each with the target words to read after it.

        Returns:
            For each pair those with its own source, (target words,) float64, and those with each change; NaN for
            target words that were not asked for.

        Raises:
            ValueError: a changed source with no token or with more than the model has positions.
        """
        asked = [(row, change) for row, by_change in enumerate(changes) for change in by_change if 0 in change.kept]
        written = [(row, change) for row, change in asked if change.operator != "hide"]
        hidden = [(row, change) for row, change in asked if change.operator == "hide"]
        whole = [_Row(row, pair, pair.source.ids, range(pair.target.words)) for row, pair in enumerate(pairs)]
        with readable(self.model, attentions=False):
            unchanged = self._read(pairs, whole)
            rows = [
                _Row(row, pairs[row], ids, changes[row][change])
                for (row, change), ids in zip(written, self._changed_sources(pairs, sources, written), strict=True)
            ]
            changed = dict(zip(written, self._read(pairs, rows), strict=True))
            if hidden:
                sides = [pair.source.ids for pair in pairs], [pair.target.ids for pair in pairs]
                inputs, labels = teacher_forced(self.model, padded_batch(self.model, self.tokenizer, *sides))
                rows = [_Row(row, pairs[row], pairs[row].source.ids, changes[row][change]) for row, change in hidden]
                places = [np.flatnonzero(_taken(pairs[row].source, change)) for row, change in hidden]
                for (row, _), of_row in zip(hidden, places, strict=True):
                    _check_not_empty(pairs[row].index, len(pairs[row].source.ids) - len(of_row), "hide")
                encoded = _Encoded(inputs, labels, encode(self.model, inputs), places)
                changed |= zip(hidden, self._read(pairs, rows, encoded), strict=True)
        return [
            # A change that keeps every word leaves what it was.
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
                ids = np.where(_taken(pair.source, change), self.tokenizer.unk_token_id, pair.source.ids)
                tokens[number] = pair.source._replace(ids=ids)
            elif change.operator == "delete":
                texts[number] = " ".join(compress(words, change.kept))
            else:
                if row not in others:
                    others[row] = self.others(pair, words)
                chosen = zip(words, others[row], change.kept, strict=True)
                texts[number] = " ".join(word if kept else other for word, other, kept in chosen)
        tokens |= zip(texts, tokenize_words(self.tokenizer, [*texts.values()]), strict=True)
        rows = [replace(pairs[row], source=tokens[number]) for number, (row, _) in enumerate(changes)]
        try:
            check_lengths(self.model, self.tokenizer, rows)
        except PairTooLongError as error:
            raise ValueError(
                f"`operators` has 'replace', with which the source of pair {error.index} (counted from 0) comes to "
                f"{error.tokens} tokens, the model takes at most {error.limit}. Leave the pair out, or the operator."
            ) from error
        for pair in rows:
            _check_not_empty(pair.index, len(pair.source.ids), "delete")
        return [pair.source.ids for pair in rows]

    def _read(
        self, pairs: Sequence[TokenPair], rows: Sequence[_Row], encoded: _Encoded | None = None
    ) -> list[np.ndarray]:
        """Add up the log-probabilities of the tokens of each target word that is wanted, for each row; NaN for others.

        Args:
            pairs: the batch.
            rows: readings of its pairs.
            encoded: whole sources some of whose states the decoder does not see; None to read the sources of the rows.
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
                kept = {name: tensor[places] for name, tensor in encoded.states.items() if torch.is_tensor(tensor)}
                states = type(encoded.states)(**kept)
            steps, _ = padded([np.append(row.places, 0) for row in chosen], 0)  # none is without a step
            tokens = log_probabilities(self.model, inputs, labels, states, steps.to(self.model.device))
            for number, row, of_tokens in zip(numbers, chosen, tokens.double().cpu().numpy(), strict=True):
                target = pairs[row.number].target
                word_ids = target.word_ids[row.places]
                sums = np.bincount(word_ids, weights=of_tokens[: len(word_ids)], minlength=target.words)
                values[number] = np.where(row.wanted, sums, np.nan)
        return [values[number] for number in range(len(rows))]


def _of_words(tokens: WordTokens, chosen: np.ndarray) -> np.ndarray:
    """Mark the tokens of the chosen words: booleans, (tokens,)."""
    return np.append(chosen, False)[tokens.word_ids]  # NO_WORD, which is -1, finds the False


def _taken(tokens: WordTokens, change: Change) -> np.ndarray:
    """Mark the tokens of the words that a change takes away: booleans, (tokens,)."""
    return _of_words(tokens, ~np.frombuffer(change.kept, dtype=bool))


def _check_not_empty(index: int, tokens: int, operator: str) -> None:
    if not tokens:
        raise ValueError(
            f"`operators` has {operator!r}, which would leave no source token of pair {index} (counted from 0). Take "
            "a tokenizer that ends every source with a special token, or leave the operator out."
        )
