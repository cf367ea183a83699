"""The equations of Mask-Align against loops over single cells: values, gradients, padding, and limits."""

import math

import pytest
import reference
import torch
from helpers import assert_close, assert_functions_agree, assert_identical

from hf_attncal.alignment.links import harmonic_mean
from hf_attncal.models import functional_mask_align as functional

B, T, S = 3, 4, 5
TARGET_REAL = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
SOURCE_REAL = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()


def uniform(*shape: int, seed: int = 0) -> torch.Tensor:
    """Numbers in (0.05, 1)."""
    generator = torch.Generator().manual_seed(seed)
    return 0.05 + 0.95 * torch.rand(shape, generator=generator, dtype=torch.float64)


def distribution(predicted_real: torch.Tensor, read_real: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Rows over NULL and the real tokens that are read, which sum to 1; 0 at padding of either side."""
    read = torch.cat([torch.ones(len(read_real), 1, dtype=torch.bool), read_real], dim=1)
    weights = uniform(*predicted_real.shape, read.shape[1], seed=seed) * read.unsqueeze(1)
    return weights / weights.sum(dim=-1, keepdim=True) * predicted_real.unsqueeze(2)


@pytest.fixture
def forward() -> torch.Tensor:
    return distribution(TARGET_REAL, SOURCE_REAL, seed=1)[..., 1:]


@pytest.fixture
def backward() -> torch.Tensor:
    return distribution(SOURCE_REAL, TARGET_REAL, seed=2)[..., 1:]


@pytest.fixture
def links() -> torch.Tensor:
    """Tokens with two links, with one, and with none; none at padding."""
    links = torch.zeros(B, T, S)
    for b, t, s in [(0, 0, 0), (0, 0, 2), (0, 2, 1), (1, 0, 4), (1, 0, 3), (1, 0, 0)]:
        links[b, t, s] = 1
    return links


def at_padding(weights: torch.Tensor, target_real: torch.Tensor, source_real: torch.Tensor) -> torch.Tensor:
    """Other numbers where either token is padding."""
    cells = target_real.unsqueeze(2) & source_real.unsqueeze(1)
    return weights.masked_fill(~cells, 0.37)


class TestAgreement:
    def test_equals_reference(self, forward, backward):
        def fast(forward, backward):
            return functional.agreement_loss(forward, backward, TARGET_REAL, SOURCE_REAL)

        def slow(forward, backward):
            return reference.agreement(forward, backward, TARGET_REAL, SOURCE_REAL)

        assert_functions_agree(fast, slow, {"forward": forward, "backward": backward})

    def test_weights_that_agree_cost_nothing(self, forward):
        assert functional.agreement_loss(forward, forward.transpose(1, 2), TARGET_REAL, SOURCE_REAL) == 0

    def test_no_real_cell(self, forward, backward):
        loss = functional.agreement_loss(forward, backward, torch.zeros_like(TARGET_REAL), SOURCE_REAL)
        assert loss == 0


class TestEntropy:
    @pytest.mark.parametrize("smoothing", [0.0, 0.05, 2])
    def test_equals_reference(self, forward, smoothing):
        def fast(forward):
            return functional.entropy_loss(forward, TARGET_REAL, SOURCE_REAL, smoothing)

        def slow(forward):
            return reference.smoothed_entropy(forward, TARGET_REAL, SOURCE_REAL, smoothing)

        assert_functions_agree(fast, slow, {"forward": forward})

    def test_rows_of_zeros_are_uniform_once_smoothed(self):
        """All weight on NULL: every real token gets lambda, and the entropy is log n."""
        zeros = torch.zeros(1, 3, 4, dtype=torch.float64)
        source_real = torch.tensor([[1, 1, 1, 0]]).bool()
        loss = functional.entropy_loss(zeros, torch.ones(1, 3).bool(), source_real, 0.05)
        assert float(loss) == pytest.approx(math.log(3), abs=1e-12)

    def test_rows_of_zeros_without_smoothing_are_finite(self):
        zeros = torch.zeros(1, 3, 4, dtype=torch.float64, requires_grad=True)
        loss = functional.entropy_loss(zeros, torch.ones(1, 3).bool(), torch.ones(1, 4).bool(), 0.0)
        loss.backward()
        assert loss == 0
        assert torch.isfinite(zeros.grad).all()

    def test_no_real_token(self, forward):
        for reals in ((torch.zeros_like(TARGET_REAL), SOURCE_REAL), (TARGET_REAL, torch.zeros_like(SOURCE_REAL))):
            assert functional.entropy_loss(forward, *reals, 0.05) == 0


class TestGuided:
    def test_equals_reference(self, links):
        weights = distribution(TARGET_REAL, SOURCE_REAL, seed=3)
        # Away from 0 at padding, so that the logarithm of the loops exists; it must not be read there.
        null, weights = weights[..., 0], at_padding(weights[..., 1:], TARGET_REAL, SOURCE_REAL)

        def fast(weights, null):
            return functional.guided_loss(weights, null, links.to(weights.dtype), TARGET_REAL)

        def slow(weights, null):
            return reference.guided(weights, null, links, TARGET_REAL)

        assert_functions_agree(fast, slow, {"weights": weights, "null": null})

    def test_weights_of_zero_are_finite(self, links):
        """Without `leaky` NULL's weight is 0 everywhere, and a token without links has a loss without a gradient."""
        weights = torch.zeros(B, T, S, dtype=torch.float64, requires_grad=True)
        null = torch.zeros(B, T, dtype=torch.float64, requires_grad=True)
        loss = functional.guided_loss(weights, null, links.double(), TARGET_REAL)
        loss.backward()
        assert float(loss.detach()) == pytest.approx(-math.log(1e-9), abs=1e-9)
        assert not weights.grad.any()
        assert not null.grad.any()

    def test_no_real_token(self, links):
        weights = distribution(TARGET_REAL, SOURCE_REAL)
        none = torch.zeros_like(TARGET_REAL)
        assert functional.guided_loss(weights[..., 1:], weights[..., 0], links.double(), none) == 0


class TestHarmonicMean:
    def test_equals_reference(self, forward, backward):
        assert (forward == 0).any()
        inputs = {"forward": forward, "backward": backward}
        assert_functions_agree(harmonic_mean, reference.harmonic, inputs)

    def test_one_pair_without_a_batch(self, forward, backward):
        expected = harmonic_mean(forward, backward)[1]
        assert_identical(harmonic_mean(forward[1], backward[1]), expected)


class TestMixture:
    @staticmethod
    def inputs() -> dict[str, torch.Tensor]:
        """Distributions over NULL and the real source tokens, and log-probabilities of the target tokens."""
        weights = distribution(torch.ones_like(TARGET_REAL), SOURCE_REAL, seed=4)
        return {"weights": weights, "emissions": uniform(B, T, 1 + S, seed=5).log() - 1}

    @pytest.mark.parametrize("output", [0, 1], ids=["likelihood", "posterior"])
    def test_equals_reference(self, output):
        inputs = self.inputs()
        zero = inputs["weights"] == 0
        assert zero.any()

        def cleared(function):
            # A weight of exactly 0 is a hidden token: not even its gradient counts, while the formula has one.
            return lambda weights, emissions: function(weights.masked_fill(zero, 0.0), emissions)[output]

        fast, slow = cleared(functional.mixture_log_likelihood), cleared(reference.mixture)
        assert_functions_agree(fast, slow, inputs)

    def test_hidden_emissions_do_not_matter(self):
        inputs = self.inputs()
        expected = functional.mixture_log_likelihood(**inputs)
        changed = inputs["emissions"].masked_fill(inputs["weights"] == 0, 40.0)
        for actual, wanted in zip(
            functional.mixture_log_likelihood(inputs["weights"], changed), expected, strict=True
        ):
            assert_identical(actual, wanted)

    def test_tiny_weights_count_as_the_floor(self):
        weights = torch.tensor([[[1 - 1e-12, 1e-12]]], dtype=torch.float64)
        _, posterior = functional.mixture_log_likelihood(weights, torch.zeros_like(weights))
        assert float(posterior[0, 0, 1]) == pytest.approx(1e-9, rel=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_rows_of_zeros_and_improbable_tokens_are_finite(self, dtype):
        weights = torch.zeros(1, 2, 3, dtype=dtype)
        weights[0, 1] = torch.tensor([0.0, 0.5, 0.5])
        emissions = torch.full_like(weights, -300.0)
        emissions.requires_grad_()
        likelihood, posterior = functional.mixture_log_likelihood(weights, emissions)
        (likelihood[0, 1] + posterior[0].sum()).backward()
        assert torch.isfinite(likelihood).all()
        assert_close(posterior.detach()[0, 1], torch.tensor([0.0, 0.5, 0.5], dtype=dtype), 1e-6)
        assert torch.isfinite(emissions.grad).all()
