"""A head that learns links: against slow loops in float64, with gradients; and what is refused."""

import copy

import pytest
import reference
import torch
from helpers import (
    CALIBRATIONS,
    FAMILIES,
    LINKED_PAIRS,
    LINKS,
    assert_close,
    assert_gradients_close,
    assert_identical,
    check_gradient_checkpointing,
    enable_checkpointing,
    gradients,
    guided_batch,
    is_mask_network,
    tiny_model,
    without_links,
)
from huggingface_hub.errors import StrictDataclassError
from luong_helpers import tiny_luong

from hf_attncal.models.cross_attention import AttentionContext
from hf_attncal.models.losses import IGNORE_INDEX

SETTINGS = {
    "plain": {},
    "leaky": {"leaky": True},
    **CALIBRATIONS,
    "gated, leaky": {"calibration": "gated", "leaky": True},
    "gated, renormalized": {"calibration": "gated", "renormalize": True},
    "output gate": {"output_gate": True},
    "output gate, copy": {"output_gate": True, "copy": True},
    "gated, leaky, output gate": {"calibration": "gated", "leaky": True, "output_gate": True},
}


def build(family: str, **settings):
    return tiny_model(family, **{"guided": True, "guided_layer": 0, "guided_head": 1, "guided_weight": 0.7} | settings)


def slow_guided_loss(model, batch) -> torch.Tensor:
    """Per target token, from the bare model's attention, one cell after the other; with its graph."""
    config, labels, links = model.config, batch["labels"], batch["links"]
    real = labels != IGNORE_INDEX
    context = AttentionContext(target_mask=real if config.calibration else None, record_details=True)
    outputs = model.model(
        batch["input_ids"],
        attention_mask=batch["attention_mask"],
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels),
        attention_context=context,
        output_attentions=True,
    )
    weights = outputs.cross_attentions[config.guided_layer][:, config.guided_head]
    nulls = context.null_attentions[config.guided_layer][:, config.guided_head] if config.leaky else None
    rows, taken = [], []
    steps = labels.shape[1]
    for b in range(len(labels)):
        for t in range(steps):
            step = t + (config.guided_shift and t + 1 < steps and bool(real[b, t + 1]))
            null = nulls[b, step] if config.leaky else torch.zeros((), dtype=weights.dtype)
            row = weights[b, step]
            rows.append(torch.cat([row * (1 - null) / row.sum(), null[None]]))
            taken.append(bool(real[b, t]) and (config.leaky or bool(links[b, t].any())))
    rows = torch.stack(rows).view(len(labels), steps, -1)
    taken = torch.tensor(taken).view(len(labels), steps)
    mean = reference.guided(rows[..., :-1], rows[..., -1], links, taken)
    return mean * taken.sum() / real.sum()


@pytest.mark.half("switches", "shift", "left")
@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("shift", [True, False], ids=["reads", "predicts"])
@pytest.mark.parametrize("switches", SETTINGS.values(), ids=SETTINGS)
def test_loss_and_gradients(family: str, switches: dict, shift: bool, left: bool):
    model, batch = build(family, guided_shift=shift, **switches), guided_batch(left=left)
    outputs = model(**batch, compute_mask_loss=False)
    outputs.loss.backward()
    found = gradients(model)
    model.zero_grad()
    nmt = model(**without_links(batch), compute_mask_loss=False)
    slow = slow_guided_loss(model, batch)
    expected = nmt.loss + 0.7 * slow
    expected.backward()
    assert_close(outputs.guided_loss, slow.detach(), 1e-12)
    assert_close(outputs.nmt_loss, nmt.nmt_loss, 1e-12)
    assert_close(outputs.loss.detach(), expected.detach(), 1e-12)
    assert_gradients_close(found, gradients(model), 1e-11)
    assert not any(is_mask_network(name) for name in found)  # links train what the mask network calibrates, not it


def test_off_is_the_stock_model(family: str):
    """No parameter more, and without links the same outputs to the bit."""
    off, on = tiny_model(family).eval(), build(family).eval()
    assert on.state_dict().keys() == off.state_dict().keys()
    batch = guided_batch()
    expected = off(**without_links(batch))
    assert_identical(on(**without_links(batch)).logits.detach(), expected.logits.detach())
    assert_identical(on(**without_links(batch)).loss.detach(), expected.loss.detach())
    assert_close(on(**batch).nmt_loss, expected.nmt_loss)  # one layer without its kernel


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_only_one_layer_forms_its_weights(family: str, implementation: str):
    """With a kernel, the other layers still use it, and the loss is the same."""
    model, batch, formed = build(family, guided_layer=1).eval(), guided_batch(), []
    expected = model(**batch)
    model.set_attn_implementation(implementation)
    for layer in model.model.decoder.layers:
        layer.encoder_attn.register_forward_hook(lambda _, __, output: formed.append(output[1] is not None))
    found = model(**batch)
    assert_close(found.guided_loss, expected.guided_loss, 1e-12)
    assert_close(found.loss.detach(), expected.loss.detach(), 1e-12)
    assert formed[1]
    assert formed[0] == (implementation == "eager")
    formed.clear()
    model(**without_links(batch))
    assert formed == [implementation == "eager"] * 2


def test_which_head(family: str):
    """Each layer, head and step has a loss of its own; without a number it is the second last layer."""
    places = [(layer, head, shift) for layer in (0, 1) for head in (0, 1) for shift in (True, False)]
    batch, found = guided_batch(), []
    for layer, head, shift in places:
        model = build(family, guided_layer=layer, guided_head=head, guided_shift=shift)
        found.append(float(model(**batch).guided_loss))
    assert len({round(loss, 6) for loss in found}) == len(places)
    assert float(build(family, guided_layer=None)(**batch).guided_loss) == found[places.index((0, 1, True))]
    config_class = FAMILIES[family][2]
    for layers, default in ((1, 0), (2, 0), (6, 4)):
        assert config_class(guided=True, decoder_layers=layers).guided_attention == (default, 0)
    assert config_class().guided_attention is None


def test_losses_of_micro_batches_add_up(family: str):
    """Gradient accumulation, and a batch against its pairs one by one."""
    model = build(family, leaky=True).train()
    whole = model(**guided_batch())
    whole.loss.backward()
    expected, targets = gradients(model), sum(len(target) for _, target in LINKED_PAIRS)
    model.zero_grad()
    batches = [guided_batch([pair], [links]) for pair, links in zip(LINKED_PAIRS, LINKS, strict=True)]
    parts = [model(**batch, num_items_in_batch=targets) for batch in batches]
    sum(part.loss for part in parts).backward()
    assert_gradients_close(gradients(model), expected)
    assert_close(sum(part.guided_loss for part in parts), whole.guided_loss)


def test_labels_are_not_smoothed_for_links(family: str):
    batch = guided_batch()
    assert_identical(build(family, label_smoothing=0.3)(**batch).guided_loss, build(family)(**batch).guided_loss)


def test_gradient_checkpointing(family: str):
    check_gradient_checkpointing(build(family), guided_batch())
    with pytest.raises(ValueError, match=r"`use_reentrant`.*False.*`guided=True`"):
        enable_checkpointing(build(family), {"use_reentrant": True})


@pytest.mark.processor
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision(family: str, dtype: torch.dtype):
    """Weights that vanish have a finite loss and gradients, which still lead away from there."""
    model, batch = build(family).to(dtype).train(), guided_batch()
    with torch.no_grad():
        model.model.decoder.layers[0].encoder_attn.q_proj.weight.mul_(30)
    outputs = model(**batch)
    outputs.loss.backward()
    assert outputs.guided_loss.dtype == torch.float32
    assert outputs.guided_loss > 1
    grads = gradients(model)
    assert all(grad.isfinite().all() for grad in grads.values())
    assert grads["model.decoder.layers.0.encoder_attn.q_proj.weight"].abs().max() > 0


def test_a_batch_without_links_has_no_guided_loss(family: str):
    model, batch = build(family).train(), guided_batch(links=[[], [], []])
    outputs = model(**batch)
    assert outputs.guided_loss == 0
    assert_close(outputs.loss.detach(), outputs.nmt_loss)
    outputs.loss.backward()
    assert all(grad.isfinite().all() for grad in gradients(model).values())


# ---- what is refused ----


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"guided_layer": 2}, "`guided_layer` must be from 0 to 1 in this model, got 2"),
        ({"guided_layer": -1}, "`guided_layer` must be from 0 to 1 in this model, got -1"),
        ({"guided_head": 2}, "`guided_head` must be from 0 to 1 in this model, got 2"),
        ({"guided_weight": 0}, "`guided_weight` must be > 0 and finite, got 0"),
        ({"guided_weight": -0.05}, "`guided_weight` must be > 0 and finite, got -0.05"),
        ({"guided_weight": float("inf")}, "`guided_weight` must be > 0 and finite, got inf"),
        ({"gumbel": True}, "`guided` needs `gumbel=False`"),
    ],
    ids=str,
)
def test_settings(family: str, values: dict, message: str):
    with pytest.raises(StrictDataclassError, match=message):
        build(family, **values)


def test_a_recurrent_model_is_not_guided():
    with pytest.raises(StrictDataclassError, match=r"`guided`.*recurrent"):
        tiny_luong(guided=True)


def test_links_that_nothing_would_learn(family: str):
    model, batch = build(family), guided_batch()
    with pytest.raises(ValueError, match=r"`links`.*`guided=True`"):
        tiny_model(family)(**batch)
    with pytest.raises(ValueError, match="`links` need `labels`"):
        model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
    with pytest.raises(ValueError, match=r"`links`.*\(3, 5, 5\).*got \(3, 5, 4\)"):
        model(**batch | {"links": batch["links"][..., :-1]})
    with pytest.raises(ValueError, match=r"`links`.*got none"):
        model.train()(**without_links(batch))
    with torch.no_grad():
        model(**without_links(batch))
    model.eval()(**without_links(batch))


@pytest.mark.parametrize("switches", [{}, {"output_gate": True, "copy": True}], ids=str)
def test_saved_and_loaded(family: str, switches: dict, tmp_path):
    model, batch = build(family, **switches), guided_batch()
    model.save_pretrained(tmp_path)
    loaded = FAMILIES[family][3].from_pretrained(tmp_path)
    assert loaded.config.guided_attention == (0, 1)
    assert_identical(loaded(**batch).guided_loss, model(**batch).guided_loss)
    assert_identical(copy.deepcopy(model)(**batch).guided_loss, model(**batch).guided_loss)


def test_a_trainer_may_pass_links_to_generation():
    model, batch = build("marian").eval(), guided_batch()
    ids = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 4, "do_sample": False}
    assert torch.equal(model.generate(**ids, links=batch["links"], **options), model.generate(**ids, **options))
