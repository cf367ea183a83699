"""Configuration of an attention-calibration adapter."""

import dataclasses
import enum
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from peft import PeftConfig, TaskType
from peft.utils import SAFETENSORS_WEIGHTS_NAME

from hf_attncal.hub.model_cards import write_adapter_card
from hf_attncal.layouts import ADAPTER_CONFIG, check_one_model
from hf_attncal.models.configuration_attncal import CALIBRATIONS, check_settings


class AdapterType(enum.StrEnum):
    """Name of the method in PEFT's tables, and `peft_type` in `adapter_config.json`.

    If this package is not imported, PEFT raises only `KeyError: 'ATTNCAL'`. The adapter's card explains what to
    install and import.
    """

    ATTNCAL = "ATTNCAL"


@dataclass
class AttentionCalibrationConfig(PeftConfig):
    """Calibrated, leaky or guided cross-attention for a seq2seq model with frozen weights.

    Used like any configuration of PEFT: `get_peft_model(model, AttentionCalibrationConfig(calibration="gated"))`.

    Args:
        calibration: fusion of calibrated and plain attention: `"fixed"`, `"annealed"`, `"gated"` (Lu et al., eqs. 10,
            11, 12) or `None`.
        leaky: True for a learned NULL key and value in every adapted cross-attention (Mask-Align, sec. 3.2).
        layers: numbers of the decoder layers to adapt, from 0. Default: `None`, all.
        mask_projection: input of the mask network's projections: `"model"` for decoder states and encoder outputs with
            (d_model, d_model) matrices, or `"head"` for queries and keys of each head with (d_k, d_k) matrices.
        mask_inputs: `"detached"` or `"trained"`, as in the published code; see `AttnCalMarianConfig`.
        renormalize: True to scale the calibrated weights so that they sum to the same value as the plain ones. A fresh
            adapter then computes the base model's function. If False, it scales attention from the first step.
        calibration_weight: lambda of eq. 10, used by `"fixed"`.
        annealing_steps: number of optimiser steps of the annealing in eq. 11 (1e5 in the paper), used by `"annealed"`.
        mask_penalty: alpha of eq. 4.
        mask_cost: minimum cost of blurring attention, in nats per target token; see `AttnCalMarianConfig`.
        label_smoothing: label smoothing of both losses, in [0, 1). `AttnCalTrainer` sets it to its
            `label_smoothing_factor`.
        null_key_std: standard deviation of the initial NULL keys and values. Default: `None`, `d_model ** -0.5`.
        null_bias: initial value of the learned bias on the score of NULL, per head. A fresh leaky adapter gives NULL
            about `exp(null_bias) / sum(exp(scores))` of the weight. This should be small but not 0, because a weight
            of 0 has no gradient. `set_null_mass` sets the biases for a given weight.
        output_gate: True to multiply the output of each head by a learned factor, initially 1; the control experiment
            for calibration.
        guided: True if one head learns links between source and target tokens, which training takes as `links`. Its
            queries and keys get a low-rank change, initially 0.
        observe: True for an observer, which the model does not use: its outputs are equal to the bit. With `guided`,
            attention beside that head learns the links, with a NULL of its own if `leaky`. It is returned as
            `guided_attention` and `guided_null` (`output_attention_details=True`). With `calibration`, masks learn
            what each prediction depends on.
        guided_layer: decoder layer of the guided head. Default: `None`, the second last.
        guided_head: number of the guided head, from 0.
        guided_rank: rank of the change, from 1 to d_k. Default: `None`, 16 or d_k if that is less.
        guided_weight: weight of the loss of the links.
        guided_shift: True for Shift-Att, False for Naive-Att; see `AttnCalMarianConfig`.
        observed_heads: heads of an observer whose attention is averaged, lists [layer, head, shift]; row t of
            `guided_attention` then belongs to target token t. Default: `None`, the guided head.
        base_model_type: type of the model that the adapter was made for; set and checked when it is injected.
        base_d_model: d_model of that model; set and checked when it is injected.

    Raises:
        ValueError: a value is outside its range; the message names the field, the rule and the value.
    """

    calibration: str | None = "fixed"
    leaky: bool = False
    layers: list[int] | None = None
    mask_projection: str = "model"
    mask_inputs: str = "detached"
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
    observe: bool = False
    observed_heads: list[list] | None = None
    base_model_type: str | None = field(default=None, repr=False)
    base_d_model: int | None = field(default=None, repr=False)

    # The cross-attention reads this switch, which an adapter does not have.
    gumbel: ClassVar[bool] = False
    # PEFT requires this attribute; the tuner selects the modules itself.
    target_modules: ClassVar[tuple[str, ...]] = ("encoder_attn",)

    def __post_init__(self):
        super().__post_init__()
        self.peft_type = AdapterType.ATTNCAL
        if self.task_type is None:
            self.task_type = TaskType.SEQ_2_SEQ_LM
        check_settings(self)
        if self.calibration is None and not (self.leaky or self.guided or self.output_gate):
            raise ValueError(
                "`calibration`, `leaky`, `guided` and `output_gate` are all off, so the adapter would do nothing. Set "
                f"`calibration` to one of {CALIBRATIONS}, or `leaky=True`, `guided=True` or `output_gate=True`."
            )
        if self.observe and (self.output_gate or (self.leaky and not self.guided)):
            raise ValueError(
                "`observe` needs `output_gate=False`, and `guided=True` for `leaky`: an observer changes nothing in "
                "the model, and its NULL stands beside the guided head."
            )
        if self.observe and self.calibration == "gated":
            raise ValueError(
                '`observe` needs another `calibration` than "gated", whose gate would not learn: an observer changes '
                'nothing in the model. Use "fixed".'
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
        """Save `adapter_config.json`, and add the adapter's settings and base model to its card.

        PEFT and transformers both call this when they save an adapter, after they wrote a card of their own.

        Raises:
            ValueError: the folder holds a whole model.
        """
        folder = Path(save_directory)
        try:
            check_one_model(folder, saves_adapter=True)
        except ValueError:
            # PEFT has just written the weights, and nothing reads them without a configuration.
            weights, is_adapter = folder / SAFETENSORS_WEIGHTS_NAME, (folder / ADAPTER_CONFIG).exists()
            if not is_adapter and weights.is_file() and time.time() - weights.stat().st_mtime < 60:
                weights.unlink()
            raise
        super().save_pretrained(save_directory, **kwargs)
        # The card shows the method and the settings that differ from their defaults; the base model has its own lines.
        own = [f for f in dataclasses.fields(self) if f.name in AttentionCalibrationConfig.__annotations__ and f.repr]
        values = {f.name: getattr(self, f.name) for f in own}
        changed = [f.name for f in own if values[f.name] != f.default]
        write_adapter_card(save_directory, self, {name: values[name] for name in ("calibration", *changed)})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
