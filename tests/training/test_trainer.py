"""The trainer: the same training however a batch is cut, named losses, parameter groups, annealing, resume, errors."""

import json
from pathlib import Path

import pytest
import torch
from discrete_helpers import tiny_discrete
from helpers import FAMILIES, TINY, tiny_model
from luong_helpers import tiny_luong
from runs import PAD, collate, largest_difference, logged, make_trainer, toy_dataset, weights
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainingArguments

from hf_attncal import AttnCalTrainer, AttnCalTrainingArguments
from hf_attncal.training.calibrated import mask_network_parameters

SWITCHES = {
    "gated": {"calibration": "gated"},
    "annealed": {"calibration": "annealed", "annealing_steps": 10},
    "off": {},
}
# What 5.18, the lowest version of transformers, calls `gradient_checkpointing` has a newer name since.
CHECKPOINTING = (
    "activation_checkpointing"
    if hasattr(Seq2SeqTrainingArguments, "activation_checkpointing")
    else "gradient_checkpointing"
)


def tiny(family: str, **switches):
    """A tiny model of any family that has a decoder with cross-attention."""
    return tiny_luong(**switches) if family == "luong" else tiny_model(family, **switches)


# ---- the batch, cut in different ways ----


@pytest.mark.half("family", "switches")
@pytest.mark.parametrize("family", ["marian", pytest.param("bart", marks=pytest.mark.slow), "luong"])
@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_accumulation_equals_one_batch(family, switches, tmp_path):
    """5 steps of 8 sentences = 5 steps of 4 x 2 sentences, for weights and for what is logged."""
    trained = {}
    for size, steps in ((8, 1), (2, 4)):
        model = tiny(family, **switches)
        trainer = make_trainer(
            tmp_path, model, per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_grad_norm=0.1
        )
        trainer.train()
        trained[size] = weights(model), trainer
    assert largest_difference(trained[8][0], trained[2][0]) < 1e-6
    assert largest_difference(trained[8][0], weights(tiny(family, **switches))) > 1e-2  # it has moved
    names = ["loss", "nmt_loss"] + (["mask_loss", "mask_penalty", "mask_grad_norm"] if switches else [])
    for name in names:
        one, other = (logged(trained[size][1], name) for size in (8, 2))
        assert len(one) == 5
        assert one == pytest.approx(other, abs=1e-6), name


def test_plain_trainer_trains_the_same(tmp_path):
    """Without clipping, Seq2SeqTrainer and ours take the same steps: the gradients are the model's."""
    trained = []
    for plain in (True, False):
        model = tiny_model("marian", calibration="gated")
        trainer = make_trainer(tmp_path, model, per_device_train_batch_size=4, max_grad_norm=0)
        if plain:
            trainer = Seq2SeqTrainer(
                model=model, args=trainer.args, train_dataset=trainer.train_dataset, data_collator=collate
            )
        trainer.train()
        trained.append(weights(model))
    assert largest_difference(*trained) < 1e-12


def test_token_batches(tmp_path):
    """Every example once per epoch, at most `tokens_per_batch` tokens a batch, a whole number of optimiser steps."""
    dataset = toy_dataset(50)
    trainer = make_trainer(
        tmp_path, tiny_model("marian"), dataset, tokens_per_batch=24, gradient_accumulation_steps=3, seed=5
    )
    batches = list(trainer.get_train_dataloader())
    assert all(max(batch["input_ids"].numel(), batch["labels"].numel()) <= 24 for batch in batches)
    assert len(batches) % 3 == 0
    assert sum(len(batch["labels"]) for batch in batches) == 50
    assert any(len(batch["labels"]) > 2 for batch in batches)
    with pytest.raises(ValueError, match=r"`train_dataset` must be a `datasets.Dataset`.*got list.*from_list"):
        make_trainer(tmp_path, tiny_model("marian"), list(dataset), tokens_per_batch=24).get_train_dataloader()


@pytest.mark.parametrize("family", [*FAMILIES, "luong"])
def test_evaluation_by_generation_is_generation(family, tmp_path):
    """Beams of batches, padded and gathered by the trainer, are those of single sentences."""
    model, dataset = tiny(family, leaky=True).float(), toy_dataset(5)
    args = Seq2SeqTrainingArguments(
        str(tmp_path), use_cpu=True, predict_with_generate=True, per_device_eval_batch_size=3, report_to="none"
    )
    trainer = Seq2SeqTrainer(model=model, args=args, data_collator=collate)
    options = {"num_beams": 3, "max_new_tokens": 7}
    found = trainer.predict(dataset, **options)
    assert found.metrics["test_loss"] > 0
    for source, row in zip(dataset["input_ids"], found.predictions.tolist(), strict=True):
        alone = model.generate(torch.tensor([source]), **options)[0].tolist()
        assert [token for token in row if token not in (PAD, -100)] == [token for token in alone if token != PAD]


# ---- arguments of everybody ----


def one_run(folder: Path, model, args: Seq2SeqTrainingArguments) -> tuple[dict, list[float]]:
    """Weights after some steps, and the losses: of training, by name, of an evaluation."""
    trainer = AttnCalTrainer(model, args, train_dataset=toy_dataset(), data_collator=collate)
    trainer.train()
    measured = trainer.evaluate(toy_dataset(6, seed=1))
    names = ("loss", "nmt_loss", "lm_loss", "mask_loss", "receptive_field_size")
    return weights(model), [number for name in names for number in logged(trainer, name)] + [measured["eval_loss"]]


SMOOTHED = {
    "gated": lambda smoothing: tiny_model("marian", calibration="gated", label_smoothing=smoothing),
    "off": lambda smoothing: tiny_model("bart", label_smoothing=smoothing),
    "luong": lambda smoothing: tiny_luong(calibration="fixed", label_smoothing=smoothing),
    "discrete": lambda smoothing: tiny_discrete("seq2seq", label_smoothing=smoothing),
}


@pytest.mark.parametrize("plain", [False, True], ids=["own arguments", "plain arguments"])
@pytest.mark.parametrize("kind", SMOOTHED)
def test_the_trainers_label_smoothing_is_the_models(kind, plain, tmp_path):
    """Equal to the bit; it overrides the model's own."""
    options = {"output_dir": str(tmp_path), "use_cpu": True, "max_steps": 3, "logging_steps": 1, "save_strategy": "no"}
    options |= {"report_to": "none", "disable_tqdm": True, "gradient_accumulation_steps": 2}
    arguments = Seq2SeqTrainingArguments if plain else AttnCalTrainingArguments
    expected, losses = one_run(tmp_path, SMOOTHED[kind](0.2), AttnCalTrainingArguments(**options))
    for own in (0.0, 0.4):
        model = SMOOTHED[kind](own)
        found, same = one_run(tmp_path, model, arguments(**options, label_smoothing_factor=0.2))
        assert largest_difference(found, expected) == 0
        assert same == losses
        assert model.config.label_smoothing == 0.2
    unsmoothed, others = one_run(tmp_path, SMOOTHED[kind](0.0), arguments(**options))
    assert largest_difference(unsmoothed, expected) > 0
    assert others != losses


def test_a_model_of_model_init_is_smoothed(tmp_path):
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, max_steps=1, report_to="none", save_strategy="no")
    args.label_smoothing_factor = 0.2
    trainer = AttnCalTrainer(
        None, args, model_init=lambda: tiny_model("marian"), train_dataset=toy_dataset(), data_collator=collate
    )
    trainer.train()
    assert trainer.model.config.label_smoothing == 0.2


def test_the_labels_of_a_stock_model_are_smoothed_by_the_trainer(tmp_path):
    """The tokens are counted as ever."""
    torch.manual_seed(0)
    stock = MarianMTModel(MarianConfig(**TINY))

    def shifted(examples):
        batch = collate(examples)
        return batch | {"decoder_input_ids": stock.prepare_decoder_input_ids_from_labels(batch["labels"])}

    trainer = make_trainer(tmp_path, stock, max_steps=1, label_smoothing_factor=0.2)
    trainer.data_collator = shifted
    trainer.train()
    assert trainer.label_smoother.epsilon == 0.2
    assert logged(trainer, "target_tokens_per_second")[0] > 0


# ---- named losses ----


def test_losses_are_means_over_the_logging_interval(tmp_path):
    histories = []
    for every in (1, 3):
        trainer = make_trainer(
            tmp_path,
            tiny_model("marian", calibration="annealed"),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=6,
            logging_steps=every,
        )
        trainer.train()
        histories.append(trainer)
    for name in ("loss", "nmt_loss", "mask_loss", "mask_penalty", "mask_mean"):
        every_step, every_third = (logged(trainer, name) for trainer in histories)
        means = [sum(every_step[:3]) / 3, sum(every_step[3:]) / 3]
        assert every_third == pytest.approx(means, abs=1e-6), name


def test_stock_model(tmp_path):
    """A stock model trains too: without loss arguments, and so with the mean over micro-batches as its loss."""
    fields = {name: value for name, value in TINY.items() if name != "bos_token_id"}
    model = MarianMTModel(MarianConfig(**fields)).double()
    trainer = make_trainer(tmp_path, model, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=2)
    assert not trainer.model_accepts_loss_kwargs
    trainer.train()
    # log(vocabulary) and not four times that
    assert logged(trainer, "loss")[0] == pytest.approx(2.4, abs=0.5)


# ---- the optimiser and clipping ----


ADAGRAD = {"optim": "adagrad", "adagrad_initial_accumulator": 0.1}


def test_the_accumulator_of_adagrad_starts_at_the_given_value(tmp_path):
    model = tiny_model("marian", calibration="gated")
    for given, expected in ((0.1, 0.1), (0.0, 0.0), (None, 0.0)):
        options = ADAGRAD | {"adagrad_initial_accumulator": given}
        optimizer = make_trainer(tmp_path, model, **options).create_optimizer()
        assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in optimizer.state}
        assert {float(value) for state in optimizer.state.values() for value in state["sum"].flatten()} == {expected}


def test_adagrad_is_that_of_torch(tmp_path):
    """Three steps on the same batch."""
    dataset, trained = toy_dataset(4), tiny_model("marian", calibration="gated")
    options = ADAGRAD | {"max_grad_norm": 0, "per_device_train_batch_size": 4}
    make_trainer(tmp_path, trained, dataset, max_steps=3, **options).train()

    expected = tiny_model("marian", calibration="gated").train()
    trained_parameters = [p for p in expected.parameters() if p.requires_grad]
    optimizer = torch.optim.Adagrad(trained_parameters, lr=0.05, initial_accumulator_value=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        expected(**collate(list(dataset))).loss.backward()
        optimizer.step()
    assert largest_difference(weights(trained), weights(expected)) < 1e-10
    stock = tiny_model("marian", calibration="gated")
    make_trainer(tmp_path, stock, dataset, max_steps=3, **options | {"adagrad_initial_accumulator": None}).train()
    assert largest_difference(weights(trained), weights(stock)) > 1e-2


def test_the_two_objectives_are_clipped_apart(tmp_path):
    """A huge gradient of the mask network leaves the others as they were, and the reverse."""
    model = tiny_model("marian", calibration="gated")
    trainer = make_trainer(tmp_path, model, max_grad_norm=1.0)
    masks = mask_network_parameters(model)
    others = [p for p in model.parameters() if p.requires_grad and all(p is not q for q in masks)]
    for parameters, scale in ((masks, 1e3), (others, 1e-4)):
        for p in parameters:
            p.grad = torch.full_like(p, scale)
    norm = trainer._clip_grad_norm(model)
    assert norm == pytest.approx(1e-4 * sum(p.numel() for p in others) ** 0.5)
    assert all(torch.equal(p.grad, torch.full_like(p, 1e-4)) for p in others)
    assert torch.stack([p.grad.norm() for p in masks]).norm() == pytest.approx(1.0, rel=1e-4)


# ---- annealing and resume ----


@pytest.mark.half("family")
def test_annealing_step_counts_optimiser_steps(family, tmp_path):
    """From 0, in every checkpoint, through a resume; a trained model that starts a new run goes on counting."""
    model = tiny_model(family, calibration="annealed")
    model.set_annealing_step(0)
    options = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    make_trainer(tmp_path, model, save_strategy="steps", save_steps=2, **options).train()
    assert model.annealing_step == 5
    model_class = FAMILIES[family][3]
    assert model_class.from_pretrained(tmp_path / "checkpoint-4").annealing_step == 4

    resumed = tiny_model(family, calibration="annealed")
    make_trainer(tmp_path, resumed, max_steps=7, **options).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-4")
    )
    assert resumed.annealing_step == 7

    fine_tuned = model_class.from_pretrained(tmp_path / "checkpoint-4")
    make_trainer(tmp_path / "next", fine_tuned, max_steps=3, save_strategy="steps", save_steps=1).train()
    assert fine_tuned.annealing_step == 7
    make_trainer(tmp_path / "next", fine_tuned, max_steps=3).train(
        resume_from_checkpoint=str(tmp_path / "next" / "checkpoint-2")
    )
    assert fine_tuned.annealing_step == 7


@pytest.mark.parametrize("family", ["marian", pytest.param("luong", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "batches",
    [
        {"tokens_per_batch": 24},
        pytest.param({"per_device_train_batch_size": 3}, marks=pytest.mark.slow),
        pytest.param({"tokens_per_batch": 24, **ADAGRAD}, marks=pytest.mark.slow),
    ],
    ids=["tokens", "sentences", "adagrad"],
)
def test_resume_equals_uninterrupted(family, batches, tmp_path):
    """With dropout: weights, step and log agree when a run stops inside its second epoch and goes on."""
    switches = {"calibration": "annealed", "annealing_steps": 10, "dropout": 0.2}
    options = {**batches, "gradient_accumulation_steps": 2, "save_strategy": "steps", "save_steps": 1, "max_steps": 9}
    dataset = toy_dataset(20)
    whole = make_trainer(tmp_path, tiny(family, **switches), dataset, **options)
    whole.train()
    assert whole.state.epoch > 2
    stop = next(e["step"] for e in whole.state.log_history if e["epoch"] > 1 and e["epoch"] % 1)
    other = make_trainer(tmp_path / "resumed", tiny(family, **switches), dataset, **options)
    other.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert largest_difference(weights(whole.model), weights(other.model)) == 0.0
    assert logged(whole, "mask_loss") == logged(other, "mask_loss")
    state = json.loads((tmp_path / f"checkpoint-{stop}" / "trainer_state.json").read_text())
    assert len(state["log_history"]) == stop


# ---- bad input ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (ADAGRAD | {"optim": "sgd"}, r"`adagrad_initial_accumulator` .*got 0.1 with `optim` 'sgd'"),
        ({"adagrad_initial_accumulator": 0.1}, r"`adagrad_initial_accumulator` needs `optim: adagrad`"),
        (ADAGRAD | {"adagrad_initial_accumulator": -0.1}, r"`adagrad_initial_accumulator` must be >= 0 .*got -0.1"),
        ({"tokens_per_batch": 0}, r"`tokens_per_batch` must be >= 1, got 0"),
        (
            {"tokens_per_batch": 9, "train_sampling_strategy": "group_by_length"},
            r"`train_sampling_strategy` must be 'random'",
        ),
        ({"tokens_per_batch": 9, "auto_find_batch_size": True}, r"`auto_find_batch_size`"),
    ],
)
def test_arguments_that_contradict(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        AttnCalTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **arguments)


def test_reentrant_checkpointing_is_refused(tmp_path):
    options = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": True}}
    with pytest.raises(ValueError, match=r"`use_reentrant`.*False.*`calibration='gated'`"):
        make_trainer(tmp_path, tiny_model("marian", calibration="gated"), **options).train()
    make_trainer(tmp_path, tiny_model("marian"), **options)


def test_checkpointing_trains_the_same(tmp_path):
    trained = []
    for checkpointing in (False, True):
        model = tiny_model("marian", calibration="gated")
        make_trainer(tmp_path, model, max_steps=2, **{CHECKPOINTING: checkpointing}).train()
        trained.append(weights(model))
    assert largest_difference(*trained) < 1e-12


def test_arguments_of_another_trainer_are_refused(tmp_path):
    for args in (TrainingArguments(output_dir=str(tmp_path), use_cpu=True), None):
        with pytest.raises(TypeError, match=r"`args`.*`AttnCalTrainingArguments`"):
            AttnCalTrainer(model=tiny_model("marian"), args=args)


def test_example_over_tokens_per_batch(tmp_path):
    trainer = make_trainer(tmp_path, tiny_model("marian"), tokens_per_batch=4)
    with pytest.raises(ValueError, match=r"`tokens_per_batch`.*got 4"):
        trainer.train()
