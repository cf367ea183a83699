"""Parts that an adapter adds to a cross-attention: a child module, and a subclass that calls it.

The attention module and the names of its weights stay the same, so LoRA on the same projections and the recording of
attentions still work. Its class is replaced by a subclass. The subclass's `forward` calls the child while an adapter
is active, and the stock attention otherwise.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from hf_attncal.models.calibration import CountedStepsMixin, init_part, learned_parts
from hf_attncal.models.configuration_attncal import observed_heads
from hf_attncal.models.cross_attention import CrossAttentionMixin, DecoderLayerMixin
from hf_attncal.models.observing import HeadChange, HeadObserver

from .configuration import AttentionCalibrationConfig

# The child's name in the attention. It must not contain the prefix, because PEFT skips such modules when it deletes
# adapters. It must not be a likely name of an adapter, because PEFT drops keys that contain another adapter's name.
CHILD = "attention_adapters"
PREFIX = "attncal_"
# Attributes that all attentions derived from BART's have in transformers.
_BART_ATTRIBUTES = (
    *("q_proj", "k_proj", "v_proj", "out_proj"),
    *("embed_dim", "num_heads", "head_dim", "scaling", "dropout", "layer_idx", "config"),
)
# Their names in T5's attention, where they differ.
_T5_NAMES = dict(q_proj="q", k_proj="k", v_proj="v", out_proj="o")
_T5_NAMES |= dict(embed_dim="d_model", num_heads="n_heads", head_dim="key_value_proj_dim")


class HeadChangeInPlace(HeadChange):
    """Low-rank change of the queries and keys of one head, in the projections of all heads, initially 0.

    Args:
        embed_dim: d_model.
        head_dim: d_k.
        head: number of the head, from 0.
        rank: rank of the change.
    """

    def __init__(self, embed_dim: int, head_dim: int, head: int, rank: int):
        super().__init__(embed_dim, head_dim, rank)
        before = head * head_dim
        self._around = before, embed_dim - before - head_dim

    def forward(self, side: str, states: Tensor) -> Tensor:
        """Return the change of the projected `side` ("query" or "key"): (..., d_model) -> (..., d_model)."""
        return nn.functional.pad(super().forward(side, states), self._around)

    def weight(self, side: str) -> Tensor:
        """Return the change of the weight of a projection, (d_model, d_model)."""
        change = getattr(self, f"{side}_up") @ getattr(self, f"{side}_down")
        return nn.functional.pad(change, (0, 0, *self._around))


def _read(layer: "AdapterLayer", name: str) -> Any:
    attention = layer.get_base_layer()
    return getattr(attention, name if hasattr(attention, name) else _T5_NAMES[name])


def _attention_attribute(name: str) -> property:
    return property(lambda layer: _read(layer, name), doc=f"`{name}` of the attention.")


def _projection(name: str, side: str) -> property:
    return property(
        lambda layer: layer.changed(side, _read(layer, name)),
        doc=f"`{name}` of the attention, with the change of the {side}.",
    )


def _adapter_part(name: str) -> property:
    return property(
        lambda layer: getattr(layer, PREFIX + name)[layer.active_name], doc=f"`{name}` of the active adapter."
    )


class AdapterLayer(CrossAttentionMixin, CountedStepsMixin, BaseTunerLayer):
    """Adapters of one cross-attention, by name; a child module of that attention.

    `CrossAttentionMixin` computes the attention. The properties below give it the projections and sizes of the
    attention, and the mask network, gate and NULL of the active adapter.

    Args:
        attention: cross-attention that becomes the parent.
    """

    adapter_layer_names = (
        *("attncal_mask_network", "attncal_gate", "attncal_null", "attncal_annealing"),
        *("attncal_guided", "attncal_output_gate", "attncal_observer"),
    )
    other_param_names = ("settings",)
    is_causal = False  # read by attention kernels
    attncal_guided: Any  # ModuleDict of HeadChangeInPlace
    attncal_observer: Any  # ModuleDict of HeadObserver
    attncal_annealing: nn.ModuleDict

    def __init__(self, attention: nn.Module):
        nn.Module.__init__(self)
        self._attention: tuple[Any] = (attention,)  # a tuple, so that torch does not register it as a child
        self.settings: dict[str, AttentionCalibrationConfig] = {}
        for name in self.adapter_layer_names:
            setattr(self, name, nn.ModuleDict())
        self._disable_adapters = False
        self._active_adapter = []
        self.merged_adapters = []

    # ---- adapters ----

    def add_adapter(self, name: str, config: AttentionCalibrationConfig, base_config) -> None:
        """Add a fresh adapter. `base_config` is the configuration of the base model."""
        parts = learned_parts(config, self.num_heads, self.head_dim)
        head, rank, layer = config.guided_head, config.guided_rank, config.guided_layer
        if config.guided and rank is not None and layer is not None:
            heads, share = observed_heads(config, layer, self.layer_idx)
            sizes = self.embed_dim, self.head_dim
            if heads and config.observe:
                parts["observer"] = HeadObserver(*sizes, rank, config.leaky, heads, share)
            elif heads:
                parts["guided"] = HeadChangeInPlace(*sizes, head, rank)
        weight = next(self.out_proj.parameters())
        dtype = weight.dtype if weight.dtype.is_floating_point else torch.get_default_dtype()
        for part, module in parts.items():
            init_part(module, config, self.embed_dim, getattr(base_config, "init_std", 0.02))
            on_meta = any(parameter.is_meta for parameter in module.parameters())
            getattr(self, PREFIX + part)[name] = module if on_meta else module.to(weight.device, dtype)
        self.settings[name] = config

    def get_base_layer(self) -> nn.Module:
        return self._attention[0]

    def belongs_to(self, attention: nn.Module) -> None:
        """Use the projections of `attention`, which is a copy in a replica of `nn.DataParallel`."""
        if self._attention[0] is not attention:
            self._attention = (attention,)

    def _get_base_layer_device_and_dtype(self, base_layer):
        weight = next(self.out_proj.parameters())
        return weight.device, weight.dtype

    def set_adapter(self, adapter_names: str | list[str], inference_mode: bool = False) -> None:
        """Activate the adapter of this layer that is in `adapter_names`, if any.

        Raises:
            ValueError: the layer has more than one of them.
        """
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        own_names = [name for name in names if name in self.settings]
        if len(own_names) > 1:
            raise ValueError(
                f"only one attention-calibration adapter can be active at a time, got {own_names}. Set one of them; "
                "adapters of other methods may also be active."
            )
        super().set_adapter(names, inference_mode=inference_mode)

    @property
    def active_name(self) -> str | None:
        """Name of the active adapter; `None` if there is none or adapters are disabled."""
        if self._disable_adapters:
            return None
        return next((name for name in self.active_adapters if name in self.settings), None)

    # ---- attributes that CrossAttentionMixin reads ----

    config = _attention_attribute("config")
    v_proj, out_proj = _attention_attribute("v_proj"), _attention_attribute("out_proj")
    num_heads, head_dim = _attention_attribute("num_heads"), _attention_attribute("head_dim")
    embed_dim = _attention_attribute("embed_dim")
    scaling, dropout = _attention_attribute("scaling"), _attention_attribute("dropout")
    layer_idx = _attention_attribute("layer_idx")
    q_proj, k_proj = _projection("q_proj", "query"), _projection("k_proj", "key")
    has_own_projections = property(lambda layer: layer.head_change is not None)

    def changed(self, side: str, projection: nn.Module) -> Callable[[Tensor], Tensor]:
        """Return `projection` with the change of `side` ("query" or "key") added, if there is one."""
        change = self.head_change
        return projection if change is None else lambda states: projection(states) + change(side, states)

    @property
    def head_change(self) -> HeadChangeInPlace | None:
        """Change of the active adapter in the layer with its guided head; `None` in other layers."""
        return next((change for name, change in self.attncal_guided.items() if name == self.active_name), None)

    @property
    def switches(self) -> AttentionCalibrationConfig | None:
        name = self.active_name
        return None if name is None else self.settings.get(name)

    mask_network, gate = _adapter_part("mask_network"), _adapter_part("gate")
    output_gate = _adapter_part("output_gate")
    null, annealing = _adapter_part("null"), _adapter_part("annealing")

    def _active_observer(self) -> HeadObserver | None:
        """Return the observer of the active adapter in a layer with one of its heads; `None` in other layers."""
        return dict(self.attncal_observer.items()).get(self.active_name)

    observer: Any = property(_active_observer)

    def _step_counts(self) -> list[Any]:
        return [count for name, count in self.attncal_annealing.items() if name == self.active_name]


class AdaptedAttentionMixin(nn.Module):
    """Mixin in front of the class of an attention with an `AdapterLayer`."""

    def forward(self, *args, attention_context=None, **kwargs):
        """Return the attention output with the active adapter, or the stock attention's if none changes it."""
        layer = getattr(self, CHILD)
        layer.belongs_to(self)
        switches = layer.switches
        if switches is not None and switches.observe and not (attention_context and attention_context.perturb):
            if attention_context is not None:
                states = args[0] if args else kwargs["hidden_states"]
                source = kwargs.get("key_value_states", kwargs.get("encoder_hidden_states"))
                layer.observe(states, source, kwargs.get("attention_mask", kwargs.get("mask")), attention_context)
            switches = None
        if switches is None:
            return super().forward(*args, **kwargs)
        return layer(*args, attention_context=attention_context, **kwargs)


@functools.cache
def _subclass(mixin: type, cls: type) -> type:
    """Return a subclass with the same name, for code that recognises modules by their class name."""
    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__reduce_ex__": _reduce}
    return type(cls.__name__, (mixin, cls), members)


def _reduce(module: nn.Module, protocol) -> tuple:
    """Copy or pickle a module whose class is made at run time and cannot be imported by name."""
    mixin, cls = type(module).__bases__
    return _empty, (mixin, cls), module.__getstate__()


def _empty(mixin: type, cls: type) -> nn.Module:
    subclass: type[nn.Module] = _subclass(mixin, cls)
    return subclass.__new__(subclass)


def _mix_in(module: nn.Module, mixin: type) -> None:
    if not isinstance(module, mixin):
        cls: type = type(module)
        module.__class__ = _subclass(mixin, cls)


def _mix_out(module: nn.Module, mixin: type) -> None:
    if isinstance(module, mixin) and type(module).__bases__[0] is mixin:
        module.__class__ = type(module).__bases__[1]


def decoder_of(model: nn.Module) -> Any:
    """Return the decoder of a transformers model, or None if it has none."""
    get_decoder = getattr(model, "get_decoder", None)
    decoder = get_decoder() if get_decoder is not None else None
    return decoder if isinstance(decoder, nn.Module) else None


def cross_attentions(model: nn.Module) -> dict[int, tuple[str, Any]]:
    """Return name and module of each BART-like cross-attention, by the number of its decoder layer."""
    attentions = enumerate(getattr(layer, "encoder_attn", None) for layer in _layers(model, "layers"))
    return _named(model, {n: a for n, a in attentions if all(hasattr(a, name) for name in _BART_ATTRIBUTES)})


def observable_attentions(model: nn.Module) -> dict[int, tuple[str, Any]]:
    """Return the `cross_attentions`, or the ones of T5, which have no position biases."""
    names = [_T5_NAMES.get(name, name) for name in _BART_ATTRIBUTES]
    blocks: Iterable[Any] = _layers(model, "block")
    layers = ([getattr(part, "EncDecAttention", None) for part in block.layer] for block in blocks)
    attentions = {n: a for n, parts in enumerate(layers) for a in parts if all(hasattr(a, name) for name in names)}
    return _named(model, attentions) or cross_attentions(model)


def _layers(model: nn.Module, name: str) -> nn.ModuleList:
    layers = getattr(decoder_of(model), name, None)
    return layers if isinstance(layers, nn.ModuleList) else nn.ModuleList()


def _named(model: nn.Module, attentions: dict[int, Any]) -> dict[int, tuple[str, Any]]:
    names = {id(module): name for name, module in model.named_modules()}
    return {number: (names[id(attention)], attention) for number, attention in attentions.items()}


def adapter_layers(model: nn.Module) -> list[AdapterLayer]:
    """Return the adapter layers of a model in the order of its decoder layers; empty without an adapter."""
    return [module for module in model.modules() if isinstance(module, AdapterLayer)]


def active_settings(model: nn.Module) -> AttentionCalibrationConfig | None:
    """Return the configuration of the active attention-calibration adapter, or None."""
    return next((layer.switches for layer in adapter_layers(model) if layer.switches is not None), None)


def attach(attention: nn.Module) -> AdapterLayer:
    """Return the adapter layer of an attention, and create it if needed."""
    if not isinstance(attention, AdaptedAttentionMixin):
        setattr(attention, CHILD, AdapterLayer(attention))
        _mix_in(attention, AdaptedAttentionMixin)
    return getattr(attention, CHILD)


def prepare_decoder_layers(model: nn.Module) -> None:
    """Prepare every decoder layer to run with detached parameters in the second pass, checkpointed or not."""
    for layer in _layers(model, "layers"):
        _mix_in(layer, DecoderLayerMixin)


def detach_all(model: nn.Module) -> None:
    """Remove every adapter layer, which restores the original model."""
    for _, attention in observable_attentions(model).values():
        if isinstance(attention, AdaptedAttentionMixin):
            delattr(attention, CHILD)
            _mix_out(attention, AdaptedAttentionMixin)
    for layer in _layers(model, "layers"):
        _mix_out(layer, DecoderLayerMixin)
