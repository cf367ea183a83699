"""Adapters whose head learns links: computed, learned, saved, exported, beside others; and what is refused."""

import pytest
import torch
from adapter_helpers import BACKBONES, adapted, adapter_parameters, load_base, logits, save_base
from helpers import (
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    check_gradient_checkpointing,
    enable_checkpointing,
    gradients,
    guided_batch,
    is_mask_network,
    without_links,
)
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_attncal.adapters import AttentionCalibrationConfig, adapter_layers, export_calibrated
from hf_attncal.data.collators import LinkCollator

GUIDED = {"calibration": None, "guided": True, "guided_layer": 1, "guided_head": 1, "guided_rank": 3}
CASES = {
    "alone": GUIDED,
    "naive, default layer": GUIDED | {"guided_shift": False, "guided_layer": None},
    "leaky": GUIDED | {"leaky": True},
    "gated": GUIDED | {"calibration": "gated"},
    "gated, in one layer": GUIDED | {"calibration": "gated", "layers": [1]},
    "gated, leaky": GUIDED | {"calibration": "gated", "leaky": True},
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict:
    root = tmp_path_factory.mktemp("bases")
    return {backbone: save_base(root, backbone) for backbone in BACKBONES}


@pytest.mark.half("kernel", "backbone")
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_fresh_adapter_is_the_base_model(bases, backbone, kernel):
    """Its only layer changes as soon as it learns; switched off, the model is the base to the bit."""
    base, batch = load_base(bases[backbone]), without_links(guided_batch())
    base.set_attn_implementation(kernel)
    expected = logits(base, batch)
    model = get_peft_model(base, AttentionCalibrationConfig(**GUIDED)).eval()
    assert [layer.layer_idx for layer in adapter_layers(model)] == [1]
    assert sum(p.numel() for p in adapter_parameters(model).values()) == 2 * 3 * (
        TINY["d_model"] + TINY["d_model"] // 2
    )
    assert_close(logits(model, batch), expected, 1e-12)
    model.train()
    model(**guided_batch()).loss.backward()
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter -= parameter.grad
    changed = logits(model.eval(), batch)
    assert (changed - expected).abs().max() > 1e-5
    with model.disable_adapter():
        assert_identical(logits(model, batch), expected)
    tokens = [
        model.generate(
            **{n: t for n, t in batch.items() if n != "labels"}, num_beams=2, max_new_tokens=6, use_cache=use
        )
        for use in (True, False)
    ]
    assert torch.equal(*tokens)


@pytest.mark.half("settings", "backbone")
@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
@pytest.mark.parametrize("backbone", ["marian", "bart"])
def test_losses_and_gradients_are_those_of_the_full_model(bases, backbone, settings):
    """Which tests/models/test_guided.py compares with slow loops: the chain rule from its weights to the change."""
    model, batch = adapted(bases[backbone], **settings), guided_batch()
    full = export_calibrated(model).train()
    model.train()
    found, expected = model(**batch), full(**batch)
    for name in ("loss", "nmt_loss", "guided_loss"):
        assert_close(getattr(found, name).detach(), getattr(expected, name).detach(), 1e-12)
    found.loss.backward()
    expected.loss.backward()
    layer = next(layer for layer in adapter_layers(model) if layer.head_change is not None)
    of_full, width = full.get_decoder().layers[layer.layer_idx].encoder_attn, TINY["d_model"] // 2
    for side in ("query", "key"):
        down, up = (getattr(layer.head_change, f"{side}_{name}") for name in ("down", "up"))
        rows = getattr(of_full, f"{side[0]}_proj").weight.grad[width:]
        assert_close(up.grad, rows @ down.detach().T, 1e-11)
        assert_close(down.grad, up.detach().T @ rows, 1e-11)
    unused = [name for name, p in adapter_parameters(model).items() if p.requires_grad and p.grad is None]
    assert not unused


def test_without_a_number_the_rank_fits(bases):
    model = get_peft_model(load_base(bases["marian"]), AttentionCalibrationConfig(calibration=None, guided=True))
    assert model.peft_config["default"].guided_rank == TINY["d_model"] // 2
    assert adapter_layers(model)[0].head_change.query_up.shape == (4, 4)


def test_the_mask_loss_does_not_reach_the_head(bases):
    """Links do not reach the mask network either."""
    batch, found = guided_batch(), []
    for frozen in (False, True):
        model = adapted(bases["marian"], **CASES["gated"]).train()
        for name, parameter in model.named_parameters():
            if frozen and "mask_network" in name:
                parameter.requires_grad_(False)
        model(**batch).loss.backward()
        found.append({name: grad for name, grad in gradients(model).items() if "attncal_guided" in name})
    assert len(found[0]) == 4
    assert_gradients_close(*found)
    masks = []
    for links in (batch["links"], torch.zeros_like(batch["links"])):
        model = adapted(bases["marian"], **CASES["gated"]).train()
        model(**batch | {"links": links}).loss.backward()
        masks.append({name: grad for name, grad in gradients(model).items() if "mask_network" in name})
    assert masks[0]
    assert not any(map(is_mask_network, found[0]))
    assert_gradients_close(*masks)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_saved_loaded_and_deleted(bases, settings, tmp_path):
    model, batch = adapted(bases["marian"], **settings), without_links(guided_batch())
    expected = logits(model, batch)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(load_base(bases["marian"]), tmp_path).eval()
    assert_identical(logits(loaded, batch), expected)
    assert "guided" in (tmp_path / "README.md").read_text(encoding="utf-8")
    again = loaded.unload()
    assert_identical(logits(again, batch), logits(load_base(bases["marian"]), batch))


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_exported(bases, settings, tmp_path):
    model, batch = adapted(bases["bart"], **settings), without_links(guided_batch())
    full = export_calibrated(model)
    assert_close(logits(full, batch), logits(model, batch), 1e-12)
    layer = 0 if settings["guided_layer"] is None else 1
    assert (full.config.guided_attention, full.config.guided_shift) == ((layer, 1), settings.get("guided_shift", True))


def test_beside_a_lora_on_the_same_projections(bases):
    model, batch = load_base(bases["marian"]), guided_batch()
    model.add_adapter(AttentionCalibrationConfig(**GUIDED), "calibration")
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False), "lora")
    model.set_adapter(["calibration", "lora"])
    model.train()(**batch).loss.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert_close(
        logits(export_calibrated(model.eval()), without_links(batch)), logits(model, without_links(batch)), 1e-12
    )


def test_gradient_checkpointing(bases):
    model, batch = adapted(bases["marian"], **GUIDED), guided_batch()
    check_gradient_checkpointing(model, batch, model.get_base_model())
    enable_checkpointing(model.get_base_model(), {"use_reentrant": True})
    with pytest.raises(ValueError, match=r"`use_reentrant`.*False.*`guided=True`"):
        model(**batch)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"guided_rank": 5}, "`guided_rank` must be at most d_k, 4, got 5"),
        ({"guided_rank": 0}, "`guided_rank` must be `None` or an integer >= 1, got 0"),
        ({"guided_layer": 2}, "`guided_layer` must be from 0 to 1 in this model, got 2"),
        ({"guided_head": 2}, "`guided_head` must be from 0 to 1 in this model, got 2"),
        ({"guided_weight": 0}, "`guided_weight` must be > 0 and finite, got 0"),
        ({"guided": "yes"}, "`guided` must be True or False, got 'yes'"),
        ({"calibration": "gated", "layers": [0]}, r"`guided_layer` must be one of `layers`, \[0\], got 1"),
        ({"guided": False}, "are all off.*`guided=True`"),
    ],
    ids=str,
)
def test_settings(bases, settings, message):
    base = load_base(bases["marian"])
    with pytest.raises(ValueError, match=message):
        get_peft_model(base, AttentionCalibrationConfig(**GUIDED | settings))


def test_links_that_nothing_would_learn(bases):
    batch = guided_batch()
    model = adapted(bases["marian"], **GUIDED)
    with pytest.raises(ValueError, match=r"`links`.*got none"):
        model.train()(**without_links(batch))
    with pytest.raises(ValueError, match=r"`links`.*`guided=True`"):
        adapted(bases["marian"])(**batch)
    with pytest.raises(ValueError, match=r"`links`.*got \(3, 5, 4\)"):
        model(**batch | {"links": batch["links"][..., 1:]})


def test_a_plain_trainer_needs_its_unused_columns(bases, tmp_path):
    """Which it drops where the base model does not name them: an error, not a head that learns nothing."""
    batch = guided_batch()
    rows = [
        {"input_ids": i[m.bool()], "labels": t[t != -100], "links": [0, 0]}
        for i, m, t in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
    ]

    class Inner:
        tokenizer = type("Tokenizer", (), {"padding_side": "right"})

        def __call__(self, features, return_tensors=None):
            names = ("input_ids", "attention_mask", "labels")
            return {name: batch[name] for name in names}

    for keep in (False, True):
        options = {"use_cpu": True, "max_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
        args = Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=3, remove_unused_columns=not keep, **options
        )
        model = adapted(bases["marian"], **GUIDED)
        trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=rows, data_collator=LinkCollator(Inner()))
        if keep:
            assert trainer.train().global_step == 1
        else:
            with pytest.raises(ValueError, match=r"`links`.*`remove_unused_columns=False`"):
                trainer.train()


def test_a_trainer_may_pass_links_to_generation(bases):
    model, batch = adapted(bases["marian"], **GUIDED).eval(), guided_batch()
    ids = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 4, "do_sample": False}
    assert torch.equal(model.generate(**ids, links=batch["links"], **options), model.generate(**ids, **options))


def test_the_mask_loss_is_computed_if_it_is_asked_for(bases):
    model, batch = adapted(bases["marian"], calibration="gated"), without_links(guided_batch())
    for mode in (model.train(), model.eval()):
        assert mode(**batch, compute_mask_loss=False).mask_loss is None
        assert mode(**batch, compute_mask_loss=True).mask_loss is not None
    assert model(**batch).mask_loss is None
    with pytest.raises(ValueError, match="`compute_mask_loss=True` needs `labels`"):
        model(input_ids=batch["input_ids"], compute_mask_loss=True, output_attention_details=True)
