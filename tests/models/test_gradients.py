"""One `backward()` against two separate ones: the gradients of both objectives, exactly."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from helpers import (
    CALIBRATED,
    FAMILIES,
    SWITCHES,
    assert_close,
    assert_gradients_close,
    enable_checkpointing,
    gradients,
    half_of,
    is_mask_network,
    scatter,
    slow_twin,
    tiny_batch,
    tiny_model,
)
from reference_observations import divergence, shares


def one_backward(model, batch, seed: int = 5, **inputs):
    """Outputs and gradients of a single training step's `backward()`."""
    model.train()
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    outputs = model(**batch, **inputs)
    outputs.loss.backward()
    return outputs, gradients(model)


@pytest.mark.parametrize(("family", "switches"), half_of(list(FAMILIES), SWITCHES))
def test_one_backward_equals_two_separate_ones(family, batch, switches, no_draws_for_layerdrop):
    """theta, gate, NULL and mask network; also the values of both losses and of the penalty (eqs. 4, 5, 13)."""
    model = tiny_model(family, label_smoothing=0.1, mask_penalty=0.3, **switches)
    outputs, actual = one_backward(model, batch)

    slow = slow_twin(model).train()
    torch.manual_seed(5)  # the passes draw their Gumbel noise in the same order
    nmt_loss, expected = slow.objective(batch, mask_network=False)
    assert_close(outputs.loss.detach(), nmt_loss, what="loss")
    assert_close(outputs.nmt_loss, nmt_loss, what="nmt_loss")
    if model.config.calibration is None:
        assert outputs.mask_loss is None
        assert outputs.mask_penalty is None
        assert_gradients_close(actual, expected)
        return
    mask_loss, mask_gradients = slow.objective(batch, mask_network=True)
    assert_close(outputs.mask_loss, mask_loss, what="mask_loss")
    assert_close(outputs.mask_penalty, slow.penalty(batch).detach(), what="mask_penalty")
    assert len(mask_gradients) == 2 * len(model.model.decoder.layers)
    for group in (lambda name: not is_mask_network(name), is_mask_network):
        assert_gradients_close(
            {name: g for name, g in actual.items() if group(name)},
            {name: g for name, g in (expected | mask_gradients).items() if group(name)},
        )


@pytest.mark.parametrize(("family", "switches"), half_of(list(FAMILIES), CALIBRATED))
def test_checkpointing_changes_no_gradient(family, batch, switches):
    """Non-reentrant, with dropout: the recomputation draws the same numbers and detaches the same parameters."""
    model = tiny_model(family, dropout=0.2, attention_dropout=0.2, activation_dropout=0.2, **switches)
    plain, expected = one_backward(model, batch)
    calls = []
    hook = model.model.decoder.layers[0].fc1.register_forward_hook(lambda *_: calls.append(1))
    enable_checkpointing(model, {"use_reentrant": False})
    checkpointed, actual = one_backward(model, batch)
    hook.remove()
    assert len(calls) == 4, "two passes and their recomputations"
    assert_gradients_close(actual, expected)
    assert_close(checkpointed.mask_loss, plain.mask_loss)
    assert_close(checkpointed.mask_penalty, plain.mask_penalty)


@pytest.mark.parametrize("options", [{"use_reentrant": True}, {"preserve_rng_state": True}], ids=["said", "unsaid"])
def test_reentrant_checkpointing_is_an_error(family, options):
    """Also if it is only torch's default."""
    model = tiny_model(family, calibration="gated")
    with pytest.raises(ValueError, match=r"`use_reentrant`.*False"):
        enable_checkpointing(model, options)
    enable_checkpointing(tiny_model(family), options)


def test_checkpointing_by_default_is_not_reentrant(family, batch):
    model = tiny_model(family, calibration="gated")
    _, expected = one_backward(model, batch)
    enable_checkpointing(model, None)
    assert_gradients_close(one_backward(model, batch)[1], expected)


@pytest.mark.parametrize("switches", [{}, {"calibration": "gated", "leaky": True}], ids=["baseline", "gated"])
def test_micro_batches_add_up_to_the_batch(family, switches):
    """With `num_items_in_batch`, losses and gradients of the parts sum to those of the whole."""
    model = tiny_model(family, label_smoothing=0.1, **switches)
    batch = tiny_batch()
    whole, expected = one_backward(model, batch)
    num_items = (batch["labels"] != -100).sum()
    model.zero_grad(set_to_none=True)
    parts = []
    for i in range(2):
        part = {name: tensor[i : i + 1] for name, tensor in batch.items()}
        # One part is given a tensor, as the Trainer does, the other a plain number.
        parts.append(model(**part, num_items_in_batch=num_items if i == 0 else int(num_items)))
        parts[-1].loss.backward()
    assert_gradients_close(gradients(model), expected)
    for name in ("loss", "nmt_loss", "mask_loss", "mask_penalty"):
        if getattr(whole, name) is not None:
            assert_close(sum(getattr(part, name) for part in parts), getattr(whole, name), what=name)


@pytest.mark.parametrize("switches", [{"calibration": "gated"}, {"calibration": "fixed", "copy": True}], ids=str)
def test_the_mask_network_learns_where_blurring_costs_enough(family, batch, switches):
    """A batch in which blurring costs less than `mask_cost` gives it no gradient; nothing else changes."""
    model = tiny_model(family, mask_penalty=0.3, **switches)
    for _ in range(20):  # blurring helps a random model as often as it harms
        scatter(model)
        free, expected = one_backward(model, batch)
        cost = float(0.3 * free.mask_penalty - free.mask_loss - free.nmt_loss)
        if cost > 1e-3:
            break
    for factor in (0.9, 1.1):
        model.config.mask_cost = factor * cost
        found, actual = one_backward(model, batch)
        if factor > 1:
            assert any(is_mask_network(name) for name in expected)
            expected = {n: torch.zeros_like(g) if is_mask_network(n) else g for n, g in expected.items()}
        assert_gradients_close(actual, expected)
        assert_close(found.mask_loss, free.mask_loss, what="mask_loss")


def test_no_mask_loss_outside_training_by_default(family, batch):
    model = tiny_model(family, calibration="gated").eval()
    assert model(**batch).mask_loss is None
    assert model(**batch).mask_penalty is None
    asked = model(**batch, compute_mask_loss=True)
    slow = slow_twin(model).train(False)
    assert_close(asked.mask_loss, slow.objective(batch, mask_network=True)[0])
    model.train()
    assert model(**batch, compute_mask_loss=False).mask_loss is None


def test_without_labels_there_is_no_loss(family, batch):
    model = tiny_model(family, calibration="gated").train()
    outputs = model(input_ids=batch["input_ids"], decoder_input_ids=batch["input_ids"])
    assert all(getattr(outputs, name) is None for name in ("loss", "nmt_loss", "mask_loss", "mask_mean", "gate_mean"))


def test_means_are_those_of_real_cells(family, batch):
    model = tiny_model(family, calibration="gated").train()
    with torch.no_grad():
        outputs = model(**batch, output_attention_details=True)
        slow = slow_twin(model).train()
        slow.logits(batch, perturbing=False)
    real = (batch["labels"] != -100)[:, None, :, None] & batch["attention_mask"].bool()[:, None, None, :]
    cells = torch.stack([mask.masked_select(real.expand_as(mask)) for mask in slow.masks])
    assert_close(outputs.mask_mean, cells.mean())
    assert 0 < outputs.gate_mean < 1
    rows = defaultdict(list)  # (layer, head, target) of every real step
    for layer, (plain, used, mask, gate) in enumerate(
        zip(slow.attentions, slow.weights, slow.masks, outputs.calibration_gates, strict=True)
    ):
        assert gate.shape == plain.shape[:3], layer
        for (b, t), is_real in np.ndenumerate((batch["labels"] != -100).numpy()):
            for h in range(plain.shape[1] if is_real else 0):
                a, c = plain[b, h, t].tolist(), used[b, h, t].tolist()
                rows["mass_mean"].append(sum(c) / sum(a))
                rows["attended_mask_mean"].append(sum(x * y for x, y in zip(a, mask[b, h, t].tolist(), strict=True)))
                rows["divergence_mean"].append(divergence(a, c))
                rows["divergence_normalized_mean"].append(divergence(shares(a), shares(c)))
                rows["gate_mean"].append(gate[b, h, t].item())
    for name, values in rows.items():
        assert_close(outputs[name], torch.tensor(sum(values) / len(values), dtype=torch.float64), what=name)


def test_an_infinite_mask_loss_does_not_change_the_logged_loss(family, batch):
    """The value is the NMT loss whatever becomes of the second pass."""
    model = tiny_model(family, calibration="gated", mask_penalty=0.0).train()
    nmt_loss = model(**batch, compute_mask_loss=False).loss
    model.config.mask_penalty = float("inf")
    outputs = model(**batch)
    assert torch.isinf(outputs.mask_loss)
    assert_close(outputs.loss.detach(), nmt_loss.detach())


@pytest.mark.parametrize("switches", [{"calibration": "fixed"}, {"calibration": "gated", "leaky": True}], ids=str)
def test_the_translation_loss_reaches_what_the_mask_network_reads(family, batch, switches):
    """The published code's first pass: the gradient of the translation model is the slope of the NMT loss itself.

    With detached inputs it is not, and the parameters of the mask network get no part of it in either.
    """
    slopes_hold, masks_learn = {}, {}
    for inputs in ("trained", "detached"):
        model = tiny_model(family, mask_inputs=inputs, calibration_weight=1.0, **switches).train()
        _, actual = one_backward(model, batch, compute_mask_loss=False)
        masks_learn[inputs] = any(is_mask_network(name) for name in actual)
        generator, slopes = torch.Generator().manual_seed(11), []
        for name, parameter in model.named_parameters():
            if is_mask_network(name) or not parameter.requires_grad:
                continue
            direction = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    parameter.add_(sign * 1e-6 * direction)
                    values.append(model(**batch, compute_mask_loss=False).nmt_loss)
                    parameter.sub_(sign * 1e-6 * direction)
            slopes.append(abs((values[0] - values[1]) / 2e-6 - (actual[name] * direction).sum()).item())
        slopes_hold[inputs] = max(slopes) < 1e-6
    assert slopes_hold == {"trained": True, "detached": False}
    assert masks_learn == {"trained": False, "detached": False}


class TestLowPrecision:
    """bfloat16 autocast, judged against a plain implementation of the printed formulas under the same autocast."""

    def test_both_objectives_have_their_gradient_under_autocast(self, family, batch):
        """The first pass must not leave low-precision copies behind that cut the mask network off."""
        model = tiny_model(family, torch.float32, calibration="gated", leaky=True)
        _, expected = one_backward(model, batch)
        model.zero_grad(set_to_none=True)
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**batch)
        outputs.loss.backward()
        actual = gradients(model)
        assert actual.keys() == expected.keys()
        for group in (lambda name: not is_mask_network(name), is_mask_network):
            low, exact = (
                torch.cat([g.flatten() for name, g in grads.items() if group(name)]) for grads in (actual, expected)
            )
            assert torch.isfinite(low).all()
            assert torch.nn.functional.cosine_similarity(low, exact, dim=0) > 0.98

    @pytest.mark.half("family", "switches")
    @pytest.mark.parametrize("switches", CALIBRATED.values(), ids=CALIBRATED)
    def test_a_bfloat16_model_runs(self, family, batch, switches):
        model = tiny_model(family, torch.bfloat16, **switches)
        outputs, actual = one_backward(model, batch)
        assert torch.isfinite(outputs.loss)
        assert all(torch.isfinite(gradient).all() for gradient in actual.values())
        assert any(is_mask_network(name) for name in actual)


def test_a_step_in_which_layer_drop_leaves_no_layer_still_trains(family, batch):
    """No layer, no penalty: the mask network gets no gradient in that step, and nothing fails."""
    model = tiny_model(family, calibration="gated", decoder_layerdrop=1.0)
    outputs, actual = one_backward(model, batch)
    assert outputs.mask_penalty.item() == 0
    assert outputs.loss.isfinite()
    assert not any(is_mask_network(name) and gradient.any() for name, gradient in actual.items())
