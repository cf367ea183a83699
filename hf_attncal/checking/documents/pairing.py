"""Pair the segments of two documents: in order, one with one, one with two, or with none.

The best path through all pairs is found by dynamic programming, as sentences are aligned (Gale and Church, 1993,
https://aclanthology.org/J93-1004). What tells a pair are the counts of the word aligner: how much likelier than chance
the words of one segment translate words of the other, beside what is usual in these two documents. Length, kind of
segment, numbers and time of cues add to it. An aligner without counts has only these.
"""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import pairwise

import numpy as np
import torch

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.data.segmentation import segment, white_space_words

from ..evidence import has_counts, mutual_information
from .segments import CODE, Segment

Bead = tuple[tuple[int, ...], tuple[int, ...]]
Time = tuple[float, float]  # seconds

_UNKNOWN, _MOST = 0.0, 8.0  # bounds of what counts say of two tokens
_SAME = 5.0  # of a token on both sides, which may be a name or code
_WINDOW, _KEPT = 900, 600  # segments that are paired at once, and those of them that stay so
_CELLS = 1 << 24
# In units of the spread of pairs that are none.
_GAP, _MERGED = -2.0, -3.0
_LEAST, _BEST = -4.0, 8.0
_FEWEST = 6  # pairs that tell whether documents belong together
_ALIKE = 0.7  # share of pairs with words that translate each other (at least 0.71 on 24 documents, dev)
_SAME_TIMES = 0.9  # share of cues that are spoken while the other side speaks
_TOLERANCE = 0.3  # seconds by which boundaries of cues differ
_NUMBERS = re.compile(r"\d+")


class _Lexicon:
    """Scores of the words of all pairs of two lists of segments, by the counts of an aligner."""

    def __init__(self, aligner, source: Sequence[Segment], target: Sequence[Segment]):
        cut = segment if aligner.source.tokenize else white_space_words
        pairs = [(cut(one.text).words, ()) for one in source] + [((), cut(one.text).words) for one in target]
        sides = aligner.source.tokens_of(pairs)
        tokens = (
            [side.ids for side in sides[: 2 * len(source) : 2]],
            [side.ids for side in sides[2 * len(source) + 1 :: 2]],
        )
        kinds = [np.unique(np.concatenate([*side, np.zeros(0, dtype=np.int64)])) for side in tokens]
        places = [[np.searchsorted(known, ids) for ids in side] for known, side in zip(kinds, tokens, strict=True)]
        information = _information(aligner.model, kinds[0], kinds[1])
        # (target, source kinds) and (source, target kinds): the best partner in a segment.
        self.best = [_largest(information.T, places[1]), _largest(information, places[0])]
        self.shares = [_shares(side, len(known)) for side, known in zip(places, kinds, strict=True)]
        self.lengths = [np.array([max(1, len(ids)) for ids in side], dtype=float) for side in places]
        self.forward = self.shares[0] @ self.best[0].T
        self.backward = (self.shares[1] @ self.best[1].T).T
        both = (self.forward + self.backward) / 2
        self.rows = _usual(both, 1)[:, None]
        self.columns = _usual(both - self.rows, 0)[None, :]
        apart = both - self.rows - self.columns
        spread = np.abs(apart - np.median(apart)) if apart.size else np.ones(1)
        self.spread = (1.4826 * np.median(spread) * apart.size + 0.35 * 100) / (apart.size + 100)

    def turned(self) -> "_Lexicon":
        """Return the same with source and target exchanged."""
        other = copy(self)
        other.best, other.shares, other.lengths = self.best[::-1], self.shares[::-1], self.lengths[::-1]
        other.forward, other.backward = self.backward.T, self.forward.T
        other.rows, other.columns = self.columns.T, self.rows.T
        return other

    def single(self) -> np.ndarray:
        """Return the scores of each source with each target, (sources, targets)."""
        both = (self.forward + self.backward) / 2
        return (both - self.rows - self.columns) / self.spread

    def of_two(self) -> np.ndarray:
        """Return the scores of each source with a target and the next, (sources, targets - 1)."""
        forward = self.shares[0] @ np.maximum(self.best[0][:-1], self.best[0][1:]).T
        products, lengths = self.backward * self.lengths[1], self.lengths[1]
        backward = (products[:, :-1] + products[:, 1:]) / (lengths[:-1] + lengths[1:])
        columns = np.minimum(self.columns[:, :-1], self.columns[:, 1:])
        return ((forward + backward) / 2 - self.rows - columns) / self.spread


def _of_two(source: Sequence[Segment], target: Sequence[Segment], lexicon: _Lexicon | None) -> np.ndarray:
    """Return the scores of each source with a target and the next, (sources, targets - 1)."""
    joined = [Segment(f"{a.text} {b.text}", a.kind if a.kind == b.kind else "", 0) for a, b in pairwise(target)]
    scores = _of_form(source, joined) if joined else np.zeros((len(source), 0))
    return np.clip(scores if lexicon is None else scores + lexicon.of_two(), _LEAST, _BEST) + _MERGED


@torch.no_grad()
def _information(model, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return how much likelier than chance kinds of tokens translate each other, as a logarithm, (source, target)."""
    if not len(source) or not len(target):
        return np.zeros((len(source), len(target)), dtype=np.float32)
    sides = [torch.from_numpy(side).to(model.device) for side in (source, target)]
    parts = []
    step = max(1, _CELLS // len(target))
    for start in range(0, len(source), step):
        values, together = mutual_information(model, sides[0][None, start : start + step], sides[1][None])
        values = values.masked_fill(together < 0.01, _UNKNOWN).clamp(_UNKNOWN, _MOST)
        parts.append(values[0].cpu().numpy())
    found = np.concatenate(parts)
    _, i, j = np.intersect1d(source, target, return_indices=True)
    found[i, j] = np.maximum(found[i, j], _SAME)
    return found


def _largest(information: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Return for each segment the largest value of its tokens with each kind of token of the other side."""
    found = np.zeros((len(places), information.shape[1]), dtype=np.float32)
    for number, ids in enumerate(places):
        if len(ids):
            found[number] = information[np.unique(ids)].max(axis=0)
    return found


def _shares(places: Sequence[np.ndarray], kinds: int) -> np.ndarray:
    found = np.zeros((len(places), kinds), dtype=np.float32)
    for number, ids in enumerate(places):
        np.add.at(found[number], ids, 1 / max(1, len(ids)))
    return found


def _usual(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the medians along an axis, as of ten more values that are the median of all."""
    size = values.shape[axis]
    if not values.size:
        return np.zeros(values.shape[1 - axis])
    return (size * np.median(values, axis=axis) + 10 * np.median(values)) / (size + 10)


def _of_form(source: Sequence[Segment], target: Sequence[Segment]) -> np.ndarray:
    """Return what length, kind, numbers, keys and times say of each pair, (sources, targets)."""
    letters = [np.array([len(one.text) for one in side], dtype=float) for side in (source, target)]
    ratio = np.log(max(1.0, letters[1].sum()) / max(1.0, letters[0].sum())) if len(source) and len(target) else 0.0
    ratio = np.clip(ratio, -0.5, 0.5)
    far = np.log(letters[1][None] + 8) - np.log(letters[0][:, None] + 8) - ratio
    found = 0.5 - np.minimum(4.0, (far / 0.35) ** 2 / 2)
    kinds = sorted({one.kind for one in (*source, *target)})
    of_kind = [np.array([kinds.index(one.kind) for one in side]) for side in (source, target)]
    same = of_kind[0][:, None] == of_kind[1][None]
    found += np.where(same, 0.5, -2.0)
    code = kinds.index(CODE) if CODE in kinds else -1
    found -= 20.0 * (~same & ((of_kind[0][:, None] == code) | (of_kind[1][None] == code)))
    found += _shared([set(_NUMBERS.findall(one.text)) for one in source],
                     [set(_NUMBERS.findall(one.text)) for one in target])  # fmt: skip
    if any(one.key for one in source) and source[0].time is None:
        names = {one.key: j for j, one in enumerate(target) if one.key}
        for i, one in enumerate(source):
            if one.key in names:
                found[i, names[one.key]] += 4.0
    ours, theirs = _times(source), _times(target)
    if ours and theirs:
        found += _of_times(ours, theirs)
    return found


def _of_times(source: Sequence[Time], target: Sequence[Time]) -> np.ndarray:
    """Return the score of the shared time of each pair of cues, (sources, targets); 0 for two cuts of a film."""
    times = [np.array(side) for side in (source, target)]
    begin = np.maximum(times[0][:, None, 0], times[1][None, :, 0])
    end = np.minimum(times[0][:, None, 1], times[1][None, :, 1])
    lengths = [np.maximum(0.1, side[:, 1] - side[:, 0]) for side in times]
    overlap = np.clip((end - begin) / np.minimum(lengths[0][:, None], lengths[1][None]), 0, 1)
    one_cut = (overlap.max(axis=1) > 0.5).mean() > 0.8
    return 5 * overlap - 2.5 if one_cut else np.zeros_like(overlap)


def _shared(source: list[set], target: list[set]) -> np.ndarray:
    known = sorted(set().union(*source, *target))
    if not known:
        return np.zeros((len(source), len(target)))
    place = {name: number for number, name in enumerate(known)}
    sides = []
    for side in (source, target):
        values = np.zeros((len(side), len(known)), dtype=np.float32)
        for row, names in enumerate(side):
            values[row, [place[name] for name in names]] = 1
        sides.append(values)
    both = sides[0] @ sides[1].T
    either = sides[0].sum(axis=1)[:, None] + sides[1].sum(axis=1)[None] - both
    return np.where(either > 0, 3 * both / np.maximum(either, 1) - 1.5, 0.0)


def best_path(single, of_two_targets, of_two_sources, gap: float = _GAP) -> list[Bead]:
    """Return the beads of the path with the largest sum.

    Args:
        single: (S, T). of_two_targets: (S, T - 1). of_two_sources: (S - 1, T).
        gap: of a segment without a partner.
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
    aligner: WordAligner | None, source: Sequence[Segment], target: Sequence[Segment]
) -> Iterator[tuple[Bead, float]]:
    """Yield the beads of two documents in their order, with how much the words of each look like a translation; of one
    without a partner it is 0.

    Args:
        aligner: a `WordAligner` from the language of the source to that of the target.
        source, target: segments; long documents are paired in windows.
    """
    i = j = 0
    while i < len(source) or j < len(target):
        ends = min(len(source), i + _WINDOW), min(len(target), j + _WINDOW)
        last = ends == (len(source), len(target))
        ours, theirs = source[i : ends[0]], target[j : ends[1]]
        beads: list[Bead] = [((n,), ()) for n in range(len(ours))] + [((), (n,)) for n in range(len(theirs))]
        if ours and theirs:
            form = _of_form(ours, theirs)
            lexicon = _Lexicon(aligner, ours, theirs) if has_counts(aligner) else None
            by_words = form if lexicon is None else lexicon.single()
            single = np.clip(form if lexicon is None else form + by_words, _LEAST, _BEST)
            turned = _of_two(theirs, ours, lexicon and lexicon.turned())
            beads = best_path(single, _of_two(ours, theirs, lexicon), turned.T)
        done = [0, 0]
        for of_source, of_target in beads:
            if not last and max(done) >= _KEPT:
                break
            score = float(by_words[of_source[0], of_target[0]]) if of_source and of_target else 0.0
            done[0] += len(of_source)
            done[1] += len(of_target)
            yield (tuple(n + i for n in of_source), tuple(n + j for n in of_target)), score
        i, j = i + done[0], j + done[1]


def look_alike(
    aligner: WordAligner | None,
    source: Sequence[Segment],
    target: Sequence[Segment],
    scored: Sequence[tuple[Bead, float]],
) -> bool:
    """Return whether two documents belong together.

    In documents that do, nearly all pairs have words that translate each other. In others the best path looks no
    better than that through one of them turned around.

    Args:
        scored: what `pair_segments` gave for them.
    """
    share, mean, pairs = _alike(source, scored)
    if not has_counts(aligner) or pairs < _FEWEST or share >= _ALIKE:
        return True
    turned = target[::-1]
    return mean > 2 * _alike(source, list(pair_segments(aligner, source, turned)))[1] + 0.5


def _alike(source: Sequence[Segment], scored: Sequence[tuple[Bead, float]]) -> tuple[float, float, int]:
    values = [score for bead, score in scored if all(bead) and source[bead[0][0]].kind != CODE]
    if not values:
        return 0.0, 0.0, 0
    return sum(score > 1 for score in values) / len(values), sum(values) / len(values), len(values)


def _times(segments: Sequence[Segment]) -> list[Time] | None:
    """Return when cues begin and end; None if any segment has no time."""
    times = [one.time for one in segments if one.time is not None]
    return times if len(times) == len(segments) else None


def have_same_times(source: Sequence[Segment], target: Sequence[Segment]) -> bool:
    """Return whether these are cues of one cut of a film: nine in ten of the target begin while the source speaks."""
    ours, theirs = _times(source), _times(target)
    if not ours or not theirs:
        return False
    begins, ends = np.array(ours).T
    order = np.argsort(begins)
    spoken = np.array(theirs).mean(axis=1)
    place = np.searchsorted(begins[order], spoken, side="right") - 1
    return bool(((place >= 0) & (ends[order][place] > spoken)).mean() >= _SAME_TIMES)


def pair_by_time(source: Sequence[Segment], target: Sequence[Segment]) -> Iterator[Bead]:
    """Yield the beads of cues of one cut of a film: parted where both sides have a boundary between cues.

    Where the source speaks and the target is silent for longer than half of a usual cue, the cue of the source that
    speaks most of that time has no partner. A cue of the target that comes while the source is silent ends the
    sentence before it: translations are longer, and stay longer.
    """
    ours, theirs = _times(source) or [], _times(target) or []
    missing, late = _silent(ours, theirs), _silent(theirs, ours)
    cues = [(time, side, number) for side, times in enumerate((ours, theirs)) for number, time in enumerate(times)]
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


def _silent(speaking: Sequence[Time], other: Sequence[Time]) -> set[int]:
    """Return the cues that speak while the other side is silent."""
    usual = float(np.median([end - begin for begin, end in speaking]))
    found = set()
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
                found.add(place)
    return found
