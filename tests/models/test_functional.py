"""Every equation against its loop version: values and all gradients, in float64; limits; and the comparisons."""

import pytest
import reference
import torch
from helpers import assert_close, assert_functions_agree, assert_gradients_close, assert_identical

from hf_attncal.models import functional

B, H, T, S, D = 2, 3, 3, 5, 4
REAL = torch.tensor([[True] * 5, [True, True, True, False, False]])  # (batch, source)
REAL_4D = REAL[:, None, None, :]
SCALING = D**-0.5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    """Values inside (0, 1)."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 0.98 + 0.01


@pytest.fixture
def attention() -> torch.Tensor:
    return reference.softmax(random(B, H, T, S), REAL)[0]


@pytest.fixture
def leaky_attention() -> tuple[torch.Tensor, torch.Tensor]:
    return reference.softmax(random(B, H, T, S), REAL, random(B, H, T, seed=1))


@pytest.fixture
def mask() -> torch.Tensor:
    return unit(B, H, T, S, seed=5)


class TestComparisons:
    """A comparison that cannot fail proves nothing."""

    def test_assert_gradients_close_fails(self):
        expected = {"a": random(2), "b": random(3)}
        assert_gradients_close({"a": random(2), "b": random(3)}, expected)
        with pytest.raises(AssertionError, match="'b'"):
            assert_gradients_close({"a": random(2)}, expected)
        with pytest.raises(AssertionError, match="gradient of a"):
            assert_gradients_close({"a": random(2) + 1e-11, "b": random(3)}, expected)
        with pytest.raises(AssertionError, match="every expected gradient is 0"):
            assert_gradients_close({"a": torch.zeros(2)}, {"a": torch.zeros(2)})

    def test_assert_functions_agree_fails_on_values_and_on_gradients(self):
        inputs = {"x": random(2, 2), "y": random(2, 2, seed=1)}
        assert_functions_agree(lambda x, y: x * y, lambda x, y: y * x, inputs)
        with pytest.raises(AssertionError, match="output"):
            assert_functions_agree(lambda x, y: x * y, lambda x, y: x * y + 1e-11, inputs)
        with pytest.raises(AssertionError, match="only one has a gradient"):
            assert_functions_agree(lambda x, y: x * y, lambda x, y: x * y.detach(), inputs)
        with pytest.raises(AssertionError, match="gradient of y"):
            assert_functions_agree(lambda x, y: x * y, lambda x, y: x * (2 * y - y.detach()), inputs)


class TestScores:
    def test_softmax_leaves_padding_out(self):
        def fast(query, key):
            return torch.softmax(functional.attention_scores(query, key, SCALING, REAL_4D), dim=-1)

        def slow(query, key):
            return reference.softmax(reference.scores(query, key), REAL)[0]

        inputs = {"query": random(B, H, T, D), "key": random(B, H, S, D, seed=1)}
        assert_functions_agree(fast, slow, inputs)
        assert (fast(**inputs)[1, :, :, 3:] == 0).all()

    @pytest.mark.parametrize("kind", ["none", "boolean", "additive", "mild", "infinite", "half"])
    def test_real_source_tokens_from_every_kind_of_mask(self, kind):
        additive = torch.zeros(B, 1, 1, S).masked_fill(~REAL_4D, torch.finfo(torch.float32).min)
        given = {
            "none": None,
            "boolean": REAL_4D,
            "additive": additive,
            "mild": additive.clamp(min=-1e4),
            "infinite": additive.masked_fill(~REAL_4D, -torch.inf),
            "half": torch.zeros(B, 1, 1, S, dtype=torch.bfloat16).masked_fill(
                ~REAL_4D, torch.finfo(torch.bfloat16).min
            ),
        }[kind]
        real = functional.real_source_tokens(given)
        if kind == "none":
            assert real is None
        else:
            assert real.dtype == torch.bool
            assert torch.equal(real, REAL_4D)


class TestLeaky:
    """Mask-Align, section 3.2."""

    INPUTS = {"query": random(B, H, T, D), "key": random(B, H, S, D, seed=1), "null_key": random(H, D, seed=2)}

    @staticmethod
    def fast(query, key, null_key):
        scores = functional.attention_scores(query, key, SCALING, REAL_4D)
        return torch.softmax(functional.with_null_scores(scores, query, null_key, SCALING), dim=-1)

    @staticmethod
    def slow(query, key, null_key):
        null_score = reference.null_scores(query, null_key)
        attention, null = reference.softmax(reference.scores(query, key), REAL, null_score)
        return torch.cat([null.unsqueeze(-1), attention], dim=-1)

    def test_equals_reference(self):
        assert_functions_agree(self.fast, self.slow, self.INPUTS)


class TestGumbel:
    """Discrete Transformer."""

    @staticmethod
    def noise(shape: tuple[int, ...]) -> torch.Tensor:
        """The noise of the next call of `gumbel_attention` under seed 11, from its own uniform numbers."""
        torch.manual_seed(11)
        return reference.gumbel_noise(torch.exp(-torch.empty(shape, dtype=torch.float64).exponential_()))

    def test_equals_reference(self):
        noise = self.noise((B, H, T, S))

        def fast(scores):
            torch.manual_seed(11)
            masked = scores.masked_fill(~REAL_4D, torch.finfo(scores.dtype).min)
            return functional.gumbel_attention(masked, 0.7, training=True, real=REAL_4D)

        def slow(scores):
            return reference.gumbel_softmax(reference.softmax(scores, REAL)[0], noise, 0.7)[0]

        assert_functions_agree(fast, slow, {"scores": random(B, H, T, S)})

    def test_with_null_column_equals_reference(self):
        noise = self.noise((B, H, T, 1 + S))
        choices = torch.nn.functional.pad(REAL_4D, (1, 0), value=True)

        def fast(scores, null_scores):
            torch.manual_seed(11)
            columns = torch.cat([null_scores.unsqueeze(-1), scores], dim=-1)
            columns = columns.masked_fill(~choices, torch.finfo(scores.dtype).min)
            return functional.gumbel_attention(columns, 1.3, training=True, real=choices)

        def slow(scores, null_scores):
            attention, null = reference.softmax(scores, REAL, null_scores)
            sample = reference.gumbel_softmax(attention, noise[..., 1:], 1.3, null, noise[..., 0])
            return torch.cat([sample[1].unsqueeze(-1), sample[0]], dim=-1)

        assert_functions_agree(fast, slow, {"scores": random(B, H, T, S), "null_scores": random(B, H, T, seed=1)})

    def test_inference_is_the_argmax(self):
        scores = random(B, H, T, S).masked_fill(~REAL_4D, torch.finfo(torch.float64).min)
        choice = functional.gumbel_attention(scores, 1.0, training=False, real=REAL_4D)
        assert_identical(choice, reference.hard_choice(reference.softmax(scores, REAL)[0])[0])

    def test_straight_through_is_one_hot_with_the_gradient_of_the_soft_sample(self):
        results = []
        for straight_through in (True, False):
            torch.manual_seed(11)
            scores = random(B, H, T, S).requires_grad_()
            sample = functional.gumbel_attention(scores, 0.7, True, straight_through)
            (gradient,) = torch.autograd.grad((sample * random(B, H, T, S, seed=4)).sum(), scores)
            results.append((sample.detach(), gradient))
        (hard, hard_gradient), (soft, soft_gradient) = results
        assert_close(hard, functional.one_hot_argmax(soft))
        assert_close(hard_gradient, soft_gradient)
        assert soft_gradient.abs().max() > 0.01

    def test_samples_follow_the_attention(self):
        """The Gumbel-max theorem: the argmax of `log a + g` is drawn from `a`; a wrong sign of g is not."""
        scores = random(4)
        rows = scores.expand(1, 1, 40_000, 4)
        choice = functional.gumbel_attention(rows, 1.0, training=True, straight_through=True)
        assert_close(choice.mean(dim=(0, 1, 2)), torch.softmax(scores, dim=-1), tolerance=0.01)

    def test_low_precision_is_finite(self):
        for dtype in (torch.bfloat16, torch.float16):
            scores = random(64, 8, 32, 32).to(dtype)
            assert torch.isfinite(functional.gumbel_attention(scores, 0.1, training=True)).all()


class TestMask:
    def test_equals_reference(self):
        inputs = {"mask_query": random(B, H, T, D), "mask_key": random(B, H, S, D, seed=1)}
        assert_functions_agree(
            lambda mask_query, mask_key: functional.perturbation_mask(mask_query, mask_key, SCALING),
            reference.mask,
            inputs,
        )

    @pytest.mark.parametrize("real", [REAL_4D, None], ids=["padded", "all real"])
    def test_penalty_equals_reference(self, mask, real):
        real_target = torch.tensor([[True, True, True], [True, False, False]])
        rows = REAL if real is not None else torch.ones_like(REAL)

        def fast(first, second):
            norms = torch.stack([functional.perturbation_penalty(m, real) for m in (first, second)])
            return norms.masked_select(real_target[:, None].expand(2, B, H, T)).mean().reshape(1)

        def slow(first, second):
            return reference.penalty([first, second], rows, real_target).reshape(1)

        assert_functions_agree(fast, slow, {"first": mask, "second": unit(B, H, T, S, seed=6)})

    def test_gradient_of_the_penalty_is_finite_where_nothing_is_perturbed(self):
        mask = torch.ones(1, 1, 1, 3, requires_grad=True)
        functional.perturbation_penalty(mask).sum().backward()
        assert_identical(mask.grad, torch.zeros(1, 1, 1, 3))


class TestPerturbation:
    def test_uniform(self, attention):
        expected = reference.uniform(REAL, attention.shape)
        assert_close(functional.uniform_attention(attention, REAL_4D).expand_as(attention), expected)
        everywhere = functional.uniform_attention(attention).expand_as(attention)
        assert_close(everywhere, reference.uniform(torch.ones_like(REAL), attention.shape))

    def test_uniform_without_any_real_token_is_zero(self, attention):
        nothing = torch.zeros_like(REAL_4D)
        assert_identical(functional.uniform_attention(attention, nothing), torch.zeros_like(REAL_4D).double())

    def test_equals_reference(self, attention, mask):
        def fast(attention, mask):
            uniform = functional.uniform_attention(attention, REAL_4D)
            return functional.perturbed_attention(attention, mask, uniform)

        def slow(attention, mask):
            return reference.perturbed(attention, mask, REAL)

        assert_functions_agree(fast, slow, {"attention": attention, "mask": mask})

    def test_leaky_equals_reference_and_keeps_the_null_column(self, leaky_attention, mask):
        attention, null = leaky_attention

        def fast(attention, mask, null):
            uniform = functional.uniform_attention(attention, REAL_4D, null)
            return functional.perturbed_attention(attention, mask, uniform)

        def slow(attention, mask, null):
            return reference.perturbed(attention, mask, REAL, null)

        inputs = {"attention": attention, "mask": mask, "null": null}
        assert_functions_agree(fast, slow, inputs)
        fully = fast(attention, torch.zeros_like(mask), null)
        assert_close(fully.sum(dim=-1), 1 - null)

    def test_contribution_equals_reference(self, attention, mask):
        def fast(attention, mask):
            return functional.contribution(attention, mask, functional.uniform_attention(attention, REAL_4D))

        def slow(attention, mask):
            return reference.contribution(attention, reference.perturbed(attention, mask, REAL))

        assert_functions_agree(fast, slow, {"attention": attention, "mask": mask})


def calibrated(attention: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """a_c by the factor that our fusions are made of."""
    return attention * functional.calibration_factor(mask)


class TestFusion:
    """Equations 9 to 12: our factors against the printed form."""

    def test_calibrated(self, attention, mask):
        inputs = {"attention": attention, "mask": mask}
        assert_functions_agree(calibrated, reference.calibrated, inputs)

    def test_fixed(self, attention, mask):
        def fast(attention, mask):
            return attention * functional.fixed_factor(mask, 0.1)

        def slow(attention, mask):
            return reference.fixed(attention, reference.calibrated(attention, mask), 0.1)

        assert_functions_agree(fast, slow, {"attention": attention, "mask": mask})

    @pytest.mark.parametrize("step", [0, 3, 100_000])
    def test_annealed(self, attention, mask, step):
        gamma = functional.annealing_gamma(torch.tensor(step), 50_000)
        assert float(gamma) == pytest.approx(reference.annealing(step, 50_000), abs=1e-15)

        def fast(attention, mask):
            return attention * functional.annealed_factor(mask, gamma)

        def slow(attention, mask):
            # With step 0 the mask has no influence and its gradient is 0, not absent.
            calibrated = reference.calibrated(attention, mask)
            return reference.annealed(attention, calibrated, reference.annealing(step, 50_000))

        assert_functions_agree(fast, slow, {"attention": attention, "mask": mask})

    def test_gamma_of_a_large_step_is_exact(self):
        """bfloat16 and float32 models count in integers: neighbouring steps stay apart."""
        late, later = (functional.annealing_gamma(torch.tensor(s), 1e5) for s in (149_999, 150_000))
        assert float(later / late) == pytest.approx(reference.annealing(1, 1e5), abs=1e-15)

    def test_gated(self, attention, mask):
        def fast(attention, mask, gate):
            return attention * functional.gated_factor(mask, gate.unsqueeze(-1))

        def slow(attention, mask, gate):
            return reference.gated(attention, reference.calibrated(attention, mask), gate)

        assert_functions_agree(fast, slow, {"attention": attention, "mask": mask, "gate": unit(B, H, T, seed=8)})

    def test_renormalized(self, leaky_attention, mask):
        attention, null = leaky_attention
        inputs = {"attention": attention, "mask": mask}

        def fast(attention, mask):
            return functional.renormalized(calibrated(attention, mask), attention)

        def slow(attention, mask):
            return reference.renormalized(reference.calibrated(attention, mask), attention.sum(dim=-1))

        assert_functions_agree(fast, slow, inputs)
        assert_close(fast(**inputs).sum(dim=-1), 1 - null)
