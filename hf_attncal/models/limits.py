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
"""Checks of configurations and batches: sizes that exhaust the memory, empty batches, misspelt names."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

# Names of sizes in our models and stock models: layers, the width between them and within them.
STOCK_LAYERS = ("num_hidden_layers", "num_layers", "n_layers")
LAYERS = ("encoder_layers", "decoder_layers", "num_decoder_layers", *STOCK_LAYERS)
WIDTHS = ("d_model", "hidden_size", "dim")
INNER = ("encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "intermediate_size", "d_ff", "hidden_dim")
# Minimum and maximum of each size. The maxima are far above any published model; the one of the positions is lower,
# because a table of sinusoidal positions is computed number by number.
LIMITS = {
    **dict.fromkeys(LAYERS, (1, 1_000)),
    **dict.fromkeys((*WIDTHS, "embedding_size"), (1, 100_000)),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), (1, 10_000)),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads"), (1, 10_000)),
    **dict.fromkeys(INNER, (1, 1_000_000)),
    "vocab_size": (1, 5_000_000),
    "decoder_vocab_size": (1, 5_000_000),
    "type_vocab_size": (0, 100_000),
    **dict.fromkeys(("max_position_embeddings", "max_source_positions", "max_target_positions"), (1, 100_000)),
    **dict.fromkeys(("max_source_length", "window_width", "max_jump"), (1, 100_000)),
    **dict.fromkeys(("entries", "shortlist_size"), (0, 1_000_000_000)),
    "shortlist_first": (0, 5_000_000),
    "max_copied_tokens": (0, 100_000),
}
# Numbers among the settings: the rule in words, and whether a value keeps it. What multiplies or enters a score stays
# below 65504, the largest number of float16; a score over a temperature below 1e-6 would overflow.
_NOT_NEGATIVE = (">= 0 and finite", lambda value: 0 <= value < math.inf)
_POSITIVE = ("> 0 and finite", lambda value: 0 < value < math.inf)
_FACTOR = (">= 0 and at most 1e4", lambda value: 0 <= value <= 1e4)
_SHARE = ("in [0, 1]", lambda value: 0 <= value <= 1)
_LOSS_WEIGHTS = ("mask_penalty", "agreement_weight", "entropy_weight", "guide_weight", "normalizer_penalty")
NUMBER_RULES: dict[str, tuple[str, Callable[[float], bool]]] = {
    **dict.fromkeys((*_LOSS_WEIGHTS, "entropy_smoothing", "init_std", "diagonal_bias"), _NOT_NEGATIVE),
    **dict.fromkeys(("mask_cost", "annealing_steps", "uam_scale", "guided_weight"), _POSITIVE),
    **dict.fromkeys(("calibration_weight", "null_key_std", "gumbel_noise", "receptive_field_penalty"), _FACTOR),
    **dict.fromkeys(("uniform_jump", "alignment_threshold"), _SHARE),
    **dict.fromkeys(("dropout", "label_smoothing"), ("in [0, 1)", lambda value: 0 <= value < 1)),
    "gumbel_temperature": (">= 1e-6 and finite", lambda value: 1e-6 <= value < math.inf),
    "null_bias": ("from -1e4 to 1e4", lambda value: -1e4 <= value <= 1e4),
    "init_range": ("> 0 and at most 1e4", lambda value: 0 < value <= 1e4),
    "layer_norm_eps": ("> 0 and at most 1", lambda value: 0 < value <= 1),
    "null_probability": ("in (0, 1)", lambda value: 0 < value < 1),
    "lexical_prior": ("> 0 and below 1e6", lambda value: 0 < value < 1e6),
    "identical_prior": (">= 0 and below 1e6", lambda value: 0 <= value < 1e6),
}
# How an aligner may merge its two directions.
_GROWN = ("grow-diag", "grow-diag-final", "grow-diag-final-and")
SYMMETRIZATIONS = ("harmonic", "intersection", "union", *_GROWN, "forward", "backward")
MAX_PARAMETERS = 10**11
MAX_LABELS = 100_000  # no model of this package has labels, but transformers makes a name for each


def check_sizes(config) -> None:
    """Check the sizes in a configuration before a model is built.

    Args:
        config: configuration, or the values of config.json.

    Raises:
        ValueError: a size is not a whole number within its limits, the width cannot be shared among the heads, or all
            of them together are too large; the message names the field, the limit and the value.
    """
    names = getattr(config, "attribute_map", {})
    get = config.get if isinstance(config, Mapping) else lambda name: getattr(config, name, None)
    sizes: dict[str, Any] = {names.get(name, name): get(name) for name in LIMITS}
    for name, (least, most) in {names.get(name, name): limits for name, limits in LIMITS.items()}.items():
        size = sizes[name]
        if size is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool):
            raise ValueError(f"`{name}` must be a whole number, got {size!r:.30}.")
        if size < least:
            raise ValueError(f"`{name}` must be >= {least}, got {size}.")
        if size > most:
            raise ValueError(f"`{name}` must be at most {most}, got {size}.")
    sizes = {name: size for name, size in sizes.items() if size}
    parameters = least_parameters(sizes)
    if parameters > MAX_PARAMETERS:
        raise ValueError(
            f"the model must have at most {MAX_PARAMETERS:.0e} parameters, got about {parameters:.1e}, from "
            f"{', '.join(f'`{name}` {size}' for name, size in sizes.items())}."
        )


def least_parameters(sizes: Mapping[str, int]) -> int:
    """Return a lower bound of a model's number of parameters: matrices of its layers, and embeddings."""

    def most(names: Collection[str]) -> int:
        return max((sizes.get(name) or 0 for name in names), default=0)

    width, inner = most(WIDTHS), most(INNER)
    decoder = most([name for name in LAYERS if "decoder" in name])
    # ALBERT's layers share the weights of a few groups; models with an encoder have a flag for it.
    encoder = sizes.get("num_hidden_groups") or sizes.get("encoder_layers") or most(STOCK_LAYERS)
    layers = encoder * (4 * width + 2 * inner) + decoder * (8 * width + 2 * inner)
    return (
        width * layers
        + (sizes.get("embedding_size") or width) * most(["vocab_size", "decoder_vocab_size"])
        + most(["entries"])
    )


def check_numbers(settings) -> None:
    """Check the attributes of settings that are in `NUMBER_RULES`; those with the default `None` may be `None`.

    Raises:
        ValueError: a value is not a number, or breaks its rule; the message names the field, the rule and the value.
    """
    for name, (rule, keeps) in NUMBER_RULES.items():
        value = getattr(settings, name, None)
        optional = getattr(type(settings), name, None) is None
        if value is None and (optional or not hasattr(settings, name)):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"`{name}` must be a number, got {value!r}.")
        if not keeps(value):
            raise ValueError(f"`{name}` must be {'`None` or ' if optional else ''}{rule}, got {value}.")


def check_choices(settings, choices: Mapping[str, tuple[str | None, ...]]) -> None:
    """Check fields that have one of a few values.

    Raises:
        ValueError: a value is not one of them; the message names the field, the allowed values and the value.
    """
    for name, values in choices.items():
        if getattr(settings, name) not in values:
            named = tuple(value for value in values if value is not None)
            optional = "`None` or " if None in values else ""
            raise ValueError(f"`{name}` must be {optional}one of {named}, got {getattr(settings, name)!r}.")


def check_counting(config) -> None:
    """Check the fields of a statistical aligner, named as in `HMMAlignConfig`.

    Raises:
        ValueError: one is out of its range; the message names the field, the rule and the value.
    """
    check_sizes(config)
    check_numbers(config)
    check_choices(config, {"symmetrization": SYMMETRIZATIONS})


def check_labels(values: Mapping) -> None:
    """Check `num_labels` and `id2label` among the values of a configuration, before transformers makes names of them.

    Raises:
        ValueError: more than `MAX_LABELS`, or no number of labels; the message names the field and the rule.
    """
    number, names = values.get("num_labels"), values.get("id2label")
    if number is not None and (not isinstance(number, int) or not 0 <= number <= MAX_LABELS):
        raise ValueError(f"`num_labels` must be a whole number from 0 to {MAX_LABELS}, got {number!r:.30}.")
    if names is not None and (not isinstance(names, Mapping) or len(names) > MAX_LABELS):
        raise ValueError(f"`id2label` must be a table of at most {MAX_LABELS} names, got {names!r:.30}.")


def check_names(values: Collection[str], known: Collection[str]) -> None:
    """Raise an error for names that are likely misspellings of `known` settings, which would keep their defaults.

    Raises:
        ValueError: the message has both spellings.
    """
    for name in values:
        if name not in known and (meant := get_close_matches(name, known, 1, 0.88)):
            raise ValueError(f"`{name}` is no setting. Write `{meant[0]}`, or leave it out.")


class CheckedConfigMixin:
    """Mixin before transformers' class that checks the values of a configuration.

    With a `stock_type` it also loads the checkpoints of that architecture.
    """

    model_type: ClassVar[str]
    stock_type: ClassVar[str] = ""
    id2label: Any

    def __post_init__(self, **kwargs):
        check_labels({"id2label": self.id2label, "num_labels": kwargs.get("num_labels")})
        own_classes = (kind for kind in type(self).__mro__ if kind.__module__.partition(".")[0] != "transformers")
        check_names(kwargs, [name for kind in own_classes for name in inspect.get_annotations(kind)])
        # A stock checkpoint's configuration has the stock type; the model built here is ours.
        stored = kwargs.pop("model_type", None)
        if stored not in (None, self.model_type, self.stock_type):
            raise ValueError(
                f"`model_type` must be {self.model_type!r} or {self.stock_type!r} to load as {type(self).__name__}, "
                f"got {stored!r}. Use the class of that architecture."
            )
        post_init: Any = super()
        post_init.__post_init__(**kwargs)

    @classmethod
    def get_config_dict(cls, *args, **kwargs):
        """Load as transformers does, without a warning if a stock checkpoint becomes one of our models."""
        parent: Any = super()
        values, kwargs = parent.get_config_dict(*args, **kwargs)
        if values.get("model_type") == cls.stock_type:
            values["model_type"] = cls.model_type
        return values, kwargs


def check_token_ids(config, vocabulary: int) -> None:
    """Check the token numbers of a model's or a generation's configuration.

    Raises:
        ValueError: one is no token of the vocabulary; the message names the field, the rule and the value.
    """
    kinds = "pad", "bos", "eos", "decoder_start", "forced_bos", "forced_eos", "null", "unk"
    for name in (f"{kind}_token_id" for kind in kinds):
        value = getattr(config, name, None)
        for token in value if isinstance(value, list | tuple) else [value]:
            if token is not None and (not isinstance(token, int) or not 0 <= token < vocabulary):
                raise ValueError(f"`{name}` must be a token, from 0 to {vocabulary - 1}, got {value!r}.")


def check_one_given(ids: Any, embeddings: Any, prefix: str = "") -> None:
    """Raise an error unless exactly one of tokens and embeddings is given.

    Args:
        ids, embeddings: the two arguments.
        prefix: prefix of their names in the message.

    Raises:
        ValueError: both or neither are given; the message names both.
    """
    if (ids is None) == (embeddings is None):
        which = "neither" if ids is None else "both"
        raise ValueError(f"`{prefix}input_ids` or `{prefix}inputs_embeds` must be given, and not both: got {which}.")


def check_ids(ids: Any, name: str) -> Any:
    """Check and return the tokens of a batch.

    Args:
        ids: tokens, (batch, tokens).
        name: name of the argument.

    Raises:
        ValueError: it is missing, empty or of another number of dimensions; the message names the argument.
    """
    if ids is None or ids.dim() != 2 or 0 in ids.shape:
        shape = None if ids is None else tuple(ids.shape)
        raise ValueError(f"`{name}` must be (batch, tokens) with at least one token, got {shape}.")
    return ids
