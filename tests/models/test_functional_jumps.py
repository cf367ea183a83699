"""The forward-backward pass over jumps against all alignments of a pair; limits, padding, long lines, and EM."""

import itertools

import pytest
import reference
import torch
from helpers import assert_close, assert_functions_agree, assert_identical

from hf_attncal.models.functional_jumps import initial_jumps, jump_posterior, learned_jumps

B, T, S, W = 3, 4, 3, 2
TARGET_REAL = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
SOURCE_REAL = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1]]).bool()
OUTPUTS = ("weights", "null", "log_likelihood", "jumps", "chances")


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return random numbers in (0.05, 1)."""
    generator = torch.Generator().manual_seed(seed)
    return 0.05 + 0.95 * torch.rand(shape, generator=generator, dtype=torch.float64)


def inputs(attention: bool = False) -> dict[str, torch.Tensor]:
    """Return the inputs of a padded batch, with numbers other than 0 at padding, which must not matter."""
    given = {"weights": numbers(B, T, S, seed=1), "null": numbers(B, T, seed=2), "jumps": numbers(2 * W + 1, seed=3)}
    if attention:
        given["attention"] = numbers(B, T, S, seed=4)
    return given


def slow(uniform: float, weights, null, jumps, attention=None) -> dict[str, torch.Tensor]:
    """Return the results of separate pairs without padding; tables are sums over the pairs."""
    found = {name: [] for name in OUTPUTS}
    for b in range(B):
        t, s = int(TARGET_REAL[b].sum()), int(SOURCE_REAL[b].sum())
        given = None if attention is None else attention[b, :t, :s]
        one = reference.first_order(weights[b, :t, :s], null[b, :t], jumps, uniform, given)
        one["weights"] = torch.nn.functional.pad(one["weights"], (0, S - s, 0, T - t))
        one["null"] = torch.nn.functional.pad(one["null"], (0, T - t))
        for name in OUTPUTS:
            found[name].append(one[name])
    stacked = {name: torch.stack(values) for name, values in found.items()}
    return stacked | {name: stacked[name].sum(dim=0) for name in ("jumps", "chances")}


@pytest.mark.parametrize("uniform", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("attention", [False, True], ids=["plain", "attention"])
class TestAgainstAllAlignments:
    @pytest.mark.third("uniform", "attention", "output")
    @pytest.mark.parametrize("output", ["weights", "null", "log_likelihood"])
    def test_values_and_gradients(self, uniform, attention, output):
        def fast(**given):
            found = jump_posterior(**given, target_real=TARGET_REAL, source_real=SOURCE_REAL, uniform=uniform)
            return getattr(found, output)

        def expected(**given):
            return slow(uniform, **given)[output]

        given = inputs(attention)
        assert_functions_agree(fast, expected, given)

    def test_counts_and_chances(self, uniform, attention):
        given = inputs(attention)
        found = jump_posterior(**given, target_real=TARGET_REAL, source_real=SOURCE_REAL, uniform=uniform, count=True)
        expected = slow(uniform, **given)
        for name in OUTPUTS:
            assert_close(getattr(found, name), expected[name], what=name)
        assert bool(found.jumps.any()) == (uniform < 1)


def test_tokens_that_are_aligned_each_for_itself_are_as_by_the_passes():
    found = jump_posterior(**inputs(), target_real=TARGET_REAL, source_real=SOURCE_REAL, uniform=1.0)
    expected = slow(1.0, **inputs())
    for name in ("weights", "null", "log_likelihood"):
        assert_close(getattr(found, name), expected[name], what=name)


def test_jumps_further_than_the_table_have_its_last_weight():
    """A table that is too narrow is a wider one with equal weights at its ends."""
    narrow = inputs()
    wide = narrow | {"jumps": torch.cat([narrow["jumps"][:1], narrow["jumps"], narrow["jumps"][-1:]])}
    found, expected = (jump_posterior(**g, target_real=TARGET_REAL, source_real=SOURCE_REAL) for g in (wide, narrow))
    assert_identical(found.weights, expected.weights)
    other = wide | {"jumps": wide["jumps"] * torch.tensor([1, 1, 1, 1, 1, 1, 2.0])}
    changed = jump_posterior(**other, target_real=TARGET_REAL, source_real=SOURCE_REAL)
    assert not torch.equal(changed.weights, expected.weights)  # from before the sentence to its end: 3


# ---- limits ----


@pytest.mark.parametrize("limit", ["uniform", "equal weights"])
@pytest.mark.parametrize("attention", [False, True], ids=["plain", "attention"])
def test_uniform_jumps_give_the_model_without_jumps(limit, attention):
    """Rows are what they would be apart; a batch of pairs whose lengths differ."""
    given = inputs()
    if attention:
        prior = numbers(B, T, S, seed=4) * SOURCE_REAL[:, None]
        given["attention"] = prior / prior.sum(dim=2, keepdim=True)
    if limit == "equal weights":
        given["jumps"] = torch.full((2 * W + 1,), 0.3, dtype=torch.float64)
    found = jump_posterior(
        **given, target_real=TARGET_REAL, source_real=SOURCE_REAL, uniform=1.0 if limit == "uniform" else 0.2
    )
    weights = given["weights"] * SOURCE_REAL[:, None]
    weights = weights if attention else weights / SOURCE_REAL.sum(dim=1)[:, None, None]
    total = weights.sum(dim=2) + given["null"]
    assert_close(found.weights, weights / total[:, :, None] * TARGET_REAL[:, :, None])
    assert_close(found.null, given["null"] / total * TARGET_REAL)
    assert_close(found.log_likelihood, (total.log() * TARGET_REAL).sum(dim=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "uniform"),
    [pytest.param(False, 1e-4, marks=pytest.mark.slow), (True, 0.1)],
    ids=["plain", "attention"],
)
def test_long_lines_neither_underflow_nor_overflow(attention, uniform):
    """600 x 600 in float32, most weights tiny, some rows that nothing explains but NULL: rows sum to 1."""
    size = 600
    generator = torch.Generator().manual_seed(6)
    weights = torch.rand(1, size, size, generator=generator) ** 40
    null = torch.rand(1, size, generator=generator) * 1e-3
    weights[0, 50:60] = 0
    prior = (torch.rand(1, size, size, generator=generator) * 20).softmax(dim=2) if attention else None
    real = torch.ones(1, size, dtype=torch.bool)
    given = [tensor.requires_grad_() for tensor in (weights, null, initial_jumps(40))]
    found = jump_posterior(*given, real, real, uniform, attention=prior)
    total = (found.weights.sum(dim=2) + found.null).detach()
    assert_close(total, torch.ones(1, size), 1e-3)
    assert_close(found.null.detach()[0, 50:60], torch.ones(10), 1e-3)
    assert float(found.weights.detach().min()) >= 0
    found.log_likelihood.sum().backward()
    assert all(torch.isfinite(tensor.grad).all() for tensor in given)
    prior = None if prior is None else prior.double()
    exact = jump_posterior(*(tensor.detach().double() for tensor in given), real, real, uniform, attention=prior)
    assert_close(found.weights.detach().double(), exact.weights, 1e-3)


def test_rows_that_nothing_explains_are_finite():
    given = {name: torch.zeros_like(tensor) for name, tensor in inputs(attention=True).items()}
    given["jumps"] = initial_jumps(W).double()
    found = jump_posterior(**given, target_real=TARGET_REAL, source_real=SOURCE_REAL, count=True)
    for name in OUTPUTS:
        assert torch.isfinite(getattr(found, name)).all(), name


# ---- learning ----


def test_the_initial_table_prefers_the_next_position():
    table = initial_jumps(3)
    assert table.argmax() == 4
    assert float(table[4]) == 1
    assert_close(table[5:], table[[3, 2]])
    assert len(table) == 7


def test_unseen_jumps_keep_the_initial_weight():
    counts, chances = torch.zeros(7), torch.zeros(7)
    assert_identical(learned_jumps(counts, chances), initial_jumps(3))
    counts[4], chances[3:6] = 1000.0, 1000.0
    table = learned_jumps(counts, chances)
    assert_close(table[[0, 6]], initial_jumps(3)[[0, 6]], 1e-6)
    assert float(table[4]) == 1
    assert float(table[[3, 5]].max()) < 1e-3


@pytest.mark.parametrize("attention", [False, True], ids=["plain", "attention"])
def test_em_never_lowers_the_likelihood_of_its_objective(attention):
    """With the prior, `log p(y) + sum_d (c0(d) log c(d) - c(d)) / 2`, up to the scale of the table."""
    given = inputs(attention)
    prior = initial_jumps(W).double()
    table, values = given.pop("jumps"), []
    for _ in range(12):
        found = jump_posterior(
            **given, jumps=table, target_real=TARGET_REAL, source_real=SOURCE_REAL, uniform=0.1, count=True
        )
        penalty = 0.5 * (prior * table.log() - table).sum()
        values.append(float(found.log_likelihood.sum() + penalty))
        table = (found.jumps + 0.5 * prior) / (found.chances + 0.5)  # not normalised
        normalized = learned_jumps(found.jumps, found.chances)
        assert_close(normalized, table / table.max())
    assert all(later >= earlier - 1e-10 for earlier, later in itertools.pairwise(values))
    assert values[-1] > values[0] + 1e-3
