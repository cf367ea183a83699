"""Configuration of an attention-calibration adapter."""

import dataclasses
import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from peft import PeftConfig, TaskType

from hf_attncal.hub.model_cards import write_adapter_card
from hf_attncal.layouts import check_one_model
from hf_attncal.models.configuration_attncal import CALIBRATIONS, check_settings


class AdapterType(enum.StrEnum):
    """The method's name in PEFT's tables, and `peft_type` in `adapter_config.json`.

    Where this package is not imported, `KeyError: 'ATTNCAL'` is all that PEFT says; the adapter's card says what to
    install and to import.
    """

    ATTNCAL = "ATTNCAL"


@dataclass
class AttentionCalibrationConfig(PeftConfig):
    """Calibrated, leaky or guided cross-attention for a seq2seq model whose own weights stay as they are.

    Used like any configuration of PEFT: `get_peft_model(model, AttentionCalibrationConfig(calibration="gated"))`.

    Args:
        calibration: `"fixed"`, `"annealed"`, `"gated"` (Lu et al., eqs. 10, 11, 12) or `None`.
        leaky: a learned NULL key and value in every adapted cross-attention (Mask-Align, sec. 3.2).
        layers: numbers of the decoder layers to adapt, from 0; `None` for all.
        mask_projection: what the mask network projects, `"model"` = decoder states and encoder outputs with (d_model,
            d_model) matrices, or `"head"` = queries and keys of each head with (d_k, d_k) matrices.
        mask_rank: rank of the (d_model, d_model) matrices, each then a product of two; `None` for full matrices.
        renormalize: scale the calibrated weights back to the mass of the plain ones. With it (the default) a fresh
            adapter computes the base model's function; without it, it multiplies attention from the first step.
        calibration_weight: lambda of eq. 10, used by `"fixed"`.
        annealing_steps: the 1e5 of eq. 11, in optimiser steps, used by `"annealed"`.
        mask_penalty: alpha of eq. 4. mask_cost: as in our models.
        label_smoothing: label smoothing of both losses, in [0, 1); `AttnCalTrainer` puts its `label_smoothing_factor`
            here.
        null_key_std: standard deviation of the initial NULL keys and values; `None` for `d_model ** -0.5`.
        null_bias: initial value of the learned bias on the score of NULL, one for each head. A fresh leaky adapter
            gives NULL about `exp(null_bias) / sum(exp(scores))` of the weight: near nothing and not nothing, as a
            weight of 0 would have no gradient. `set_null_mass` sets the biases by a weight that it should get.
        output_gate: multiply what each head reads by a learned factor, 1 at first: the control of calibration.
        guided: one head learns links between source and target tokens, which training takes as `links`: its queries
            and keys get a low-rank change, 0 at first, which is all that an adapter without another switch has.
        guided_layer, guided_head: which; `None` for the second last layer, which is filled in.
        guided_rank: rank of the change, from 1 to d_k; `None` is filled in as 16, or d_k if that is less.
        guided_weight: weight of its loss.
        guided_shift: as in our models.
        base_model_type, base_d_model: type and size of the model that the adapter was made for; filled in and checked.

    Raises:
        ValueError: a value is outside its range; the message names the field, the rule and the value.
    """

    calibration: str | None = "fixed"
    leaky: bool = False
    layers: list[int] | None = None
    mask_projection: str = "model"
    mask_rank: int | None = None
    renormalize: bool = True
    calibration_weight: float = 0.1
    annealing_steps: float = 1e5
    mask_penalty: float = 0.1
    mask_cost: float | None = None
    label_smoothing: float = 0.0
    null_key_std: float | None = None
    null_bias: float = -4.0
    output_gate: bool = False
    guided: bool = False
    guided_layer: int | None = None
    guided_head: int = 0
    guided_rank: int | None = None
    guided_weight: float = 0.3
    guided_shift: bool = True
    base_model_type: str | None = field(default=None, repr=False)
    base_d_model: int | None = field(default=None, repr=False)

    # What the cross-attention reads beside the fields: switches that an adapter does not have.
    gumbel: ClassVar[bool] = False
    # PEFT looks at this when it injects; the tuner decides itself.
    target_modules: ClassVar[tuple[str, ...]] = ("encoder_attn",)

    def __post_init__(self):
        super().__post_init__()
        self.peft_type = AdapterType.ATTNCAL
        if self.task_type is None:
            self.task_type = TaskType.SEQ_2_SEQ_LM
        check_settings(self)
        if self.calibration is None and not (self.leaky or self.guided or self.output_gate):
            raise ValueError(
                f"an adapter without a switch does nothing: set `calibration` to one of {CALIBRATIONS}, `leaky=True`, "
                "`guided=True`, `output_gate=True`, or several."
            )
        for name in ("guided_rank", "mask_rank"):
            rank = getattr(self, name)
            if rank is not None and (not _is_integer(rank) or rank < 1):
                raise ValueError(f"`{name}` must be `None` or an integer >= 1, got {rank!r}.")
        if self.mask_rank is not None and self.mask_projection != "model":
            raise ValueError(
                f'`mask_rank` applies to `mask_projection="model"` only, got {self.mask_projection!r}: the matrices '
                "of single heads are small. Leave one of the two out."
            )
        if self.layers is not None:
            if not isinstance(self.layers, list | tuple):
                raise ValueError(f"`layers` must be `None` or a list of integers, got {self.layers!r}.")
            self.layers = list(self.layers)
            wrong = [layer for layer in self.layers if not _is_integer(layer) or layer < 0]
            if wrong or not self.layers or len(set(self.layers)) < len(self.layers):
                raise ValueError(
                    f"`layers` must be `None` or different integers >= 0, at least one, got {self.layers}."
                )

    def save_pretrained(self, save_directory: str, **kwargs) -> None:
        """Write `adapter_config.json`, and into the card what the adapter is and what it was trained on.

        PEFT and transformers both end here when they save an adapter, after they wrote a card of their own.

        Raises:
            ValueError: the folder holds a whole model.
        """
        check_one_model(Path(save_directory), saves_adapter=True)
        super().save_pretrained(save_directory, **kwargs)
        # Of this class's own fields the method, and what differs from its default; the base has lines of its own.
        own = [f for f in dataclasses.fields(self) if f.name in AttentionCalibrationConfig.__annotations__ and f.repr]
        values = {f.name: getattr(self, f.name) for f in own}
        changed = [f.name for f in own if values[f.name] != f.default]
        write_adapter_card(save_directory, self, {name: values[name] for name in ("calibration", *changed)})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
