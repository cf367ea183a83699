"""Turn weights between subwords or words into links (i source, j target), both counted from 0.

The forward direction predicts the target from the source; its weights are (target, source). The backward direction
predicts the source from the target; its weights are (source, target). Merged scores are (source, target).

References: `harmonic`: Mask-Align (Chen et al. 2021, sec. 3.4); intersection and union: Och and Ney (2003); the grow
heuristics: Koehn, "Statistical Machine Translation", section 4.5.3, and Moses.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from heapq import heapify, heappop, heappush
from itertools import islice, pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_attncal.data.segmentation import Segments, raw_links, raw_means
from hf_attncal.data.words import Link
from hf_attncal.models.limits import SYMMETRIZATIONS

from .sources import Weights, largest_over_words

Pair = tuple[tuple[str, ...], tuple[str, ...]]  # source and target words


def best_links(weights: Tensor | ArrayLike) -> frozenset[Link]:
    """Link each target word to the source word with the highest score; the first one in a tie.

    A target word without a score above 0 gets no link: its row of weights is empty, or no source word supports it
    (signed scores of gradients or occlusion). Scores are compared with their sign, not by magnitude.

    Args:
        weights: Scores of either sign, (target words, source words), from `word_attention` or `Attribution.words`.

    Returns:
        Links (i source, j target), at most one per target word.

    Raises:
        ValueError: weights that are not two-dimensional, or NaN.
    """
    weights = torch.as_tensor(weights)
    if weights.dim() != 2:
        raise ValueError(f"`weights` must be (target words, source words), got the shape {tuple(weights.shape)}.")
    if weights.numel() == 0:
        return frozenset()
    best, index = weights.max(dim=1)
    if best.isnan().any():
        raise ValueError(f"`weights` must be numbers, got NaN in row {int(best.isnan().nonzero()[0])} (from 0).")
    links = enumerate(zip(index.tolist(), best.tolist(), strict=True))
    return frozenset((i, j) for j, (i, score) in links if score > 0)


def argmax_links(weights: Tensor) -> tuple[Link, ...]:
    """Return `best_links`, sorted."""
    return tuple(sorted(best_links(weights)))


# ---- two directions ----

# (target, source) steps in the order of the published pseudo-code: adjacent cells before diagonal ones.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def links_of_batch(scores: Tensor, threshold: float) -> list[tuple[Link, ...]]:
    """Return the sorted links (i, j) of all scores above the threshold, for each pair of (batch, source, target)."""
    above = scores > threshold
    _, i, j = (index.tolist() for index in above.nonzero(as_tuple=True))
    stops = [0, *above.sum(dim=(1, 2)).cumsum(0).tolist()]
    return [tuple(zip(i[start:stop], j[start:stop], strict=True)) for start, stop in pairwise(stops)]


def symmetrize_links(forward: Iterable[Link], backward: Iterable[Link], method: str) -> tuple[Link, ...]:
    """Merge the links (i source, j target) of two directions.

    "grow-diag" starts from the intersection. It visits the links by target word, then source word, and adds each of
    their eight neighbours (target before, source before, target after, source after, then the diagonals in the same
    order) that is in the union and has an unlinked word. Added links are visited as well. "grow-diag-final" then adds
    the forward links and the backward links with at least one unlinked word, in the same order; "grow-diag-final-and"
    adds only those with two unlinked words.

    Args:
        forward: Links of the forward direction.
        backward: Links of the backward direction.
        method: One of `SYMMETRIZATIONS`, except "harmonic", which needs weights.

    Returns:
        The merged links, sorted.

    Raises:
        ValueError: an unknown `method`.
    """
    return tuple(sorted(_merged(frozenset(forward), frozenset(backward), method)))


def _merged(forward: frozenset[Link], backward: frozenset[Link], method: str) -> AbstractSet[Link]:
    if method == "forward":
        return forward
    if method == "backward":
        return backward
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    if method not in SYMMETRIZATIONS or method == "harmonic":
        raise ValueError(
            f"`method` must be one of {', '.join(SYMMETRIZATIONS[1:])}, got {method!r}. These links have no scores, "
            "which `harmonic` would need."
        )
    growing = _Growing(forward & backward)
    growing.grow(forward | backward)
    if method != "grow-diag":
        for links in (forward, backward):
            growing.finish(links, both=method == "grow-diag-final-and")
    return growing.links


def harmonic_mean(forward: Tensor, backward: Tensor) -> Tensor:
    """Return `S_ij = 2 W_f,ij W_b,ji / (W_f,ij + W_b,ji)`, 0 if both are 0 (Mask-Align, sec. 3.4).

    Args:
        forward: W_f, (..., T, S).
        backward: W_b, (..., S, T).

    Returns:
        (..., S, T), source first, as in links.
    """
    forward = forward.transpose(-1, -2)
    total = forward + backward
    return 2 * forward * backward / total.masked_fill(total == 0, 1.0)


def symmetrize_batch(
    forward_weights: Tensor, backward_weights: Tensor | None, method: str, threshold: float
) -> tuple[list[tuple[Link, ...]], Tensor]:
    """Return the links of sentence pairs from the weights of one or two directions.

    "harmonic" links two words if the harmonic mean of both directions, `S_ij = 2 a b / (a + b)` with `a = W_f[j, i]`
    and `b = W_b[i, j]`, is above the threshold. The other methods merge the links of each direction with weights above
    the threshold, see `symmetrize_links`.

    Args:
        forward_weights: Non-negative weights of the forward direction, (batch, target, source), 0 at padding.
        backward_weights: Weights of the backward direction, (batch, source, target); None only with "forward".
        method: One of `SYMMETRIZATIONS`.
        threshold: Exclusive minimum of a weight.

    Returns:
        The sorted links of each pair, and their scores, (batch, source, target): the harmonic mean; the weight of the
        direction ("forward", "backward"); the smaller weight ("intersection"); or the larger weight ("union" and the
        grow heuristics).

    Raises:
        ValueError: an unknown `method`, missing backward weights, or shapes that are not each other's transpose.
    """
    if method not in SYMMETRIZATIONS:
        raise ValueError(f"`method` must be one of {SYMMETRIZATIONS}, got {method!r}.")
    if method == "forward":
        scores = forward_weights.transpose(-2, -1)
        return links_of_batch(scores, threshold), scores
    if backward_weights is None:
        raise ValueError(
            f"`backward_weights` must be given for method {method!r}, got None. Give them, or use 'forward'."
        )
    forward, backward = _facing(forward_weights, backward_weights)
    if method == "harmonic":
        scores = harmonic_mean(forward_weights, backward_weights)
        return links_of_batch(scores, threshold), scores
    directions = links_of_batch(forward, threshold), links_of_batch(backward, threshold)
    links = [symmetrize_links(*pair, method) for pair in zip(*directions, strict=True)]
    if method == "backward":
        return links, backward
    merged = torch.minimum if method == "intersection" else torch.maximum
    return links, merged(forward, backward)


def _facing(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of both directions as (..., source, target)."""
    transposed = forward.transpose(-2, -1)
    if transposed.shape != backward.shape:
        raise ValueError(
            "The weights of the two directions must be (target, source) and (source, target), got "
            f"{tuple(forward.shape[-2:])} and {tuple(backward.shape[-2:])}."
        )
    return transposed, backward


class _Growing:
    """Growing set of links with the words that it covers."""

    def __init__(self, links: Iterable[Link]):
        self.links = set(links)
        self.sources = {i for i, _ in self.links}
        self.targets = {j for _, j in self.links}

    def _add(self, i: int, j: int) -> None:
        self.links.add((i, j))
        self.sources.add(i)
        self.targets.add(j)

    def grow(self, union: AbstractSet[Link]) -> None:
        # A rejected neighbour stays rejected, because covered words stay covered. So each link is visited once: in
        # this scan if it lies ahead, in the next scan if it lies behind.
        candidates = union - self.links
        neighbours = {(i - source, j - target) for i, j in candidates for target, source in _NEIGHBOURS}
        scan = [(j, i) for i, j in self.links & neighbours]
        while scan:
            heapify(scan)
            following: list[Link] = []
            while scan:
                j, i = heappop(scan)
                for target_step, source_step in _NEIGHBOURS:
                    link = i + source_step, j + target_step
                    if link in candidates and not (link[0] in self.sources and link[1] in self.targets):
                        self._add(*link)
                        place = link[1], link[0]
                        if place > (j, i):
                            heappush(scan, place)
                        else:
                            following.append(place)
            scan = following

    def finish(self, links: AbstractSet[Link], both: bool) -> None:
        for j, i in sorted((j, i) for i, j in links):
            covered = (i in self.sources) + (j in self.targets)
            if covered == 0 or (covered == 1 and not both):
                self._add(i, j)


# ---- from subwords to words ----


def mean_over_words(values: Tensor, word_ids: Tensor, words: int, empty: float = 1.0) -> Tensor:
    """Return the mean over the subwords of each word.

    Args:
        values: Value of each subword, (batch, length).
        word_ids: Word of each subword, (batch, length); `words` for a subword outside words.
        words: Number of words.
        empty: Value of a word without subwords. Default: 1.

    Returns:
        Means, (batch, words).
    """
    total = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, values)
    count = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, torch.ones_like(values))
    return torch.where(count > 0, total / count.clamp(min=1), empty)[:, :words]


# ---- word alignments ----


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Word links of one sentence pair, all indices counted from 0.

    Args:
        source: Source words.
        target: Target words.
        links: Sorted links (i source, j target).
        scores: Score of each link, from 0 to 1: the probability that the link is right if `calibrated`, else see
            `symmetrize_batch`; the attention of the target word to the source word for an encoder-decoder.
        source_null: Probability of each source word to have no partner, averaged over its subwords (1 for a word that
            the tokenizer deletes, or if the other side is empty). None for an encoder-decoder.
        target_null: Probability of each target word to have no partner. None for an encoder-decoder.
        score: Quality of the alignment, from 0 to 1: the best score of each word with any word of the other side,
            averaged over the words of both sides. None if a side has no word.
        symmetrization: Method that merged the two directions; "forward" for an encoder-decoder.
        threshold: Minimum score of a link before calibration; None if each target word is linked to its best source
            word.
        source_spans: First character and end of each source word, in Unicode code points from 0. Default: None.
        target_spans: First character and end of each target word. Default: None.
        calibrated: True if `scores` are probabilities (`attncal align calibrate`); `score` never is. Default: False.
        shift: Distance of the pair from the annotated pairs of the calibration, from 0 to 1; with 1, no probability is
            above the model's score. Default: 0.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]
    scores: tuple[float, ...]
    source_null: tuple[float, ...] | None
    target_null: tuple[float, ...] | None
    score: float | None
    symmetrization: str
    threshold: float | None
    source_spans: tuple[tuple[int, int], ...] | None = None
    target_spans: tuple[tuple[int, int], ...] | None = None
    calibrated: bool = False
    shift: float = 0.0

    def at_least(self, score: float) -> "WordAlignment":
        """Return the alignment with only the links of at least this score."""
        places = [place for place, of_link in enumerate(self.scores) if of_link >= score]
        links, scores = tuple(self.links[place] for place in places), tuple(self.scores[place] for place in places)
        return replace(self, links=links, scores=scores)

    def pharaoh(self, scores: bool = False) -> str:
        """Return the links as `i-j i-j ...`, or `i-j:score` with four decimals."""
        return self._joined([f"{i}-{j}" for i, j in self.links], scores)

    def offsets(self, scores: bool = False) -> str:
        """Return the links as character positions, `start:end-start:end`, or `start:end-start:end:score`.

        Raises:
            ValueError: an alignment without spans.
        """
        if self.source_spans is None or self.target_spans is None:
            raise ValueError("The alignment has no character positions. Align with `spans=True`.")
        sides = [[f"{start}:{end}" for start, end in spans] for spans in (self.source_spans, self.target_spans)]
        pairs = [f"{sides[0][i]}-{sides[1][j]}" for i, j in self.links]
        return self._joined(pairs, scores)

    def words(self, scores: bool = False) -> str:
        r"""Return the words of each link as `house=maison`, or `house=maison:0.9312`; `=` is escaped as `\=`."""
        pairs = [f"{_escaped(self.source[i])}={_escaped(self.target[j])}" for i, j in self.links]
        return self._joined(pairs, scores)

    def _joined(self, links: list[str], scores: bool) -> str:
        if scores:
            links = [f"{link}:{score:.4f}" for link, score in zip(links, self.scores, strict=True)]
        return " ".join(links)

    def to_dict(self) -> dict:
        """Return the fields as JSON data, without missing spans, and without the shift if not calibrated."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.calibrated:
            del values["shift"]
        return {name: value for name, value in values.items() if value is not None or not name.endswith("_spans")}

    def _repr_html_(self) -> str:
        from .pictures import NULL_MARK, pair_html, short

        rule = "the best source word of each" if self.threshold is None else f"above {self.threshold:g}"
        rule += ", with the probability to be right" if self.calibrated else ""
        score = "" if self.score is None else f"score of the pair {short(self.score)}; "
        return pair_html(self, f"{score}links: {self.symmetrization}, {rule}; {NULL_MARK}: no partner")


def merge(weights: Weights, pairs: Sequence[Pair], method: str, threshold: float | None) -> list[WordAlignment]:
    """Return the alignment of each pair of a batch.

    The score of two words with "harmonic" is the maximum over their subwords of the harmonic mean of both directions.
    The other methods first take the maximum over subwords in each direction.

    Args:
        weights: Weights of the batch.
        pairs: Source and target words of each pair.
        method: One of `SYMMETRIZATIONS`; "forward" if there is one direction.
        threshold: Exclusive minimum of a score; None to link each target word to its best source word ("forward"
            only).
    """
    source_side, target_side = weights.source_words, weights.target_words
    if method == "harmonic" and weights.backward is not None and threshold is not None:
        both = harmonic_mean(weights.forward, weights.backward)
        scores = largest_over_words(both, source_side, target_side).cpu()
        order_repeats([scores], pairs)
        links = links_of_batch(scores, threshold)
    else:
        forward, backward = largest_over_words(weights.forward, target_side, source_side).cpu(), None
        if weights.backward is not None:
            backward = largest_over_words(weights.backward, source_side, target_side).cpu()
            order_repeats([forward.mT, backward], pairs)
        if threshold is None:
            links = [argmax_links(forward[row, :t, :s]) for row, (s, t) in enumerate(weights.words)]
            scores = forward.transpose(1, 2)
        else:
            links, scores = symmetrize_batch(forward, backward, method, threshold)
    scores = scores.clamp(max=1)  # a sum over subwords may be rounded up
    rows = [row for row, of_pair in enumerate(links) for _ in of_pair]
    i, j = torch.tensor([link for of_pair in links for link in of_pair], dtype=torch.long).reshape(-1, 2).T
    values = iter(scores[torch.tensor(rows, dtype=torch.long), i, j].tolist())
    best = scores.amax(dim=2).sum(dim=1) + scores.amax(dim=1).sum(dim=1)
    means = (best / torch.tensor([len(s) + len(t) for s, t in pairs])).tolist()
    nulls = zip(
        _nulls(weights.source_null, source_side, [source for source, _ in weights.words]),
        _nulls(weights.target_null, target_side, [target for _, target in weights.words]),
        strict=True,
    )
    alignments = []
    for (source, target), of_pair, mean, (source_null, target_null) in zip(pairs, links, means, nulls, strict=True):
        own = tuple(islice(values, len(of_pair)))
        alignments.append(
            WordAlignment(source, target, of_pair, own, source_null, target_null, mean, method, threshold)
        )
    return alignments


def _nulls(
    null: Tensor | None, words: tuple[Tensor, int], lengths: Sequence[int]
) -> Iterable[tuple[float, ...] | None]:
    """Return the NULL probabilities of the words of each pair; None without NULL."""
    if null is None:
        return [None] * len(lengths)
    return (tuple(side[:length]) for side, length in zip(mean_over_words(null, *words).tolist(), lengths, strict=True))


def unaligned(pair: Pair, has_null: bool, method: str, threshold: float | None) -> WordAlignment:
    """Return the empty alignment of a pair with a side without tokens."""
    source_null, target_null = ((1.0,) * len(side) if has_null else None for side in pair)
    score = 0.0 if all(pair) else None
    return WordAlignment(*pair, (), (), source_null, target_null, score, method, threshold)


def of_raw_words(alignment: WordAlignment, source: Segments, target: Segments) -> WordAlignment:
    """Convert an alignment of segments to words separated by white space; see `segmentation.raw_links`.

    Args:
        alignment: Alignment of the words of `source` and `target`.
        source, target: Segments of both sides.
    """
    links, scores = raw_links(alignment.links, alignment.scores, source, target)
    source_null, target_null = alignment.source_null, alignment.target_null
    return replace(
        alignment,
        source=source.raw,
        target=target.raw,
        links=links,
        scores=scores,
        source_null=None if source_null is None else raw_means(source_null, source),
        target_null=None if target_null is None else raw_means(target_null, target),
    )


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("=", "\\=")


# ---- repeated words ----

# Repeated words are linked in order if this loses at most this weight per link. On dev, 0 to 0.3 has the AER of no
# reordering, and 0.5 a higher one (docs/log.md).
_MAX_LOSS = 0.2
_MIN_BLOCK_WEIGHT = 0.1  # with less weight, the two words are no translations of each other
_MIN_SPREAD = 0.05  # with less weight outside the largest links of a block, these are not ambiguous
_DISTANCE_COST = 1e-4  # distance from the diagonal only decides ties


def order_repeats(weights: Sequence[Tensor], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    """Link repeated words in order, in place.

    Args:
        weights: Scores, or the weights of each direction, between words on the CPU, (batch, source, target) each.
        pairs: Source and target words of each pair; case is ignored.
    """
    arrays = [tensor.numpy() for tensor in weights]  # single elements of an array are read ten times as fast
    for row, sides in enumerate(pairs):
        source, target = map(_repeated, sides)
        if not source or not target:
            continue
        values = [array[row] for array in arrays]
        both = (values[0] if len(values) == 1 else np.minimum(*values)).tolist()
        for i in source:
            rows = [both[place] for place in i]
            for j in target:
                block = [[of_row[place] for place in j] for of_row in rows]
                total = sum(map(sum, block))
                if total > _MIN_BLOCK_WEIGHT and (matched := _in_order(block, total, _adjacent(i) and _adjacent(j))):
                    for of_pair in values:
                        _move(of_pair, i, j, matched)


def _repeated(words: Sequence[str]) -> list[list[int]]:
    """Return the positions of each word that occurs more than once."""
    folded = " ".join(words).casefold().split(" ")
    places: dict[str, list[int]] = {}
    if len(set(folded)) < len(words):
        for place, word in enumerate(folded):
            places.setdefault(word, []).append(place)
    return [of_word for of_word in places.values() if len(of_word) > 1]


def _adjacent(places: Sequence[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _in_order(block: list[list[float]], total: float, adjacent: bool) -> Sequence[tuple[int, int]] | None:
    """Match the rows and columns of a block in order, one cell for each row or column.

    Returns None if the links are not ambiguous, or if order loses too much weight; not for `adjacent` repetitions.
    """
    columns = list(zip(*block, strict=True))
    free = [sum(map(max, side)) for side in (block, columns)]
    if not adjacent and total - min(free) < _MIN_SPREAD:
        return None
    matched = list(enumerate(range(len(block)))) if len(block) == len(columns) else _best(np.array(block))
    inside = sum([block[i][j] for i, j in matched])
    return matched if adjacent or max(free) - inside <= _MAX_LOSS * len(matched) else None


def _best(block: np.ndarray) -> list[tuple[int, int]]:
    """Return the monotone matching with the largest sum, one cell for each row or each column."""
    if block.shape[0] > block.shape[1]:
        return [(i, j) for j, i in _best(block.T)]
    rows, columns = block.shape
    distances = np.abs(np.arange(rows)[:, None] / rows - np.arange(columns) / columns)
    block = block - _DISTANCE_COST * distances
    sums = np.zeros(columns + 1)  # largest sum of the rows so far in the columns before each
    values = []
    for row in block:
        values.append(sums[:-1] + row)
        sums = np.concatenate([[-np.inf], np.maximum.accumulate(values[-1])])
    matched, stop = [], columns
    for i in range(rows - 1, -1, -1):
        stop = int(values[i][:stop].argmax())
        matched.append((i, stop))
    return matched[::-1]


def _move(weights: np.ndarray, i: list[int], j: list[int], matched: Sequence[tuple[int, int]]) -> None:
    """Move the weight of the block of rows `i` and columns `j` to its matched cells."""
    block = [[float(weights[a, b]) for b in j] for a in i]
    of_rows, of_columns = list(map(sum, block)), list(map(sum, zip(*block, strict=True)))
    for a in i:
        for b in j:
            weights[a, b] = 0
    for a, b in matched:
        weights[i[a], j[b]] = min(of_rows[a], of_columns[b], 1)
