"""The share of neighbours with the tag of their word, and what chance would give."""

import numpy as np
import pytest
from shared_tags import SHARED_TAGS, shared_tag_counts, shared_tags

from hf_attncal import __version__

NEIGHBOURS = np.array([[1, 2], [0, 3], [0, 1], [2, 0]])
TAGS = ["A", "A", "B", "A"]


def test_a_small_case_by_hand():
    score = shared_tags(NEIGHBOURS, TAGS)
    assert shared_tag_counts(NEIGHBOURS, TAGS).tolist() == [[1, 2], [2, 2], [0, 2], [1, 2]]
    assert (score.share, score.words, score.neighbours, score.interval) == (0.5, 4, 2, None)
    assert score.signature == f"SharedTags|neighbours:2|similarity:cosine|tags:2|version:{__version__}"


def test_chance_is_what_random_neighbours_share():
    generator = np.random.default_rng(0)
    tags = [*"AAAABBC"]
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    assert shared_tags(np.array([[1], [0], [0], [0], [0], [0], [0]]), tags).chance == pytest.approx(
        np.mean([tags[i] == tags[j] for i, j in pairs])
    )
    drawn = np.array([generator.permutation([j for j in range(7) if j != i])[:6] for i in range(7)])
    score = shared_tags(drawn, tags)  # all the others
    assert score.share == pytest.approx(score.chance)


def test_the_interval_is_over_words():
    generator = np.random.default_rng(0)
    neighbours = np.array([generator.choice([j for j in range(60) if j != i], 5, replace=False) for i in range(60)])
    tags = [*"ABC" * 20]
    score = shared_tags(neighbours, tags, bootstrap=200, seed=2)
    assert score.interval == SHARED_TAGS.interval(shared_tag_counts(neighbours, tags), 200, 2)
    assert score.interval[0] < score.share < score.interval[1]
