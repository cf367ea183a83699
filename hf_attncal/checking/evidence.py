"""Evidence of `attncal check` on each word of a pair, from an aligner and from the form of words.

Shapes use S = source words and T = target words of a pair.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.links import harmonic_mean, mean_over_words
from hf_attncal.alignment.sources import Weights, largest_over_words
from hf_attncal.data.segmentation import Segments, segment, white_space_words

T = TypeVar("T")
Both = tuple[T, T]  # source and target

_BATCH_PAIRS, _BATCH_TOKENS = 256, 4096
_ALIEN = 1e-3  # share of the letters of clean text below which a script is alien
_FAR, _NO_NEIGHBOUR = 6.0, 3.0  # words
_MOST_CLAIMED = 3.0
_LITTLE = 0.01
# Features of the links of a word: its best score, the best score per direction, its share of its partner's score
# against the next best word of this side, the scores of other words with its partner, the distance of its partner from
# the positions that the neighbours' partners predict, its score there, and its partner.
LINK_FEATURES = ("best", "forward", "backward", "share", "claimed", "jump before", "jump after", "near", "partner")
_UNKNOWN = -10.0  # log-ratio of an unknown token
_TABLES: WeakKeyDictionary = WeakKeyDictionary()  # cache: model -> sum of its counts, and its `usual_of_tokens`
_HALF_WEIGHT_COUNT = 5.0  # count at which the mean of a token has half its weight


NO_WORDS = np.zeros((0, 0)), np.zeros((0, 0))


def both(values: Iterable[T]) -> Both[T]:
    """Return two values as a pair (source, target)."""
    source, target = values
    return source, target


@dataclass(frozen=True, slots=True)
class LinkEvidence:
    """Evidence on the words of one pair.

    Args:
        source, target: Words with their positions in the text.
        best: Best score of each word with any word of the other side, from 0 to 1, (S,) and (T,); 0 if that is empty.
        known: Log-ratio of each word: how much likelier than chance its tokens translate a token of the other side;
            None for an aligner without counts.
        said_again: Unsupported repetition of each target word, from 0 to 1, (T,). A word that occurs n times with m
            source words for it is repeated n - max(1, m) times, shared by its later positions.
        links: `LINK_FEATURES` of each word, (S, 9) and (T, 9).
        usual: Mean `known` of each word in the training text, and how often it has no partner, (S, 2) and (T, 2); None
            for an aligner without counts.
    """

    source: Segments
    target: Segments
    best: Both[np.ndarray]
    known: Both[np.ndarray] | None
    said_again: np.ndarray
    links: Both[np.ndarray] = NO_WORDS
    usual: Both[np.ndarray] | None = None


def has_counts(aligner: WordAligner | None) -> TypeGuard[WordAligner]:
    """Return whether an aligner is a statistical one; False for a network and for None."""
    return aligner is not None and hasattr(aligner.model, "counts_of")


def cut_for(aligner: WordAligner | None, text: str) -> Segments:
    """Split a text into words as the aligner does; without an aligner, at Unicode word boundaries."""
    return segment(text) if aligner is None or aligner.source.tokenize else white_space_words(text)


def read_evidence(aligner: WordAligner, pairs: Iterable[tuple[str, str]]) -> list[LinkEvidence]:
    """Align sentence pairs, and return the evidence on their words, one `LinkEvidence` per pair.

    The evidence on a word is how well it is linked to the other side. For a target word, it is also whether the
    target repeats it without a reason in the source.

    Raises:
        ValueError: a pair that cannot be aligned, see `WordAligner.align`.
    """
    sides = [(cut_for(aligner, source), cut_for(aligner, target)) for source, target in pairs]
    return evidence_of_words(aligner, sides)


@torch.no_grad()
def evidence_of_words(aligner: WordAligner, sides: Sequence[Both[Segments]]) -> list[LinkEvidence]:
    """Return the evidence on pairs that `cut_for` has split into words; see `read_evidence`."""
    counts = has_counts(aligner)
    tables = usual_of_tokens(aligner.model) if counts else None
    evidence = [_empty_evidence(*pair, counts) for pair in sides]  # stays for pairs with an empty side
    words = [(source.words, target.words) for source, target in sides]
    for indices, weights in aligner.source.weights(words, _BATCH_PAIRS, _BATCH_TOKENS):
        forward = weights.forward.mT
        backward = forward if weights.backward is None else weights.backward
        merged = weights.forward if weights.backward is None else harmonic_mean(weights.forward, weights.backward)
        tables_of_pairs = [
            largest_over_words(one, weights.source_words, weights.target_words).clamp(max=1).cpu().numpy()
            for one in (merged, forward, backward)
        ]
        sizes = np.array(weights.words)
        links = (
            link_features(tables_of_pairs, sizes[:, 0]),
            link_features([one.swapaxes(1, 2) for one in tables_of_pairs], sizes[:, 1]),
        )
        known_values = usual_values = None
        if tables and weights.source_tokens is not None and weights.target_tokens is not None:
            tokens = weights.source_tokens, weights.target_tokens
            known_values, usual_values = _known(aligner.model, weights, tokens), _usual(tables, weights, tokens)
        for row, (index, lengths) in enumerate(zip(indices, weights.words, strict=True)):
            if all(lengths):
                of_row = partial(_of_row, row=row, lengths=lengths)
                known, usual = known_values and of_row(known_values), usual_values and of_row(usual_values)
                best = both(side[:, 0] for side in of_row(links))
                again = said_again(words[index][1], tables_of_pairs[0][row, : lengths[0], : lengths[1]])
                evidence[index] = LinkEvidence(*sides[index], best, known, again, of_row(links), usual)
    return evidence


def _of_row(sides: Both[np.ndarray], row: int, lengths: Both[int]) -> Both[np.ndarray]:
    return both(side[row, :end] for side, end in zip(sides, lengths, strict=True))


def link_features(tables: Sequence[np.ndarray], lengths: np.ndarray) -> np.ndarray:
    """Return `LINK_FEATURES` of the words of one side of a batch, (B, N, 9); anything at padding.

    Args:
        tables: Scores of the words of this side with the words of the other, 0 at padding, (B, N, M): merged, forward,
            and backward.
        lengths: Number of words on this side of each pair, (B,).
    """
    scores, forward, backward = tables
    batch, number, others = scores.shape
    partner = scores.argmax(axis=2)

    def at(places: np.ndarray) -> np.ndarray:
        return np.take_along_axis(scores, np.clip(places, 0, others - 1)[:, :, None], axis=2)[:, :, 0]

    best, rival = at(partner), np.zeros(partner.shape, scores.dtype)
    if number > 1:
        largest = np.partition(scores, number - 2, axis=1)[:, -2:]
        less, most = (np.take_along_axis(one, partner, axis=1) for one in (largest[:, 0], largest[:, 1]))
        rival = np.where(best >= most, less, most)
    before = np.concatenate([partner[:, :1] - 1, partner[:, :-1]], axis=1) + 1  # positions that the neighbours predict
    after = np.concatenate([partner[:, 1:], partner[:, -1:]], axis=1)
    last = lengths[:, None].clip(1) - 1
    np.put_along_axis(after, last, np.take_along_axis(partner, last, 1) + 1, 1)
    after -= 1
    jumps = np.full((batch, number + 1), _NO_NEIGHBOUR, dtype=scores.dtype)
    jumps[:, 1:-1] = np.minimum(np.abs(partner[:, 1:] - before[:, 1:]), _FAR)
    np.put_along_axis(jumps, lengths[:, None], _NO_NEIGHBOUR, axis=1)
    claimed = np.take_along_axis(scores.sum(axis=1), partner, axis=1) - best
    share = (best + _LITTLE) / (best + rival + 2 * _LITTLE)
    columns = [best, forward.max(axis=2), backward.max(axis=2), share, np.minimum(claimed, _MOST_CLAIMED)]
    columns += [jumps[:, :-1], jumps[:, 1:], np.maximum(at(before), at(after)), partner]
    return np.stack(columns, axis=2)


def mutual_information(model, source: torch.Tensor, target: torch.Tensor) -> Both[torch.Tensor]:
    """Return the pointwise mutual information of tokens by the counts of an aligner, and their joint counts.

    `log(n(x, y) N / (n(x) n(y)))`, with smoothed counts, so that rare tokens are weak evidence.

    Args:
        model: `HMMTables` of the aligner.
        source, target: Tokens, (B, S) and (B, T).

    Returns:
        (B, S, T) each.
    """
    together = model.counts_of(source, target).mT
    of_source = (model.source_counts + model.source_null_counts)[source].float()
    of_target = (model.target_counts + model.target_null_counts)[target].float()
    information = (together + 0.02).log() + math.log(float(model.counts.sum()) + 1)
    return information - (of_source + 1).log()[:, :, None] - (of_target + 1).log()[:, None, :], together


def _known(model, weights: Weights, tokens: Both[torch.Tensor]) -> Both[np.ndarray]:
    """Return `LinkEvidence.known` of a batch, (B, S) and (B, T).

    It is the mean over the tokens of a word of the largest `mutual_information`; 0 for a word without tokens.
    """
    sides = weights.source_words, weights.target_words
    real = [word_ids != words for word_ids, words in sides]
    information, _ = mutual_information(model, *tokens)
    information = information.masked_fill(~(real[0][:, :, None] & real[1][:, None, :]), _UNKNOWN)
    best = information.amax(dim=2), information.amax(dim=1)
    means = (mean_over_words(values, *side, empty=0) for values, side in zip(best, sides, strict=True))
    return both(values.cpu().numpy() for values in means)


def usual_of_tokens(model) -> Both[torch.Tensor]:
    """Return two statistics of each token by the counts of an aligner, (V, 2) per side.

    They are its mean `mutual_information` with its partners, shrunk for rare tokens, and its share without a partner.
    A word that usually has a clear partner and has none here is suspect.
    """
    total = float(model.counts.sum())
    if (cached := _TABLES.get(model)) and cached[0] == total:  # the counts have not changed
        return cached[1]
    size, counts = model.config.vocab_size, model.counts.float()
    tokens = model.pairs // size, model.pairs % size
    nulls = [getattr(model, f"{side}_null_counts").float() for side in ("source", "target")]
    alone = [model.source_counts + nulls[0], model.target_counts + nulls[1]]
    information = (counts + 0.02).log() + math.log(total + 1)
    for ids, one in zip(tokens, alone, strict=True):
        information -= (one + 1).log()[ids]
    tables = []
    for ids, null, one in zip(tokens, nulls, alone, strict=True):
        sums, linked = (counts.new_zeros(size).index_add_(0, ids, values) for values in (counts * information, counts))
        tables.append(torch.stack([sums / (linked + _HALF_WEIGHT_COUNT), (null + 0.5) / (one + 2)], dim=1))
    _TABLES[model] = total, both(tables)
    return both(tables)


def _usual(tables: Both[torch.Tensor], weights: Weights, tokens: Both[torch.Tensor]) -> Both[np.ndarray]:
    """Return the mean `usual_of_tokens` over the tokens of each word, (B, S, 2) and (B, T, 2)."""
    sides = weights.source_words, weights.target_words
    return both(
        np.stack([mean_over_words(values, *side, empty=0).cpu().numpy() for values in table[ids].unbind(2)], axis=2)
        for table, ids, side in zip(tables, tokens, sides, strict=True)
    )


def _empty_evidence(source: Segments, target: Segments, counts: bool) -> LinkEvidence:
    """Return the evidence on a pair with an empty side."""
    best = np.zeros(len(source.words)), np.zeros(len(target.words))
    known = both(np.full(len(side), _UNKNOWN) for side in best) if counts else None
    usual = both(np.zeros((len(side), 2)) for side in best) if counts else None
    links = both(np.zeros((len(side), len(LINK_FEATURES))) for side in best)
    again = said_again(target.words, np.zeros((0, len(target.words))))
    return LinkEvidence(source, target, best, known, again, links, usual)


def said_again(target: Sequence[str], scores: np.ndarray) -> np.ndarray:
    """Return `LinkEvidence.said_again` of target words, (T,), from scores (S, T)."""
    again = np.zeros(len(target))
    if len(set(target)) == len(target):
        return again
    places: dict[str, list[int]] = {}
    for place, word in enumerate(target):
        places.setdefault(word.lower(), []).append(place)
    for word, found in places.items():
        if len(found) > 1 and any(map(str.isalnum, word)):
            support = scores[:, found].max(axis=1).sum() if len(scores) else 0.0
            again[found[1:]] = max(0.0, len(found) - max(1.0, support)) / (len(found) - 1)
    return again


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str:
    """Return the script of a letter, the first word of its Unicode name (LATIN, CJK); "" for other characters."""
    if not character.isalpha():
        return ""
    return unicodedata.name(character, " ").split(" ")[0].split("-")[0]


def script_shares(texts: Iterable[str]) -> dict[str, float]:
    """Return the share of each script among the letters of texts."""
    counter = Counter(script for text in texts for script in map(_script, text) if script)
    return {name: count / counter.total() for name, count in counter.items()}


def alien_share(text: str, scripts: Mapping[str, float]) -> float:
    """Return the share of the letters of a text in scripts that clean text does not have."""
    alien = [scripts.get(script, 0.0) < _ALIEN for script in map(_script, text) if script]
    return sum(alien) / max(1, len(alien))
