"""The prior of words that look alike, against loops, and what it does to a small text."""

import random
import unicodedata

import pytest
import torch

from hf_attncal.alignment import statistical
from hf_attncal.alignment.statistical import (
    LEAST_SIMILARITY,
    SIMILAR_PRIOR,
    prior_counts,
    set_prior_counts,
    similarity,
)
from hf_attncal.data.tokenizer import SPACE, train_bpe_backend
from hf_attncal.data.word_tokens import WordTokenizer


def slow_similarity(first: str, second: str) -> float:
    if any(letter.isdigit() for letter in first + second):
        return float(first == second)
    grams = []
    for word in (first, second):
        word = "<" + "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c)) + ">"
        grams.append({word[n] + word[n + 1] for n in range(len(word) - 1)})
    return 2 * len([gram for gram in grams[0] if gram in grams[1]]) / (len(grams[0]) + len(grams[1]))


def slow_counts(pairs, tokens_of) -> dict[tuple[int, int], float]:
    """The counts by their definition, in loops."""
    counts = {}
    for source, target in pairs:
        sides = [[w for w in side if len(w) >= 4 or any(c.isdigit() for c in w)] for side in (source, target)]
        for a in sides[0]:
            for b in sides[1]:
                s = slow_similarity(a, b)
                if s <= LEAST_SIMILARITY or s < max(slow_similarity(a, other) for other in sides[1]):
                    continue
                if s < max(slow_similarity(other, b) for other in sides[0]):
                    continue
                first, second = tokens_of(a), tokens_of(b)
                for p, (x, x_name) in enumerate(first):
                    for q, (y, y_name) in enumerate(second):
                        ends = (p + 1) / len(first), (q + 1) / len(second)
                        overlap = min(ends) - max(p / len(first), q / len(second))
                        overlap = min(1, max(0, overlap) * max(len(first), len(second)))
                        count = (
                            SIMILAR_PRIOR
                            * (s - LEAST_SIMILARITY)
                            / (1 - LEAST_SIMILARITY)
                            * overlap
                            * slow_similarity(x_name, y_name)
                        )
                        if count > 1e-9:
                            counts[x, y] = max(counts.get((x, y), 0), count)
    return counts


@pytest.fixture(scope="module")
def pairs():
    """Words of which some are alike, as in related languages; numbers; and words that are too short to tell."""
    generator = random.Random(5)
    words = ["".join(generator.choices("abdeilnorst", k=generator.randint(2, 9))) for _ in range(60)]

    def other(word: str) -> str:
        letters = list(word)
        letters[generator.randrange(len(letters))] = generator.choice("éaou")
        return "".join(letters) + generator.choice(["", "e", "en"])

    dictionary = {word: other(word) for word in words} | {"1914": "1914", "7": "7", "12a": "12a"}
    found = []
    for _ in range(40):
        source = generator.choices([*dictionary], k=generator.randint(3, 9))
        target = [dictionary[word] for word in source if generator.random() < 0.8] or ["e"]
        generator.shuffle(target)
        found.append((source, target))
    return found


def test_counts_equal_loops(pairs):
    lines = [" ".join(side) for pair in pairs for side in pair]
    backend = train_bpe_backend(lines, 90)
    tokenize = WordTokenizer(statistical.PlainTokenizer(backend))

    def tokens_of(word: str) -> list[tuple[int, str]]:
        return [(token, backend.id_to_token(token).strip(SPACE)) for token in tokenize([word])[0].ids.tolist()]

    counts = prior_counts(pairs, tokenize(lines), lambda token: backend.id_to_token(token).strip(SPACE))
    expected = slow_counts(pairs, tokens_of)
    assert counts.keys() == expected.keys()
    assert len(counts) > 40
    for tokens, count in counts.items():
        assert count == pytest.approx(expected[tokens], rel=1e-5), tokens
    assert max(counts.values()) == pytest.approx(SIMILAR_PRIOR)


def test_similarity_is_of_letters_and_of_whole_numbers():
    assert similarity("parlament", "parliament") == pytest.approx(2 * 9 / (10 + 11))
    assert similarity("été", "ete") == 1
    assert (similarity("1914", "1914"), similarity("1914", "1915")) == (1, 0)


def test_text_without_words_alike_has_no_counts():
    lines = ["東京 に ある", "the house"]
    backend = train_bpe_backend(lines, 60)
    sides = WordTokenizer(statistical.PlainTokenizer(backend))(lines)
    assert prior_counts([tuple(line.split() for line in lines)], sides, backend.id_to_token) == {}


def test_a_model_begins_with_the_counts_and_keeps_them():
    model = statistical.HMMTables(statistical.CountFields(vocab_size=10)).eval()
    set_prior_counts(model, {(3, 4): 0.5, (1, 2): 0.25, (3, 2): 0.125})
    assert model.pairs.tolist() == [12, 32, 34]
    assert model.counts_of(torch.tensor([[3, 1]]), torch.tensor([[2, 4]])).tolist() == [[[0.125, 0.25], [0.5, 0]]]
    assert model.source_counts[[1, 3]].tolist() == [0.25, 0.625]
    assert model.target_counts[[2, 4]].tolist() == [0.375, 0.5]
    statistical.CountLearner(model, [[3, 5]], [[6, 4]]).run()
    assert {12, 32, 34} <= set(model.pairs.tolist())
