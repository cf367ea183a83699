"""Aligners compared without a gold alignment: the likelihood beside a loop over its formula, and whom it prefers."""

import math
import random

import pytest

from hf_attncal.alignment import compare_links
from hf_attncal.alignment.comparison import held_out_nats, predicted_rows


def text(count, seed=0):
    """Pairs of which word n of the source is word n of the target, in another order; and these links."""
    generator = random.Random(seed)
    pairs, links = [], []
    for _ in range(count):
        source = [f"s{generator.randrange(12)}" for _ in range(generator.randint(1, 6))]
        order = generator.sample(range(len(source)), len(source))
        pairs.append((source, [f"t{source[i][1:]}" for i in order]))
        links.append(frozenset((i, j) for j, i in enumerate(order)))
    return pairs, links


def shuffled(pairs, links, share, seed=1):
    generator = random.Random(seed)
    return [
        frozenset((generator.randrange(len(source)) if generator.random() < share else i, j) for i, j in found)
        for (source, _), found in zip(pairs, links, strict=True)
    ]


def slow_nats(pairs, links, rows):
    """From the formula in the docstring of `held_out_nats`, word by word."""
    rest = [n for n in range(len(pairs)) if n not in rows]

    def p(word, given, side):
        found = [(pairs[n][1 - side][link[1 - side]], pairs[n][side][link[side]]) for n in rest for link in links[n]]
        of_given = [target for source, target in found if source == given]
        n, different = len(of_given), len(set(of_given))
        return (of_given.count(word) + different * q(word, side)) / (n + different) if n else q(word, side)

    def q(word, side):
        words = [one for n in rest for one in pairs[n][side]]
        return (words.count(word) + 0.5) / (len(words) + 0.5 * (len(set(words)) + 1))

    sums = []
    for n in rows:
        nats = 0.0
        for side in (0, 1):
            given = pairs[n][1 - side]
            for word in pairs[n][side]:
                nats -= math.log((q(word, side) + sum(p(word, one, side) for one in given)) / (1 + len(given)))
        sums.append((nats, len(pairs[n][0]) + len(pairs[n][1])))
    return sums


def test_the_likelihood_is_the_loop_over_its_formula():
    pairs, links = text(30)
    links = shuffled(pairs, links, 0.3)
    pairs[6] = (["s1", "unknown"], ["new", "t3", "t1"])  # of the held-out pairs, with words that no other has
    rows = [0, 6, 13]
    found = held_out_nats(pairs, links, rows)
    assert found.tolist() == pytest.approx([pytest.approx(one, abs=1e-12) for one in slow_nats(pairs, links, rows)])


def test_links_of_held_out_pairs_do_not_count():
    pairs, links = text(40)
    rows = predicted_rows(40)
    other = [frozenset() if n in rows else found for n, found in enumerate(links)]
    assert (held_out_nats(pairs, other, rows) == held_out_nats(pairs, links, rows)).all()


@pytest.mark.parametrize(("count", "most", "chosen"), [(9, 2000, 0), (10, 2000, 1), (105, 2000, 10), (1000, 30, 30)])
def test_a_tenth_is_held_out(count, most, chosen):
    rows = predicted_rows(count, most)
    assert len(rows) <= max(chosen, 0)
    assert len(rows) >= chosen * 0.8
    assert all(row < count for row in rows)


def test_more_wrong_links_cost_more_nats():
    pairs, right = text(600)
    systems = {"right": right} | {f"{share}": shuffled(pairs, right, share) for share in (0.2, 0.5, 1.0)}
    found = compare_links(pairs, systems, bootstrap=100)
    nats = [one.nats.value for one in found.values()]
    assert nats == sorted(nats)
    assert nats[-1] - nats[0] > 0.3
    assert found["right"].nats_to_first is None
    assert found["right"].agreement == found["right"].same_lines == 1
    difference = found["1.0"].nats_to_first
    assert difference.value == pytest.approx(nats[-1] - nats[0])
    assert 0 < difference.interval[0] < difference.value < difference.interval[1]


def test_shares_equal_a_count_by_hand():
    pairs = [(["a", "b"], ["x", "y", "z"]), (["a"], ["x"])]
    found = compare_links(
        pairs, {"one": [{(0, 0), (1, 1)}, {(0, 0)}], "two": [{(0, 0), (0, 1)}, {(0, 0)}], "none": [[], []]}
    )
    assert (found["one"].links, found["one"].source_linked, found["one"].target_linked) == (3, 1, 0.75)
    assert (found["two"].source_linked, found["two"].target_linked) == (2 / 3, 0.75)
    assert (found["two"].agreement, found["two"].same_lines) == (2 * 2 / 6, 0.5)
    assert (found["none"].links, found["none"].agreement) == (0, 0)
    assert found["one"].nats is None  # too little text


def test_capitals_can_be_one():
    pairs, links = text(200)
    shouted = [
        ([word.upper() for word in source], target) if n % 2 else (source, target)
        for n, (source, target) in enumerate(pairs)
    ]
    apart, together = (
        compare_links(shouted, {"one": links}, lowercase=lowercase)["one"].nats.value for lowercase in (False, True)
    )
    assert together == pytest.approx(compare_links(pairs, {"one": links})["one"].nats.value)
    assert together < apart


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
    pairs, links = text(60)
    pairs = [([*source, "."], [*target, "."]) for source, target in pairs]
    shifted = [frozenset((i + 1, j + 1) for i, j in found) for found in links]
    with pytest.raises(ValueError, match=r"two: .*take 1 from each index"):
        compare_links(pairs, {"one": links, "two": shifted})
