"""The adapter as a method of PEFT: injection, checks, removal, and its entry in PEFT's tables."""

import re
from contextlib import contextmanager
from typing import Any

from peft.mapping import (
    PEFT_TYPE_TO_CONFIG_MAPPING,
    PEFT_TYPE_TO_PREFIX_MAPPING,
    PEFT_TYPE_TO_TUNER_MAPPING,
)
from peft.tuners.tuners_utils import BaseTuner
from torch import nn

from hf_attncal.families import stock_type
from hf_attncal.models.configuration_attncal import SWITCHES, guided_place

from .checkpoints import check_adapter_name, embedding_weights
from .configuration import AdapterType, AttentionCalibrationConfig
from .layers import (
    PREFIX,
    AdapterLayer,
    adapter_layers,
    attach,
    cross_attentions,
    detach_all,
    prepare_decoder_layers,
)
from .objective import install_hooks, remove_hooks

# Kernels that never form the attention weights cannot calibrate them, and take another kind of mask.
_KERNELS = ("eager", "sdpa")
_GUIDED_RANK = 16


def check_adaptable(model: nn.Module) -> dict[int, tuple[str, Any]]:
    """Return the cross-attentions of a model that an adapter can be put into, as `cross_attentions` finds them.

    Raises:
        ValueError: a model of another kind, or one of ours with a switch of its own.
    """
    config: Any = getattr(model, "config", None)
    model_type = type(model).__name__ if config is None else config.model_type
    attentions = cross_attentions(model)
    if not attentions:
        raise ValueError(
            f"the model must have a decoder with cross-attention as in BART, got {type(model).__name__} "
            f"(model_type '{model_type}'). Models that work: Marian, BART, mBART, Pegasus, "
            "M2M100, NLLB, Blenderbot, PLBart, BigBird-Pegasus, Pegasus-X, Whisper. T5 and its relatives have "
            "unscaled scores with position biases, encoder-only and decoder-only models have no cross-attention; "
            "they do not work."
        )
    # With every switch off it is the stock model, and its adapters are those of the stock model.
    own = [switch for switch in SWITCHES if getattr(config, switch, None)]
    if stock_type(model_type) != model_type and own:
        raise ValueError(
            f"the model must be a stock one, or have every switch off, got model_type '{model_type}' with "
            f"`{own[0]}={getattr(config, own[0])!r}`. Train it itself, or put the adapter on the stock "
            "checkpoint."
        )
    return attentions


class AttentionCalibrationModel(BaseTuner):
    """PEFT's tuner for `AttentionCalibrationConfig`; `get_peft_model` makes it."""

    prefix = PREFIX
    tuner_layer_cls = AdapterLayer
    target_module_mapping = {}

    # ---- injection ----

    def inject_adapter(self, model: nn.Module, adapter_name: str, *args, **kwargs) -> None:
        """Inject the adapter as PEFT does, and make the model's own `loss` carry both objectives."""
        check_adapter_name(adapter_name)
        taken = {part for name, _ in model.named_modules() for part in name.split(".")}
        if adapter_name in taken:
            raise ValueError(
                f"`adapter_name` must not be the name of a part of the model, got {adapter_name!r}: PEFT finds "
                "weights by name and would take all of that part for the adapter's. Choose another."
            )
        had_layers = bool(adapter_layers(model))
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
        except Exception:
            # PEFT notes the configuration before it injects, and a second attempt would find it.
            self.peft_config.pop(adapter_name, None)
            if not had_layers and cross_attentions(model):
                detach_all(model)
            raise
        prepare_decoder_layers(model)
        install_hooks(model)

    def _prepare_adapter_config(self, peft_config, model_config: dict):
        return peft_config

    def _prepare_model(self, peft_config: Any, model: Any) -> None:
        """Check that the model is one that the adapter can be put into, and was made for; note which it is."""
        attentions = check_adaptable(model)
        first = next(attention for _, attention in attentions.values())
        config = getattr(model, "config", None)
        own = {
            "base_model_type": stock_type(type(model).__name__ if config is None else config.model_type),
            "base_d_model": first.embed_dim,
        }
        for field, of_model in own.items():
            of_adapter = getattr(peft_config, field)
            if of_adapter not in (None, of_model):
                raise ValueError(
                    f"this adapter was trained on a model with `{field.removeprefix('base_')}` {of_adapter!r}, got "
                    f"{of_model!r}. Load it on {peft_config.base_model_name_or_path or 'its own base model'}."
                )
            setattr(peft_config, field, of_model)
        layers = list(attentions) if peft_config.layers is None else peft_config.layers
        if not set(layers) <= set(attentions):
            raise ValueError(f"`layers` must be decoder layers of the model, 0 to {max(attentions)}, got {layers}.")
        if peft_config.mask_rank is not None and peft_config.mask_rank > first.embed_dim:
            raise ValueError(f"`mask_rank` must be at most d_model, {first.embed_dim}, got {peft_config.mask_rank}.")
        kernel = model.config._attn_implementation
        if kernel not in _KERNELS:
            raise ValueError(
                f"`attn_implementation` must be one of {_KERNELS}, got {kernel!r}, which does not form the attention "
                'weights. Load the model with `attn_implementation="sdpa"`.'
            )
        if peft_config.guided:
            self._place_guided(peft_config, attentions)
        if peft_config.calibration is None and not (peft_config.leaky or peft_config.output_gate):
            layers = [peft_config.guided_layer]
        if peft_config.revision is None:
            peft_config.revision = getattr(model.config, "_commit_hash", None)
        self._wanted = {attentions[number][0] for number in layers}
        self._base_config = model.config

    @staticmethod
    def _place_guided(peft_config: AttentionCalibrationConfig, attentions: dict[int, tuple[str, Any]]) -> None:
        """Check layer, head and rank of what learns links, and note them."""
        attention = next(attention for _, attention in attentions.values())
        peft_config.guided_layer, _ = guided_place(peft_config, 1 + max(attentions), attention.num_heads)
        if peft_config.layers is not None and peft_config.guided_layer not in peft_config.layers:
            raise ValueError(
                f"`guided_layer` must be one of `layers`, {peft_config.layers}, got {peft_config.guided_layer}."
            )
        if peft_config.guided_rank is None:
            peft_config.guided_rank = min(_GUIDED_RANK, attention.head_dim)
        if peft_config.guided_rank > attention.head_dim:
            raise ValueError(
                f"`guided_rank` must be at most d_k, {attention.head_dim}, got {peft_config.guided_rank}."
            )

    def _check_target_module_exists(self, peft_config, key: str) -> bool:  # type: ignore[override]  # static in PEFT
        return key in self._wanted

    def _create_and_replace(
        self, peft_config, adapter_name, target, target_name, parent, current_key, parameter_name=None
    ) -> None:
        attach(target).add_adapter(adapter_name, peft_config, self._base_config)

    def _check_target_module_compatiblity(self, peft_config, model: nn.Module, target_name: str) -> None:
        pass  # sic; PEFT asks here about state-space models

    # ---- running ----

    @contextmanager
    def _enable_peft_forward_hooks(self, *args, **kwargs):
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                f"`adapter_names` must be None, got {kwargs['adapter_names']}: a batch of several adapters is not "
                "possible with attention calibration. `set_adapter` one, and run its sentences."
            )
        yield

    # ---- state ----

    @classmethod
    def _remap_adapter_state_dict_for_load(cls, model, config, adapter_name: str, state_dict: dict) -> dict:
        """Map keys as PEFT does, after a check that the file holds the whole adapter and nothing else.

        The embeddings may be there, which PEFT saves with the adapter of a model that has got new tokens.

        Raises:
            ValueError: keys are missing or unexpected, or a tensor has another shape.
        """
        mapped = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)
        own = model.state_dict()
        ours = re.compile(rf"\.{PREFIX}\w+\.{re.escape(adapter_name)}\.")
        expected = {name for name in own if ours.search(name)}
        embeddings = embedding_weights(model)
        missing, unexpected = sorted(expected - mapped.keys()), sorted(mapped.keys() - expected - embeddings)
        if missing or unexpected:
            raise ValueError(
                "the file does not hold the adapter that its configuration describes. It was damaged, or belongs to "
                f"another `adapter_config.json`. Missing: {missing[:3]}, unexpected: {unexpected[:3]}."
            )
        for name, tensor in mapped.items():
            if tensor.shape != own[name].shape:
                why = "was made for a model of other sizes."
                if name in embeddings:
                    why = f"brings new tokens. Call `model.resize_token_embeddings({len(tensor)})` first."
                raise ValueError(
                    f"`{name}` must have shape {tuple(own[name].shape)} in this model, got {tuple(tensor.shape)}: the "
                    f"adapter {why}"
                )
        return mapped

    # ---- removal ----

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter, and find the next one: PEFT asks the first layer, which may have had this one only."""
        super().delete_adapter(adapter_name)
        if not self.active_adapters and self.peft_config:
            self.set_adapter(next(iter(self.peft_config)))

    def _unload_and_optionally_merge(
        self, merge: bool = True, progressbar: bool = False, safe_merge: bool = False, adapter_names=None
    ) -> Any:
        if merge:
            raise NotImplementedError(_NO_MERGE)
        remove_hooks(self.model)
        detach_all(self.model)
        names = [name for name, config in self.peft_config.items() if config.peft_type == AdapterType.ATTNCAL]
        for name in names:
            del self.peft_config[name]
        if not self.peft_config and hasattr(self.model, "peft_config"):
            del self.model.peft_config
        return self.model

    def merge_adapter(self, adapter_names=None, safe_merge: bool = False) -> None:
        raise NotImplementedError(_NO_MERGE)

    # ---- annealing ----

    @property
    def annealing_step(self) -> int | None:
        """s of Lu et al., eq. 11, of the active adapter; `None` unless it is annealed."""
        steps = [layer.annealing_step for layer in adapter_layers(self.model)]
        return next((step for step in steps if step is not None), None)

    def set_annealing_step(self, step: int) -> None:
        """Set s of the active adapter, the number of optimiser steps done. It is saved with the adapter.

        Raises:
            ValueError: `step` is negative.
        """
        for layer in adapter_layers(self.model):
            if layer.annealing_step is not None:
                layer.set_annealing_step(step)


_NO_MERGE = (
    "calibrated attention is not a change of weights, so it cannot be merged into them. "
    "`hf_attncal.adapters.export_calibrated(model)` makes a full model of the base model and the adapter; "
    "`unload()` gives the base model back."
)


def register_with_peft() -> None:
    """Tell PEFT about the method. Its own table of types is closed, so the type is a one-member table of ours."""
    ours: Any = AdapterType.ATTNCAL
    PEFT_TYPE_TO_CONFIG_MAPPING[ours] = AttentionCalibrationConfig
    PEFT_TYPE_TO_TUNER_MAPPING[ours] = AttentionCalibrationModel
    PEFT_TYPE_TO_PREFIX_MAPPING[ours] = PREFIX
