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
"""Refuse bad configurations and batches: sizes that exhaust the memory, no tokens, misspelt names."""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

# Names of sizes, ours and those of stock models: layers, the width between them and within them.
STOCK_LAYERS = ("num_hidden_layers", "num_layers", "n_layers")
LAYERS = ("encoder_layers", "decoder_layers", "num_decoder_layers", *STOCK_LAYERS)
WIDTHS = ("d_model", "hidden_size", "dim")
INNER = ("encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "intermediate_size", "d_ff", "hidden_dim")
HEADS = (
    "encoder_attention_heads",
    "decoder_attention_heads",
    "attention_heads",
    "num_attention_heads",
    "num_heads",
    "n_heads",
)
# Least and most of each size. The most is far above any published model; a table of sinusoidal positions is computed
# number by number.
LIMITS = {
    **dict.fromkeys(LAYERS, (1, 1_000)),
    **dict.fromkeys((*WIDTHS, "embedding_size"), (1, 100_000)),
    **dict.fromkeys(HEADS, (1, 10_000)),
    **dict.fromkeys(INNER, (1, 1_000_000)),
    "vocab_size": (1, 5_000_000),
    "decoder_vocab_size": (1, 5_000_000),
    "type_vocab_size": (0, 100_000),
    **dict.fromkeys(("max_position_embeddings", "max_source_positions", "max_target_positions"), (1, 100_000)),
    "max_source_length": (1, 100_000),
    "window_width": (1, 100_000),
    "entries": (0, 1_000_000_000),
    "max_jump": (1, 100_000),
    "max_copied_tokens": (0, 100_000),
}
# How an aligner may merge its two directions.
SYMMETRIZATIONS = (
    "harmonic",
    "intersection",
    "union",
    "grow-diag",
    "grow-diag-final",
    "grow-diag-final-and",
    "forward",
    "backward",
)
MAX_PARAMETERS = 10**11
MAX_LABELS = 100_000  # no model of this package has labels, but transformers makes a name for each


def check_sizes(config) -> None:
    """Check the sizes that a configuration has, before anything is built of them.

    Args:
        config: a configuration, or its values as config.json has them.

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
    """Return from below how many parameters a model of these sizes has: matrices of its layers, and tables."""

    def most(names: Collection[str]) -> int:
        return max((sizes.get(name) or 0 for name in names), default=0)

    width, inner = most(WIDTHS), most(INNER)
    decoder = most([name for name in LAYERS if "decoder" in name])
    # Of ALBERT all layers are few groups; what has an encoder of its own says so.
    encoder = sizes.get("num_hidden_groups") or sizes.get("encoder_layers") or most(STOCK_LAYERS)
    layers = encoder * (4 * width + 2 * inner) + decoder * (8 * width + 2 * inner)
    return (
        width * layers
        + (sizes.get("embedding_size") or width) * most(["vocab_size", "decoder_vocab_size"])
        + most(["entries"])
    )


def check_numbers(
    settings, rules: Mapping[str, tuple[str, Callable[[float], bool]]], optional: Collection[str] = ()
) -> None:
    """Check the numbers among settings.

    Args:
        settings: has them as attributes; what it does not have is not checked.
        rules: for each the rule in words, and whether a value keeps it.
        optional: those that may be None.

    Raises:
        ValueError: one is no number, or does not keep its rule.
    """
    for name, (rule, keeps) in rules.items():
        value = getattr(settings, name, None)
        if value is None and (name in optional or not hasattr(settings, name)):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"`{name}` must be a number, got {value!r}.")
        if not keeps(value):
            raise ValueError(f"`{name}` must be {'`None` or ' if name in optional else ''}{rule}, got {value}.")


_COUNTING = {
    "uniform_jump": ("in [0, 1]", lambda value: 0 <= value <= 1),
    "alignment_threshold": ("in [0, 1]", lambda value: 0 <= value <= 1),
    "null_probability": ("in (0, 1)", lambda value: 0 < value < 1),
    "lexical_prior": ("> 0 and below 1e6", lambda value: 0 < value < 1e6),
    "identical_prior": (">= 0 and below 1e6", lambda value: 0 <= value < 1e6),
}


def check_counting(config) -> None:
    """Check the fields of an aligner that counts, by the names that `HMMAlignConfig` has for them.

    Raises:
        ValueError: one is out of its range; the message names the field, the rule and the value.
    """
    check_sizes(config)
    check_numbers(config, _COUNTING)
    if config.symmetrization not in SYMMETRIZATIONS:
        raise ValueError(f"`symmetrization` must be one of {SYMMETRIZATIONS}, got {config.symmetrization!r}.")


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
    """Refuse names that are one of the `known` settings but for a slip: it would be left at its default.

    Raises:
        ValueError: there is one; the message names both.
    """
    for name in values:
        if name not in known and (meant := get_close_matches(name, known, 1, 0.86)):
            raise ValueError(f"`{name}` is no setting. Write `{meant[0]}`, or leave it out.")


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


def check_ids(ids: Any, name: str) -> Any:
    """Return the tokens of a batch, which are checked.

    Args:
        ids: a tensor, (batch, tokens). name: of the argument.

    Raises:
        ValueError: it is missing, empty or of another number of dimensions; the message names the argument.
    """
    if ids is None or ids.dim() != 2 or 0 in ids.shape:
        shape = None if ids is None else tuple(ids.shape)
        raise ValueError(f"`{name}` must be (batch, tokens) with at least one token, got {shape}.")
    return ids
