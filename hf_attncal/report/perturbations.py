"""Read the log-probability of each target word after some words of the source are taken away.

An operator says how a word is taken away:

- `replace`: another word stands in its place, drawn from the frequencies of words; the source still looks like text;
- `hide`: its tokens are masked out of the cross-attention, the states of the encoder stay as they are;
- `unk`: the tokenizer's unknown token stands in the place of each of its tokens;
- `delete`: the source is written without it.

Tokens of no word, such as the end of the sentence, are never touched.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import NamedTuple

import numpy as np
import torch

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
from hf_attncal.report.attribution.method import Batch

from .attribution.predictions import encode, log_probabilities

OPERATORS = ("replace", "hide", "unk", "delete")


class Change(NamedTuple):
    """A change of a source: the words that it keeps, and how the others are taken away.

    Args:
        operator: one of the above.
        draw: number of the draw of other words, from 0, with `replace`; 0 with the others.
        kept: a byte for each source word, 1 where it is kept: `bytes` of booleans.
    """

    operator: str
    draw: int
    kept: bytes


class WordFrequencies:
    """A table of words to draw from, in proportion to how often each was counted.

    Args:
        counts: how often each word was seen; the order of words does not matter.

    Raises:
        ValueError: fewer than two words, one that is not one word between spaces, or a count below 1.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        if len(counts) < 2:
            raise ValueError(
                f"`frequencies` must have at least two words, one to replace the other, got {len(counts)}."
            )
        for word, count in counts.items():
            if word.split() != [word] or count < 1:
                raise ValueError(f"`frequencies` must be words with counts >= 1, got {word!r} with {count!r}.")
        self.words = sorted(counts)
        self._sums = np.array(list(accumulate(counts[word] for word in self.words)))

    @classmethod
    def of(cls, texts: Iterable[str]) -> "WordFrequencies":
        """Count the words of texts."""
        return cls(Counter(word for text in texts for word in text.split()))

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


class _Target(NamedTuple):
    """The part of the target of a pair that has to be read.

    Args:
        row: number of the pair in its batch.
        wanted: booleans (target words,).
        places: the tokens of these words.
        length: how many tokens have to be read, at least one.
    """

    row: int
    wanted: np.ndarray
    places: np.ndarray
    length: int

    @classmethod
    def of(cls, row: int, pair: TokenPair, words: Collection[int]) -> "_Target":
        wanted = np.zeros(pair.target.words, dtype=bool)
        wanted[list(words)] = True
        places = np.flatnonzero(_of_words(pair.target, wanted))
        return cls(row, wanted, places, int(places.max(initial=0)) + 1)


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
        source_prefix: text that the model wants in front of every source.

    Raises:
        ValueError: no operator or one that there is not, `replace` without frequencies, a tokenizer without the token
            of an operator, a model without attention to hide from, or a `batch_size` below 1.
    """

    model: torch.nn.Module
    tokenizer: object
    operators: tuple[str, ...] = OPERATORS
    frequencies: WordFrequencies | None = None
    seed: int = 0
    batch_size: int = 32
    source_prefix: str = ""

    def __post_init__(self) -> None:
        if not self.operators or len(set(self.operators)) < len(self.operators) or set(self.operators) - {*OPERATORS}:
            raise ValueError(f"`operators` must be some of {', '.join(OPERATORS)}, each once, got {self.operators!r}.")
        if "unk" in self.operators and getattr(self.tokenizer, "unk_token_id", None) is None:
            raise ValueError("`operators` has 'unk', but the tokenizer has no `unk_token_id`. Leave it out.")
        if "replace" in self.operators and self.frequencies is None:
            raise ValueError("`frequencies` must be given for the operator 'replace', got None.")
        if "hide" in self.operators:
            check_attends(self.model.config)
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1, got {self.batch_size}.")

    def generator(self, pair: TokenPair, draw: int) -> np.random.Generator:
        """Return the generator of the random numbers of a pair, the same wherever it stands."""
        content = (len(pair.source.ids), *pair.source.ids.tolist(), *pair.target.ids.tolist())
        return np.random.default_rng([self.seed, 0, draw, *content])

    @torch.no_grad()
    def log_probabilities(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], changes: Sequence[Mapping[Change, Collection[int]]]
    ) -> list[tuple[np.ndarray, dict[Change, np.ndarray]]]:
        """Return log-probabilities of target words, sums over their tokens, teacher-forced on the target.

        Args:
            pairs: pairs of similar lengths.
            sources: their source texts.
            changes: for each pair the changes to try, each with the target words to read after it; the decoder reads
                no further than these.

        Returns:
            For each pair those with its own source, (target words,) float64, and those with each change; NaN for
            target words that were not asked for.

        Raises:
            ValueError: a changed source with no token or with more than the model has positions.
        """
        asked = [(row, change) for row, of_pair in enumerate(changes) for change in of_pair]
        taken = [(row, change) for row, change in asked if 0 in change.kept]
        taken.sort(key=lambda item: item[1].operator == "hide")  # those that are hidden are the last
        targets = [_Target.of(row, pairs[row], changes[row][change]) for row, change in taken]
        count = sum(change.operator != "hide" for _, change in taken)
        with readable(self.model, attentions=False):
            every = [_Target.of(row, pair, range(pair.target.words)) for row, pair in enumerate(pairs)]
            whole = self._read([pair.source.ids for pair in pairs], every, pairs)
            read = self._read(self._written(pairs, sources, taken[:count]), targets[:count], pairs)
            read += self._read_hidden(taken[count:], targets[count:], every, pairs)
        changed = dict(zip(taken, read, strict=True))
        return [
            # A change that keeps every word leaves what it was.
            (values, {change: changed.get((row, change), values) for change in changes[row]})
            for row, values in enumerate(whole)
        ]

    # ---- sources ----

    def _written(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], wanted: Sequence[tuple[int, Change]]
    ) -> list[np.ndarray]:
        """Return the tokens of changed sources."""
        tokens: dict[int, WordTokens] = {}
        texts: dict[int, str] = {}
        others: dict[tuple[int, int], list[str]] = {}
        for number, (row, change) in enumerate(wanted):
            kept, pair, words = np.frombuffer(change.kept, dtype=bool), pairs[row], sources[row].split()
            if change.operator == "unk":
                ids = np.where(_of_words(pair.source, ~kept), self.tokenizer.unk_token_id, pair.source.ids)
                tokens[number] = pair.source._replace(ids=ids)
            elif change.operator == "delete":
                texts[number] = " ".join(compress(words, kept))
            else:
                place = row, change.draw
                if place not in others:
                    others[place] = self.frequencies.others(words, self.generator(pair, change.draw))
                texts[number] = " ".join(np.where(kept, words, others[place]))
        tokens |= zip(texts, tokenize_words(self.tokenizer, [*texts.values()], prefix=self.source_prefix), strict=True)
        rows = [replace(pairs[row], source=tokens[number]) for number, (row, _) in enumerate(wanted)]
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

    # ---- passes ----

    def _read(
        self, sources: Sequence[np.ndarray], targets: Sequence[_Target], pairs: Sequence[TokenPair]
    ) -> list[np.ndarray]:
        """Read target words, given the tokens of sources."""
        values: dict[int, np.ndarray] = {}
        lengths = [(target.length, len(ids)) for target, ids in zip(targets, sources, strict=True)]
        for numbers in batches_by_length(lengths, self.batch_size):
            chosen = [targets[number] for number in numbers]
            batch = self._batch([sources[number] for number in numbers], chosen, pairs)
            values |= zip(numbers, self._of_words(batch, chosen), strict=True)
        return [values[number] for number in range(len(sources))]

    def _read_hidden(
        self,
        hidden: Sequence[tuple[int, Change]],
        targets: Sequence[_Target],
        every: Sequence[_Target],
        pairs: Sequence[TokenPair],
    ) -> list[np.ndarray]:
        """Read target words, given whole sources, some of whose states the decoder does not see."""
        if not hidden:
            return []
        whole = self._batch([pair.source.ids for pair in pairs], every, pairs)
        encoded = encode(self.model, whole)
        values: dict[int, np.ndarray] = {}
        for numbers in batches_by_length([target.length for target in targets], self.batch_size):
            chosen = [targets[number] for number in numbers]
            rows = torch.tensor([target.row for target in chosen], device=self.model.device)
            longest = max(target.length for target in chosen)
            inputs = {name: tensor[rows] for name, tensor in whole.inputs.items()}
            inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, :longest]
            for copy, number in enumerate(numbers):
                row, change = hidden[number]
                tokens = pairs[row].source
                hide = np.flatnonzero(_of_words(tokens, ~np.frombuffer(change.kept, dtype=bool)))
                _check_not_empty(pairs[row].index, len(tokens.ids) - len(hide), "hide")
                inputs["attention_mask"][copy, hide] = 0
            batch = Batch([pairs[target.row] for target in chosen], [], inputs, whole.labels[rows][:, :longest])
            states = {name: tensor[rows] for name, tensor in encoded.items() if torch.is_tensor(tensor)}
            values |= zip(numbers, self._of_words(batch, chosen, type(encoded)(**states)), strict=True)
        return [values[number] for number in range(len(hidden))]

    def _batch(self, sources: Sequence[np.ndarray], targets: Sequence[_Target], pairs: Sequence[TokenPair]) -> Batch:
        rows = [pairs[target.row] for target in targets]
        beginnings = [pair.target.ids[: target.length] for pair, target in zip(rows, targets, strict=True)]
        return Batch(
            rows, [], *teacher_forced(self.model, padded_batch(self.model, self.tokenizer, sources, beginnings))
        )

    def _of_words(self, batch: Batch, targets: Sequence[_Target], encoded=None) -> list[np.ndarray]:
        """Add up the tokens of each target word that is wanted, for each row; NaN for others."""
        steps, _ = padded([np.append(target.places, 0) for target in targets], 0)  # none is without a step
        tokens = (
            log_probabilities(self.model, batch, encoded, steps=steps.to(self.model.device)).double().cpu().numpy()
        )
        words = []
        for pair, target, values in zip(batch.pairs, targets, tokens, strict=True):
            word_ids = pair.target.word_ids[target.places]
            sums = np.bincount(word_ids, weights=values[: len(word_ids)], minlength=pair.target.words)
            words.append(np.where(target.wanted, sums, np.nan))
        return words


def _of_words(tokens: WordTokens, chosen: np.ndarray) -> np.ndarray:
    """Mark the tokens of the chosen words: booleans, (tokens,)."""
    return np.append(chosen, False)[tokens.word_ids]  # NO_WORD, which is -1, finds the False


def _check_not_empty(index: int, tokens: int, operator: str) -> None:
    if not tokens:
        raise ValueError(
            f"`operators` has {operator!r}, which would leave no source token of pair {index} (counted from 0). Take "
            "a tokenizer that ends every source with a special token, or leave the operator out."
        )
