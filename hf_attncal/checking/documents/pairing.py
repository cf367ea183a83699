"""Pair the segments of two documents, in order: one with one, one with two, or one with none.

The best path is found by dynamic programming, as in sentence alignment (Gale and Church, 1993,
https://aclanthology.org/J93-1004). The score of a pair comes from the counts of a statistical aligner: how much
likelier than chance the words of one segment translate words of the other, relative to the two documents. Without
counts it is the similarity of the segments by an encoder. Length, kind of segment, numbers and times of cues add to
it. Without either, only these are used.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise

import numpy as np
import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.segmentation import segment, white_space_words

from ..checker import Checker
from ..evidence import Both, has_counts, mutual_information
from .segments import CODE, Segment

Bead = tuple[tuple[int, ...], tuple[int, ...]]
Time = tuple[float, float]  # seconds

_UNKNOWN, _MOST = 0.0, 8.0  # bounds of the mutual information of two tokens
_SAME = 5.0  # mutual information of a token with itself, which may be a name or code
_WINDOW, _KEPT = 900, 600  # segments per window, and those whose pairs are final
_CELLS = 1 << 24
# Scores in units of the spread of wrong pairs.
_GAP, _MERGED = -2.0, -3.0
_LEAST, _BEST = -4.0, 8.0
_FEWEST = 6  # pairs below which two documents are assumed to belong together
_ALIKE = 0.7  # share of pairs with related words (at least 0.71 on 24 development documents)
_SAME_TIMES = 0.9  # share of target cues during a source cue
_ROOM = 0.6  # share of a cue that must fit into a translation for it to be part of it
_PAUSE = 0.8  # seconds between cues that a translator merges, at most
_TOLERANCE = 0.3  # seconds by which boundaries of cues may differ
_NUMBERS = re.compile(r"\d+")
_PLURAL_KEY = re.compile(r"(.+)_(zero|one|two|few|many|other|plural)")  # i18next


class Similarity(ABC):
    """Similarity of all pairs of two lists of segments, relative to the usual one of each segment.

    Args:
        pairs: Similarity of each source with each target, (sources, targets).
    """

    def __init__(self, pairs: np.ndarray):
        self.pairs = pairs
        self.rows = _usual(pairs, 1)[:, None]
        self.columns = _usual(pairs - self.rows, 0)[None, :]
        apart = pairs - self.rows - self.columns
        spread = np.abs(apart - np.median(apart)) if apart.size else np.ones(1)
        self.spread = (1.4826 * np.median(spread) * apart.size + self.usual_spread * 100) / (apart.size + 100)

    usual_spread: float  # prior of the spread of wrong pairs

    @abstractmethod
    def turned(self) -> "Similarity":
        """Return a copy with source and target swapped."""

    @abstractmethod
    def pairs_of_two(self) -> np.ndarray:
        """Return the similarity of each source with a target and the next, (sources, targets - 1)."""

    def single(self) -> np.ndarray:
        """Return the scores of each source with each target, (sources, targets)."""
        return (self.pairs - self.rows - self.columns) / self.spread

    def of_two(self) -> np.ndarray:
        """Return the scores of each source with a target and the next, (sources, targets - 1)."""
        columns = np.minimum(self.columns[:, :-1], self.columns[:, 1:])
        return (self.pairs_of_two() - self.rows - columns) / self.spread


class EncoderSimilarity(Similarity):
    """Cosines of all pairs of two lists of texts by an encoder.

    Args:
        vectors: Vectors of the texts, (sources, size) and (targets, size).
    """

    usual_spread = 0.15

    def __init__(self, vectors: Both[np.ndarray]):
        self.vectors = vectors
        super().__init__(_cosines(*vectors))

    def turned(self) -> "EncoderSimilarity":
        return EncoderSimilarity(self.vectors[::-1])

    def pairs_of_two(self) -> np.ndarray:
        source, target = self.vectors
        return _cosines(source, target[:-1] + target[1:])


class LexicalSimilarity(Similarity):
    """Lexical similarity of all pairs of two lists of texts, by the counts of an aligner."""

    usual_spread = 0.35

    def __init__(self, aligner: WordAligner, source: Sequence[str], target: Sequence[str]):
        cut = segment if aligner.source.tokenize else white_space_words
        pairs = [(cut(text).words, ()) for text in source] + [((), cut(text).words) for text in target]
        sides = aligner.source.tokens_of(pairs)
        of_sides = sides[: 2 * len(source) : 2], sides[2 * len(source) + 1 :: 2]
        tokens = [[text.ids for text in side] for side in of_sides]
        kinds = [np.unique(np.concatenate([*side, np.zeros(0, dtype=np.int64)])) for side in tokens]
        places = [[np.searchsorted(known, ids) for ids in side] for known, side in zip(kinds, tokens, strict=True)]
        information = _information(aligner.model, kinds[0], kinds[1])
        # Best partner in a segment for each kind of token: (target, source kinds) and (source, target kinds).
        self.best = [_largest(information.T, places[1]), _largest(information, places[0])]
        self.shares = [_shares(side, len(known)) for side, known in zip(places, kinds, strict=True)]
        self.lengths = [np.array([max(1, len(ids)) for ids in side], dtype=float) for side in places]
        self.forward = self.shares[0] @ self.best[0].T
        self.backward = (self.shares[1] @ self.best[1].T).T
        super().__init__((self.forward + self.backward) / 2)

    def turned(self) -> "LexicalSimilarity":
        swapped = copy(self)
        swapped.best, swapped.shares, swapped.lengths = self.best[::-1], self.shares[::-1], self.lengths[::-1]
        swapped.forward, swapped.backward, swapped.pairs = self.backward.T, self.forward.T, self.pairs.T
        swapped.rows, swapped.columns = self.columns.T, self.rows.T
        return swapped

    def pairs_of_two(self) -> np.ndarray:
        forward = self.shares[0] @ np.maximum(self.best[0][:-1], self.best[0][1:]).T
        products, lengths = self.backward * self.lengths[1], self.lengths[1]
        backward = (products[:, :-1] + products[:, 1:]) / (lengths[:-1] + lengths[1:])
        return (forward + backward) / 2


def similarities(checker: Checker, source: Sequence[str], target: Sequence[str]) -> list[Similarity]:
    """Return the similarity of two lists of texts by the counts of the aligner, and by the encoder."""
    of_judges: list[Similarity] = []
    if has_counts(checker.aligner):
        of_judges.append(LexicalSimilarity(checker.aligner, source, target))
    if checker.encoder is not None and checker.encoder.covers_languages:
        reader = checker.encoder.evidence_reader
        of_judges.append(EncoderSimilarity((reader.vectors(source), reader.vectors(target))))
    return of_judges


def _cosines(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    source, target = (
        side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6) for side in (source, target)
    )
    return source @ target.T


def _of_two(source: Sequence[Segment], target: Sequence[Segment], similarity: Similarity | None) -> np.ndarray:
    """Return the scores of each source with a target and the next, (sources, targets - 1)."""
    joined = [Segment(f"{a.text} {b.text}", a.kind if a.kind == b.kind else "", 0) for a, b in pairwise(target)]
    scores = _of_form(source, joined) if joined else np.zeros((len(source), 0))
    return np.clip(scores if similarity is None else scores + similarity.of_two(), _LEAST, _BEST) + _MERGED


@torch.no_grad()
def _information(model, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the mutual information of kinds of tokens, (source, target)."""
    if not len(source) or not len(target):
        return np.zeros((len(source), len(target)), dtype=np.float32)
    sides = [torch.from_numpy(side).to(model.device) for side in (source, target)]
    parts = []
    step = max(1, _CELLS // len(target))
    for start in range(0, len(source), step):
        values, together = mutual_information(model, sides[0][None, start : start + step], sides[1][None])
        values = values.masked_fill(together < 0.01, _UNKNOWN).clamp(_UNKNOWN, _MOST)
        parts.append(values[0].cpu().numpy())
    information = np.concatenate(parts)
    _, i, j = np.intersect1d(source, target, return_indices=True)
    information[i, j] = np.maximum(information[i, j], _SAME)
    return information


def _largest(information: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Return the largest value per segment and kind of token of the other side, (segments, kinds)."""
    largest = np.zeros((len(places), information.shape[1]), dtype=np.float32)
    for number, ids in enumerate(places):
        if len(ids):
            largest[number] = information[np.unique(ids)].max(axis=0)
    return largest


def _shares(places: Sequence[np.ndarray], kinds: int) -> np.ndarray:
    shares = np.zeros((len(places), kinds), dtype=np.float32)
    for number, ids in enumerate(places):
        np.add.at(shares[number], ids, 1 / max(1, len(ids)))
    return shares


def _usual(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the medians along an axis, shrunk to the overall median with the weight of ten values."""
    size = values.shape[axis]
    if not values.size:
        return np.zeros(values.shape[1 - axis])
    return (size * np.median(values, axis=axis) + 10 * np.median(values)) / (size + 10)


def _of_form(source: Sequence[Segment], target: Sequence[Segment]) -> np.ndarray:
    """Return the scores of each pair by length, kind, numbers, keys and times, (sources, targets)."""
    letters = [np.array([len(one.text) for one in side], dtype=float) for side in (source, target)]
    ratio = np.log(max(1.0, letters[1].sum()) / max(1.0, letters[0].sum())) if len(source) and len(target) else 0.0
    ratio = np.clip(ratio, -0.5, 0.5)
    far = np.log(letters[1][None] + 8) - np.log(letters[0][:, None] + 8) - ratio
    scores = 0.5 - np.minimum(4.0, (far / 0.35) ** 2 / 2)
    kinds = sorted({one.kind for one in (*source, *target)})
    of_kind = [np.array([kinds.index(one.kind) for one in side]) for side in (source, target)]
    same = of_kind[0][:, None] == of_kind[1][None]
    scores += np.where(same, 0.5, -2.0)
    code = kinds.index(CODE) if CODE in kinds else -1
    scores -= 20.0 * (~same & ((of_kind[0][:, None] == code) | (of_kind[1][None] == code)))
    scores += _shared([set(_NUMBERS.findall(one.text)) for one in source],
                     [set(_NUMBERS.findall(one.text)) for one in target])  # fmt: skip
    if any(one.key for one in source) and source[0].time is None:
        names = {one.key: j for j, one in enumerate(target) if one.key}
        for i, one in enumerate(source):
            if one.key in names:
                scores[i, names[one.key]] += 4.0
    source_times, target_times = _times(source), _times(target)
    if source_times and target_times:
        scores += _of_times(source_times, target_times)
    return scores


def _of_times(source: Sequence[Time], target: Sequence[Time]) -> np.ndarray:
    """Return the scores of pairs of cues by shared time, (sources, targets); 0 for two cuts of a film."""
    times = [np.array(side) for side in (source, target)]
    begin = np.maximum(times[0][:, None, 0], times[1][None, :, 0])
    end = np.minimum(times[0][:, None, 1], times[1][None, :, 1])
    lengths = [np.maximum(0.1, side[:, 1] - side[:, 0]) for side in times]
    overlap = np.clip((end - begin) / np.minimum(lengths[0][:, None], lengths[1][None]), 0, 1)
    one_cut = (overlap.max(axis=1) > 0.5).mean() > 0.8
    return 5 * overlap - 2.5 if one_cut else np.zeros_like(overlap)


def _shared(source: list[set], target: list[set]) -> np.ndarray:
    names_of_both = sorted(set().union(*source, *target))
    if not names_of_both:
        return np.zeros((len(source), len(target)))
    place = {name: number for number, name in enumerate(names_of_both)}
    sides = []
    for side in (source, target):
        values = np.zeros((len(side), len(names_of_both)), dtype=np.float32)
        for row, row_names in enumerate(side):
            values[row, [place[name] for name in row_names]] = 1
        sides.append(values)
    both = sides[0] @ sides[1].T
    either = sides[0].sum(axis=1)[:, None] + sides[1].sum(axis=1)[None] - both
    return np.where(either > 0, 3 * both / np.maximum(either, 1) - 1.5, 0.0)


def best_path(single, of_two_targets, of_two_sources, gap: float = _GAP) -> list[Bead]:
    """Return the beads of the path with the largest sum.

    Args:
        single: Scores of one source and one target, (S, T).
        of_two_targets: Scores of one source and two targets, (S, T - 1).
        of_two_sources: Scores of two sources and one target, (S - 1, T).
        gap: Score of a segment without a partner. Default: -2.
    """
    sources, targets = single.shape
    none = -np.inf
    best = np.full((sources + 1, targets + 1), none)
    steps = np.zeros((sources + 1, targets + 1), dtype=np.int8)
    along = gap * np.arange(targets + 1)
    best[0] = along
    steps[0, 1:] = 2
    for i in range(1, sources + 1):
        ways = np.full((5, targets + 1), none)
        ways[0, 1:] = best[i - 1, :-1] + single[i - 1]
        ways[1] = best[i - 1] + gap
        if targets > 1:
            ways[3, 2:] = best[i - 1, :-2] + of_two_targets[i - 1]
        if i > 1:
            ways[4, 1:] = best[i - 2, :-1] + of_two_sources[i - 2]
        chosen = ways.argmax(axis=0)
        reached = ways[chosen, np.arange(targets + 1)]
        onward = np.maximum.accumulate(reached - along) + along
        better = onward > reached + 1e-9
        best[i] = np.where(better, onward, reached)
        steps[i] = np.where(better, 2, chosen)
    beads: list[Bead] = []
    i, j = sources, targets
    sizes = ((1, 1), (1, 0), (0, 1), (1, 2), (2, 1))
    while i or j:
        of_source, of_target = sizes[steps[i, j]]
        beads.append((tuple(range(i - of_source, i)), tuple(range(j - of_target, j))))
        i, j = i - of_source, j - of_target
    return beads[::-1]


def pair_segments(
    checker: Checker, source: Sequence[Segment], target: Sequence[Segment]
) -> Iterator[tuple[Bead, float]]:
    """Yield the beads of two documents in their order, each with the score of its texts, 0 without a partner.

    Args:
        checker: Checker of their languages; its aligner is preferred to its encoder.
        source, target: Segments; long documents are paired in windows.
    """
    i = j = 0
    while i < len(source) or j < len(target):
        ends = min(len(source), i + _WINDOW), min(len(target), j + _WINDOW)
        last = ends == (len(source), len(target))
        source_window, target_window = source[i : ends[0]], target[j : ends[1]]
        beads: list[Bead] = [((n,), ()) for n in range(len(source_window))] + [
            ((), (n,)) for n in range(len(target_window))
        ]
        if source_window and target_window:
            form = _of_form(source_window, target_window)
            texts = ([one.text for one in side] for side in (source_window, target_window))
            similarity = next(iter(similarities(checker, *texts)), None)
            by_words = form if similarity is None else similarity.single()
            single = np.clip(form if similarity is None else form + by_words, _LEAST, _BEST)
            turned = _of_two(target_window, source_window, similarity and similarity.turned())
            beads = best_path(single, _of_two(source_window, target_window, similarity), turned.T)
        done = [0, 0]
        for of_source, of_target in beads:
            if not last and max(done) >= _KEPT:
                break
            score = float(by_words[of_source[0], of_target[0]]) if of_source and of_target else 0.0
            done[0] += len(of_source)
            done[1] += len(of_target)
            yield (tuple(n + i for n in of_source), tuple(n + j for n in of_target)), score
        i, j = i + done[0], j + done[1]


def belong_together(
    checker: Checker, source: Sequence[Segment], target: Sequence[Segment], scored: Sequence[tuple[Bead, float]]
) -> bool:
    """Return whether two documents are translations of each other.

    If they are, nearly all pairs have words that translate each other. Otherwise the best path is no better than the
    best path through one document in reverse order.

    Args:
        checker: Checker of their languages.
        source, target: Segments.
        scored: Beads and scores from `pair_segments`.
    """
    share, mean, pairs = _alike(source, scored)
    if not (has_counts(checker.aligner) or checker.encoder) or pairs < _FEWEST or share >= _ALIKE:
        return True
    turned = target[::-1]
    return mean > 2 * _alike(source, list(pair_segments(checker, source, turned)))[1] + 0.5


def _alike(source: Sequence[Segment], scored: Sequence[tuple[Bead, float]]) -> tuple[float, float, int]:
    values = [score for bead, score in scored if all(bead) and source[bead[0][0]].kind != CODE]
    if not values:
        return 0.0, 0.0, 0
    return sum(score > 1 for score in values) / len(values), sum(values) / len(values), len(values)


def _times(segments: Sequence[Segment]) -> list[Time] | None:
    """Return begin and end of all cues; None if any segment has no time."""
    times = [one.time for one in segments if one.time is not None]
    return times if len(times) == len(segments) else None


def have_same_times(source: Sequence[Segment], target: Sequence[Segment]) -> bool:
    """Return whether cues are of one cut of a film: nine in ten target cues have their middle in a source cue."""
    source_times, target_times = _times(source), _times(target)
    if not source_times or not target_times:
        return False
    begins, ends = np.array(source_times).T
    order = np.argsort(begins)
    spoken = np.array(target_times).mean(axis=1)
    place = np.searchsorted(begins[order], spoken, side="right") - 1
    return bool(((place >= 0) & (ends[order][place] > spoken)).mean() >= _SAME_TIMES)


def pair_by_time(source: Sequence[Segment], target: Sequence[Segment]) -> Iterator[Bead]:
    """Yield the beads of cues of one cut of a film, split at the boundaries that both sides share.

    If the target is silent for more than 0.6 of a usual source cue, the source cue with most of that time has no
    partner, unless the target of the bead before or after it is long enough for both. A target cue during silence of
    the source continues the bead before it, as translations stay longer on the screen.
    """
    lengths = [[len(one.text) for one in side] for side in (source, target)]
    times = _times(source) or []
    beads = list(_beads_by_time(source, target))

    def length(bead: Bead, side: int) -> int:
        return sum(lengths[side][number] for number in bead[side])

    ratio = np.median([length(bead, 1) / max(1, length(bead, 0)) for bead in beads if all(bead)] or [1.0])

    def has_room(bead: Bead, more: Bead) -> bool:
        if not all(bead) or length(bead, 1) <= ratio * (length(bead, 0) + _ROOM * length(more, 0)):
            return False
        first, second = sorted((bead[0], more[0]))
        return times[second[0]][0] - times[first[-1]][1] < _PAUSE

    last: Bead | None = None
    for bead in beads:
        if last is not None and not bead[1] and has_room(last, bead):
            last = last[0] + bead[0], last[1]
        elif last is not None and not last[1] and has_room(bead, last):
            last = last[0] + bead[0], bead[1]
        else:
            if last is not None:
                yield last
            last = bead
    if last is not None:
        yield last


def _beads_by_time(source: Sequence[Segment], target: Sequence[Segment]) -> Iterator[Bead]:
    source_times, target_times = _times(source) or [], _times(target) or []
    missing, late = _silent(source_times, target_times), _silent(target_times, source_times)
    cues = [
        (time, side, number)
        for side, times in enumerate((source_times, target_times))
        for number, time in enumerate(times)
    ]
    open_bead: tuple[list[int], list[int]] = ([], [])
    end = -np.inf
    for (begin, until), side, number in sorted(cues):
        is_late = side == 1 and number in late
        if begin > end - _TOLERANCE and all(open_bead) and not is_late:
            yield tuple(open_bead[0]), tuple(open_bead[1])
            open_bead = ([], [])
        if side == 0 and number in missing:
            yield (number,), ()
            continue
        open_bead[side].append(number)
        end = max(end, until) if len(open_bead[0]) + len(open_bead[1]) > 1 else until
    if any(open_bead):
        yield tuple(open_bead[0]), tuple(open_bead[1])


def pair_by_key(source: Sequence[Segment], target: Sequence[Segment]) -> Iterator[Bead]:
    """Yield the beads of segments with one key, in the order of the source, then the keys of the target only.

    A plural form that only the target has translates the general form of the source. One that the target has nowhere
    is not missing, as its language may have fewer.
    """
    places = {one.key: number for number, one in enumerate(target)}
    source_keys, target_keys = ([_PLURAL_KEY.fullmatch(one.key) for one in side] for side in (source, target))
    general = {key[1]: number for number, key in enumerate(source_keys) if key and key[2] in ("other", "plural")}
    forms, translated = ({key[group] for key in target_keys if key} for group in (2, 1))
    for number, (one, key) in enumerate(zip(source, source_keys, strict=True)):
        place = places.pop(one.key, None)
        if place is None and key and key[1] in general and key[1] in translated and key[2] not in forms:
            continue
        yield (number,), () if place is None else (place,)
    for place in places.values():
        key = target_keys[place]
        yield (general[key[1]],) if key and key[1] in general else (), (place,)


def _silent(speaking: Sequence[Time], other: Sequence[Time]) -> set[int]:
    """Return the cues during silence of the other side."""
    usual = float(np.median([end - begin for begin, end in speaking]))
    cues = set()
    gaps, end = [], 0.0
    for begin, until in sorted(other):
        if begin > end:
            gaps.append((end, begin))
        end = max(end, until)
    gaps.append((end, np.inf))
    order = sorted(range(len(speaking)), key=speaking.__getitem__)
    first = 0
    for gap in gaps:
        while first < len(order) and speaking[order[first]][1] <= gap[0]:
            first += 1
        spoken = {}
        for place in order[first:]:
            begin, until = speaking[place]
            if begin >= gap[1]:
                break
            spoken[place] = min(until, gap[1]) - max(begin, gap[0])
        total = sum(spoken.values())
        for place, seconds in spoken.items():
            length = speaking[place][1] - speaking[place][0]
            if seconds > 0.6 * length or (seconds == max(spoken.values()) and total > 0.6 * usual):
                cues.add(place)
    return cues
