"""What the values of a file may be: the message names the place and the rule."""

import pytest

from hf_attncal.inference.schema import Each, Numbers, WordNumbers, check_values

SCHEMA = {"counts": Each((WordNumbers(Numbers(least=1, whole=True), 5),) * 2)}


def test_counts_that_fit_are_taken():
    check_values({"counts": [{"a": 2, "b": 3}, {"c": 1}]}, SCHEMA)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([{"a": 1}, {}], r"counts\S* must have words, got none"),
        ([{"a": 4, "b": 3}, {"c": 1}], r"must sum up to at most 5, got 7"),
        ([{"a": 0.5}, {"c": 1}], r"counts\S*a"),
    ],
    ids=["none", "too many", "no whole number"],
)
def test_counts_that_do_not_fit_are_named(values, told):
    with pytest.raises(ValueError, match=told):
        check_values({"counts": values}, SCHEMA)
