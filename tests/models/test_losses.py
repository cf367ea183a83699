"""Cross-entropy with label smoothing against its loop version, and the pieces that keep the two gradients apart."""

import pytest
import reference
import torch
from helpers import assert_close, assert_functions_agree, assert_identical
from torch import nn

from hf_attncal.models.losses import (
    DetachedParameters,
    attach_gradient,
    cross_entropy_from_hidden,
    label_smoothed_cross_entropy,
)

LABELS = torch.tensor([[3, 0, 6, -100], [2, -100, -100, -100]])
VOCABULARY, WIDTH = 7, 5


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
class TestCrossEntropy:
    def test_equals_reference(self, smoothing):
        def fast(logits):
            return label_smoothed_cross_entropy(logits, LABELS, smoothing).reshape(1)

        def slow(logits):
            return reference.cross_entropy(logits, LABELS, smoothing, num_items=1).reshape(1)

        assert_functions_agree(fast, slow, {"logits": 3 * random(2, 4, VOCABULARY)})

    @pytest.mark.parametrize("rows", [1, 3, 8, 1024])
    def test_from_hidden_equals_reference(self, smoothing, rows):
        """Whatever the size of the slices; the gradient reaches the hidden states only."""
        weight = random(VOCABULARY, WIDTH, seed=1).requires_grad_()
        bias = random(VOCABULARY, seed=2).requires_grad_()

        def fast(hidden):
            return cross_entropy_from_hidden(hidden, weight, bias, LABELS, smoothing, rows).reshape(1)

        def slow(hidden):
            logits = hidden @ weight.detach().T + bias.detach()
            return reference.cross_entropy(logits, LABELS, smoothing, num_items=1).reshape(1)

        assert_functions_agree(fast, slow, {"hidden": random(2, 4, WIDTH)})
        hidden = random(2, 4, WIDTH).requires_grad_()
        fast(hidden).sum().backward()
        assert weight.grad is None
        assert bias.grad is None

    def test_ignored_rows_may_have_any_values(self, smoothing):
        logits = random(2, 4, VOCABULARY)
        spoiled = logits.clone()
        spoiled[LABELS == -100] = torch.inf
        for tensor in (logits, spoiled):
            tensor.requires_grad_()
        losses = [label_smoothed_cross_entropy(tensor, LABELS, smoothing) for tensor in (logits, spoiled)]
        sum(losses).backward()
        assert_identical(losses[1].detach(), losses[0].detach())
        assert_identical(spoiled.grad, logits.grad)
        assert (logits.grad[LABELS == -100] == 0).all()

    def test_low_precision_is_as_good_as_torch(self, smoothing):
        """bfloat16 logits: the loss is computed in float32, as torch's autocast does."""
        labels = torch.arange(64) % VOCABULARY
        exact = 5 * random(64, VOCABULARY)
        expected = label_smoothed_cross_entropy(exact.bfloat16().double(), labels, smoothing)
        actual = label_smoothed_cross_entropy(exact.bfloat16(), labels, smoothing)
        assert actual.dtype == torch.float32
        assert_close(actual.double(), expected, tolerance=1e-3)

    def test_from_hidden_under_autocast(self, smoothing):
        hidden, weight = random(64, WIDTH).float().requires_grad_(), random(VOCABULARY, WIDTH, seed=1).float()
        bias, labels = torch.zeros(VOCABULARY), torch.arange(64) % VOCABULARY
        exact = cross_entropy_from_hidden(hidden, weight, bias, labels, smoothing)
        (exact_gradient,) = torch.autograd.grad(exact, hidden)
        with torch.autocast("cpu", torch.bfloat16):
            low = cross_entropy_from_hidden(hidden, weight, bias, labels, smoothing)
        (gradient,) = torch.autograd.grad(low, hidden)
        assert low.dtype == torch.float32
        assert low.item() == pytest.approx(exact.item(), rel=0.01)
        assert gradient.dtype == torch.float32
        assert (gradient - exact_gradient).norm() < 0.02 * exact_gradient.norm()


def test_the_scale_of_the_gradient_is_kept():
    """A factor after the loss, as the Trainer and the mean over targets put there, reaches the gradient."""
    gradients = []
    for factor in (1.0, 0.25):
        logits = random(2, 4, VOCABULARY).requires_grad_()
        (factor * label_smoothed_cross_entropy(logits, LABELS, 0.1)).backward()
        gradients.append(logits.grad)
    assert_close(gradients[1], 0.25 * gradients[0])


def test_no_targets_at_all_give_zero():
    nothing = torch.full((2, 4), -100)
    logits = random(2, 4, VOCABULARY).requires_grad_()
    loss = label_smoothed_cross_entropy(logits, nothing, 0.1)
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


class TestAttachGradient:
    def test_value_of_one_and_gradient_of_both(self):
        x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
        value = attach_gradient(x**2, y**3)
        assert value.item() == 4.0
        (5 * value).backward()
        assert x.grad.item() == 5 * 4.0
        assert y.grad.item() == 5 * 27.0

    def test_an_infinite_attachment_leaves_the_value(self):
        x = torch.tensor(2.0, requires_grad=True)
        assert attach_gradient(x**2, x * torch.inf).item() == 4.0

    def test_dtypes_may_differ(self):
        x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True, dtype=torch.bfloat16)
        attach_gradient(x, y).backward()
        assert y.grad.dtype == torch.bfloat16


class TestDetachedParameters:
    @pytest.mark.parametrize(
        ("module", "shape"),
        [(nn.Linear(3, 3), (2, 3)), (nn.Linear(3, 3, bias=False), (2, 3)), (nn.LayerNorm(3), (2, 3))],
        ids=["linear", "linear without bias", "layer norm"],
    )
    def test_parameters_get_no_gradient_and_activations_the_same(self, module, shape):
        x = torch.randn(shape, requires_grad=True)
        direction = torch.randn(shape)
        (module(x) * direction).sum().backward()
        expected = x.grad.clone()
        x.grad = None
        module.zero_grad(set_to_none=True)
        with DetachedParameters():
            output = module(x)
        (output * direction).sum().backward()
        assert_identical(x.grad, expected)
        assert all(parameter.grad is None for parameter in module.parameters())

    def test_embedding_is_constant(self):
        embedding = nn.Embedding(4, 3)
        with DetachedParameters():
            assert not embedding(torch.tensor([1, 2])).requires_grad

    def test_arguments_by_name(self):
        x, weight, bias = torch.randn(2, 3), torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
        with DetachedParameters():
            assert not nn.functional.linear(x, weight=weight, bias=bias).requires_grad
            assert not nn.functional.linear(input=x, weight=weight, bias=bias).requires_grad

    def test_matrix_products_escape(self):
        """This is how the mask network stays trainable inside the mode."""
        x, weight = torch.randn(2, 3), torch.randn(4, 3, requires_grad=True)
        with DetachedParameters():
            torch.matmul(x, weight.T).sum().backward()
        assert weight.grad is not None
