"""The best path through tokens and pauses, compared with every path there is."""

from itertools import combinations

import numpy as np
import pytest

from hf_attncal.speech.observed import monotone_path


def every_path(count: int, frames: int, first: list[bool]):
    """Yield the spans of every path: bounds in order, and gaps only before words and at the end."""
    for starts in combinations(range(frames), count):
        ends: list[list[int]] = [[]]
        for token in range(count):
            following = starts[token + 1] if token + 1 < count else frames
            may_pause = token + 1 == count or first[token + 1]
            last = range(starts[token] + 1, following + 1) if may_pause else [following]
            ends = [[*own, end] for own in ends for end in last]
        for own in ends:
            yield list(zip(starts, own, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_the_path_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    count, frames = int(rng.integers(1, 4)), int(rng.integers(4, 8))
    tokens, pause = rng.normal(size=(count, frames)), rng.normal(size=frames)
    first = [True, *(rng.random(count - 1) < 0.5).tolist()]

    def total(spans) -> float:
        owner = {frame: token for token, (start, end) in enumerate(spans) for frame in range(start, end)}
        return sum(pause[s] if (t := owner.get(s)) is None else tokens[t, s] for s in range(frames))

    best = max(every_path(count, frames, first), key=total)
    assert monotone_path(tokens, pause, np.array(first)).tolist() == [list(span) for span in best]


def test_pauses_are_left_out_of_words():
    tokens, pause = np.full((2, 9), -1.5), np.full(9, -1.0)
    tokens[0, 1:3] = tokens[1, 6:8] = 0
    assert monotone_path(tokens, pause, np.array([True, True])).tolist() == [[1, 3], [6, 8]]
    tokens[0, 3:6] = -1.2
    assert monotone_path(tokens, pause, np.array([True, False])).tolist() == [[1, 6], [6, 8]]


def test_more_tokens_than_frames():
    with pytest.raises(ValueError, match="3 tokens, more than the 2 frames"):
        monotone_path(np.zeros((3, 2)), np.zeros(2), np.ones(3, bool))
