"""Alarm set on a text without labels: clean text, another domain, faulty lines, and too few lines."""

from types import SimpleNamespace

import numpy as np
import pytest

from hf_attncal.checking.alarms import alarm_for, meaning
from hf_attncal.checking.check_model import CLEAN_SHARES
from hf_attncal.checking.logistic import log_odds, sigmoid


def of_clean(generator, lines):
    """Return log-odds with a heavy tail, like clean text."""
    return generator.gamma(2.0, 1.0, lines) - 6


def with_odds(generator, lines, more):
    """Return scores whose log-odds to exceed any level are shifted from clean text."""
    many = np.sort(of_clean(generator, 400_000))
    above = sigmoid(log_odds(generator.uniform(size=lines)) - more)
    return many[((1 - above) * len(many)).astype(int)]


@pytest.fixture(scope="module")
def model():
    scores = of_clean(np.random.default_rng(0), 20_000)
    return SimpleNamespace(
        clean=np.quantile(scores, CLEAN_SHARES),
        alarm=float(sigmoid(np.quantile(scores, 0.99))),
    )


@pytest.mark.parametrize("faulty", [0, 0.03, 0.1])
@pytest.mark.parametrize("more", [0.0, 1.5, -1.0])
def test_right_lines_are_flagged_as_often_as_asked(model, faulty, more):
    generator = np.random.default_rng(1)
    right = with_odds(generator, 4000, more)
    wrong = generator.normal(4, 2, int(4000 * faulty))
    alarm = alarm_for(model, np.concatenate([right, wrong]), 0.01)
    bar = float(log_odds(np.array(alarm.alarm)))
    assert 0.005 < (right > bar).mean() < 0.025
    assert alarm.right == 0.01
    assert alarm.flagged >= faulty / 2
    looser = alarm_for(model, np.concatenate([right, wrong]), 0.05)
    assert looser.alarm < alarm.alarm


def test_what_the_learned_alarm_means_on_a_text(model):
    generator = np.random.default_rng(2)
    same = meaning(model, sigmoid(of_clean(generator, 4000)))
    assert same.right == pytest.approx(0.01, abs=0.006)
    other = meaning(model, sigmoid(with_odds(generator, 4000, 2.0)))
    assert other.right > 0.03
    assert other.right == pytest.approx(other.flagged, abs=0.02)
    assert "of the right lines" in str(other)


def test_what_too_little_is_known_of(model):
    generator = np.random.default_rng(3)
    assert alarm_for(model, of_clean(generator, 150), 0.01).why == "fewer than 200 lines"
    assert alarm_for(model, np.zeros(0), 0.01).right is None
    two_texts = np.concatenate([of_clean(generator, 500) - 20, of_clean(generator, 500) + 20])
    assert "unlike" in alarm_for(model, two_texts, 0.01).why
    assert "is unknown" in str(alarm_for(model, two_texts, 0.01))
