"""Contributions, reliability level and entropy against loops written from the formulas."""

import math

import pytest
import torch

from hf_attncal.metrics.reliability import attention_entropy, attention_is_reliable, contributions, head_average

BATCH, HEADS, TARGET, SOURCE = 2, 3, 4, 5
SOURCE_MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture
def attention():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(BATCH, HEADS, TARGET, SOURCE, generator=generator, dtype=torch.float64)
    return torch.softmax(scores.masked_fill(SOURCE_MASK[:, None, None] == 0, -math.inf), dim=-1)


@pytest.fixture
def mask():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(BATCH, HEADS, TARGET, SOURCE, generator=generator, dtype=torch.float64)


def loop_contributions(a, m, source_mask):
    phi = torch.zeros_like(a)
    for b in range(BATCH):
        n = int(source_mask[b].sum())
        for h in range(HEADS):
            for t in range(TARGET):
                for s in range(n):
                    perturbed = m[b, h, t, s] * a[b, h, t, s] + (1 - m[b, h, t, s]) / n
                    phi[b, h, t, s] = abs(perturbed - a[b, h, t, s])
    return phi


def test_contributions_equal_the_formula(attention, mask):
    expected = loop_contributions(attention, mask, SOURCE_MASK)
    torch.testing.assert_close(contributions(attention, mask, SOURCE_MASK), expected, rtol=0, atol=1e-15)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(contributions(attention, mask + 1e-9, SOURCE_MASK), expected, rtol=0, atol=1e-15)


def test_leaky_attention_spreads_what_is_not_on_null(attention, mask):
    null = torch.full((BATCH, HEADS, TARGET), 0.25, dtype=torch.float64)
    scaled = contributions(attention * 0.75, mask, SOURCE_MASK, null)
    torch.testing.assert_close(scaled, 0.75 * contributions(attention, mask, SOURCE_MASK))


def test_entropy_equals_the_formula(attention):
    entropy = attention_entropy(attention, SOURCE_MASK)
    for b, h, t in torch.cartesian_prod(torch.arange(BATCH), torch.arange(HEADS), torch.arange(TARGET)).tolist():
        row = [float(x) for x in attention[b, h, t] if x > 0]
        assert entropy[b, h, t].item() == pytest.approx(-sum(x * math.log(x) for x in row), abs=1e-12)


def test_reliability_level_by_hand():
    # Two heads; the averages of `a` have their maxima at 0, 1, 2, and those of phi at 0, 2, 2.
    a = torch.tensor([[[[0.9, 0.1, 0.0], [0.0, 0.6, 0.4], [0.1, 0.2, 0.7]]] * 2])
    phi = torch.tensor([[[[0.5, 0.0, 0.1], [0.0, 0.1, 0.2], [0.0, 0.0, 0.3]]] * 2])
    assert attention_is_reliable(a, phi).tolist() == [[True, False, True]]


def test_reliability_is_judged_on_the_head_average():
    # Each head alone disagrees; together both averages have their maximum at 1.
    a = torch.tensor([[[[0.6, 0.4, 0.0]], [[0.0, 0.4, 0.6]]]])
    phi = torch.tensor([[[[0.0, 0.4, 0.6]], [[0.6, 0.4, 0.0]]]])
    assert head_average(a).argmax(-1).tolist() == [[1]]
    assert attention_is_reliable(a, phi).all()


def test_a_tie_is_a_miss_unless_the_index_is_equal():
    a = torch.tensor([[[[0.2, 0.4, 0.4]]]])
    assert attention_is_reliable(a, torch.tensor([[[[0.0, 0.3, 0.3]]]]))  # both first at 1
    assert not attention_is_reliable(a, torch.tensor([[[[0.0, 0.1, 0.3]]]]))  # 2 is a maximum of `a`, too
    assert not attention_is_reliable(a, torch.tensor([[[[0.3, 0.3, 0.1]]]]))


def test_shapes_that_do_not_fit_are_refused(attention, mask):
    with pytest.raises(ValueError, match=r"`attention`.*`mask`"):
        contributions(attention, mask[:, :1])
    with pytest.raises(ValueError, match=r"`source_mask`.*\(batch, source\).*\(2, 5\).*got \(2, 4\)"):
        contributions(attention, mask, SOURCE_MASK[:, :4])
    with pytest.raises(ValueError, match=r"`attention`.*`phi`"):
        attention_is_reliable(attention, mask[..., :4])
    with pytest.raises(ValueError, match="Expected \\(batch, heads, target, source\\)"):
        head_average(attention[0])
