"""Two directions merged: the harmonic mean against a loop, the grow heuristics against the printed pseudo-code."""

import random

import pytest
import torch
from helpers import assert_close

from hf_attncal.alignment.links import (
    SYMMETRIZATIONS,
    harmonic_mean,
    links_of_batch,
    symmetrize_batch,
    symmetrize_links,
)

GROWING = ("grow-diag", "grow-diag-final", "grow-diag-final-and")
LINK_METHODS = SYMMETRIZATIONS[1:]


def symmetrize(forward, backward, method, threshold):
    links, scores = symmetrize_batch(forward[None], None if backward is None else backward[None], method, threshold)
    return links[0], scores[0]


def slow_harmonic(forward, backward):
    """Mask-Align's score, cell by cell; (source, target)."""
    targets, sources = forward.shape
    scores = torch.zeros(sources, targets, dtype=forward.dtype)
    for i in range(sources):
        for j in range(targets):
            a, b = float(forward[j, i]), float(backward[i, j])
            scores[i, j] = 0.0 if a == 0 and b == 0 else 2 * a * b / (a + b)
    return scores


def slow_merge(forward, backward, method, sources, targets):
    """Koehn's pseudo-code as printed: every pass scans the whole matrix, english (target) words outside."""
    alignment = [[(f, e) in forward and (f, e) in backward for f in range(sources)] for e in range(targets)]
    neighbouring = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]

    def e_aligned(e):
        return any(alignment[e])

    def f_aligned(f):
        return any(row[f] for row in alignment)

    def grow_diag():
        while True:
            added = False
            for e in range(targets):
                for f in range(sources):
                    if not alignment[e][f]:
                        continue
                    for e_step, f_step in neighbouring:
                        e_new, f_new = e + e_step, f + f_step
                        if not (0 <= e_new < targets and 0 <= f_new < sources):
                            continue
                        in_union = (f_new, e_new) in forward or (f_new, e_new) in backward
                        if (not e_aligned(e_new) or not f_aligned(f_new)) and in_union:
                            alignment[e_new][f_new] = True
                            added = True
            if not added:
                return

    def final(direction):
        for e_new in range(targets):
            for f_new in range(sources):
                free = [not e_aligned(e_new), not f_aligned(f_new)]
                wanted = all(free) if method == "grow-diag-final-and" else any(free)
                if wanted and (f_new, e_new) in direction:
                    alignment[e_new][f_new] = True

    grow_diag()
    if method != "grow-diag":
        final(forward)
        final(backward)
    return {(f, e) for e in range(targets) for f in range(sources) if alignment[e][f]}


def random_links(generator, sources, targets, share):
    return {(i, j) for i in range(sources) for j in range(targets) if generator.random() < share}


def random_weights(sources, targets, seed=0):
    """Rows of both directions, some cells 0."""
    generator = torch.Generator().manual_seed(seed)
    forward = torch.rand(targets, sources, generator=generator, dtype=torch.float64)
    backward = torch.rand(sources, targets, generator=generator, dtype=torch.float64)
    return forward * (forward > 0.3), backward * (backward > 0.3)


# ---- harmonic mean ----


def test_the_harmonic_mean_is_that_of_a_loop_and_source_comes_first():
    forward, backward = random_weights(5, 3)
    scores = harmonic_mean(forward, backward)
    assert scores.shape == (5, 3)
    assert_close(scores, slow_harmonic(forward, backward))


def test_a_cell_that_neither_direction_sees_is_0():
    scores = harmonic_mean(torch.zeros(2, 3), torch.zeros(3, 2))
    assert torch.equal(scores, torch.zeros(3, 2))


def test_the_gradient_is_finite_where_both_are_0():
    forward = torch.tensor([[0.0, 0.5]], requires_grad=True)
    harmonic_mean(forward, torch.tensor([[0.0], [0.5]])).sum().backward()
    assert torch.isfinite(forward.grad).all()


# ---- sets of links ----


@pytest.mark.parametrize("method", GROWING)
def test_growing_follows_the_printed_pseudo_code(method):
    generator = random.Random(method)
    different = 0
    for _ in range(400):
        sources, targets = generator.randint(1, 7), generator.randint(1, 7)
        share = generator.choice((0.1, 0.25, 0.5, 0.8))
        forward, backward = (random_links(generator, sources, targets, share) for _ in range(2))
        merged = symmetrize_links(forward, backward, method)
        assert merged == tuple(sorted(slow_merge(forward, backward, method, sources, targets)))
        different += set(merged) not in (forward & backward, forward | backward)
    assert different > 100  # the cases are not trivial


def test_growing_by_hand():
    # 0-0 is certain; 1-1 touches it at a corner; 3-3 stands alone; 3-4 shares its source word.
    forward, backward = {(0, 0), (1, 1), (3, 3)}, {(0, 0), (3, 4)}
    assert symmetrize_links(forward, backward, "grow-diag") == ((0, 0), (1, 1))
    assert symmetrize_links(forward, backward, "grow-diag-final-and") == ((0, 0), (1, 1), (3, 3))
    assert symmetrize_links(forward, backward, "grow-diag-final") == ((0, 0), (1, 1), (3, 3), (3, 4))


def test_plain_set_operations():
    forward, backward = {(0, 0), (1, 1)}, {(1, 1), (2, 0)}
    assert symmetrize_links(forward, backward, "intersection") == ((1, 1),)
    assert symmetrize_links(forward, backward, "union") == ((0, 0), (1, 1), (2, 0))
    assert symmetrize_links(forward, backward, "forward") == tuple(sorted(forward))
    assert symmetrize_links(forward, backward, "backward") == tuple(sorted(backward))


@pytest.mark.parametrize("method", LINK_METHODS)
def test_links_may_be_any_collection_and_are_not_changed(method):
    forward, backward = {(1, 1), (0, 0)}, {(2, 2), (0, 0), (1, 0)}
    merged = symmetrize_links(forward, backward, method)
    assert merged == tuple(sorted(merged)) == symmetrize_links(tuple(forward), list(backward), method)
    assert (forward, backward) == ({(0, 0), (1, 1)}, {(0, 0), (1, 0), (2, 2)})
    assert symmetrize_links((), (), method) == ()


@pytest.mark.parametrize("method", ["harmonic", "grow", ""])
def test_a_method_without_links_is_refused(method):
    with pytest.raises(ValueError, match=r"`method`.*grow-diag-final-and.*got"):
        symmetrize_links(set(), set(), method)


# ---- weights ----


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", SYMMETRIZATIONS)
def test_weights_are_merged_by_every_method(method, seed):
    sources, targets = 5, 4
    forward, backward = random_weights(sources, targets, seed)
    links, scores = symmetrize(forward, backward, method, 0.45)
    cells = [(i, j) for i in range(sources) for j in range(targets)]
    above_forward = {(i, j) for i, j in cells if forward[j, i] > 0.45}
    above_backward = {(i, j) for i, j in cells if backward[i, j] > 0.45}
    merged = {"intersection": min, "forward": lambda a, b: a, "backward": lambda a, b: b}.get(method, max)
    expected_scores = torch.zeros(sources, targets, dtype=torch.float64)
    for i, j in cells:
        expected_scores[i, j] = merged(float(forward[j, i]), float(backward[i, j]))
    if method == "harmonic":
        expected_scores = slow_harmonic(forward, backward)
    expected_links = {
        "harmonic": {(i, j) for i, j in cells if expected_scores[i, j] > 0.45},
        "forward": above_forward,
        "backward": above_backward,
        "intersection": above_forward & above_backward,
        "union": above_forward | above_backward,
    }.get(method) or slow_merge(above_forward, above_backward, method, sources, targets)
    assert links == tuple(sorted(expected_links))
    assert_close(scores, expected_scores)
    if method not in GROWING:
        assert links == links_of_batch(scores[None], 0.45)[0]  # the score decides


@pytest.mark.parametrize("method", SYMMETRIZATIONS)
def test_the_pairs_of_a_batch_are_merged_apart(method):
    """Three pairs of different lengths; the second has no links."""
    generator = torch.Generator().manual_seed(1)
    sizes = [(5, 4), (2, 6), (3, 3)]
    forward, backward = torch.zeros(3, 6, 5), torch.zeros(3, 5, 6)
    for row, (sources, targets) in enumerate(sizes):
        factor = 0.1 if row == 1 else 1.0
        forward[row, :targets, :sources] = factor * torch.rand(targets, sources, generator=generator)
        backward[row, :sources, :targets] = factor * torch.rand(sources, targets, generator=generator)
    links, scores = symmetrize_batch(forward, backward, method, 0.4)
    assert [bool(of_pair) for of_pair in links] == [True, False, True]
    for row, (sources, targets) in enumerate(sizes):
        alone = symmetrize(forward[row, :targets, :sources], backward[row, :sources, :targets], method, 0.4)
        assert links[row] == alone[0]
        assert torch.equal(scores[row, :sources, :targets], alone[1])


def test_one_direction_is_enough_for_forward_only():
    forward, _ = random_weights(3, 2)
    links, scores = symmetrize(forward, None, "forward", 0.4)
    assert links == links_of_batch(forward.T[None], 0.4)[0]
    assert torch.equal(scores, forward.T)
    for method in SYMMETRIZATIONS:
        if method != "forward":
            with pytest.raises(ValueError, match=rf"`backward_weights`.*'{method}', got None"):
                symmetrize(forward, None, method, 0.4)


def test_an_unknown_method_is_answered_with_all_that_are_known():
    forward, backward = random_weights(3, 2)
    with pytest.raises(ValueError, match="`method` must be one of") as raised:
        symmetrize(forward, backward, "grow-diag-finaly", 0.2)
    assert all(repr(method) in str(raised.value) for method in (*SYMMETRIZATIONS, "grow-diag-finaly"))


def test_two_matrices_of_one_orientation_are_refused():
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(2, 3\)"):
        symmetrize(torch.zeros(2, 3), torch.zeros(2, 3), "harmonic", 0.2)


@pytest.mark.parametrize("method", SYMMETRIZATIONS)
def test_an_empty_sentence_has_no_links(method):
    links, scores = symmetrize(torch.zeros(0, 3), torch.zeros(3, 0), method, 0.2)
    assert links == ()
    assert scores.shape == (3, 0)
