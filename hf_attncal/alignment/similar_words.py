"""A prior for a small text: words of both sides that look alike are probably translations (names, cognates, numbers).

`s(a, b) = 2 |g(a) & g(b)| / (|g(a)| + |g(b)|)`: g are the pairs of letters of a word with its edges, without accents;
of a word with a digit, the word alone. Two words of a sentence pair are similar if s > `LEAST` and neither is more
similar to another word there. Tokens x and y of them that cover the same part of their words begin with the count
`PRIOR (s(a, b) - LEAST) / (1 - LEAST) overlap(x, y) s(x, y)`, the largest over all words.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
import torch

from hf_attncal.data.words import WordTokens
from hf_attncal.models.hmm_tables import HMMTablesMixin

# Chosen on small dev sets (docs/log.md).
LEAST, PRIOR = 0.3, 0.5
MOST_PAIRS_READ = 10_000  # of more text, counts know the words, and the search takes long
_MOST_CELLS = 10**6  # pairs of different words of a pair: among those of a whole book, all have one that looks alike
_SHORTEST = 4  # letters of a word


@lru_cache(maxsize=1 << 17)
def letter_pairs(word: str) -> frozenset[str]:
    """Return g of a word."""
    if any(map(str.isdigit, word)):
        return frozenset([word])
    plain = "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
    marked = f"<{plain}>"
    return frozenset(marked[place : place + 2] for place in range(len(marked) - 1))


def similarity(first: str, second: str) -> float:
    """Return s of two words, from 0 to 1."""
    one, other = letter_pairs(first), letter_pairs(second)
    return 2 * len(one & other) / (len(one) + len(other))


def similar_words(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> dict[tuple[str, str], tuple[float, int, int, int]]:
    """Return s of each source and target word that are similar somewhere, and where first: pair, source, target word.

    Args:
        pairs: words of both sides, folded.
    """
    grams = [
        {pair for words in side for word in words for pair in letter_pairs(word)} for side in zip(*pairs, strict=True)
    ]
    columns = {pair: column for column, pair in enumerate(sorted(grams[0] & grams[1]))}
    rows: dict[str, np.ndarray] = {}

    def row(word: str) -> np.ndarray:
        if word not in rows:
            rows[word] = np.zeros(len(columns), np.float32)
            rows[word][[columns[pair] for pair in letter_pairs(word) if pair in columns]] = 1
        return rows[word]

    found: dict[tuple[str, str], tuple[float, int, int, int]] = {}
    for number, pair in enumerate(pairs):
        places = [{word: place for place, word in reversed([*enumerate(words)]) if _tells(word)} for words in pair]
        if not (columns and all(places)) or len(places[0]) * len(places[1]) > _MOST_CELLS:
            continue
        words = [list(side) for side in places]
        sizes = [np.array([len(letter_pairs(word)) for word in side]) for side in words]
        shared = np.stack([row(word) for word in words[0]]) @ np.stack([row(word) for word in words[1]]).T
        values = 2 * shared / (sizes[0][:, None] + sizes[1])
        best = (values == values.max(axis=1, keepdims=True)) & (values == values.max(axis=0))
        for i, j in zip(*np.nonzero(best & (values > LEAST)), strict=True):
            source, target = words[0][i], words[1][j]
            found.setdefault((source, target), (float(values[i, j]), number, places[0][source], places[1][target]))
    return found


def prior_counts(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]], sides: Sequence[WordTokens], name: Callable[[int], str]
) -> dict[tuple[int, int], float]:
    """Return the count that each pair of a source and a target token begins with, above 0.

    Args:
        pairs: as of `similar_words`.
        sides: tokens of the source and the target of each pair in turn.
        name: of a token, its letters.
    """
    counts: dict[tuple[int, int], float] = {}
    for value, number, *words in similar_words(pairs).values():
        tokens = [
            side.ids[side.word_ids == word].tolist()
            for side, word in zip(sides[2 * number : 2 * number + 2], words, strict=True)
        ]
        (m, n), weight = map(len, tokens), PRIOR * (value - LEAST) / (1 - LEAST)
        for (p, x), (q, y) in product(enumerate(tokens[0]), enumerate(tokens[1])):
            overlap = max(m, n) * (min((p + 1) / m, (q + 1) / n) - max(p / m, q / n))
            if overlap > 1e-9:
                count = weight * min(overlap, 1) * similarity(name(x), name(y))
                if count > counts.get((x, y), 0):
                    counts[x, y] = count
    return counts


def begin_with(model: HMMTablesMixin, counts: dict[tuple[int, int], float]) -> None:
    """Put counts of pairs of tokens into a fresh model; they stay beside what it counts itself."""
    places = sorted(counts)
    tokens = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
    model.counts = torch.tensor([counts[place] for place in places], dtype=torch.float32)
    model.pairs = tokens[0] * model.config.vocab_size + tokens[1]
    model.config.entries = len(places)
    model.source_counts.index_add_(0, tokens[0], model.counts)
    model.target_counts.index_add_(0, tokens[1], model.counts)


def _tells(word: str) -> bool:
    return len(word) >= _SHORTEST or any(map(str.isdigit, word))
