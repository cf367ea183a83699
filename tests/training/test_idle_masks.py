"""A mask network that has learned nothing is told of."""

import warnings

import pytest

from hf_attncal.training.run import warn_of_idle_masks


def test_masks_that_keep_everything_are_warned_of():
    with pytest.warns(UserWarning, match=r"has learned nothing: its mean mask is 0\.9998, .*`attncal adapt`"):
        warn_of_idle_masks([{"mask_mean": 0.7}, {"mask_mean": 0.9998}, {"eval_bleu": 3.0}])


@pytest.mark.parametrize("history", [[], [{"loss": 1.0}], [{"mask_mean": 0.9999}, {"mask_mean": 0.93}]])
def test_masks_that_move_are_not(history):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_idle_masks(history)
