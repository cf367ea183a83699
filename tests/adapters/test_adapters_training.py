"""Training adapters: gradients of both objectives, a base that stays frozen, plain and own Trainer, resume, LoRA."""

from pathlib import Path

import pytest
import torch
from adapter_helpers import (
    BACKBONES,
    PAIRS,
    SETTINGS,
    adapted,
    adapter_parameters,
    load_base,
    save_base,
    scatter_adapter,
)
from helpers import assert_close, assert_identical, enable_checkpointing, gradients
from peft import IA3Config, LoraConfig, PeftConfig, get_peft_model, get_peft_model_state_dict
from runs import collate, toy_dataset
from safetensors.torch import load_file
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_attncal import AttnCalTrainer, AttnCalTrainingArguments
from hf_attncal.adapters import AttentionCalibrationConfig, export_calibrated
from hf_attncal.models import objective
from hf_attncal.training.calibrated import AnnealingCallback, mask_network_parameters


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict:
    root = tmp_path_factory.mktemp("bases")
    return {backbone: save_base(root, backbone) for backbone in BACKBONES}


def joint(model, batch, **options):
    """A training pass and its gradients, by name."""
    model.train()
    model.zero_grad(set_to_none=True)
    outputs = model(**batch, **options)
    outputs.loss.backward()
    return outputs, gradients(model)


# ---- the objective ----


@pytest.mark.parametrize("backbone", ["marian", "bart"])
@pytest.mark.parametrize(
    "settings",
    [
        {"calibration": "gated"},
        {"calibration": "annealed", "annealing_steps": 10, "mask_projection": "head"},
        {"calibration": "fixed", "leaky": True},
        {"calibration": "gated", "leaky": True, "renormalize": False},
        {"calibration": None, "leaky": True},
    ],
    ids=str,
)
def test_losses_and_gradients_are_those_of_the_full_model(bases, backbone, settings, batch):
    """The full model, whose gradients are tested against a loop reference, has the same parameters."""
    settings = {**settings, "label_smoothing": 0.1, "mask_penalty": 0.3}
    model = adapted(bases[backbone], **settings)
    full = export_calibrated(model)
    ours, own = joint(model, batch, num_items_in_batch=torch.tensor(7))
    theirs, expected = joint(full, batch, num_items_in_batch=torch.tensor(7))
    for name in ("loss", "nmt_loss", "mask_loss", "mask_penalty", "mask_mean", "gate_mean"):
        assert (ours.get(name) is None) == (theirs.get(name) is None), name
        if ours.get(name) is not None:
            assert_close(ours[name].detach(), theirs[name].detach(), 1e-12, name)
    assert own.keys() == adapter_parameters(model).keys()
    for name, gradient in own.items():
        name = name.removeprefix("base_model.model.").replace("attention_adapters.", "").replace(".default", "")
        name = name.replace("attncal_", "")
        assert_close(gradient, expected[name], 1e-12, name)
    assert any(gradient.abs().max() > 1e-5 for gradient in own.values())


def without_mask_loss(monkeypatch) -> None:
    """From here on the second pass has no gradient."""

    def nothing(*arguments):
        return torch.zeros((), requires_grad=True), torch.zeros(())

    monkeypatch.setattr(objective, "mask_loss", nothing)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_each_objective_reaches_its_own_parameters(bases, backbone, batch, monkeypatch):
    model = adapted(bases[backbone], calibration="gated", leaky=True)
    _, both = joint(model, batch)
    of_mask = {name for name in both if "mask_network" in name}
    assert both.keys() == adapter_parameters(model).keys()
    assert all(gradient.abs().max() > 0 for gradient in both.values())
    without_mask_loss(monkeypatch)
    _, main = joint(model, batch)
    assert main.keys() == both.keys() - of_mask
    for name in main:
        assert_identical(main[name], both[name], name)


def test_given_decoder_inputs_are_used(bases, batch):
    """The decoder inputs are prepared as by data collators."""
    model = adapted(bases["m2m_100"], calibration="gated")
    outputs, own = joint(model, batch)
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
    shifted = torch.cat([torch.full((2, 1), start), batch["labels"][:, :-1]], dim=1)
    given, other = joint(model, {**batch, "decoder_input_ids": shifted.masked_fill(shifted == -100, pad)})
    assert_identical(outputs.loss, given.loss)
    assert all(torch.equal(own[name], other[name]) for name in own)


def test_a_lora_learns_from_the_main_loss_only(bases, batch, monkeypatch):
    """Both are trained: the LoRA's gradient is what it is without a mask loss, with and without checkpointing."""
    grads = []
    for checkpointing in (False, True):
        model = load_base(bases["bart"])
        model.add_adapter(LoraConfig(r=2, target_modules=["q_proj", "fc1"], init_lora_weights=False), "lora")
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for _, parameter in sorted(item for item in model.named_parameters() if "lora_" in item[0]):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        model.add_adapter(AttentionCalibrationConfig(calibration="gated"), "cal")
        model.set_adapter(["lora", "cal"])
        scatter_adapter(model)
        if checkpointing:
            enable_checkpointing(model, {"use_reentrant": False})
        _, both = joint(model, batch)
        grads.append(both)
    assert grads[0].keys() == grads[1].keys()
    for name in grads[0]:
        assert_close(grads[1][name], grads[0][name], 1e-12, name)
    without_mask_loss(monkeypatch)
    _, main = joint(model, batch)
    assert len([name for name in main if "lora_" in name]) > 10
    for name, gradient in main.items():
        assert_close(grads[0][name], gradient, 1e-12, name)


# ---- trainers ----


def train(
    folder: Path, model, own: bool = False, resume: str | None = None, callbacks=(), evaluated=False, **arguments
):
    """A run of a plain `Seq2SeqTrainer` (or of ours), on the CPU, that logs every step."""
    defaults = {
        "output_dir": str(folder),
        "use_cpu": True,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.02,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "report_to": "none",
        "dataloader_pin_memory": False,
    }
    arguments_class = AttnCalTrainingArguments if own else Seq2SeqTrainingArguments
    args = arguments_class(**defaults | arguments)
    trainer = (AttnCalTrainer if own else Seq2SeqTrainer)(
        model=model,
        args=args,
        train_dataset=toy_dataset(),
        data_collator=collate,
        callbacks=list(callbacks),
        eval_dataset=toy_dataset() if evaluated else None,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def tensors(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("backbone", "settings"),
    [
        *[("marian", SETTINGS[name]) for name in ("fixed", "leaky", "annealed, leaky, layer 0")],
        *[(backbone, SETTINGS["gated, leaky"]) for backbone in ("bart", "mbart", "m2m_100")],
    ],
    ids=str,
)
def test_plain_trainer_trains_the_adapter_and_nothing_else(bases, backbone, settings, tmp_path):
    model = get_peft_model(load_base(bases[backbone]), AttentionCalibrationConfig(**settings))
    scatter_adapter(model)
    before = tensors(model)
    train(tmp_path, model, max_steps=1, callbacks=[AnnealingCallback()])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (".attncal_" not in name), name


@pytest.mark.parametrize(
    ("backbone", "settings", "own"),
    [
        *(pytest.param(*pair.values, True, id=f"own-{pair.id}", marks=pair.marks) for pair in PAIRS),
        *(
            pytest.param(
                *pair.values,
                False,
                id=f"plain-{pair.id}",
                marks=() if pair.values == ("marian", SETTINGS["annealed"]) else pytest.mark.slow,
            )
            for pair in PAIRS
        ),
    ],
)
def test_resume_equals_uninterrupted(bases, backbone, settings, own, tmp_path):
    """Equal to the bit with dropout, also the counter of steps."""

    def fresh():
        torch.manual_seed(0)
        model = get_peft_model(load_base(bases[backbone]), AttentionCalibrationConfig(**settings))
        for module in model.modules():
            if "dropout" in vars(module):
                module.dropout = 0.2
        return model

    options = {"own": own, "callbacks": [] if own else [AnnealingCallback()], "save_strategy": "steps"}
    whole = train(tmp_path, fresh(), save_steps=2, **options)
    options["callbacks"] = [] if own else [AnnealingCallback()]
    resumed = train(tmp_path / "resumed", fresh(), resume=str(tmp_path / "checkpoint-2"), save_steps=2, **options)
    expected, actual = tensors(whole.model), tensors(resumed.model)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    assert whole.model.annealing_step == (4 if settings["calibration"] == "annealed" else None)
    assert sorted(path.name for path in (tmp_path / "checkpoint-2").glob("*.safetensors")) == [
        "adapter_model.safetensors"
    ]


def test_the_best_of_several_adapters_is_loaded_in_the_end(bases, tmp_path):
    """The test declares the worst one the best, because it must differ from the last."""
    model = load_base(bases["marian"])
    model.add_adapter(AttentionCalibrationConfig(calibration="gated"), "cal")
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj", "fc1"]), "lora")
    model.set_adapter(["cal", "lora"])
    options = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    options |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    trainer = train(tmp_path, model, own=True, max_steps=3, learning_rate=3.0, evaluated=True, **options)
    best = Path(trainer.state.best_model_checkpoint)
    assert best.name != "checkpoint-3"
    for name in ("cal", "lora"):
        stored = load_file(best / name / "adapter_model.safetensors")
        own = get_peft_model_state_dict(model, adapter_name=name)
        assert all(torch.equal(own[key.removeprefix("base_model.model.")], tensor) for key, tensor in stored.items())


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (LoraConfig(r=2, target_modules=["q_proj"], use_dora=True), "lora_magnitude_vector"),
        (LoraConfig(r=2, target_modules=["embed_tokens"]), "lora_embedding_A"),
        (IA3Config(target_modules=["k_proj"], feedforward_modules=[]), "ia3_l"),
    ],
    ids=["DoRA", "embedding", "IA3"],
)
def test_parameters_that_the_mask_loss_would_reach_are_refused(bases, batch, config, part):
    model = load_base(bases["marian"])
    model.add_adapter(config, "other")
    model.add_adapter(AttentionCalibrationConfig(calibration="gated"), "cal")
    model.set_adapter(["cal", "other"])
    with pytest.raises(ValueError, match=rf"`{part}`.*another adapter"):
        model.train()(**batch)


@pytest.mark.parametrize("own", [False, True], ids=["plain", "own"])
def test_accumulation_equals_one_batch(bases, own, tmp_path):
    """The base model ignores `num_items_in_batch`; an adapted one does not."""
    trained, losses = [], []
    for size, steps in ((8, 1), (2, 4)):
        model = adapted(bases["marian"], calibration="gated", leaky=True)
        trainer = train(
            tmp_path, model, own, per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_steps=2
        )
        trained.append(tensors(model))
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert max(float((trained[0][name] - trained[1][name]).abs().max()) for name in trained[0]) < 1e-6
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_own_trainer_logs(bases, tmp_path):
    model = adapted(bases["marian"], calibration="gated")
    trainer = train(tmp_path, model, own=True, max_steps=1)
    entry = trainer.state.log_history[0]
    assert {"nmt_loss", "mask_loss", "mask_penalty", "mask_mean", "gate_mean", "mask_grad_norm"} <= entry.keys()
    assert len(mask_network_parameters(model)) == 2 * 2


def test_only_the_active_adapter_counts_steps(bases, tmp_path):
    settings = {"calibration": "annealed", "annealing_steps": 10}
    model = get_peft_model(load_base(bases["bart"]), AttentionCalibrationConfig(**settings), adapter_name="one")
    model.add_adapter("two", AttentionCalibrationConfig(**settings))
    before = tensors(model)
    train(tmp_path, model, own=True, max_steps=3)
    after = tensors(model)
    assert model.annealing_step == 3
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert all(".one." in name for name in changed)
    model.set_adapter("two")
    assert model.annealing_step == 0


def test_a_model_with_an_injected_adapter_trains(bases, tmp_path):
    """`add_adapter` of transformers instead of a PEFT model."""
    model = load_base(bases["pegasus"])
    model.add_adapter(AttentionCalibrationConfig(calibration="annealed", annealing_steps=10), "cal")
    before = tensors(model)
    train(tmp_path, model, own=True, save_strategy="steps", save_steps=4)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {name.rpartition(".")[2] for name in changed} == {"query_weight", "key_weight", "annealing_step"}
    assert (tmp_path / "checkpoint-4" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize("settings", [SETTINGS["gated, leaky"]], ids=str)
def test_autocast_trains_every_parameter(tmp_path, settings, batch):
    """A low-precision copy that autocast keeps of a weight, made without gradient, would cut the second pass off."""
    folder = save_base(tmp_path, "marian", torch.float32)
    model = adapted(folder, **settings)
    _, expected = joint(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        _, own = joint(model, batch)
    assert own.keys() == expected.keys() == adapter_parameters(model).keys()
    whole, cast = (torch.cat([grads[name].flatten() for name in sorted(own)]) for grads in (expected, own))
    assert torch.cosine_similarity(whole, cast, dim=0) > 0.98
    assert all(gradient.abs().max() > 0 for gradient in own.values())


# ---- what would silently train something else ----


def test_missing_labels_are_refused(bases, batch, tmp_path):
    model = adapted(bases["marian"], calibration="gated")
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    with pytest.raises(ValueError, match=r"`labels`.*`label_smoothing_factor`"):
        model.train()(**inputs, decoder_input_ids=batch["input_ids"])
    with pytest.raises(ValueError, match=r"`labels`.*`label_smoothing_factor`"):
        train(tmp_path, model, label_smoothing_factor=0.1)
    model.generate(**inputs, max_new_tokens=2)  # without gradients there is nothing to lose


def test_our_trainer_lets_an_adapter_smooth_labels(bases, tmp_path):
    """As its own `label_smoothing` does, to the bit; that is what is saved."""
    states = []
    for own, factor in ((0.2, 0.0), (0.0, 0.2)):
        model = adapted(bases["marian"], calibration="gated", label_smoothing=own)
        trainer = train(tmp_path, model, own=True, label_smoothing_factor=factor)
        states.append((tensors(model), [entry.get("mask_loss") for entry in trainer.state.log_history]))
    assert states[0][1] == states[1][1]
    assert states[0][1][0] is not None
    assert all(torch.equal(tensor, states[0][0][name]) for name, tensor in states[1][0].items())
    model.save_pretrained(tmp_path / "saved")
    assert PeftConfig.from_pretrained(tmp_path / "saved").label_smoothing == 0.2
