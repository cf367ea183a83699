"""Statistics of the links of several aligners."""

import pytest

from hf_attncal.alignment import compare_links


def test_shares_equal_a_count_by_hand():
    pairs = [(["a", "b"], ["x", "y", "z"]), (["a"], ["x"])]
    found = compare_links(
        pairs, {"one": [{(0, 0), (1, 1)}, {(0, 0)}], "two": [{(0, 0), (0, 1)}, {(0, 0)}], "none": [[], []]}
    )
    assert (found["one"].links, found["one"].source_linked, found["one"].target_linked) == (3, 1, 0.75)
    assert (found["two"].source_linked, found["two"].target_linked) == (2 / 3, 0.75)
    assert found["two"].agreement == 2 * 2 / 6
    assert (found["none"].links, found["none"].agreement) == (0, 0)


@pytest.mark.parametrize(
    ("pairs", "systems", "message"),
    [
        ([], {"one": []}, "got 0 and 1"),
        ([(["a"], ["b"])], {}, "got 1 and 0"),
        ([(["a"], ["b"])], {"one": [{(0, 0)}], "two": [{(0, 1)}]}, "two: line 1: link 0-1 lies outside"),
        ([(["a"], ["b"])], {"one": []}, "one: 0 lines of links for 1 sentence pairs"),
    ],
)
def test_bad_input(pairs, systems, message):
    with pytest.raises(ValueError, match=message):
        compare_links(pairs, systems)


def test_links_that_count_from_1_are_refused():
    pairs, links = [(["a", "b", "."], ["x", "y", "."])] * 60, [frozenset({(0, 0), (1, 1)})] * 60
    shifted = [frozenset((i + 1, j + 1) for i, j in found) for found in links]
    with pytest.raises(ValueError, match=r"two: .*take 1 from each index"):
        compare_links(pairs, {"one": links, "two": shifted})
