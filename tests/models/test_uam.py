"""The unsupervised alignment module in each model that has it, against slow loops in float64, with gradients."""

import copy

import pytest
import torch
from helpers import (
    FAMILIES,
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    gradients,
    is_mask_network,
    padded_pairs,
    scatter,
)
from reference_uam import source_loss, source_probabilities
from transformers import AutoModelForSeq2SeqLM
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal import LuongConfig, LuongForConditionalGeneration

NULL = 9
# Sources with a repeated token; a target as long as its source with nulls, one longer than its source, one shorter.
PAIRS = [([4, 7, 3, 7, 2], [6, 10, 2, NULL, NULL]), ([2], [9, 4, 2]), ([5, 8, 5, 5, 2], [6, 2])]
FAMILY_NAMES = [*FAMILIES, "luong"]


def build(family: str, **settings) -> torch.nn.Module:
    settings = {"uam": True, "null_token_id": NULL, **settings}
    torch.manual_seed(3)
    if family == "luong":
        sizes = {"vocab_size": 11, "d_model": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
        model = LuongForConditionalGeneration(LuongConfig(**sizes, **settings)).double()
    else:
        _, _, config_class, model_class = FAMILIES[family]
        model = model_class(config_class(**TINY, **settings)).double()
    scatter(model)
    return model


def final_states(model, batch) -> torch.Tensor:
    """z_j of every step, (B, T, d), with their graph."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return model.model(**inputs, decoder_input_ids=ids).last_hidden_state


def slow_loss(model, batch, pairs) -> torch.Tensor:
    """L_src summed over the sentences."""
    states, module = final_states(model, batch), model.uam.projection
    losses = [
        source_loss(list(states[n, : len(target)]), source, module.weight, module.bias, model.config.uam_scale)
        for n, (source, target) in enumerate(pairs)
    ]
    return sum(losses)


def targets_of(pairs) -> int:
    return sum(len(target) for _, target in pairs)


# ---- the loss ----


@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_loss_and_gradients(family: str, left: bool):
    model, batch = build(family, uam_scale=3, label_smoothing=0.1).train(), padded_pairs(PAIRS, left)
    outputs = model(**batch)
    outputs.loss.backward()
    found = gradients(model)
    model.zero_grad()

    plain = copy.deepcopy(model)
    plain.uam, plain.config.uam = None, False
    nmt_loss = plain(**batch).loss
    nmt_loss.backward()
    expected_loss = slow_loss(model, batch, PAIRS) / targets_of(PAIRS)
    expected_loss.backward()
    expected = gradients(model)
    for name, gradient in gradients(plain).items():
        expected[name] = expected[name] + gradient if name in expected else gradient

    assert_close(outputs.uam_loss, expected_loss.detach(), 1e-12)
    assert_close(outputs.nmt_loss, nmt_loss.detach(), 1e-12)
    assert_close(outputs.loss.detach(), (nmt_loss + expected_loss).detach(), 1e-12)
    assert_gradients_close(found, expected, 1e-11)
    assert found["uam.projection.weight"].abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_beside_a_calibration_each_objective_trains_its_own_parameters(family: str):
    model, batch = build(family, calibration="gated").train(), padded_pairs(PAIRS)
    outputs = model(**batch)
    outputs.loss.backward()
    assert_close(outputs.loss.detach(), outputs.nmt_loss + outputs.uam_loss)
    expected = {}
    for mask_network in (False, True):
        twin = copy.deepcopy(model)
        twin.zero_grad(set_to_none=True)
        if mask_network:
            twin.uam, twin.config.uam = None, False  # the mask loss knows nothing of it
        for name, parameter in twin.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and is_mask_network(name) == mask_network)
        twin(**batch, compute_mask_loss=mask_network).loss.backward()
        expected |= gradients(twin)
    assert_gradients_close(gradients(model), expected)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_losses_of_micro_batches_add_up(family: str):
    """Gradient accumulation: both losses are divided by the targets of all micro-batches."""
    model = build(family).train()
    whole = model(**padded_pairs(PAIRS))
    whole.loss.backward()
    expected = gradients(model)
    model.zero_grad()
    parts = [model(**padded_pairs([pair]), num_items_in_batch=targets_of(PAIRS)) for pair in PAIRS]
    sum(part.loss for part in parts).backward()
    assert_gradients_close(gradients(model), expected)
    assert_close(sum(part.uam_loss for part in parts), whole.uam_loss)


# ---- the probabilities ----


@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_probabilities_of_source_tokens(family: str, left: bool):
    model, batch = build(family).eval(), padded_pairs(PAIRS, left)
    outputs = model(**batch, output_uam_probabilities=True)
    assert outputs.uam_probabilities.shape == (3, 5, 5)
    states, module = final_states(model, batch).detach(), model.uam.projection
    for n, (source, target) in enumerate(PAIRS):
        real = batch["attention_mask"][n].bool()
        for step in range(len(target)):
            q = source_probabilities(states[n, step], module.weight.detach(), module.bias.detach())
            expected = torch.stack([q[token] for token in source])
            assert_close(outputs.uam_probabilities[n, step, real].detach(), expected)
        assert (outputs.uam_probabilities[n][:, ~real] == 0).all()
    assert model(**batch).uam_probabilities is None
    del batch["attention_mask"], batch["labels"]
    without = model(**batch, decoder_input_ids=batch["input_ids"], output_uam_probabilities=True)
    assert without.loss is None
    assert (without.uam_probabilities > 0).all()


# ---- the switch ----


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_without_it_nothing_changes(family: str):
    """The same weights, drawn alike, and the same outputs as a model without the module."""
    torch.manual_seed(3)
    off = build(family, uam=False, null_token_id=None)
    on = build(family)
    assert on.state_dict().keys() - off.state_dict().keys() == {"uam.projection.weight", "uam.projection.bias"}
    on.load_state_dict(off.state_dict(), strict=False)
    batch = padded_pairs(PAIRS)
    assert_identical(on(**batch).logits.detach(), off(**batch).logits.detach())
    assert_identical(on(**batch).nmt_loss, off(**batch).loss.detach())
    assert off(**batch).uam_loss is None


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_saving_loading_resizing_and_switching_on(family: str, tmp_path):
    model, batch = build(family).float().eval(), padded_pairs(PAIRS)
    model.save_pretrained(tmp_path / "with")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "with")
    with torch.no_grad():  # a graph would keep the weights' size
        expected = model(**batch, output_uam_probabilities=True)
        found = loaded(**batch, output_uam_probabilities=True)
    assert_identical(found.uam_loss, expected.uam_loss)
    assert_identical(found.uam_probabilities, expected.uam_probabilities)
    loaded.resize_token_embeddings(13)
    assert loaded.uam.projection.weight.shape == (13, loaded.config.d_model)
    assert loaded.uam.projection.bias.shape == (13,)
    loaded(input_ids=torch.tensor([[12, 2]]), labels=torch.tensor([[12, 2]])).loss.backward()
    assert loaded.uam.projection.weight.grad[12].abs().max() > 0

    off = build(family, uam=False, null_token_id=None).float()
    off.save_pretrained(tmp_path / "without")
    on = type(off).from_pretrained(tmp_path / "without", uam=True, null_token_id=NULL).eval()
    assert_identical(on(**batch).nmt_loss, off.eval()(**batch).loss.detach())
    assert on.uam.projection.weight.std() > 0.001
    assert (on.uam.projection.bias == 0).all()


@pytest.mark.processor
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_bfloat16(family: str):
    batch, expected = padded_pairs(PAIRS), build(family)(**padded_pairs(PAIRS)).uam_loss
    model = build(family).bfloat16().train()
    outputs = model(**batch, output_uam_probabilities=True)
    assert outputs.uam_probabilities.dtype == torch.float32
    outputs.loss.backward()
    assert all(g.isfinite().all() for g in gradients(model).values())
    assert outputs.uam_loss.item() == pytest.approx(expected.item(), rel=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert build(family).float()(**batch).uam_loss.item() == pytest.approx(expected.item(), rel=0.05)


# ---- generation ----


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 2}], ids=str)
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_the_null_token_is_never_generated(family: str, options: dict):
    """Not even if it is the most probable token; the caller's `suppress_tokens` still apply."""
    model = build(family).eval()
    inputs = {name: padded_pairs(PAIRS)[name] for name in ("input_ids", "attention_mask")}
    bias = torch.zeros(11, dtype=torch.float64)
    bias[NULL] = 50.0
    bias[6] = 25.0
    model.lm_head = torch.nn.Linear(model.config.d_model, 11).double()
    model.lm_head.bias.data = bias
    tokens = model.generate(**inputs, max_new_tokens=4, **options)
    assert (tokens[:, 1:] == 6).all()
    tokens = model.generate(**inputs, max_new_tokens=4, suppress_tokens=[6], **options)
    assert not torch.isin(tokens[:, 1:], torch.tensor([6, NULL])).any()
    model.uam = None
    assert (model.generate(**inputs, max_new_tokens=4, **options)[:, 1:] == NULL).all()


# ---- what is refused ----


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_bad_input_is_refused(family: str):
    with pytest.raises(ValueError, match=r"`uam`.*`null_token_id`.*got None"):
        build(family, null_token_id=None)
    model, batch = build(family), padded_pairs(PAIRS)
    encoded = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"])
    given = {"attention_mask": batch["attention_mask"], "labels": batch["labels"], "encoder_outputs": encoded}
    with pytest.raises(ValueError, match=r"`input_ids`.*`labels`"):
        model(**given)
    assert_close(model(**given, input_ids=batch["input_ids"]).loss.detach(), model(**batch).loss.detach())
    assert isinstance(encoded, BaseModelOutput)
    with pytest.raises(ValueError, match=r"`output_uam_probabilities`.*`generate`"):
        model.generate(batch["input_ids"], output_uam_probabilities=True)
    with pytest.raises(ValueError, match=r"`output_uam_probabilities`.*`uam`"):
        build(family, uam=False)(**batch, output_uam_probabilities=True)
