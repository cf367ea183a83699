"""Means, intervals and verdicts of faithfulness, against counts by hand."""

from dataclasses import replace

import numpy as np
import pytest

from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.report.judged_faithfulness import faithfulness

OPERATORS, MEASURES = ("replace", "hide", "unk"), ("comprehensiveness", "sufficiency")


def falls_of(means: dict[str, list[float]], pairs: int = 30, noise: float = 0.5) -> list[dict[str, np.ndarray]]:
    """Comprehensiveness of each method around a mean for each operator; sufficiency is its negative."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(pairs):
        words = int(generator.integers(1, 6))
        shared = generator.normal(size=(len(OPERATORS), words))  # what is hard for one is hard for all
        found.append({})
        for name, of in means.items():
            values = np.array(of)[:, None] + shared + noise * generator.normal(size=shared.shape)
            found[-1][name] = np.stack([values, -values], axis=1)
    return found


def score_of(means, **options):
    return faithfulness(falls_of(means), OPERATORS, MEASURES, targets="reference", **options)


def test_means_are_over_target_words():
    falls = [{"a": np.array([[[1.0, 2.0, 3.0]]])}, {"a": np.array([[[10.0]]])}]
    found = faithfulness(falls, ("replace",), ("comprehensiveness",), targets="output", bootstrap=0)
    score = found.score("a")
    assert (score.value, score.interval, score.circular) == (4.0, None, False)
    assert "targets:output|operators:replace|n:2" in found.signature


def test_intervals_contain_the_mean_and_differences_are_paired():
    found = score_of({"a": [1.0, 1.0, 1.0], "b": [0.7, 0.7, 0.7]})
    single = found.score("a")
    low, high = single.interval
    assert low < single.value < high
    difference = found.difference("a", "b")
    assert difference.value == pytest.approx(found.score("a").value - found.score("b").value)
    assert difference.interval[0] < difference.value < difference.interval[1]
    assert difference.interval[1] - difference.interval[0] < (high - low) / 2
    turned = found.difference("b", "a")
    assert turned.value == -difference.value
    assert turned.interval == pytest.approx((-difference.interval[1], -difference.interval[0]))


@pytest.mark.parametrize(
    ("first", "second", "better"),
    [
        ([2.0, 2.0, 2.0], [0.0, 0.0, 0.0], "first"),
        ([0.0, 0.0, 0.0], [2.0, 2.0, 2.0], "second"),
        ([2.0, 0.0, 2.0], [0.0, 2.0, 0.0], None),  # signs differ
        ([2.0, 0.0, 2.0], [0.0, 0.0, 0.0], None),  # one interval contains 0
    ],
)
@pytest.mark.parametrize("measure", MEASURES)
def test_a_verdict_needs_all_operators(first, second, better, measure):
    verdict = score_of({"first": first, "second": second}).verdict("first", "second", measure)
    assert verdict.better == better
    assert tuple(verdict.by_operator) == OPERATORS
    assert verdict.circular == ()


def test_a_verdict_needs_some_pairs():
    """That few of them all say the same is no rare chance; one pair would have an interval without any width."""
    falls = falls_of({"first": [9.0] * 3, "second": [0.0] * 3})
    for pairs, better in ((1, None), (FEWEST_SENTENCES - 1, None), (FEWEST_SENTENCES, "first")):
        found = faithfulness(falls[:pairs], OPERATORS, MEASURES, targets="reference")
        assert found.verdict("first", "second").better == better


def test_operators_that_are_circular_for_a_method_do_not_count():
    means = {"contribution": [0.0, 5.0, 0.0], "attention": [2.0, 2.0, 2.0], "occlusion": [2.0, 2.0, 9.0]}
    found = score_of(means)
    verdict = found.verdict("contribution", "attention")
    assert (verdict.better, verdict.circular) == ("attention", ("hide",))
    assert verdict.by_operator["hide"].circular
    assert not verdict.by_operator["unk"].circular
    assert found.score("contribution", "hide").circular
    assert not found.score("attention", "hide").circular
    assert found.verdict("occlusion", "contribution").circular == ("hide", "unk")
    assert replace(found, circular={}).verdict("contribution", "attention").better is None


def test_no_verdict_where_every_operator_is_circular():
    found = replace(score_of({"a": [1.0] * 3, "b": [0.0] * 3}), circular={"a": OPERATORS})
    assert found.verdict("a", "b").better is None


# ---- errors ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"falls": []}, "must have at least one pair, got none"),
        ({"targets": "gold"}, "`targets` must be 'reference' or 'output'"),
        ({"bootstrap": -1}, "`bootstrap` must be >= 0"),
    ],
)
def test_bad_input_is_refused(changes, message):
    given = {"falls": falls_of({"a": [0.0] * 3}), "operators": OPERATORS, "measures": MEASURES, "targets": "reference"}
    with pytest.raises(ValueError, match=message):
        faithfulness(**given | changes)


def test_unknown_names_are_refused():
    found = score_of({"a": [0.0] * 3})
    with pytest.raises(ValueError, match="not in tuple"):
        found.score("a", "delete")
    with pytest.raises(KeyError, match="b"):
        found.verdict("a", "b")
