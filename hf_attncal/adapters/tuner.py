"""The adapter as a PEFT method: injection, checks, the first weight of NULL, removal, and registration."""

import re
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any

import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING, PEFT_TYPE_TO_PREFIX_MAPPING, PEFT_TYPE_TO_TUNER_MAPPING
from peft.tuners.tuners_utils import BaseTuner
from torch import Tensor, nn

from hf_attncal.families import stock_type
from hf_attncal.models.calibration import CountedStepsMixin
from hf_attncal.models.configuration_attncal import SWITCHES, check_observed_heads, guided_place, guided_rank
from hf_attncal.models.losses import IGNORE_INDEX

from .checkpoints import check_adapter_name, embedding_weights
from .configuration import AdapterType, AttentionCalibrationConfig
from .layers import (
    PREFIX,
    AdapterLayer,
    active_settings,
    adapter_layers,
    attach,
    cross_attentions,
    detach_all,
    observable_attentions,
    prepare_decoder_layers,
)
from .objective import install_hooks, remove_hooks

# Other kernels do not compute attention weights that could be calibrated, and use another mask format.
_KERNELS = ("eager", "sdpa")
# Weights of NULL closer to 0 or 1 are clipped, because a rounded weight does not show its score.
_CLIP = 1e-4
_MAX_ROUNDS = 200
_TOLERANCE = 0.02  # relative to `mass`


def check_adaptable(model: nn.Module, observe: bool = False) -> dict[int, tuple[str, Any]]:
    """Return the cross-attentions of a model that can have an adapter, by the numbers of their layers.

    Args:
        model: model of transformers or of this package.
        observe: True for an adapter that only observes; see `observable_attentions`.

    Raises:
        ValueError: an unsupported model, or one of this package's models with a switch on.
    """
    config: Any = getattr(model, "config", None)
    model_type = type(model).__name__ if config is None else config.model_type
    attentions = observable_attentions(model) if observe else cross_attentions(model)
    if not attentions:
        raise ValueError(
            f"`model` must have a decoder with cross-attention as in BART, got {type(model).__name__} "
            f"(model_type '{model_type}'). Supported: Marian, BART, mBART, Pegasus, "
            "M2M100, NLLB, Blenderbot, PLBart, BigBird-Pegasus, Pegasus-X, Whisper; T5 and mT5 with `observe=True` "
            "and `calibration=None`. Encoder-only and decoder-only models have no cross-attention."
        )
    # With every switch off it is the stock model, and can have the same adapters.
    own = [switch for switch in SWITCHES if getattr(config, switch, None)]
    if stock_type(model_type) != model_type and own:
        raise ValueError(
            f"`model` must be a stock model or have every switch off, got model_type '{model_type}' with "
            f"`{own[0]}={getattr(config, own[0])!r}`. Train that model directly, or adapt the stock checkpoint."
        )
    return attentions


class AttentionCalibrationModel(CountedStepsMixin, BaseTuner):
    """PEFT tuner for `AttentionCalibrationConfig`, created by `get_peft_model`."""

    prefix = PREFIX
    tuner_layer_cls = AdapterLayer

    def generate(self, *args, links: Any = None, **kwargs) -> Any:
        """Generate as the base model does; a Trainer passes the whole batch, with its `links`."""
        return self.model.generate(*args, **kwargs)

    # ---- injection ----

    def inject_adapter(self, model: nn.Module, adapter_name: str, *args, **kwargs) -> None:
        """Inject the adapter as PEFT does, and install the hooks that compute its losses."""
        check_adapter_name(adapter_name)
        module_names = {part for name, _ in model.named_modules() for part in name.split(".")}
        if adapter_name in module_names:
            raise ValueError(
                f"`adapter_name` must not be the name of a module of the model, got {adapter_name!r}, because PEFT "
                "would confuse their weights. Choose another name."
            )
        had_layers = bool(adapter_layers(model))
        try:
            super().inject_adapter(model, adapter_name, *args, **kwargs)
        except Exception:
            # PEFT stores the configuration before it injects. Remove it, so that a second attempt works.
            self.peft_config.pop(adapter_name, None)
            if not had_layers:
                detach_all(model)
            raise
        prepare_decoder_layers(model)
        install_hooks(model)

    def _prepare_model(self, peft_config: Any, model: Any) -> None:
        """Check that the adapter fits the model, and fill in the fields that depend on the model."""
        attentions = check_adaptable(model, peft_config.observe and peft_config.calibration is None)
        first = AdapterLayer(next(attention for _, attention in attentions.values()))
        config = getattr(model, "config", None)
        own = {
            "base_model_type": stock_type(type(model).__name__ if config is None else config.model_type),
            "base_d_model": first.embed_dim,
        }
        for field, model_value in own.items():
            adapter_value = getattr(peft_config, field)
            if adapter_value not in (None, model_value):
                raise ValueError(
                    f"the adapter was trained on a model with `{field.removeprefix('base_')}` {adapter_value!r}, got "
                    f"{model_value!r}. Load it on {peft_config.base_model_name_or_path or 'its own base model'}."
                )
            setattr(peft_config, field, model_value)
        layers = list(attentions) if peft_config.layers is None else peft_config.layers
        if not set(layers) <= set(attentions):
            raise ValueError(f"`layers` must be decoder layers of the model, 0 to {max(attentions)}, got {layers}.")
        kernel = model.config._attn_implementation
        if kernel not in _KERNELS:
            raise ValueError(
                f"`attn_implementation` must be one of {_KERNELS}, got {kernel!r}, which does not compute attention "
                'weights. Load the model with `attn_implementation="sdpa"`.'
            )
        if peft_config.guided:
            sizes = 1 + max(attentions), first.num_heads
            peft_config.guided_layer, _ = guided_place(peft_config, *sizes)
            check_observed_heads(peft_config, *sizes)
            if peft_config.guided_layer not in layers:
                raise ValueError(f"`guided_layer` must be one of `layers`, {layers}, got {peft_config.guided_layer}.")
            peft_config.guided_rank = guided_rank(peft_config, first.head_dim)
        leaky = peft_config.leaky and not peft_config.observe
        if peft_config.calibration is None and not (leaky or peft_config.output_gate):
            heads = peft_config.observed_heads or [[peft_config.guided_layer]]
            layers = sorted({layer for layer, *_ in heads})
        if peft_config.revision is None:
            peft_config.revision = getattr(model.config, "_commit_hash", None)
        self._adapted_names = {attentions[number][0] for number in layers}
        self._base_config = model.config

    def _check_target_module_exists(self, peft_config, key: str) -> bool:  # type: ignore[override]  # static in PEFT
        return key in self._adapted_names

    def _create_and_replace(
        self, peft_config, adapter_name, target, target_name, parent, current_key, parameter_name=None
    ) -> None:
        attach(target).add_adapter(adapter_name, peft_config, self._base_config)

    # ---- running ----

    @contextmanager
    def _enable_peft_forward_hooks(self, *args, **kwargs):
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                f"`adapter_names` must be None, got {kwargs['adapter_names']}: attention calibration does not support "
                "several adapters in a batch. Run the sentences of each adapter after `set_adapter`."
            )
        yield

    # ---- state ----

    @classmethod
    def _remap_adapter_state_dict_for_load(cls, model, config, adapter_name: str, state_dict: dict) -> dict:
        """Map keys as PEFT does, and check that the file has exactly the weights of the adapter.

        It may also have embeddings, which PEFT saves if tokens were added to the model.

        Raises:
            ValueError: keys are missing or unexpected, or a tensor has another shape.
        """
        mapped = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)
        own = model.state_dict()
        adapter_weight = re.compile(rf"\.{PREFIX}\w+\.{re.escape(adapter_name)}\.")
        expected = {name for name in own if adapter_weight.search(name)}
        embeddings = embedding_weights(model)
        missing, unexpected = sorted(expected - mapped.keys()), sorted(mapped.keys() - expected - embeddings)
        if missing or unexpected:
            raise ValueError(
                f"the adapter's weights do not match its `adapter_config.json`. Missing: {missing[:3]}, unexpected: "
                f"{unexpected[:3]}."
            )
        for name, tensor in mapped.items():
            if tensor.shape != own[name].shape:
                why = "was made for a model of another size."
                if name in embeddings:
                    why = f"has added tokens. Call `model.resize_token_embeddings({len(tensor)})` first."
                raise ValueError(
                    f"`{name}` must have shape {tuple(own[name].shape)} in this model, got {tuple(tensor.shape)}: the "
                    f"adapter {why}"
                )
        return mapped

    # ---- removal ----

    def delete_adapter(self, adapter_name: str) -> None:
        """Delete an adapter, and activate another one if there is any; PEFT looks for it only in the first layer."""
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

    def _step_counts(self) -> list[Any]:
        return [count for layer in adapter_layers(self.model) for count in layer._step_counts()]


@torch.no_grad()
def set_null_mass(model: nn.Module, batch: Mapping[str, Tensor], mass: float = 0.02) -> list[Tensor]:
    """Set the biases of NULL so that every head of the active adapter gives it the weight `mass` on average.

    NULL is the extra position of leaky attention, which a target word without a source can attend to. The weight for a
    given bias depends on the scores of the base model, which differ between models by orders of magnitude: with a bias
    of -4, NULL may get a weight of 1e-3 or of 1e-4, which would hardly be trained. The average is over the real target
    steps of one batch of text. Use some dozens of sentences like the training data.

    Args:
        model: PEFT or transformers model with an active leaky adapter.
        batch: `input_ids`, `attention_mask` and `labels` as for training, on any device.
        mass: weight of NULL, in (0, 1). At 0.02 a fresh adapter is still close to the base model, but can learn.
            Default: 0.02.

    Returns:
        The new biases of each adapted layer, (heads,).

    Raises:
        ValueError: no active adapter with `leaky=True`, a batch without a target step, `mass` out of range, or scores
            that are not finite, for which no bias exists. The biases are then unchanged.
    """
    if not 0 < mass < 1:
        raise ValueError(f"`mass` must be between 0 and 1, got {mass}.")
    settings = active_settings(model)
    if settings is None or not settings.leaky or settings.observe:
        raise ValueError(f"`model` must have an active adapter with `leaky=True`, `observe=False`, got {settings}.")
    if batch.get("labels") is None or not (batch["labels"] != IGNORE_INDEX).any():
        raise ValueError("`batch` must have `labels` with at least one target step, got none.")
    device = next(model.parameters()).device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}
    targets = batch["labels"] != IGNORE_INDEX
    layers = [layer for layer in adapter_layers(model) if layer.active_name is not None]
    before = [layer.null.bias.clone() for layer in layers]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        # Repeat, because a clipped weight shows only the direction, and because lower layers change higher ones.
        for _ in range(_MAX_ROUNDS):
            outputs = model(**batch, output_attention_details=True)
            moved = False
            for layer, weight in zip(layers, outputs.null_attentions, strict=True):
                steps = weight.double().transpose(0, 1)[:, targets]  # (heads, real target steps)
                bias = layer.null.bias.double()
                # The best that a bias can reach in this precision.
                tolerance = _TOLERANCE + 2 * torch.finfo(weight.dtype).eps * bias.abs()
                if bool(((steps.mean(dim=1) / mass - 1).abs() <= tolerance).all()):
                    continue
                # The logit of NULL's weight is its score minus the log-sum-exp of the other scores.
                logits = torch.logit(steps, eps=_CLIP) - bias[:, None]
                layer.null.bias.copy_(_bias_for(logits, mass))
                moved = True
            if not moved:
                return [layer.null.bias.detach().clone() for layer in layers]
    finally:
        for module, training in modes.items():
            module.training = training
    for layer, bias in zip(layers, before, strict=True):
        layer.null.bias.copy_(bias)
    raise ValueError(
        f"no bias gives NULL the weight `mass` = {mass} in every head. Check that the base model's scores are finite."
    )


def _bias_for(logits: Tensor, mass: float) -> Tensor:
    """Solve mean(sigmoid(logits + b)) = mass for b in each row of (heads, steps), by bisection."""
    goal = torch.logit(torch.tensor(mass, dtype=logits.dtype, device=logits.device))
    low, high = goal - logits.amax(dim=1), goal - logits.amin(dim=1)
    for _ in range(60):
        middle = (low + high) / 2
        too_much = torch.sigmoid(logits + middle[:, None]).mean(dim=1) > mass
        low, high = torch.where(too_much, low, middle), torch.where(too_much, middle, high)
    return (low + high) / 2


_NO_MERGE = (
    "Calibrated attention cannot be merged into the base model's weights. "
    "Use `hf_attncal.adapters.export_calibrated(model)` for a full model, or `unload()` for the base model."
)


def register_with_peft() -> None:
    """Register the method with PEFT. `PeftType` cannot be extended, so the type is an enum of our own."""
    method: Any = AdapterType.ATTNCAL
    PEFT_TYPE_TO_CONFIG_MAPPING[method] = AttentionCalibrationConfig
    PEFT_TYPE_TO_TUNER_MAPPING[method] = AttentionCalibrationModel
    PEFT_TYPE_TO_PREFIX_MAPPING[method] = PREFIX
