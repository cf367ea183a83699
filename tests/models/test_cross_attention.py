"""The cross-attention inside the models: against the slow model, under padding, under every kernel and mask."""

import pytest
import torch
from helpers import (
    SWITCHES,
    assert_close,
    assert_gradients_close,
    assert_identical,
    gradients,
    slow_twin,
    tiny_model,
    tiny_stock_model,
)

from hf_attncal.models.cross_attention import AttentionContext

DETAILS = ("cross_attentions", "uncalibrated_cross_attentions", "calibration_masks", "null_attentions")


def forward(model, batch, **options):
    with torch.no_grad():
        return model(**batch, output_attentions=True, output_attention_details=True, **options)


@pytest.mark.half("family", "switches")
@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_inference_equals_the_slow_model(family, batch, switches):
    """Logits and every tensor from the inside, in evaluation mode, eager and sdpa."""
    model = tiny_model(family, **switches).eval()
    slow = slow_twin(model).train(False)
    with torch.no_grad():
        logits = slow.logits(batch, perturbing=False)
    expected = {
        "cross_attentions": slow.weights,
        "uncalibrated_cross_attentions": slow.attentions,
        "calibration_masks": slow.masks,
        "null_attentions": slow.nulls if model.config.leaky else [],
    }
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        outputs = forward(model, batch)
        assert_close(outputs.logits, logits, what=f"logits, {implementation}")
        for name in DETAILS:
            actual = getattr(outputs, name)
            if not expected[name]:
                assert actual is None, name
                continue
            assert len(actual) == len(expected[name]) == 2
            for layer in range(2):
                assert_close(actual[layer], expected[name][layer], what=f"{name}, {implementation}")
        without_weights = model(**batch).logits.detach()
        assert_close(without_weights, logits, what=f"logits by the kernel, {implementation}")


@pytest.mark.half("family", "kernel", "switches")
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("switches", [{}, *SWITCHES.values()], ids=["off", *SWITCHES])
def test_a_source_of_only_padding_has_no_weights(family, batch, switches, kernel):
    """With a switch on, the output is 0 by every path; with all off, it equals the stock model."""
    batch["attention_mask"][1] = 0
    model = tiny_model(family, attn_implementation=kernel, **switches).eval()
    for name, parameter in model.named_parameters():  # which moves nothing: at 1, the model is the stock model
        if "output_gate" in name:
            torch.nn.init.zeros_(parameter)
    outputs = forward(model, batch)
    if not switches or switches == {"output_gate": True}:
        stock = tiny_stock_model(family, attn_implementation=kernel).eval()
        stock.load_state_dict(model.state_dict(), strict=False)
        with torch.no_grad():
            assert_identical(model(**batch).logits, stock(**batch).logits)
            if kernel == "eager":
                expected = stock(**batch, output_attentions=True).cross_attentions
                assert all(map(torch.equal, outputs.cross_attentions, expected))
        return
    for weights in outputs.cross_attentions:
        assert (weights[1] == 0).all()
        if "leaky" not in switches:
            assert (weights[0].sum(dim=-1) > 0.1).all()
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][1] = torch.tensor([9, 3, 7, 4, 6])
    with torch.no_grad():
        for found in (model(**batch), model(**other), forward(model, other)):
            assert_close(found.logits, outputs.logits, what="logits")


def test_each_output_has_its_own_flag(family, batch):
    model = tiny_model(family, calibration="gated", leaky=True)
    assert all(getattr(model(**batch), name) is None for name in DETAILS)
    attentions = model(**batch, output_attentions=True)
    assert attentions.cross_attentions is not None
    assert all(getattr(attentions, name) is None for name in DETAILS[1:])
    details = model(**batch, output_attention_details=True)
    assert details.cross_attentions is None
    assert all(getattr(details, name) is not None for name in DETAILS[1:])


def test_asking_for_attentions_changes_no_other_kernel(family, batch):
    """Self-attention stays with sdpa, so the logits of the encoder and of an uncalibrated model barely move."""
    model = tiny_model(family, calibration="gated").eval()
    plain, asked = model(**batch), forward(model, batch)
    assert_identical(asked.encoder_last_hidden_state, plain.encoder_last_hidden_state.detach())
    assert_identical(asked.logits, plain.logits.detach())


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_every_kind_of_mask(batch, switches):
    """None (without padding), boolean and additive masks give the same result."""
    attention = tiny_model("marian", **switches).eval().model.decoder.layers[0].encoder_attn
    states, encoder_states = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    real = batch["attention_mask"].bool()[:, None, None, :].expand(2, 1, 4, 5)
    additive = torch.zeros(real.shape, dtype=torch.float64).masked_fill(~real, torch.finfo(torch.float64).min)
    for implementation in ("eager", "sdpa"):
        attention.config._attn_implementation = implementation
        for perturb in (False, True):
            context = AttentionContext(perturb=perturb)

            def attend(mask, context=context):
                return attention(states, encoder_states, attention_mask=mask, attention_context=context)[0].detach()

            assert_close(attend(real), attend(additive))
            everything = torch.ones_like(real)
            assert_close(attend(None), attend(everything))
            assert (attend(real) - attend(None)).abs().max() > 1e-4


@pytest.mark.half("family", "switches")
@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_kernels_agree_in_training(family, batch, switches):
    """Loss and gradients of eager and sdpa agree. The kernel runs leaky attention with NULL as a source token."""
    results = []
    for implementation in ("eager", "sdpa"):
        model = tiny_model(family, **switches).train()
        model.set_attn_implementation(implementation)
        torch.manual_seed(2)
        outputs = model(**batch)
        outputs.loss.backward()
        results.append((outputs.loss.detach(), gradients(model)))
    assert_close(results[0][0], results[1][0])
    assert_gradients_close(results[0][1], results[1][1])


def test_gumbel_samples_in_training_and_chooses_at_inference(family, batch):
    model = tiny_model(family, gumbel=True).train()
    samples = [forward(model, batch).cross_attentions[0] for _ in range(2)]
    assert (samples[0] - samples[1]).abs().max() > 0.01
    chosen = forward(model.eval(), batch).cross_attentions[0]
    assert ((chosen == 0) | (chosen == 1)).all()
    assert_identical(chosen.sum(dim=-1), torch.ones(2, 2, 4, dtype=torch.float64))
    model.train()
    model.config.gumbel_straight_through = True
    hard = forward(model, batch).cross_attentions[0]
    assert_close(hard.max(dim=-1).values, torch.ones(2, 2, 4, dtype=torch.float64))


def test_a_source_of_length_zero_is_an_error(family, batch):
    model = tiny_model(family, calibration="gated")
    empty = {"input_ids": torch.empty(2, 0, dtype=torch.long), "labels": batch["labels"]}
    with pytest.raises(ValueError, match=r"`input_ids`.*\(2, 0\)"):
        model(**empty)
    embeds = {"inputs_embeds": torch.empty(2, 0, 8, dtype=torch.float64), "labels": batch["labels"]}
    with pytest.raises(ValueError, match=r"`inputs_embeds`.*at least one"):
        model(**embeds)


def test_mask_loss_that_cannot_be_computed_is_an_error(family, batch):
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": batch["input_ids"]}
    with pytest.raises(ValueError, match=r"`compute_mask_loss=True`.*`labels`"):
        tiny_model(family, calibration="gated")(**inputs, compute_mask_loss=True)
    with pytest.raises(ValueError, match=r"`compute_mask_loss`.*`calibration`"):
        tiny_model(family)(**batch, compute_mask_loss=True)


def test_annealing_step(family, batch):
    model = tiny_model(family, calibration="annealed", annealing_steps=10).eval()
    assert model.annealing_step == 4
    logits = {}
    for step in (0, 7):
        model.set_annealing_step(step)
        assert model.annealing_step == step
        logits[step] = model(**batch).logits
    assert (logits[0] - logits[7]).abs().max() > 1e-4
    with pytest.raises(ValueError, match=r"`step`.*0.*got -1"):
        model.set_annealing_step(-1)
    assert tiny_model(family, calibration="gated").annealing_step is None
