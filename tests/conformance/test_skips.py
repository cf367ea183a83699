"""The rule about skipped tests, which `conftest.py` enforces, can fail, and so can the choice of what is slow."""

import itertools
import unittest

import pytest
from testers import EVERY_TWO, is_repetition, may_skip, skips
from upstream import modeling


class Stock(unittest.TestCase):
    __test__ = False  # only for the rule to look at

    def test_that_runs(self):
        pass

    def test_that_skips(self):
        self.skipTest("not here")

    def test_of_which_a_part_skips(self):
        with self.subTest():
            self.skipTest("not here")

    @unittest.skip("needs what is not there")
    def test_that_is_not_even_set_up(self):
        raise NotImplementedError


class Ours(Stock):
    stock_test_case = Stock
    never_skipped = frozenset({"test_that_skips"})


class Different(Ours):
    own_skips = {"test_that_runs": "a reason", "test_that_skips": "a reason", "test_of_many": "a reason"}


@pytest.mark.parametrize(
    ("name", "skipped", "allowed"),
    [
        ("test_that_runs", False, False),
        ("test_that_skips", True, False),
        ("test_of_which_a_part_skips", True, True),
        ("test_that_is_not_even_set_up", True, True),
    ],
)
def test_only_what_the_stock_test_case_skips_may_be_skipped(name: str, skipped: bool, allowed: bool):
    assert skips(Stock, name) == skipped
    assert may_skip(Ours, name) == allowed


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("test_that_runs", True), ("test_that_skips", False), ("test_of_many_07_float", True), ("test_of_many_3", True)],
)
def test_or_what_has_a_reason(name: str, allowed: bool):
    assert may_skip(Different, name) == allowed


def test_every_two_settings_of_a_kernel_meet_in_the_usual_run():
    settings = {setting[0]: setting[1:] for setting in modeling.TEST_EAGER_MATCHES_SDPA_INFERENCE_PARAMETERIZATION}
    chosen = [settings[name] for name in EVERY_TWO]
    for one, other in itertools.combinations(range(len(chosen[0])), 2):
        everything = {(values[one], values[other]) for values in settings.values()}
        assert {(values[one], values[other]) for values in chosen} >= everything


def test_a_class_without_switches_repeats_nothing():
    plain, switched = (type("Case", (), {"switches": switches}) for switches in ({}, {"leaky": True}))
    names = [f"test_eager_matches_sdpa_inference_{number}" for number in ("01_fp16_pad_left", "05_fp32_pad_right")]
    for test_case, repetitions in ((plain, []), (switched, names[:1]), (None, [])):
        assert [name for name in names if is_repetition(test_case, name)] == repetitions
