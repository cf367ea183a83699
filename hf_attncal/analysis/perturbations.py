"""What becomes of the log-probability of each target word when some words of the source are taken from the model.

An operator says how a word is taken away:

- `replace`: another word stands in its place, drawn from the frequencies of words; the source still looks like text;
- `hide`: its tokens are masked out of the cross-attention, the states of the encoder stay as they are;
- `unk`, `mask`: the tokenizer's unknown token or mask token stands in the place of each of its tokens;
- `delete`: the source is written without it.

Tokens of no word, such as the end of the sentence, are never touched.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.words import NO_WORD, WordTokens, tokenize_words
from hf_attncal.models.losses import IGNORE_INDEX

from .attribution.base import Batch
from .attribution.gradients import encode, log_probabilities
from .reading import TokenPair, check_attends, check_lengths, readable, teacher_forced

OPERATORS = ("replace", "hide", "unk", "delete")
_TOKENS = {"unk": "unk_token_id", "mask": "mask_token_id"}
_KNOWN = (*OPERATORS, "mask")
_REPLACEMENT = 0  # what random numbers are for: see `Perturber.generator`


class Change(NamedTuple):
    """Which words a source keeps, and how the others are taken away.

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
                f"`frequencies` must have two words at least, one to replace the other, got {len(counts)}."
            )
        for word, count in counts.items():
            if word.split() != [word] or count < 1:
                raise ValueError(f"`frequencies` must be words with counts >= 1, got {word!r} with {count!r}.")
        self.words = sorted(counts)
        self._sums = np.array(list(accumulate(counts[word] for word in self.words)))

    @classmethod
    def of(cls, texts: Iterable[str]) -> "WordFrequencies":
        """Of the words of texts."""
        return cls(Counter(word for text in texts for word in text.split()))

    def others(self, words: Sequence[str], generator: np.random.Generator) -> list[str]:
        """For each word another one."""
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
    """A model that reads perturbed sources.

    Args:
        model: an encoder-decoder of transformers, on the device to use.
        tokenizer: the model's.
        operators: those that will be used.
        frequencies: where `replace` draws words; None without it.
        seed: of the draws, which depend on the pair alone besides: not on its place nor on its batch.
        batch_size: most sources at once.
        source_prefix: what the model wants in front of every source.

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
        if not self.operators or len(set(self.operators)) < len(self.operators) or set(self.operators) - {*_KNOWN}:
            raise ValueError(f"`operators` must be some of {', '.join(_KNOWN)}, each once, got {self.operators!r}.")
        for operator, name in _TOKENS.items():
            if operator in self.operators and getattr(self.tokenizer, name, None) is None:
                raise ValueError(
                    f"`operators` has {operator!r}, for which the tokenizer must have a `{name}`, got one without. "
                    "Leave it out."
                )
        if "replace" in self.operators and self.frequencies is None:
            raise ValueError("`frequencies` must be given for the operator 'replace', got None.")
        if "hide" in self.operators:
            check_attends(self.model.config)
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1, got {self.batch_size}.")

    def generator(self, pair: TokenPair, purpose: int, draw: int) -> np.random.Generator:
        """Random numbers of a pair, the same wherever it stands."""
        content = (len(pair.source.ids), *pair.source.ids.tolist(), *pair.target.ids.tolist())
        return np.random.default_rng([self.seed, purpose, draw, *content])

    @torch.no_grad()
    def log_probabilities(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], changes: Sequence[Iterable[Change]]
    ) -> list[tuple[np.ndarray, dict[Change, np.ndarray]]]:
        """Log-probabilities of target words, the sums over their tokens, teacher-forced on the target.

        Args:
            pairs: of similar lengths. sources: their texts. changes: what to try with each.

        Returns:
            For each pair those with its own source, (target words,) float64, and those with each change.

        Raises:
            ValueError: a changed source with no token or with more than the model has positions.
        """
        asked = [(row, change) for row, of_pair in enumerate(changes) for change in dict.fromkeys(of_pair)]
        wanted = [item for item in asked if 0 in item[1].kept]
        hidden = [item for item in wanted if item[1].operator == "hide"]
        written = [item for item in wanted if item[1].operator != "hide"]
        copies = self._written(pairs, sources, written)
        with readable(self.model, attentions=False):
            whole = self._read([(row, pair.source.ids) for row, pair in enumerate(pairs)], pairs)
            read = self._read(copies, pairs) + self._read_hidden(hidden, pairs)
        found: list[tuple[np.ndarray, dict[Change, np.ndarray]]] = [(values, {}) for values in whole]
        for row, change in asked:
            found[row][1][change] = whole[row]  # of those that keep every word
        for (row, change), values in zip(written + hidden, read, strict=True):
            found[row][1][change] = values
        return found

    # ---- sources ----

    def _written(
        self, pairs: Sequence[TokenPair], sources: Sequence[str], wanted: Sequence[tuple[int, Change]]
    ) -> list[tuple[int, np.ndarray]]:
        """The tokens of changed sources, each with the row of its pair."""
        copies: dict[int, WordTokens] = {}
        texts: dict[int, str] = {}
        words = [source.split() for source in sources]
        others: dict[tuple[int, int], list[str]] = {}
        for number, (row, change) in enumerate(wanted):
            kept = np.frombuffer(change.kept, dtype=bool)
            if change.operator in _TOKENS:
                token = getattr(self.tokenizer, _TOKENS[change.operator])
                tokens = pairs[row].source
                copies[number] = tokens._replace(ids=np.where(_of_words(tokens, ~kept), token, tokens.ids))
            elif change.operator == "delete":
                texts[number] = " ".join(word for word, keep in zip(words[row], kept, strict=True) if keep)
            else:
                place = row, change.draw
                if place not in others:
                    generator = self.generator(pairs[row], _REPLACEMENT, change.draw)
                    others[place] = self.frequencies.others(words[row], generator)
                choice = zip(words[row], others[place], kept, strict=True)
                texts[number] = " ".join(word if keep else other for word, other, keep in choice)
        tokenized = tokenize_words(self.tokenizer, list(texts.values()), prefix=self.source_prefix)
        copies |= dict(zip(texts, tokenized, strict=True))
        rows = [pairs[row]._replace(source=copies[number]) for number, (row, _) in enumerate(wanted)]
        check_lengths(self.model, self.tokenizer, rows)
        for pair in rows:
            _check_not_empty(pair.index, len(pair.source.ids), "delete")
        return [(row, pair.source.ids) for (row, _), pair in zip(wanted, rows, strict=True)]

    # ---- passes ----

    def _read(self, copies: Sequence[tuple[int, np.ndarray]], pairs: Sequence[TokenPair]) -> list[np.ndarray]:
        """Target words of sources by their tokens, each with the row of its pair."""
        found: dict[int, np.ndarray] = {}
        lengths = [(len(pairs[row].target.ids), len(ids)) for row, ids in copies]
        for numbers in batches_by_length(lengths, self.batch_size):
            rows = [copies[number][0] for number in numbers]
            batch = self._batch([copies[number][1] for number in numbers], [pairs[row] for row in rows])
            found |= zip(numbers, self._of_words(batch), strict=True)
        return [found[number] for number in range(len(copies))]

    def _read_hidden(self, hidden: Sequence[tuple[int, Change]], pairs: Sequence[TokenPair]) -> list[np.ndarray]:
        """Target words of whole sources, some of whose states the decoder does not see."""
        if not hidden:
            return []
        whole = self._batch([pair.source.ids for pair in pairs], pairs)
        encoded = encode(self.model, whole)
        found: list[np.ndarray] = []
        for start in range(0, len(hidden), self.batch_size):
            chosen = hidden[start : start + self.batch_size]
            rows = torch.tensor([row for row, _ in chosen], device=self.model.device)
            inputs = {name: tensor[rows] for name, tensor in whole.inputs.items()}
            for copy, (row, change) in enumerate(chosen):
                tokens = pairs[row].source
                hide = np.flatnonzero(_of_words(tokens, ~np.frombuffer(change.kept, dtype=bool)))
                _check_not_empty(pairs[row].index, len(tokens.ids) - len(hide), "hide")
                inputs["attention_mask"][copy, hide] = 0
            batch = Batch([pairs[row] for row, _ in chosen], [], inputs, whole.labels[rows])
            states = {name: tensor[rows] for name, tensor in encoded.items() if torch.is_tensor(tensor)}
            found += self._of_words(batch, type(encoded)(**states))
        return found

    def _batch(self, sources: Sequence[np.ndarray], pairs: Sequence[TokenPair]) -> Batch:
        padding = self.tokenizer.pad_token_id or self.model.config.pad_token_id or 0
        input_ids, attention_mask = padded(sources, padding)
        labels, _ = padded([pair.target.ids for pair in pairs], IGNORE_INDEX)
        tensors = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
        return Batch(list(pairs), [], *teacher_forced(self.model, tensors))

    def _of_words(self, batch: Batch, encoded=None) -> list[np.ndarray]:
        """Sums over the tokens of each target word, for each row."""
        tokens = log_probabilities(self.model, batch, encoded).double().cpu().numpy()
        found = []
        for pair, values in zip(batch.pairs, tokens, strict=True):
            word_ids = pair.target.word_ids
            in_word = word_ids != NO_WORD
            values = values[: len(word_ids)][in_word]
            found.append(np.bincount(word_ids[in_word], weights=values, minlength=pair.target.words))
        return found


def _of_words(tokens: WordTokens, chosen: np.ndarray) -> np.ndarray:
    """Booleans, (tokens,): those of the chosen words."""
    return np.append(chosen, False)[tokens.word_ids]  # NO_WORD, which is -1, finds the False


def _check_not_empty(index: int, tokens: int, operator: str) -> None:
    if not tokens:
        raise ValueError(
            f"`operators` has {operator!r}, which would leave no source token of pair {index} (counted from 0). Take "
            "a tokenizer that ends every source with a special token, or leave the operator out."
        )
