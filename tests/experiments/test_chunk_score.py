"""Chunks are counted as `conlleval` counts them; what does not fit is refused."""

import numpy as np
import pytest
from chunk_score import CHUNK_F1, chunk_counts, chunk_score

from hf_attncal import __version__

GOLD = [["B-NP", "I-NP", "O", "B-VP"], ["B-NP", "B-NP"]]


def chunks(tags):
    """(type, first, last) by the definition of `conlleval`: one word after the other."""
    found, current = set(), None
    for place, tag in enumerate([*tags, "O"]):
        kind = None if tag == "O" else tag[2:]
        if current and (kind != current[0] or tag[0] == "B"):
            found.add((*current, place - 1))
            current = None
        if kind and current is None:
            current = kind, place
    return found


def random_tags(generator, lengths):
    tags = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    return [[tags[n] for n in generator.integers(len(tags), size=length)] for length in lengths]


def test_a_small_case_by_hand():
    found = [["B-NP", "I-NP", "I-NP", "B-VP"], ["B-NP", "I-VP"]]
    score = chunk_score(GOLD, found)
    assert (score.gold, score.found, score.correct) == (4, 4, 2)  # VP at the end, and the first NP of the second
    assert (score.precision, score.recall, score.f1) == (0.5, 0.5, 0.5)
    assert score.accuracy == 4 / 6
    assert (score.sentences, score.words, score.interval) == (2, 6, None)
    assert score.signature == f"ChunkF1|average:micro|mode:conlleval|version:{__version__}"


def test_an_inside_tag_that_continues_nothing_begins_a_chunk():
    """As `conlleval` has it; strict scoring would drop it."""
    assert chunk_score([["B-NP", "I-NP"]], [["I-NP", "I-NP"]]).f1 == 1
    assert chunk_score([["B-NP", "B-VP"]], [["B-NP", "I-VP"]]).f1 == 1
    assert chunk_score([["B-NP", "B-NP"]], [["B-NP", "I-NP"]]).f1 == 0
    # No chunk goes on over the end of a sentence.
    assert chunk_score([["B-NP"], ["B-NP"]], [["B-NP"], ["I-NP"]]).f1 == 1


def test_random_tags_are_counted_as_by_the_definition():
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 12, size=200)
    gold, found = random_tags(generator, lengths), random_tags(generator, lengths)
    counts = chunk_counts(gold, found)
    for row, a, b in zip(counts.tolist(), gold, found, strict=True):
        assert row[:3] == [len(chunks(a) & chunks(b)), len(chunks(b)), len(chunks(a))]
    score = chunk_score(gold, found)
    right, others, chunk_count, same, words = counts.sum(axis=0)
    assert score.precision == right / others
    assert score.recall == right / chunk_count
    assert score.f1 == pytest.approx(2 / (others / right + chunk_count / right))
    agreeing = [a == b for pair in zip(gold, found, strict=True) for a, b in zip(*pair, strict=True)]
    assert score.accuracy == same / words == np.mean(agreeing)


def test_nothing_found_is_zero():
    score = chunk_score([["B-NP"]], [["O"]])
    assert (score.precision, score.recall, score.f1) == (0, 0, 0)
    assert chunk_score([["O"]], [["O"]]).f1 == 0


def test_the_interval_is_that_of_the_metric_over_sentences():
    generator = np.random.default_rng(0)
    gold, found = random_tags(generator, [9] * 40), random_tags(generator, [9] * 40)
    score = chunk_score(gold, found, bootstrap=100, seed=3)
    assert score.interval == CHUNK_F1.interval(chunk_counts(gold, found), 100, 3)
    assert score.interval[0] < score.f1 < score.interval[1]
