"""A mask network that learned nothing gets a warning."""

import warnings

import pytest

from hf_attncal.training.job import warn_of_idle_masks


def logged(mask_mean=0.7, mask_penalty=1.5, mask_loss=-3.0, nmt_loss=2.0) -> dict[str, float]:
    return {"mask_mean": mask_mean, "mask_penalty": mask_penalty, "mask_loss": mask_loss, "nmt_loss": nmt_loss}


COLLAPSED = logged(0.9998, 0.0009, -3.7, 3.7)
# As a short training on long pairs ends: the masks are still on their way, and blurring where they say costs nothing.
WORTH_NOTHING = logged(0.9875, 0.08875, -3.672, 3.682)


@pytest.mark.parametrize(("last", "mean"), [(COLLAPSED, "0.9998"), (WORTH_NOTHING, "0.9875")])
def test_masks_that_find_nothing_get_a_warning(last, mean):
    with pytest.warns(UserWarning, match=f"mean mask {mean}.*`attncal adapt`"):
        warn_of_idle_masks([logged(), last, {"eval_bleu": 3.0}])


# Of 500 source tokens one is blurred, without which the model can do least.
ONE_OF_MANY = logged(0.9992, 0.4, -2.3, 2.0)


@pytest.mark.parametrize("history", [[], [{"loss": 1.0}], [logged()], [ONE_OF_MANY], [COLLAPSED, logged(0.9)]])
def test_masks_that_find_something_get_no_warning(history):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_idle_masks(history)
