"""Text that is no translation like others: exchanged sides, one word, 1,500 words in a line.

Identical sides, numbers that change places and no-break spaces are in `tests/models/test_hmm_align.py`.
"""

import random
from itertools import chain

import pytest
from aligner_helpers import counting_aligner

from hf_attncal import WordAligner
from hf_attncal.alignment.quality import exchange_warning
from hf_attncal.commands import main

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


@pytest.fixture(scope="module")
def translated():
    """Sentences of 4 to 12 words, frequent ones and rare ones; in each translation a word changes places."""
    generator = random.Random(7)
    words = [
        "".join(generator.choices("bdfgklmnprst", k=1)[0] + generator.choice("aeiou") for _ in range(3))
        for _ in range(300)
    ]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    found = []
    for _ in range(600):
        source = generator.choices(words, weights, k=generator.randint(4, 12))
        target = [word[::-1] for word in source]
        target.insert(generator.randrange(len(target)), target.pop(generator.randrange(len(target))))
        found.append((source, target))
    return found


@pytest.fixture(scope="module")
def windowed(translated) -> WordAligner:
    """Reads 200 tokens at once."""
    aligner = counting_aligner([tuple(map(" ".join, pair)) for pair in translated])
    aligner.model.config.max_position_embeddings = 200
    return aligner


def test_a_line_of_1500_words_with_the_same_text_on_both_sides(windowed, translated):
    words = [word for source, _ in translated for word in source][:1500]
    (found,) = windowed.align([(words, words)])
    assert len({(n, n) for n in range(1500)} & set(found.links)) >= 0.95 * 1500


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(range(0), marks=pytest.mark.slow),
        range(20, 32),
        pytest.param(range(150, 200), marks=pytest.mark.slow),
    ],
    ids=["all", "middle", "end"],
)
def test_a_line_of_1500_words_is_aligned_like_its_sentences(windowed, translated, left_out):
    """The result is the same if a side lacks sentences, so that links are far off the diagonal."""
    pairs = [(source, [] if n in left_out else target) for n, (source, target) in enumerate(translated[:200])]
    lines = [list(chain(*side)) for side in zip(*pairs, strict=True)]
    assert len(lines[0]) > 1500
    expected, before = set(), (0, 0)
    for pair, found in zip(pairs, windowed.align(pairs), strict=True):
        expected |= {(i + before[0], j + before[1]) for i, j in found.links}
        before = before[0] + len(pair[0]), before[1] + len(pair[1])
    (found,) = windowed.align([lines])
    links = set(found.links)
    assert len(expected) > 0.8 * len(lines[1])
    assert len(expected & links) >= 0.95 * max(len(expected), len(links))


def test_exchanged_sides_get_a_warning(aligner, pairs, tmp_path, capfd):
    assert "probably exchanged" in exchange_warning(aligner, [pair[::-1] for pair in pairs[:30]])
    assert exchange_warning(aligner, pairs[:30]) is None
    assert exchange_warning(aligner, [("", "a")] * 30) is None
    aligner.model.save_pretrained(tmp_path / "model")
    aligner.tokenizer.save_pretrained(tmp_path / "model")
    for side, lines in zip(("s", "t"), zip(*pairs[:30], strict=True), strict=True):
        (tmp_path / side).write_text("\n".join(lines) + "\n")

    def told(source, target, *more) -> bool:
        files = ["--source", str(tmp_path / source), "--target", str(tmp_path / target)]
        assert main(["align", "run", str(tmp_path / "model"), *files, "--output", str(tmp_path / "links"), *more]) == 0
        return "source and target are probably exchanged: the mean score of a pair is 0." in capfd.readouterr().err

    assert [told("t", "s"), told("s", "t"), told("t", "s", "--adapt"), told("s", "t", "--adapt")] == [True, False] * 2
