"""Training of the statistical aligner, compared with a loop over pairs and cells; it learns to align."""

import random

import numpy as np
import pytest
import reference
import torch
from helpers import assert_close

from hf_attncal.alignment import count_learner, counting
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional_jumps import initial_jumps, learned_jumps
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

VOCABULARY = 12
# Lengths differ, words are repeated in a sentence and between sentences, and one pair of words occurs once.
TEXT = [
    ([1, 2, 3, 1], [4, 5, 4]),
    ([1, 3], [4, 6]),
    ([2], [5]),
    ([7, 2, 1], [5, 8, 4, 4]),
    ([3, 1, 2], [6, 4]),
    ([1], [4]),
]
# (jumps, agree, damped) of each iteration, as `run` chooses them for two without and two with jumps.
STEPS = [(False, False, False), (False, True, False), (True, True, False), (True, True, True)]


def learner_of(text, vocab_size: int = VOCABULARY, **config) -> CountLearner:
    model = HMMAlignModel(HMMAlignConfig(vocab_size=vocab_size, **config)).eval()
    return CountLearner(model, *([list(pair[side]) for pair in text] for side in (0, 1)))


class SlowLearner:
    """Iterations over a text by loops over its pairs and their cells."""

    def __init__(self, text, config):
        self.text, self.shares = text, [None] * len(text)
        zeros = [[0.0] * config.vocab_size for _ in range(4)]
        jumps = [initial_jumps(config.max_jump).tolist() for _ in range(2)]
        self.model = reference.SlowHMM(config, {}, zeros[:2], zeros[2:], jumps)

    def step(self, jumps: bool, agree: bool, damped: bool) -> list[float]:
        """As `CountLearner.step`; the tables of `model` and the shares are replaced when all pairs are through."""
        size, width = self.model.config.vocab_size, len(self.model.jumps[0])
        counts, totals, nulls = {}, [[0.0] * size for _ in range(2)], [[0.0] * size for _ in range(2)]
        jumped, chances = ([[0.0] * width for _ in range(2)] for _ in range(2))
        likelihood, found = [0.0, 0.0], []
        for (source, target), own in zip(self.text, self.shares, strict=True):
            directions = self.model.both(source, target, own, None if jumps else 1.0)
            shares = [[0.0] * len(source) for _ in target]
            for t in range(len(target)):
                for s in range(len(source)):
                    forward, backward = directions[0]["weights"][t][s], directions[1]["weights"][s][t]
                    share = forward * backward if agree else (forward + backward) / 2
                    share = (share + own[t][s]) / 2 if damped else share
                    shares[t][s] = share
                    pair = source[s], target[t]
                    counts[pair] = counts.get(pair, 0.0) + share
                    totals[0][source[s]] += share
                    totals[1][target[t]] += share
            for s, token in enumerate(source):
                nulls[0][token] += max(0.0, 1 - sum(shares[t][s] for t in range(len(target))))
            for t, token in enumerate(target):
                nulls[1][token] += max(0.0, 1 - sum(shares[t]))
            for side, direction in enumerate(directions):
                likelihood[side] += direction["log_likelihood"]
                for d in range(width):
                    jumped[side][d] += direction["jumps"][d]
                    chances[side][d] += direction["chances"][d]
            found.append(shares)
        self.shares = found
        self.model.counts, self.model.totals, self.model.null_counts = counts, totals, nulls
        if jumps:
            for side in (0, 1):
                table = learned_jumps(torch.tensor(jumped[side]), torch.tensor(chances[side]))
                self.model.jumps[side] = table.tolist()
        return [likelihood[0] / sum(len(t) for _, t in self.text), likelihood[1] / sum(len(s) for s, _ in self.text)]


def without_exclusion(monkeypatch) -> None:
    """Each pair is aligned by counts that it takes part in, as in plain expectation and maximisation."""
    posteriors = HMMAlignModel.posteriors
    monkeypatch.setattr(HMMAlignModel, "posteriors", lambda self, *args: posteriors(self, *args[:5], None, *args[6:]))


# ---- iterations against the loops ----


def test_every_iteration_equals_the_loops():
    """Shares are kept in half precision, so 2^-11 of each may be lost."""
    config = {"max_jump": 2, "lexical_prior": 0.05, "null_probability": 0.2, "identical_prior": 0.1}
    learner = learner_of(TEXT, **config)
    slow, model = SlowLearner(TEXT, learner.model.config), learner.model
    before = model.forward_jumps.clone()
    for number, (jumps, agree, damped) in enumerate(STEPS):
        likelihood = learner.step(jumps=jumps, agree=agree, damped=damped)
        assert likelihood.tolist() == pytest.approx(slow.step(jumps, agree, damped), abs=2e-4), number
        for index, shares in learner.shares():
            assert_close(shares, torch.tensor(slow.shares[index]), 6e-4, f"shares of pair {index}, {number}")
        pairs = [(pair // VOCABULARY, pair % VOCABULARY) for pair in learner.pairs.tolist()]
        assert pairs == sorted(slow.model.counts)
        assert_close(learner.counts, torch.tensor([slow.model.counts[pair] for pair in pairs]), 2e-3, "counts")
        for side, name in enumerate(("source", "target")):
            for tables, kind in ((slow.model.totals, "counts"), (slow.model.null_counts, "null_counts")):
                found = getattr(model, f"{name}_{kind}")
                assert_close(found, torch.tensor(tables[side]), 4e-3, f"{name}_{kind}, {number}")
        for side, table in enumerate((model.forward_jumps, model.backward_jumps)):
            assert_close(table, torch.tensor(slow.model.jumps[side]), 1e-3, f"jumps, {number}")
        assert torch.equal(model.forward_jumps, before) == (not jumps)
        before = model.forward_jumps.clone()


def test_run_takes_the_iterations_in_turn_and_reports_each(monkeypatch):
    taken, reported = [], []
    step = CountLearner.step

    def watched(self, **options):
        taken.append(tuple(options[name] for name in ("jumps", "agree", "damped")))
        return step(self, **options)

    monkeypatch.setattr(CountLearner, "step", watched)
    learner_of(TEXT).run((2, 2), lambda number, likelihood: reported.append((number, tuple(likelihood.shape))))
    assert taken == STEPS
    assert reported == [(number, (2,)) for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("cells", [1, 30])
def test_the_size_of_batches_changes_nothing(monkeypatch, cells):
    whole = learner_of(TEXT)
    whole.run((2, 3))
    assert len(whole.batches) == 1
    monkeypatch.setattr(count_learner, "_BATCH_CELLS", cells)
    parts = learner_of(TEXT)
    parts.run((2, 3))
    assert len(parts.batches) == (len(TEXT) if cells == 1 else 3)
    for name, tensor in whole.model.state_dict().items():
        assert_close(parts.model.state_dict()[name].double(), tensor.double(), 1e-3, name)
    shares = dict(whole.shares())
    assert sorted(shares) == list(range(len(TEXT)))
    for index, found in parts.shares():
        assert found.shape == shares[index].shape == (len(TEXT[index][1]), len(TEXT[index][0]))
        assert_close(found, shares[index], 1e-3)


def test_a_batch_holds_no_more_cells_than_allowed(monkeypatch):
    monkeypatch.setattr(count_learner, "_BATCH_CELLS", 60)
    generator = random.Random(2)
    lengths = [np.array([generator.randint(0, 9) for _ in range(50)]) for _ in range(2)]
    batches = list(count_learner._batches(*lengths))
    assert sorted(np.concatenate(batches).tolist()) == [
        n for n, both in enumerate(zip(*lengths, strict=True)) if min(both)
    ]
    sizes = [len(b) * max(lengths[0][i] for i in b) * max(lengths[1][i] for i in b) for b in batches]
    assert all(size <= 60 or len(batch) == 1 for size, batch in zip(sizes, batches, strict=True))
    assert max(map(len, batches)) > 1


def test_the_model_keeps_counts_above_the_threshold():
    learner = learner_of(TEXT)
    learner.run((2, 1))
    counts, pairs = learner.counts, learner.pairs
    least = float(counts.median())
    learner.finish(least)
    model = learner.model
    assert 0 < model.config.entries == len(model.pairs) == len(model.counts) < len(pairs)
    assert dict(zip(model.pairs.tolist(), model.counts.tolist(), strict=True)) == {
        pair: count for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True) if count >= least
    }


@pytest.mark.parametrize("empty", [([], [4]), ([1], []), ([], [])])
def test_a_pair_with_an_empty_side_is_passed_over(empty):
    without, learner = learner_of(TEXT), learner_of([*TEXT[:3], empty, *TEXT[3:]])
    for one in (without, learner):
        one.run((2, 1))
    assert sorted(index for index, _ in learner.shares()) == [0, 1, 2, 4, 5, 6]
    for name, tensor in without.model.state_dict().items():
        assert torch.equal(learner.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("text", [[], [([], [4]), ([1], [])]])
def test_a_text_without_pairs_is_refused(text):
    with pytest.raises(ValueError, match="tokens on both sides"):
        learner_of(text)


# ---- what is learned ----

WORDS, COMMON = 40, 0  # source words 0-39, their translations 40-79; word 0 is an article and occurs more than once


def parallel_text(pairs: int = 400, seed: int = 1) -> tuple[list, list[set]]:
    """Sentences of phrases "article noun" and verbs; on the other side the verb (20-39) comes last.

    Returns:
        The text, and the links of each pair (source position, target position).
    """
    generator = random.Random(seed)
    text, links = [], []
    for _ in range(pairs):
        source: list[tuple[int, int]] = []  # word and the place of its translation
        phrases = generator.randint(2, 3)
        for number in range(phrases):
            article = [COMMON] if generator.random() < 0.8 else []
            source += [(word, 0) for word in [*article, generator.randint(1, 19)]]
            if number == 0:
                source.append((generator.randint(20, 39), 1))
        order = sorted(range(len(source)), key=lambda place: (source[place][1], place))
        text.append(([word for word, _ in source], [source[place][0] + WORDS for place in order]))
        links.append({(place, position) for position, place in enumerate(order)})
    return text, links


def error_rate(learner: CountLearner, links: list[set], above: float = 0.4) -> float:
    """AER where every link is sure."""
    common = found = 0
    for index, shares in learner.shares():
        linked = {(s, t) for t, s in (shares > above).nonzero().tolist()}
        common, found = common + len(linked & links[index]), found + len(linked)
    return 1 - 2 * common / (found + sum(map(len, links)))


@pytest.fixture(scope="module")
def learned():
    """The learner of a text, its links, and the likelihoods of the iterations."""
    text, links = parallel_text()
    learner, log = learner_of(text, 2 * WORDS), []
    learner.run((3, 6), lambda number, likelihood: log.append(likelihood.tolist()))
    return learner, text, links, log


def test_repeated_words_and_another_order_are_aligned(learned):
    learner, text, links, _ = learned
    assert any(source.count(COMMON) > 1 for source, _ in text)
    assert any(any(s != t for s, t in pair) for pair in links)
    assert error_rate(learner, links) < 0.05


def test_a_model_that_has_learned_no_jumps_uses_none(learned):
    """The table that it began with, of the next token as the likeliest, was never part of what it learned."""
    text = learned[1]
    learner = learner_of(text, 2 * WORDS)
    learner.run((5, 0))
    source, target = max(text, key=lambda pair: len(pair[0]))
    output = learner.model(input_ids=torch.tensor([source]), target_input_ids=torch.tensor([target]))
    first, *others = (place for place, word in enumerate(source) if word == COMMON)
    assert others
    for other in others:
        assert_close(output.forward_attention[0, :, other], output.forward_attention[0, :, first], 1e-6)


def test_learned_counts_align_new_text(learned):
    model = learned[0].model
    text, links = parallel_text(60, seed=9)
    common = found = 0
    for (source, target), pair in zip(text, links, strict=True):
        output = model(input_ids=torch.tensor([source]), target_input_ids=torch.tensor([target]))
        agreed = output.forward_attention[0] * output.backward_attention[0].T
        linked = {(s, t) for t, s in (agreed > 0.4).nonzero().tolist()}
        common, found = common + len(linked & pair), found + len(linked)
    assert 1 - 2 * common / (found + sum(map(len, links))) < 0.05


def text_with_rare_words(rare: int = 20) -> list:
    """The text, with particles on the target side that translate nothing, and in each of the first pairs a source
    word of its own that has no translation."""
    generator = random.Random(3)
    text, _ = parallel_text()
    particle = 2 * WORDS + rare
    for _, target in text:
        if generator.random() < 0.3:
            target.insert(generator.randint(0, len(target)), particle + generator.randint(0, 4))
    for number in range(rare):
        source, _ = text[number]
        source.insert(generator.randint(0, len(source)), 2 * WORDS + number)
    return text


def test_a_rare_word_does_not_collect_what_nothing_else_explains(monkeypatch):
    """With the counts of its own sentence, a word that occurs once would explain all words around it."""
    rare = range(2 * WORDS, 2 * WORDS + 20)
    text = text_with_rare_words(len(rare))

    def collected() -> tuple[float, int]:
        """Mean count of a rare word, and how many of them are linked."""
        learner = learner_of(text, 2 * WORDS + len(rare) + 5)
        learner.run()
        shares = dict(learner.shares())
        columns = [shares[number][:, text[number][0].index(word)] for number, word in enumerate(rare)]
        return float(learner.model.source_counts[rare].mean()), sum(bool((c > 0.4).any()) for c in columns)

    count, links = collected()
    without_exclusion(monkeypatch)
    greedy_count, greedy_links = collected()
    assert count < 0.2 < 0.4 < greedy_count
    assert links <= 2
    assert greedy_links >= 8


# ---- what takes long ----


@pytest.mark.parametrize(
    ("seconds", "time", "planned"), [(1.0, 100.0, (3, 6)), (10.0, 60.0, (1, 3)), (40.0, 60.0, (1, 2))]
)
def test_there_are_as_many_iterations_as_the_time_allows(seconds, time, planned):
    """Three are the least."""
    now, iterations, number = 0.0, (3, 6), 0
    while number < sum(iterations):
        number += 1
        spent = seconds * (1.4 if number > iterations[0] else 1)
        now += spent
        iterations = counting._in_time((3, 6), iterations, number, spent, time - now)
    assert now <= time or number == 3
    assert iterations == planned
