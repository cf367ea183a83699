"""Planted labels and noise are what they are said to be; thresholds, areas and forms are computed as defined."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from hf_attncal.alignment import GoldAlignment
from hf_attncal.alignment.probabilities import Platt
from hf_attncal.data.gold import Gold
from hf_attncal.data.synthetic.english_german import generate_pairs


@pytest.fixture(scope="module")
def projection(experiment):
    return experiment("projection")


@pytest.fixture(scope="module")
def noise(experiment):
    return experiment("noisy_pairs")


@pytest.fixture(scope="module")
def probabilities(experiment):
    return experiment("link_probabilities")


# ---- projection ----


def test_over_exact_links_all_that_is_planted_arrives(projection):
    pairs = generate_pairs(120, seed=4)
    exact = [(tuple(sorted(pair.links)), None) for pair in pairs]
    found = projection.accuracies(pairs, exact, seed=4)
    assert {name: one["accuracy"] for name, one in found.items()} == {"tags": 1, "spans": 1, "markup": 1}
    assert min(one["count"] for one in found.values()) > 200
    wrong = [(tuple((i, len(pair.target) - 1 - j) for i, j in sorted(pair.links)), None) for pair in pairs]
    assert max(one["accuracy"] for one in projection.accuracies(pairs, wrong, seed=4).values()) < 0.5


def test_words_that_links_join_have_one_tag_and_others_mostly_another(projection):
    pairs, generator = generate_pairs(60, seed=1), random.Random(0)
    same = different = 0
    for pair in pairs:
        source, target = projection.planted_tags(pair, generator)
        assert all(source[i] == target[j] for i, j in pair.links)
        assert all((tag is None) == (j not in {j for _, j in pair.links}) for j, tag in enumerate(target))
        neighbours = [(i, j) for i in range(len(source)) for j in range(len(target)) if (i, j) not in pair.links]
        same += sum(source[i] == target[j] for i, j in neighbours)
        different += sum(source[i] != target[j] for i, j in neighbours)
    assert same < 0.25 * different


def test_planted_markup_is_whole_and_has_elements_within_others(projection):
    pairs, generator = generate_pairs(60, seed=1), random.Random(0)
    nested = 0
    for pair in pairs:
        marked, places = projection.planted_markup(pair, generator)
        assert projection.elements_of(marked).keys() == places.keys()
        nested += any(
            a != b and one[0] <= two[0] and two[1] <= one[1] for a, one in places.items() for b, two in places.items()
        )
    assert nested > 20


# ---- noise ----


def test_noise_is_what_it_is_called(noise):
    pairs = [(f"s{n} t{n} u{n}", " ".join(f"{letter}{n}" for letter in "vwxyz")) for n in range(240)]
    noisy = noise.planted(pairs, 5)
    kinds = [kind for *_, kind in noisy]
    assert kinds.count(noise.CLEAN) == 120
    assert {kinds.count(kind) for kind in noise.KINDS} == {20}
    assert noisy == noise.planted(pairs, 5) != noise.planted(pairs, 6)
    targets = {target for _, target in pairs}
    for row, (source, target, kind) in enumerate(noisy):
        true = pairs[row][1]
        assert source == pairs[row][0]
        words, said = target.split(), true.split()
        is_it = {
            noise.CLEAN: lambda: target == true,  # noqa: B023
            "shuffled": lambda: target in targets - {true, pairs[(row + 1) % 240][1]},  # noqa: B023
            "neighbour": lambda: target == pairs[(row + 1) % 240][1],  # noqa: B023
            "truncated": lambda: words == said[:2],  # noqa: B023
            "half_replaced": lambda: words[:2] == said[:2] and not {*words[2:]} & {*said},  # noqa: B023
            "copied": lambda: target == source,  # noqa: B023
            "misordered": lambda: [words[place] for place in (1, 0, 3, 2, 4)] == said,  # noqa: B023
        }[kind]
        assert is_it(), (kind, target)


def test_the_threshold_has_the_best_f1_and_areas_are_shares_of_pairs(noise):
    generator = np.random.default_rng(0)
    good, bad = generator.normal(1, 1, 80).round(1), generator.normal(0, 1, 60).round(1)

    def f1(threshold: float) -> float:
        hits, lost = (bad <= threshold).sum(), (good <= threshold).sum()
        return 2 * hits / (hits + lost + len(bad))

    best = max(f1(threshold) for threshold in np.linspace(-4, 5, 1801))
    assert f1(noise.best_threshold(good, bad)) == pytest.approx(best)
    slow = np.mean([(g > b) + (g == b) / 2 for g in good for b in bad])
    assert noise.area(good, bad) == pytest.approx(slow)


def test_what_is_reported_is_of_pairs_that_chose_nothing(noise):
    pairs = [(f"s{n}", f"v{n} w{n} x{n}") for n in range(600)]
    noisy = noise.planted(pairs, 1)
    generator = np.random.default_rng(1)
    scores = np.array([generator.normal(2 if kind in (noise.CLEAN, "copied") else 0, 0.5) for *_, kind in noisy])
    found = noise.judged(noisy, scores, 1)
    assert found["pairs"] == {"chosen_on": 300, "measured_on": 300}
    strict = found["rules"]["lost_5"]
    assert strict["threshold"] == pytest.approx(2 - 1.64 * 0.5, abs=0.3)
    assert strict["good_lost"] < 0.12
    assert strict["kinds"]["shuffled"]["recall"] > 0.9
    assert strict["kinds"]["copied"]["recall"] < 0.3
    assert found["auc_of_kind"]["shuffled"] > 0.97 > 0.7 > found["auc_of_kind"]["copied"]


# ---- forms ----


@pytest.mark.parametrize("form", ["temperature", "platt", "beta", "isotonic"])
def test_every_form_mends_scores_that_promise_too_much(form, probabilities):
    generator = np.random.default_rng(3)
    logits = generator.uniform(-4, 4, 6000)
    scores, right = 1 / (1 + np.exp(-logits)), generator.random(6000) < 1 / (1 + np.exp(-0.4 * logits))
    learned = probabilities.FORMS[form](scores, right, 1e-3)
    new = np.array([0.05, 0.3, 0.7, 0.95])
    true = 1 / (1 + np.exp(-0.4 * np.log(new / (1 - new))))
    assert np.abs(learned(new) - true).max() < 0.05
    assert np.abs(probabilities.FORMS["constant"](scores, right, 1e-3)(new) - true).max() > 0.2


def test_platt_here_is_platt_of_the_package(probabilities):
    generator = np.random.default_rng(4)
    scores = generator.random(3000)
    right = generator.random(3000) < 0.3 + 0.5 * scores
    ours = Platt.fit(scores.tolist(), right.tolist()).of([0.1, 0.5, 0.9])
    assert probabilities.FORMS["platt"](scores, right, 1e-3)(np.array([0.1, 0.5, 0.9])) == pytest.approx(
        ours, abs=0.005
    )


def test_links_of_another_aligner_stand_for_gold(probabilities):
    class Other:
        def align(self, pairs):
            return [SimpleNamespace(links=((0, 0),)) for _ in pairs]

    gold = probabilities.as_gold(Other(), [("a", "b")] * 3)
    assert gold == Gold([("a", "b")] * 3, [GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0)}))] * 3)
