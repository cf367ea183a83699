# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Configurations of the Marian- and BART-style models with calibrated, leaky and Gumbel cross-attention, and SSRU."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers.models.bart.configuration_bart import BartConfig
from transformers.models.marian.configuration_marian import MarianConfig

from .limits import CheckedConfigMixin, check_choices, check_numbers, check_sizes

CALIBRATIONS = ("fixed", "annealed", "gated")
MASK_PROJECTIONS = ("model", "head")
MASK_INPUTS = ("detached", "trained")
_GUIDED_RANK = 16  # default
# Fields that make a model more than the stock model.
SWITCHES = ("calibration", "leaky", "gumbel", "output_gate", "uam", "copy")


def check_settings(settings) -> None:
    """Check the settings that models and adapters share; `settings` has some or all fields of `AttnCalConfigMixin`.

    Raises:
        ValueError: a value is of another type or outside its range; the message names the field, the rule and the
            value.
    """
    for name in ("leaky", "output_gate", "renormalize", "guided", "guided_shift", "observe"):
        if not isinstance(getattr(settings, name), bool):
            raise ValueError(f"`{name}` must be True or False, got {getattr(settings, name)!r}.")
    choices = {"calibration": (None, *CALIBRATIONS), "mask_projection": MASK_PROJECTIONS, "mask_inputs": MASK_INPUTS}
    check_choices(settings, choices)
    check_numbers(settings)


def guided_place(settings, layers: int, heads: int) -> tuple[int, int]:
    """Return layer and head of `guided_layer` and `guided_head` in a decoder with these numbers of layers and heads.

    Raises:
        ValueError: there is no such layer or head.
    """
    layer = max(0, layers - 2) if settings.guided_layer is None else settings.guided_layer
    check_place({"guided_layer": (layer, layers), "guided_head": (settings.guided_head, heads)})
    return layer, settings.guided_head


def observed_heads(settings, guided_layer: int, layer: int) -> tuple[list[tuple[int, bool]], float]:
    """Return the heads of a layer that an observer stands beside, each with its shift, and the share of each head."""
    places = settings.observed_heads or [(guided_layer, settings.guided_head, False)]
    return [(head, shift) for number, head, shift in places if number == layer], 1 / len(places)


def check_observed_heads(settings, layers: int, heads: int) -> None:
    """Check `observed_heads` for a decoder with these numbers of layers and heads.

    Raises:
        ValueError: a value is not a list of different heads, there is no such layer or head, or another field does
            not fit.
    """
    places = settings.observed_heads
    if places is None:
        return
    if not settings.observe or not settings.guided or settings.guided_shift:
        raise ValueError("`observed_heads` needs `observe=True`, `guided=True` and `guided_shift=False`. Set them.")
    fits = isinstance(places, list) and all(isinstance(p, list | tuple) and len(p) == 3 for p in places)
    if not fits or not 0 < len(places) == len(set(map(tuple, places))) or {type(p[2]) for p in places} != {bool}:
        raise ValueError(f"`observed_heads` must be different lists [layer, head, shift], got {places!r}.")
    for layer, head, _ in places:
        check_place({"observed_heads": (layer, layers)})
        check_place({"observed_heads": (head, heads)})


def guided_rank(settings, head_dim: int) -> int:
    """Return the rank of the change of the guided head's queries and keys.

    Raises:
        ValueError: `guided_rank` is not from 1 to d_k.
    """
    rank = min(_GUIDED_RANK, head_dim) if settings.guided_rank is None else settings.guided_rank
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"`guided_rank` must be `None` or an integer >= 1, got {rank!r}.")
    if rank > head_dim:
        raise ValueError(f"`guided_rank` must be at most d_k, {head_dim}, got {rank}.")
    return rank


def check_place(chosen: dict[str, tuple[int, int]]) -> None:
    """Check numbers of layers or heads.

    Args:
        chosen: field -> its value, and the number of layers or heads of the model.

    Raises:
        ValueError: a value is out of range; the message names the field.
    """
    for name, (value, number) in chosen.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < number:
            raise ValueError(f"`{name}` must be from 0 to {number - 1} in this model, got {value!r}.")


def _as_list(ids: int | list[int] | None) -> list[int | None]:
    return list(ids) if isinstance(ids, list) else [ids]


@dataclass(kw_only=True)
class AttnCalConfigMixin(CheckedConfigMixin):
    """Fields that the configurations share, and their validator.

    Four independent switches can be combined. With all of them off, the model is the stock model:

    Args:
        calibration: fusion of calibrated and plain attention: `None`, `"fixed"`, `"annealed"` or `"gated"` (Lu et
            al., eqs. 10, 11, 12).
        leaky: True for a learned NULL key and value in every cross-attention (Mask-Align, sec. 3.2).
        gumbel: True to sample the cross-attention with Gumbel noise in training and to use the argmax at inference
            (Discrete Transformer).
        output_gate: True to multiply the output of each head by `2 sigmoid(w_h q + b_h)`, initially 1. It is the
            control experiment that shows how much of a gain of calibration comes from scaling heads.

    Args of the calibration:
        calibration_weight: lambda of eq. 10, used by `"fixed"`.
        annealing_steps: number of optimiser steps of the annealing in eq. 11 (1e5 in the paper), used by `"annealed"`.
        mask_projection: input of the mask network's projections: `"model"` for decoder states and encoder outputs with
            (d_model, d_model) matrices, as in the published code, or `"head"` for queries and keys of each head with
            (d_k, d_k) matrices, as in the paper's text.
        mask_inputs: `"trained"` if the translation loss also reaches the states that the mask network reads, as in
            the published code. The translation model then learns to be read by the mask network, whose own parameters
            still learn only from the mask loss. `"detached"` if that loss takes masks as constants.
        mask_penalty: alpha of eq. 4.
        mask_cost: minimum loss from blurring, in nats per target token, for the mask network to learn from a batch.
            Otherwise masks go to 1 early in training, when attention is not used yet and blurring it costs nothing.
            Default: `None`, learn from every batch, as in the paper.
        renormalize: True to scale the calibrated weights so that they sum to the same value as the plain ones. The
            mask network then starts with `W^Q = 0`, so that a stock checkpoint loaded with `calibration` still
            computes the same.

    Args of leaky and Gumbel attention, and of the loss:
        null_key_std: standard deviation of the initial NULL keys and values. Default: `None`, `d_model ** -0.5`.
        null_bias: initial value of a learned bias on the score of NULL, per head. A negative value lets a trained
            model start with little weight on NULL. Default: `None`, no bias, as in the paper.
        gumbel_temperature: tau.
        gumbel_straight_through: True for one-hot weights in training, with the gradient of the soft ones.
        label_smoothing: label smoothing of both losses, in [0, 1). `AttnCalTrainer` sets it to its
            `label_smoothing_factor`. A plain Trainer would remove the labels from the model's inputs, and thereby the
            mask network's loss.

    Args of the unsupervised alignment module:
        uam: True for the unsupervised alignment module (Kiyono et al.): each target step also predicts its source
            token. It is trained to predict all source tokens of a sentence with all of its steps together, and is not
            computed in generation. Targets shorter than their source must be extended; see
            `hf_attncal.data.collators.NullCollator`.
        uam_scale: C, the divisor of the loss of `uam`.
        null_token_id: token that extends targets and is never generated. Needed by `uam`.

    Args of copying:
        copy: True if words can also be copied from the source, with the weights of one head of one cross-attention
            (calibrated weights if calibration is on). Source and target need one vocabulary.
        copy_layer: decoder layer of that head, from 0. Default: `None`, the top layer.
        copy_head: number of that head, from 0.
        max_copied_tokens: E, number of slots after the vocabulary for words that only the source has; see
            `hf_attncal.data.tokenizer`. 0 for subwords, which are never unknown.
        unk_token_id: token that the decoder reads in place of such a word. Needed if there are slots.

    Args of guided alignment (Chen et al. 2016; Garg et al. 2019), which changes only the training:
        guided: True if one head of one cross-attention learns links between source and target tokens, which training
            takes as `links`. With calibration on, its calibrated weights learn them. A target token without links
            should attend to NULL with `leaky`, and has no such loss otherwise.
        guided_layer: decoder layer of that head, from 0. Default: `None`, the second last.
        guided_head: number of that head, from 0.
        guided_weight: weight of this loss, per target token, relative to the translation loss.
        guided_shift: True if the step that reads a target token learns its links (Shift-Att), False for the step that
            predicts it (Naive-Att).
        observe: True for an observer: attention beside that head, whose queries and keys have a low-rank change, with
            a NULL of its own if `leaky`. It learns the links and is read (`output_attention_details=True`), but the
            model does not use it.
        observed_heads: heads of an observer whose attention is averaged, lists [layer, head, shift]; row t of
            `guided_attention` then belongs to target token t. Default: `None`, the guided head.
        guided_rank: rank of that change, from 1 to d_k. Default: `None`, 16 or d_k if that is less.

    Raises:
        StrictDataclassClassValidationError, StrictDataclassFieldValidationError: a value is outside its range or of
            another type; the message names the field, the rule and the value.
    """

    calibration: str | None = None
    calibration_weight: float | int = 0.1
    annealing_steps: float | int = 1e5
    mask_projection: str = "model"
    mask_inputs: str = "detached"
    mask_penalty: float | int = 0.1
    mask_cost: float | int | None = None
    renormalize: bool = False
    leaky: bool = False
    null_key_std: float | int | None = None
    null_bias: float | int | None = None
    gumbel: bool = False
    gumbel_temperature: float | int = 1.0
    gumbel_straight_through: bool = False
    output_gate: bool = False
    label_smoothing: float | int = 0.0
    uam: bool = False
    uam_scale: float | int = 10.0
    null_token_id: int | None = None
    copy: bool = False
    copy_layer: int | None = None
    copy_head: int = 0
    max_copied_tokens: int = 0
    unk_token_id: int | None = None
    guided: bool = False
    guided_layer: int | None = None
    guided_head: int = 0
    guided_weight: float | int = 0.3
    guided_shift: bool = True
    observe: bool = False
    observed_heads: list | None = None
    guided_rank: int | None = None

    if TYPE_CHECKING:  # stock configurations declare some of these fields as optional
        d_model: Any
        vocab_size: Any
        decoder_vocab_size: Any
        max_position_embeddings: Any
        decoder_layers: Any
        decoder_attention_heads: Any
        pad_token_id: Any
        decoder_start_token_id: Any

    @property
    def cross_attention_sizes(self) -> tuple[int, int]:
        """Number of layers with cross-attention, and number of heads in each."""
        return self.decoder_layers, self.decoder_attention_heads

    @property
    def layer_of_copies(self) -> int:
        """Number of the layer that copies."""
        return self.cross_attention_sizes[0] - 1 if self.copy_layer is None else self.copy_layer

    @property
    def guided_attention(self) -> tuple[int, int] | None:
        """Layer and head that learn links; `None` without `guided`."""
        return guided_place(self, *self.cross_attention_sizes) if self.guided else None

    def validate_attention_calibration(self):
        """Part of the `@strict` validation of configurations; models do it again before they are built."""
        check_sizes(self)
        check_settings(self)
        if self.gumbel_straight_through and not self.gumbel:
            raise ValueError("`gumbel_straight_through` needs `gumbel=True`. Set it or unset the other.")
        if self.renormalize and self.calibration is None:
            raise ValueError(f"`renormalize` needs `calibration` to be one of {CALIBRATIONS}, got None.")
        reserved = {self.pad_token_id, *_as_list(self.eos_token_id)}
        if self.null_token_id is not None and (self.null_token_id < 0 or self.null_token_id in reserved):
            raise ValueError(
                "`null_token_id` must be a token other than padding and the end of sentence, got "
                f"{self.null_token_id}."
            )
        if self.observe and (not self.guided or self.calibration is not None or self.output_gate):
            raise ValueError(
                "`observe` needs `guided=True`, `calibration=None` and `output_gate=False`: an observer changes "
                "nothing in the model. Set them, or unset `observe`."
            )
        if self.guided:
            guided_place(self, *self.cross_attention_sizes)
            guided_rank(self, self.d_model // self.cross_attention_sizes[1])
            check_observed_heads(self, *self.cross_attention_sizes)
            if self.gumbel:
                raise ValueError(
                    "`guided` needs `gumbel=False`: one selected token cannot be spread over several links."
                )
        self._validate_copying()

    def _validate_copying(self):
        if not self.copy:
            if self.max_copied_tokens:
                raise ValueError(f"`max_copied_tokens` needs `copy=True`, got {self.max_copied_tokens}. Set it to 0.")
            return
        layers, heads = self.cross_attention_sizes
        check_place({"copy_layer": (self.layer_of_copies, layers), "copy_head": (self.copy_head, heads)})
        if self.max_copied_tokens and self.unk_token_id is None:
            raise ValueError(
                "`max_copied_tokens` needs `unk_token_id`, got None. Set it to the tokenizer's, or "
                "`max_copied_tokens` to 0."
            )
        if not getattr(self, "share_encoder_decoder_embeddings", True):
            raise ValueError(
                "`copy` needs `share_encoder_decoder_embeddings=True`, got False. A copied token must be the same "
                "word on both sides."
            )
        if getattr(self, "decoder_layerdrop", 0.0):
            raise ValueError(
                f"`copy` needs `decoder_layerdrop` 0, got {self.decoder_layerdrop}. The layer that copies must not be "
                "skipped."
            )


@strict
class AttnCalMarianConfig(AttnCalConfigMixin, MarianConfig):
    __doc__ = (
        "Configuration of `AttnCalMarianModel` and `AttnCalMarianMTModel`: every field of `MarianConfig`, and:\n\n"
        f"    {AttnCalConfigMixin.__doc__}"
    )

    model_type = "attncal_marian"
    stock_type = "marian"
    _auto_class = "AutoConfig"  # the code is saved with the model


@strict
class AttnCalBartConfig(AttnCalConfigMixin, BartConfig):
    __doc__ = (
        "Configuration of `AttnCalBartModel` and `AttnCalBartForConditionalGeneration`: every field of `BartConfig`, "
        f"and:\n\n    {AttnCalConfigMixin.__doc__}"
    )

    model_type = "attncal_bart"
    stock_type = "bart"
    _auto_class = "AutoConfig"


@strict
class SSRUConfig(AttnCalMarianConfig):
    __doc__ = f"""Configuration of `SSRUModel` and `SSRUForConditionalGeneration`: every field of `MarianConfig`, and:

    Args:
        layer_norm_eps: epsilon of every layer norm.
        shortlist_size: number of tokens in all lists of the shortlist, see `SSRUForConditionalGeneration.generate`;
            0 for a model without one.
        shortlist_first: number of first tokens of the vocabulary that are on every list.

    {AttnCalConfigMixin.__doc__}"""

    model_type = "ssru"
    stock_type = ""  # transformers has no such model
    _auto_class = "AutoConfig"  # the code is saved with the model

    activation_function: str = "relu"
    layer_norm_eps: float | int = 1e-6
    shortlist_size: int = 0
    shortlist_first: int = 0
