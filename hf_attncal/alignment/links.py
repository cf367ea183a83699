"""Turn weights between subwords or words into links (i source, j target), both counted from 0.

The forward direction predicts the target from the source, its weights are (target, source). The backward direction
predicts the source from the target, its weights are (source, target). Merged scores are (source, target).

Sources: `harmonic` is Mask-Align's (Chen et al. 2021, sec. 3.4); intersection and union are Och and Ney's (2003); the
grow heuristics are those of Koehn, "Statistical Machine Translation", section 4.5.3, and of Moses.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush
from itertools import pairwise

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hf_attncal.data.pharaoh import Link
from hf_attncal.models.functional_mask_align import harmonic_mean
from hf_attncal.models.limits import SYMMETRIZATIONS


def best_links(weights: Tensor | ArrayLike) -> frozenset[Link]:
    """Link every target word to the source word with the highest score, the first of equals.

    A target word none of whose scores is above 0 gets no link: of weights, nothing was read for it (its row is all
    zero); of signed scores (gradients, occlusion), every source word speaks against it. The largest score counts, not
    the largest size.

    Args:
        weights: (target words, source words), from `word_attention` or `Attribution.words`; of either sign.

    Returns:
        Links (i source, j target), at most one for each target word; none where a side has no word.

    Raises:
        ValueError: another number of dimensions, or a score that is NaN.
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
    """Link every target word to the source word with the largest weight: `best_links`, sorted.

    Args:
        weights: (target words, source words), from `word_attention`.

    Returns:
        Links (i source, j target), sorted: one for every target word whose row is not all zero.
    """
    return tuple(sorted(best_links(weights)))


# ---- two directions ----

# Sides before corners; (target, source) steps, in the order of the published pseudo-code.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def harmonic(forward: Tensor, backward: Tensor) -> Tensor:
    """Return the harmonic mean of both directions: `S_ij = 2 a b / (a + b)` with `a = W_f[j, i]`, `b = W_b[i, j]`.

    0 where both are 0: what one direction does not see is not linked.

    Args:
        forward: (..., target, source), not negative.
        backward: (..., source, target), not negative.

    Returns:
        (..., source, target).

    Raises:
        ValueError: the shapes are not each other's transpose.
    """
    _facing(forward, backward)
    return harmonic_mean(forward, backward)


def links_above(scores: Tensor, threshold: float) -> tuple[Link, ...]:
    """Return links (i, j), sorted, of the cells of `scores` (source, target) that are greater than `threshold`.

    Raises:
        ValueError: `scores` has another number of dimensions than two.
    """
    if scores.dim() != 2:
        raise ValueError(f"`scores` must be (source, target), got the shape {tuple(scores.shape)}.")
    return links_of_batch(scores[None], threshold)[0]


def links_of_batch(scores: Tensor, threshold: float) -> list[tuple[Link, ...]]:
    """Return `links_above` of each pair of a batch of scores (batch, source, target)."""
    above = scores > threshold
    _, i, j = (index.tolist() for index in above.nonzero(as_tuple=True))
    stops = [0, *above.sum(dim=(1, 2)).cumsum(0).tolist()]
    return [tuple(zip(i[start:stop], j[start:stop], strict=True)) for start, stop in pairwise(stops)]


def symmetrize_links(forward: Iterable[Link], backward: Iterable[Link], method: str) -> tuple[Link, ...]:
    """Merge the links of two directions, all given as (i source, j target).

    "grow-diag" starts from the intersection. It goes through the links that it has, by target word, then source word,
    and adds each of their eight neighbours (target before, source before, target after, source after, then the
    diagonals in the same order) that is in the union and has a word that is not yet linked; a link that was added
    counts at once. It repeats this until nothing is added. "grow-diag-final" then goes through the forward links,
    then through the backward links, in the same order, and adds those of which at least one word is not linked;
    "grow-diag-final-and" those of which neither is.

    Args:
        forward: links of the forward direction.
        backward: links of the backward direction.
        method: one of `SYMMETRIZATIONS` but "harmonic", which needs weights.

    Returns:
        The merged links, sorted.

    Raises:
        ValueError: another `method`.
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
        raise ValueError(f"`method` must be one of {SYMMETRIZATIONS[1:]} to merge links, got {method!r}.")
    growing = _Growing(forward & backward)
    growing.grow(forward | backward)
    if method != "grow-diag":
        for links in (forward, backward):
            growing.finish(links, both=method == "grow-diag-final-and")
    return growing.links


def symmetrize(
    forward_weights: Tensor, backward_weights: Tensor | None, method: str = "harmonic", threshold: float = 0.2
) -> tuple[tuple[Link, ...], Tensor]:
    """Return links of one sentence pair from the weights of one or two directions.

    "harmonic" links where the harmonic mean is above the threshold. The other methods merge, with `symmetrize_links`,
    the links of each direction whose weight is above it.

    Args:
        forward_weights: (target, source).
        backward_weights: (source, target); may be None with "forward" only.
        method: one of `SYMMETRIZATIONS`.
        threshold: a cell must be greater than this.

    Returns:
        The links, sorted, and the scores (source, target) behind them: the harmonic mean; the weights of the direction
        ("forward", "backward"); the smaller weight ("intersection"); or the larger one ("union" and the grow
        heuristics, where a link need not be seen by both directions).

    Raises:
        ValueError: an unknown `method`, no backward weights though the method needs them, or shapes that are not each
            other's transpose.
    """
    backward = None if backward_weights is None else backward_weights[None]
    links, scores = symmetrize_batch(forward_weights[None], backward, method, threshold)
    return links[0], scores[0]


def symmetrize_batch(
    forward_weights: Tensor, backward_weights: Tensor | None, method: str, threshold: float
) -> tuple[list[tuple[Link, ...]], Tensor]:
    """Symmetrize each pair of a batch of weights (batch, target, source) and (batch, source, target), 0 at padding.

    Returns:
        The links of each pair, and the scores, (batch, source, target).
    """
    if method not in SYMMETRIZATIONS:
        raise ValueError(f"`method` must be one of {SYMMETRIZATIONS}, got {method!r}.")
    if method == "forward":
        scores = forward_weights.transpose(-2, -1)
        return links_of_batch(scores, threshold), scores
    if backward_weights is None:
        raise ValueError(
            f"`method={method!r}` needs `backward_weights`, got None. Give both directions, or use 'forward'."
        )
    forward, backward = _facing(forward_weights, backward_weights)
    if method == "harmonic":
        scores = harmonic(forward_weights, backward_weights)
        return links_of_batch(scores, threshold), scores
    directions = links_of_batch(forward, threshold), links_of_batch(backward, threshold)
    links = [symmetrize_links(*pair, method) for pair in zip(*directions, strict=True)]
    if method == "backward":
        return links, backward
    merged = torch.minimum if method == "intersection" else torch.maximum
    return links, merged(forward, backward)


def _facing(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as (..., source, target)."""
    transposed = forward.transpose(-2, -1)
    if transposed.shape != backward.shape:
        raise ValueError(
            "The weights of the two directions must be (target, source) and (source, target), got "
            f"{tuple(forward.shape[-2:])} and {tuple(backward.shape[-2:])}."
        )
    return transposed, backward


class _Growing:
    """A set of links that grows, and the words that it covers."""

    def __init__(self, links: Iterable[Link]):
        self.links = set(links)
        self.sources = {i for i, _ in self.links}
        self.targets = {j for _, j in self.links}

    def _add(self, i: int, j: int) -> None:
        self.links.add((i, j))
        self.sources.add(i)
        self.targets.add(j)

    def grow(self, union: AbstractSet[Link]) -> None:
        # A neighbour that was refused once is refused for ever (covered words stay covered), so that each link is
        # looked at once: in this scan where it lies ahead, in the next one where the scan has passed it.
        candidates = union - self.links
        near = {(i - source, j - target) for i, j in candidates for target, source in _NEIGHBOURS}
        scan = [(j, i) for i, j in self.links & near]
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


def largest_over_words(weights: Tensor, rows: tuple[Tensor, int], columns: tuple[Tensor, int]) -> Tensor:
    """Return the largest weight between the subwords of two words, for all pairs of words of a batch.

    Args:
        weights: (batch, R, C), not negative.
        rows: (batch, R), the word of each row, and the number of words, which stands for no word.
        columns: the same for columns, (batch, C).

    Returns:
        (batch, row words, column words), 0 for a word without subwords.
    """
    (row_ids, row_words), (column_ids, column_words) = rows, columns
    batch = len(weights)
    wide = weights.new_zeros(batch, weights.shape[1], column_words + 1)
    wide.scatter_reduce_(2, column_ids[:, None, :].expand_as(weights), weights, "amax")
    words = weights.new_zeros(batch, row_words + 1, column_words + 1)
    words.scatter_reduce_(1, row_ids[:, :, None].expand_as(wide), wide, "amax")
    return words[:, :row_words, :column_words]


def mean_over_words(values: Tensor, word_ids: Tensor, words: int, empty: float = 1.0) -> Tensor:
    """Return the mean over the subwords of each word, `empty` for a word without subwords.

    Args:
        values: (batch, length), one for each subword.
        word_ids: (batch, length), the word of each subword; `words` for one of no word.
        words: number of words.

    Returns:
        (batch, words).
    """
    total = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, values)
    count = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, torch.ones_like(values))
    return torch.where(count > 0, total / count.clamp(min=1), empty)[:, :words]
