"""What would silently train something else than a calibrated model: refused, or said; and what costs nothing."""

import pytest
import torch
from helpers import assert_close, assert_gradients_close, gradients, is_mask_network, tiny_model
from peft import IA3Config, LoraConfig
from runs import collate, toy_dataset
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_attncal import AnnealingCallback
from hf_attncal.models import calibration, objective


def train(folder, model, callbacks=(), **arguments) -> None:
    """Two steps of a plain `Seq2SeqTrainer`."""
    options = {"use_cpu": True, "max_steps": 2, "save_strategy": "no", "disable_tqdm": True, "report_to": "none"}
    options |= {"dataloader_pin_memory": False}
    args = Seq2SeqTrainingArguments(output_dir=str(folder), **options | arguments)
    Seq2SeqTrainer(
        model=model, args=args, train_dataset=toy_dataset(), data_collator=collate, callbacks=list(callbacks)
    ).train()


def passes(model, batch, **options) -> int:
    """How often a training step goes through the decoder."""
    calls = []
    hook = model.get_decoder().register_forward_hook(lambda *_: calls.append(1))
    model.train()(**batch, **options)
    hook.remove()
    return len(calls)


def freeze_mask_network(model) -> None:
    for name, parameter in model.named_parameters():
        if is_mask_network(name):
            parameter.requires_grad_(False)


def with_shifted(model, batch) -> dict:
    """As `DataCollatorForSeq2Seq(model=...)` makes it."""
    return {**batch, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(batch["labels"])}


@pytest.fixture
def said(monkeypatch):
    messages = []
    for module in (objective, calibration):
        monkeypatch.setattr(module.logger, "warning_once", messages.append)
    return messages


def test_the_trainers_label_smoothing_is_refused(family, tmp_path, said):
    def shifted(examples):
        return with_shifted(model, collate(examples))

    model = tiny_model(family, torch.float32, calibration="gated")
    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, max_steps=1, label_smoothing_factor=0.1, report_to="none"
    )
    trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=toy_dataset(), data_collator=shifted)
    with pytest.raises(ValueError, match=r"`labels`.*`label_smoothing_factor`.*AttnCal\w+Config"):
        trainer.train()


def test_training_with_a_loss_of_ones_own_is_said(family, batch, said):
    model = tiny_model(family, calibration="gated").train()
    inputs = with_shifted(model, batch)
    del inputs["labels"]
    model(**inputs)
    assert len(said) == 1
    assert "`labels` are needed" in said[0]
    with torch.no_grad():
        model(**inputs)
    model.eval()(**inputs)
    freeze_mask_network(model.train())
    model(**inputs)
    tiny_model(family, leaky=True).train()(**inputs)
    assert len(said) == 1


def test_annealing_that_nobody_counts_is_said(family, batch, said, tmp_path):
    model = tiny_model(family, torch.float32, calibration="annealed").train()
    for module in model.modules():
        if hasattr(module, "counted"):
            module.counted = False
    model.eval()(**batch)
    assert said == []
    train(tmp_path, model)
    assert said
    assert all("nothing counts them" in message for message in said)
    said.clear()
    train(tmp_path, model, callbacks=[AnnealingCallback()])
    assert said == []


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (LoraConfig(r=2, target_modules=["q_proj"], use_dora=True), "lora_magnitude_vector"),
        (IA3Config(target_modules=["k_proj"], feedforward_modules=[]), "ia3_l"),
    ],
    ids=["DoRA", "IA3"],
)
def test_what_the_mask_loss_would_reach_is_refused(family, batch, config, part):
    """Where the mask network is trained beside it; PEFT freezes it, and then the gradients are those of the loss."""
    model = tiny_model(family, calibration="gated")
    model.add_adapter(config, "other")
    model.train()(**batch).loss.backward()
    actual = gradients(model)
    model.zero_grad(set_to_none=True)
    model(**batch, compute_mask_loss=False).loss.backward()
    assert_gradients_close(actual, gradients(model))
    for name, parameter in model.named_parameters():
        if is_mask_network(name):
            parameter.requires_grad_(True)
    with pytest.raises(ValueError, match=rf"`{part}`.*another adapter"):
        model(**batch)


def test_a_frozen_mask_network_costs_no_second_pass(family, batch):
    model = tiny_model(family, calibration="gated")
    assert passes(model, batch) == 2
    freeze_mask_network(model)
    assert passes(model, batch) == 1
    assert passes(model, batch, compute_mask_loss=True) == 2
    outputs = model(**batch)
    outputs.loss.backward()
    assert not any(is_mask_network(name) for name in gradients(model))
    assert_close(outputs.loss, outputs.nmt_loss)
    assert outputs.mask_loss is None


# ---- small temperatures and large weights in low precision ----


@pytest.mark.half("family", "dtype", "switches")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "switches",
    [
        {"gumbel": True, "gumbel_temperature": 1e-6},
        {"gumbel": True, "gumbel_temperature": 1e-6, "gumbel_straight_through": True, "leaky": True},
        {"calibration": "fixed", "calibration_weight": 1e4, "renormalize": True},
        {"leaky": True, "null_bias": 1e4},
        {"leaky": True, "null_bias": -1e4},
    ],
    ids=str,
)
def test_the_extremes_of_settings_overflow_in_no_precision(family, dtype, switches, batch):
    model = tiny_model(family, dtype, **switches)
    for mode in (model.train(), model.eval()):
        assert torch.isfinite(mode(**batch).logits).all()
