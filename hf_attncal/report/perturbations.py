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

from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.data.words import WordTokens
from hf_attncal.inference.reading import PairTooLongError, TokenPair, check_attends, check_lengths
from hf_attncal.inference.source_use import ForcedRow, score_rows

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
        new_sources = dict(zip(rewritten, self._changed_sources(pairs, sources, rewritten), strict=True))
        wanted = [np.ones(pair.target.words, dtype=bool) for pair in pairs]
        rows = [
            ForcedRow(pair, pair.source.ids, np.flatnonzero(_token_mask(pair.target, words)))
            for pair, words in zip(pairs, wanted, strict=True)
        ]
        for row, change in all_changes:
            pair, words = pairs[row], np.zeros(pairs[row].target.words, dtype=bool)
            words[list(changes[row][change])] = True
            hidden = () if (row, change) in new_sources else np.flatnonzero(_removed(pair.source, change))
            _check_not_empty(pair.index, len(pair.source.ids) - len(hidden), "hide")
            source = new_sources.get((row, change), pair.source.ids)
            wanted.append(words)
            rows.append(ForcedRow(pair, source, np.flatnonzero(_token_mask(pair.target, words)), hidden))
        scores = score_rows(self.model, self.tokenizer, rows, self.batch_size)
        sums = [
            np.where(words, np.bincount(row.pair.target.word_ids[row.tokens], of_row, len(words)), np.nan)
            for row, words, of_row in zip(rows, wanted, scores, strict=True)
        ]
        changed = dict(zip(all_changes, sums[len(pairs) :], strict=True))
        return [
            # A change that removes no word has the log-probabilities of the unchanged source.
            (whole, {change: changed.get((row, change), whole) for change in changes[row]})
            for row, whole in enumerate(sums[: len(pairs)])
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
