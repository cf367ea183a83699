"""The verdict on attention: its requirements, its missing measures, and planted truths."""

import numpy as np
import pytest

from hf_attncal.metrics.trust import SourceUse, verdict_of

PAIRS = 40


def use(
    source=3.0, attention=0.9, diagonal=0.2, contribution=0.9, informed=1.0, pairs=PAIRS, spread=0.1, by_place=None
):
    """Sums of pairs of ten target tokens whose best source tokens are worth ten nats; a share each, or None."""
    generator = np.random.default_rng(0)

    def of(share, terms=10.0):
        return np.stack([10 * (share + spread * generator.standard_normal(pairs)), np.full(pairs, terms)], axis=1)

    return SourceUse(
        None if source is None else of(source),
        of(attention),
        of(diagonal),
        None if contribution is None else of(contribution),
        informed,
        by_place,
    )


def test_trust_needs_everything():
    verdict = verdict_of(use())
    assert (verdict.level, verdict.missing) == ("trust", ())
    assert str(verdict).startswith("Trust the attention of this model: it uses its source, since another source")
    assert verdict.to_dict()["text"] == str(verdict)
    assert verdict.to_dict()["measured"]["attention"]["value"] == pytest.approx(0.9, abs=0.1)


@pytest.mark.parametrize(
    ("changes", "level", "message"),
    [
        ({"source": 0.03}, "do not", "does not clearly use its source"),
        ({"source": 0.0}, "do not", "does not clearly use its source"),
        ({"source": None}, "do not", "Attention not evaluated: needs two different source sentences, got 1."),
        ({"source": None, "attention": 0.0}, "do not", "do not clearly matter more than others"),
        ({"attention": 0.0}, "do not", "do not clearly matter more than others"),
        ({"attention": -0.5}, "do not", "do not clearly matter more than others: they have -4"),
        ({"attention": 0.2, "diagonal": 0.4}, "do not", "than the tokens at the same position"),
        ({"attention": 0.4, "diagonal": 0.4}, "do not", "than the tokens at the same position"),
        ({"source": 0.5}, "in part", "uses its source little"),
        ({"attention": 0.5}, "in part", "the most attention have 5"),
        ({"contribution": None, "informed": 0.1}, "in part", "they distinguish source tokens at 10 % of"),
        ({"contribution": 0.0}, "in part", "masks have learned nothing: those with the largest contribution"),
        ({"contribution": None, "informed": None}, "in part", "Not measured: contributions"),
        ({"pairs": 5}, "do not", "Attention not evaluated: needs at least 6 sentence pairs, got 5."),
    ],
)  # fmt: skip
def test_whatever_is_not_shown_takes_from_it(changes, level, message):
    verdict = verdict_of(use(**changes))
    assert verdict.level == level
    assert message in str(verdict)


@pytest.mark.parametrize("attention", [0.9, 0.1])
def test_the_diagonal_stands_beside_chance(attention):
    verdict = verdict_of(use(attention=attention, diagonal=0.6))
    assert "of the best tokens (random tokens: 0 %, tokens at the same position: 6" in str(verdict)
    assert verdict.measured["diagonal"].value == pytest.approx(0.6, abs=0.05)


def test_the_place_to_read_is_chosen_on_half_of_the_pairs_and_measured_on_the_other():
    by_place = np.ones((PAIRS, 2, 4, 2))
    by_place[::2, 1, 2, 0] = 9.0  # the best by the half that chooses
    by_place[1::2, 1, 2, 0] = 7.0
    by_place[1::2, 0, 0, 1] = 10.0
    verdict = verdict_of(use(by_place=by_place))
    assert " Read layer 1 (counted from 0), its head 2, at the step that predicts the target token: these" in str(
        verdict
    )
    assert "these tokens have 70 % (70 to 70) (chosen on half" in str(verdict)
    names = ("best_layer", "best_head", "best_step")
    assert [verdict.to_dict()["measured"][name] for name in names] == [1, 2, 0]
    by_place[::2, 0, 3, 1] = 10.0
    verdict = verdict_of(use(attention=0.1, by_place=by_place))
    assert "Read layer 0 (counted from 0), the mean of its heads, at the step that reads the target token" in str(
        verdict
    )
    assert [verdict.measured[name] for name in names] == [0, None, 1]
    assert "Read layer" not in str(verdict_of(use(by_place=by_place), bootstrap=0))
    assert "Read layer" not in str(verdict_of(use(pairs=11, by_place=by_place[:11])))


def test_nothing_measured_is_no_trust():
    verdict = verdict_of(None, pairs=2)
    assert (verdict.level, bool(verdict.missing)) == ("do not", True)
    assert str(verdict) == "Attention not evaluated: needs at least 6 sentence pairs, got 2."
    assert str(verdict_of(None, pairs=8)) == "Attention not evaluated: needs source sentences of at least two words."
    without_intervals = verdict_of(use(), bootstrap=0)
    assert (without_intervals.level, without_intervals.reasons) == ("do not", ())


def test_a_model_with_nan_is_not_trusted():
    verdict = verdict_of(use(source=np.nan))
    assert verdict.level == "do not"
    assert "not finite" in str(verdict)


def test_a_share_of_noise_is_no_share():
    """If even the best tokens have no effect beyond chance, no share can be computed."""
    none = SourceUse(*(np.zeros((PAIRS, 2)) for _ in range(4)), 1.0)
    assert verdict_of(none).level == "do not"
