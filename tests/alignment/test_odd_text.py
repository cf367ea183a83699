"""Text that is no translation like others: exchanged sides, one word.

Identical sides, numbers that change places and no-break spaces are in `tests/models/test_hmm_align.py`, very long
lines in `tests/alignment/test_aligner.py`.
"""

import random

import pytest
from aligner_helpers import counting_aligner

from hf_attncal import WordAligner
from hf_attncal.alignment.quality import exchanged_scores
from hf_attncal.cli import main

WORDS = [first + second for first in ("ki", "mo", "ra", "su", "te", "no", "ha") for second in ("ka", "ne", "ro", "mi")]
FOREIGN = [first + second for first in ("bl", "cr", "st", "gl", "dw", "sp", "fr") for second in ("e", "o", "u", "i")]


@pytest.fixture(scope="module")
def pairs():
    generator = random.Random(3)
    sentences = [generator.sample(range(len(WORDS)), 6) for _ in range(200)]
    sides = [(words, generator.sample(words, len(words))) for words in sentences]
    return [(" ".join(WORDS[n] for n in first), " ".join(FOREIGN[n] for n in second)) for first, second in sides]


@pytest.fixture(scope="module")
def aligner(pairs) -> WordAligner:
    return counting_aligner(pairs)


def test_one_word(aligner):
    one, unknown, none = aligner.align([(WORDS[0], FOREIGN[0]), ("xyz", "xyz"), (WORDS[0], "")])
    assert (one.links, unknown.links, none.links) == (((0, 0),), ((0, 0),), ())


def test_exchanged_sides_are_told(aligner, pairs, tmp_path, capfd):
    given, other = exchanged_scores(aligner, [(target, source) for source, target in pairs[:30]])
    assert other > given + 0.1
    assert exchanged_scores(aligner, pairs[:30]) is None
    assert exchanged_scores(aligner, [("", "a")]) is None
    aligner.model.save_pretrained(tmp_path / "model")
    aligner.tokenizer.save_pretrained(tmp_path / "model")
    for side, lines in zip(("s", "t"), zip(*pairs[:30], strict=True), strict=True):
        (tmp_path / side).write_text("\n".join(lines) + "\n")

    def told(source, target, *more) -> bool:
        files = ["--source", str(tmp_path / source), "--target", str(tmp_path / target)]
        assert main(["align", "run", str(tmp_path / "model"), *files, "--output", str(tmp_path / "links"), *more]) == 0
        return "source and target are probably exchanged: the mean score of a pair is 0." in capfd.readouterr().err

    assert [told("t", "s"), told("s", "t"), told("t", "s", "--adapt"), told("s", "t", "--adapt")] == [True, False] * 2
