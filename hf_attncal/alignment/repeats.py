"""Words that a pair has several times on both sides: linked in order where the weights cannot tell them apart.

`the the the` and `le le le` share their weights among nine pairs of words, and none may have enough for a link. Of the
places of such a word and of its partner, the pairs in order are those of the monotone matching with the largest sum
of weights, the nearest to the diagonal among equals. Each of them gets what its row and its column have in the block
of these places, the smaller of both, and the rest of the block nothing. A block whose weights speak for another order
(`the man of the house`, `la maison de l' homme`) stays as it is.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

# How much larger than the sum of the pairs in order that of the largest weights may be, for each of these pairs. On
# dev, AER with 0 to 0.3 is level with that of no order (docs/log.md); from 0.5 on it is worse.
_MARGIN = 0.2
_LEAST = 0.1  # a block with a smaller sum is of two words that have nothing to do with each other
_SPREAD = 0.05  # of a block: with less outside the largest of each word, it says by itself what belongs together
_NEAR = 1e-4  # what distance from the diagonal costs: only ties are decided by it


def order_repeats(weights: Sequence[Tensor], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    """Link repeated words in order, in place.

    Args:
        weights: scores, or the weights of each direction, all (batch, source, target) of words, on the CPU.
        pairs: source and target words of each pair; words that differ in case alone count as one.
    """
    arrays = [one.numpy() for one in weights]  # of one element at a time, ten times as fast
    for row, sides in enumerate(pairs):
        source, target = map(_repeated, sides)
        if not source or not target:
            continue
        values = [one[row] for one in arrays]
        both = (values[0] if len(values) == 1 else np.minimum(*values)).tolist()
        for i in source:
            rows = [both[place] for place in i]
            for j in target:
                block = [[of_row[place] for place in j] for of_row in rows]
                total = sum(map(sum, block))
                if total > _LEAST and (matched := _in_order(block, total, _adjacent(i) and _adjacent(j))):
                    for one in values:
                        _move(one, i, j, matched)


def _repeated(words: Sequence[str]) -> list[list[int]]:
    """Return the places of each word that is there more than once."""
    folded = " ".join(words).casefold().split(" ")
    places: dict[str, list[int]] = {}
    if len(set(folded)) < len(words):
        for place, word in enumerate(folded):
            places.setdefault(word, []).append(place)
    return [found for found in places.values() if len(found) > 1]


def _adjacent(places: Sequence[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _in_order(block: list[list[float]], total: float, surely: bool) -> Sequence[tuple[int, int]] | None:
    """Return the cells in order, one for each row or column.

    None if there is nothing to move, or, unless `surely`, if the weights are against it.
    """
    columns = list(zip(*block, strict=True))
    free = [sum(map(max, side)) for side in (block, columns)]
    if not surely and total - min(free) < _SPREAD:
        return None
    matched = list(enumerate(range(len(block)))) if len(block) == len(columns) else _best(np.array(block))
    inside = sum([block[i][j] for i, j in matched])
    return matched if surely or max(free) - inside <= _MARGIN * len(matched) else None


def _best(block: np.ndarray) -> list[tuple[int, int]]:
    """Return the cells of the monotone matching with the largest sum, one for each row or each column."""
    if block.shape[0] > block.shape[1]:
        return [(i, j) for j, i in _best(block.T)]
    rows, columns = block.shape
    near = np.abs(np.arange(rows)[:, None] / rows - np.arange(columns) / columns)
    block = block - _NEAR * near
    sums = np.zeros(columns + 1)  # the largest with the rows so far, all in columns before each
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
    """Give the matched cells all that their block of rows `i` and columns `j` has."""
    block = [[float(weights[a, b]) for b in j] for a in i]
    of_rows, of_columns = list(map(sum, block)), list(map(sum, zip(*block, strict=True)))
    for a in i:
        for b in j:
            weights[a, b] = 0
    for a, b in matched:
        weights[i[a], j[b]] = min(of_rows[a], of_columns[b], 1)
