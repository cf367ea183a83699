"""A thin `Seq2SeqTrainer` for calibrated models.

Plain `Seq2SeqTrainer` trains these models correctly: one `backward()` of `loss` carries the gradients of both
objectives. This subclass adds:

- named logs of both losses, exact under gradient accumulation and with several processes;
- separate clipping of the mask network (with one common norm, one objective's gradient would scale the other's);
- the annealing step (Lu et al. 2021, eq. 11), which follows the optimiser steps and is saved with the model;
- batches by length, limited by a number of tokens.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback, TrainingArguments
from transformers.trainer import TRAINING_ARGS_NAME

from hf_attncal.adapters.checkpoints import check_adapter_name, restore_adapter, save_adapter
from hf_attncal.adapters.layers import active_settings
from hf_attncal.families import FAMILIES, IGNORE_NUM_ITEMS

from .checkpoints import whole_weights
from .token_batches import TokenBatchTrainer

# Sums over target tokens divided by their number: they add up over micro-batches and processes as `loss` does.
TOKEN_LOSSES = ("nmt_loss", "lm_loss", "receptive_field_size", "mask_loss", "mask_penalty", "uam_loss", "guided_loss")
# Means over one forward pass.
MEANS = (
    *("mask_mean", "gate_mean", "mass_mean", "attended_mask_mean", "divergence_mean", "divergence_normalized_mean"),
)


class AnnealingCallback(TrainerCallback):
    """Keeps `model.annealing_step` equal to the number of optimiser steps of the model's whole training.

    The step is part of the model's saved state. A model trained before (`annealing_step` = n at the start of a new
    run) continues at n, so fine-tuning does not change its function; a resumed run has n + `global_step` in its
    checkpoint, so the difference is again n. Models without annealing do not change.

    A plain `Seq2SeqTrainer` needs this callback to train an annealed model or adapter.

    Args:
        position: function that returns the place in the schedules, in steps. Default: the optimiser step.
    """

    steps_before = 0
    counters: Sequence[Any] = ()  # modules with an annealed calibration (eq. 11)

    def __init__(self, position: Callable[[], float] | None = None):
        self.position = position

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        counting = [module for module in model.modules() if hasattr(module, "set_annealing_step")]
        self.counters = [module for module in counting if module.annealing_step is not None]
        if self.counters:
            self.steps_before = max(0, int(self.counters[0].annealing_step) - self._step(state))
        self._set(self._step(state))

    def on_step_end(self, args, state, control, **kwargs):
        self._set(self._step(state))

    def _step(self, state) -> int:
        return state.global_step if self.position is None else round(self.position())

    def _set(self, step: int) -> None:
        for module in self.counters:
            module.set_annealing_step(self.steps_before + step)


class OwnTokensCallback(TrainerCallback):
    """Restores the special token ids of a model that the stock Trainer overwrites with the tokenizer's.

    A tokenizer with one vocabulary per language (Marian's `separate_vocabs`) has the ids of the source language; the
    model has the ids of the target language.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.tokens_of_configs = [
            (config, {name: getattr(config, name, None) for name in ("bos_token_id", "eos_token_id", "pad_token_id")})
            for config in (model.config, model.generation_config)
        ]

    def on_train_begin(self, args, state, control, **kwargs):
        for config, tokens in self.tokens_of_configs:
            for name, number in tokens.items():
                setattr(config, name, number)


class AttnCalTrainer(TokenBatchTrainer, Seq2SeqTrainer):
    """`Seq2SeqTrainer` with named losses, separate clipping of the mask network, annealing and batches by tokens.

    Takes the arguments of `Seq2SeqTrainer`; `args` may be `AttnCalTrainingArguments` or plain
    `Seq2SeqTrainingArguments`. A `label_smoothing_factor` replaces the `label_smoothing` of the model or adapter.
    Trains our models, models with an adapter of `hf_attncal.adapters`, and also stock models and their LoRAs. Stock
    models ignore `num_items_in_batch`, so their loss is the mean over micro-batches.

    Logs, averaged since the last log: `loss`; the outputs `nmt_loss`, `lm_loss`, `receptive_field_size`, `mask_loss`,
    `mask_penalty`, `uam_loss`, `guided_loss` and `MEANS` where the model has them; `mask_grad_norm` (before clipping);
    and `target_tokens_per_second`.

    Raises:
        TypeError: `args` are not `Seq2SeqTrainingArguments`.
        ValueError: `label_smoothing_factor` is out of range.
    """

    def __init__(self, model=None, args: Seq2SeqTrainingArguments | None = None, **kwargs):
        if not isinstance(args, Seq2SeqTrainingArguments):
            raise TypeError(
                f"`args` must be `AttnCalTrainingArguments`, or `Seq2SeqTrainingArguments`, got {type(args).__name__}."
            )
        super().__init__(model=model, args=args, **kwargs)
        if smoothed_inside(self.model, args.label_smoothing_factor):
            self.label_smoother = None
        for name in injected_adapters(self.model):
            check_adapter_name(name)
        if self.model.config.model_type in IGNORE_NUM_ITEMS and active_settings(self.model) is None:
            self.model_accepts_loss_kwargs = False
        self.add_callback(AnnealingCallback(lambda: self.position))
        if getattr(self.processing_class, "separate_vocabs", False):
            self.add_callback(OwnTokensCallback(self.model))
        self._mask_grad_norm = None

    def call_model_init(self, trial=None) -> torch.nn.Module:
        """Make the model as the stock Trainer does, with label smoothing inside the model."""
        model = super().call_model_init(trial)
        smoothed_inside(model, self.args.label_smoothing_factor)
        return model

    def _set_signature_columns_if_needed(self) -> None:
        """Keep the column `links` for a guided adapter; the stock Trainer looks only at the base model."""
        super()._set_signature_columns_if_needed()
        settings, columns = active_settings(self.model), self._signature_columns
        if settings is not None and settings.guided and columns is not None and "links" not in columns:
            columns.append("links")

    # ---- named losses ----

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:
            self.start_totals()
        # A copy, because label smoothing of a stock model removes the labels.
        loss, outputs = super().compute_loss(model, {**inputs}, True, num_items_in_batch=num_items_in_batch)
        if model.training:
            self._add_named_losses(loss, outputs, inputs, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _add_named_losses(self, loss, outputs, inputs, num_items_in_batch) -> None:
        """Add one micro-batch to the running totals; `log` divides them by the number of optimiser steps."""
        steps = self.share_of_step
        global_mean = num_items_in_batch is not None and self.model_accepts_loss_kwargs
        weight = 1.0 if global_mean else steps
        # Each process divides its sum by the tokens of all processes. The factor undoes the mean over processes that
        # follows, as the Trainer does for `loss`.
        scale = self.accelerator.num_processes if global_mean and self.args.average_tokens_across_devices else 1
        for name in TOKEN_LOSSES:
            value = outputs.get(name)
            if value is not None:
                # The Trainer scales `loss` in place, and a named loss may share its memory.
                shared = value.data_ptr() == loss.data_ptr()
                value = loss if shared else value * scale
                self.add_total(name, value * weight)
        tokens = inputs["labels"].ne(-100).sum() if "labels" in inputs else torch.zeros((), device=loss.device)
        self.add_batch(tokens, {name: outputs.get(name) for name in MEANS})

    def extra_logs(self) -> dict[str, float]:
        return {} if self._mask_grad_norm is None else {"mask_grad_norm": float(self._mask_grad_norm)}

    # ---- several adapters ----

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """Save as the stock Trainer does; of several active adapters, each in a folder."""
        names = injected_adapters(self.model)
        if len(names) < 2 or not self.args.should_save:
            super()._save(output_dir, state_dict)
            return
        folder = Path(output_dir) if output_dir else self.folder
        for name in names:
            save_adapter(self.model, folder / name, adapter_name=name)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)
        torch.save(self.args, folder / TRAINING_ARGS_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        """Load as the stock Trainer does, and also adapters of transformers' interface."""
        if not self._restore_adapters(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        """Load as the stock Trainer does, and also adapters of transformers' interface."""
        if not self._restore_adapters(self.state.best_model_checkpoint):
            super()._load_best_model()

    def _restore_adapters(self, checkpoint: str | None) -> bool:
        """Load the adapters of transformers' interface from a checkpoint; return False if the model has none."""
        names = injected_adapters(self.model)
        if not names or checkpoint is None:
            return False
        with whole_weights(checkpoint, self.model):
            for name in names:
                restore_adapter(self.model, Path(checkpoint) / (name if len(names) > 1 else ""), name)
        return True

    # ---- optimiser ----

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model=None) -> tuple[Any, dict[str, Any]]:
        """Add the initial accumulator of Adagrad, which `optim_args` of the stock Trainer do not set."""
        optimizer_class, options = Seq2SeqTrainer.get_optimizer_cls_and_kwargs(args, model)
        accumulator = getattr(args, "adagrad_initial_accumulator", None)
        if accumulator is not None:
            options["initial_accumulator_value"] = accumulator
        return optimizer_class, options

    def _clip_grad_norm(self, model):
        """Clip the gradients of the two objectives separately; return the norm without the mask network.

        Backends that clip the whole model (DeepSpeed, XLA, Megatron) clip both together, as in the stock Trainer.
        """
        mask_parameters = mask_network_parameters(model)
        plain = self.accelerator.distributed_type in (
            DistributedType.NO,
            DistributedType.MULTI_CPU,
            DistributedType.MULTI_GPU,
            DistributedType.FSDP,
        )
        if not mask_parameters or not plain:
            return super()._clip_grad_norm(model)
        self.accelerator.unscale_gradients()
        mask_ids = {id(p) for p in mask_parameters}
        model_parameters = [p for p in model.parameters() if id(p) not in mask_ids]
        groups = mask_parameters, model_parameters
        norms = [clip_grad_norm_(parameters, self.args.max_grad_norm) for parameters in groups]
        self._mask_grad_norm, norm = (norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms)
        return norm


def smoothed_inside(model: Any, factor: float) -> bool:
    """Copy the Trainer's `label_smoothing_factor` into one of our models or adapters.

    The Trainer's own label smoothing removes the labels from the batch, and with them the loss of the mask network.

    Returns:
        False for a factor of 0, and for a model whose labels the Trainer smooths.

    Raises:
        ValueError: the factor is out of range.
    """
    if not 0 <= factor < 1:
        raise ValueError(f"`label_smoothing_factor` must be in [0, 1), got {factor}.")
    settings: Any = active_settings(model)
    if settings is None and model.config.model_type in FAMILIES:
        settings = model.config
    if not factor or settings is None:
        return False
    settings.label_smoothing = factor
    return True


def injected_adapters(model: Any) -> list[str]:
    """Return the names of the active adapters of transformers' interface; none for PEFT's own models."""
    return list(model.active_adapters()) if getattr(model, "_hf_peft_config_loaded", False) else []


def mask_network_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the trainable parameters of all mask networks of a model (theta_m); [] if it has none."""
    # By attribute and not by class: remote code has other classes.
    attentions: list[Any] = [module for module in model.modules() if getattr(module, "switches", None) is not None]
    networks = [module.mask_network for module in attentions if module.switches.calibration is not None]
    return [parameter for network in networks for parameter in network.parameters() if parameter.requires_grad]
