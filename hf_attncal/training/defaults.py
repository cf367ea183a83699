"""Settings that fit the amount of text: what a run has where its user says nothing.

A "small" run is made for two CPU cores and about half an hour at 100,000 pairs, less for fewer. Every number is a
smooth, rounded function of the number of pairs between 2,000 and 2,000,000; below and above, that of the nearer end.
docs/log.md says what was measured; at 100,000 pairs these are the settings of
configs/translation/wpt03_small.yaml, and above that they go on in the same direction, unmeasured.

- Little text needs nearly as many steps as much of it: until attention has found which words belong together, hundreds
  of steps pass at any size, and a model that has not come so far cannot translate.
- A shallow, narrow model gets there first, and with subwords that are nearly words: sentences are short then.
- The peak of the learning rate is that of the width, 0.5 / d_model.
- Warm-up, evaluations and checkpoints are shares of the steps, so a run of another length keeps its shape: give
  `steps`.
"""

import math
from typing import Any

LEAST_PAIRS, MOST_PAIRS = 2_000, 2_000_000
# Where the two sides of most rules meet: the text of configs/translation/wpt03_small.yaml, whose numbers these are.
_ANCHOR = 100_000
_EVALUATIONS = 4
_CHECKPOINTS = 20
_AVERAGED = 5


def translation_defaults(pairs: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of a small Marian for so many pairs, as in `configs/reference_translation.yaml`.

    Args:
        pairs: number of pairs of the training text.
        steps: optimiser steps instead of those that fit the text; warm-up, evaluations and checkpoints follow.

    Raises:
        ValueError: `pairs` or `steps` below 1.
    """
    text = _size(pairs)
    width = min(256, _rounded(256 * text**0.5, 64, least=128))
    layers = 2 if width < 256 else 3
    return {
        "tokenizer": {"vocab_size": _rounded(8000 * _power(text, 0.125, 0.4), 500)},
        "model": {
            "attn_implementation": "eager",  # on a CPU in bfloat16 twice as fast as sdpa
            "d_model": width,
            "encoder_layers": layers,
            "decoder_layers": layers,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 2 * width,
            "decoder_ffn_dim": 2 * width,
            "activation_function": "relu",
            "max_position_embeddings": 512,
            "scale_embedding": True,
            "init_std": round(0.7 * width**-0.5, 3),
            "dropout": _dropout(text),
            "label_smoothing": 0.1,
        },
        "training": {
            **_schedule(_rounded(4000 * _power(text, 0.2, 0.35), 100) if steps is None else steps),
            "tokens_per_batch": _rounded(2048 * text**0.1, 128),
            "learning_rate": round(0.5 / width, 4),
        },
        "evaluation": {"dev_lines": 500},
        "average_last": _AVERAGED,
    }


def recurrent_defaults(pairs: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of a small recurrent model (`luong`) for so many pairs.

    Those of a Marian for as many, but for the model itself; not measured by the amount of text. (The learning rate was
    chosen on the dev text of Multi30k.)

    Args:
        pairs: number of pairs of the training text, translations or summaries.
        steps: as for `translation_defaults`.

    Raises:
        ValueError: `pairs` or `steps` below 1.
    """
    sections = translation_defaults(pairs, steps)
    sections["model"] = {
        "d_model": 256,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "bidirectional": True,
        "dropout": round(sections["model"]["dropout"] + 0.1, 2),
        "label_smoothing": sections["model"]["label_smoothing"],
    }
    return sections


def language_defaults(lines: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of a small language model, as in `configs/reference_language.yaml`.

    Those of a translation model for as many pairs, with four layers; not measured.

    Args:
        lines: number of lines of the training text.
        steps: as for `translation_defaults`.

    Raises:
        ValueError: `lines` or `steps` below 1.
    """
    sections = translation_defaults(lines, steps)
    both = sections["model"]
    kept = ("attn_implementation", "d_model", "activation_function", "max_position_embeddings", "scale_embedding")
    return {
        "tokenizer": sections["tokenizer"],
        "model": {
            **{name: both[name] for name in (*kept, "init_std", "dropout")},
            "decoder_layers": 4,
            "decoder_attention_heads": both["decoder_attention_heads"],
            "decoder_ffn_dim": 4 * both["d_model"],
        },
        "training": sections["training"],
        "average_last": sections["average_last"],
    }


def adapter_defaults(pairs: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of an adapter's training, as in `configs/reference_adapter.yaml`.

    Fewer steps than a model from nothing needs: the adapted model can translate already.

    Args:
        pairs: number of pairs of the training text.
        steps: optimiser steps instead of those that fit the text; warm-up, evaluations and checkpoints follow.

    Raises:
        ValueError: `pairs` or `steps` below 1.
    """
    text = _size(pairs)
    schedule = _schedule(_rounded(800 * text**0.35, 100) if steps is None else steps)
    schedule["save_steps"] = schedule["eval_steps"]  # nothing is averaged
    return {
        "model": {"attn_implementation": "eager", "label_smoothing": 0.1},
        "training": {**schedule, "tokens_per_batch": _rounded(2048 * text**0.1, 128), "learning_rate": 1e-3},
        "evaluation": {"dev_lines": 500},
    }


def _size(pairs: int) -> float:
    """Return the number of pairs as a multiple of the anchor's."""
    if pairs < 1:
        raise ValueError(f"`pairs` must be at least 1, got {pairs}.")
    return min(max(pairs, LEAST_PAIRS), MOST_PAIRS) / _ANCHOR


def _power(text: float, below: float, above: float) -> float:
    """Raise the size to a power, with one exponent below the anchor and another above it."""
    return text ** (below if text < 1 else above)


def _rounded(value: float, step: int, least: int = 0) -> int:
    """Return the nearest multiple of `step` that is not below `least`."""
    return max(least, step * round(value / step))


def _dropout(text: float) -> float:
    """Return 0.2 at 2,000 pairs, 0.1 from 100,000 on, and a line over the logarithm of the pairs between."""
    share = math.log(text) / math.log(LEAST_PAIRS / _ANCHOR)
    return round(0.1 + 0.1 * max(0.0, share), 2)


def _schedule(steps: int) -> dict[str, Any]:
    """Return warm-up, decay, evaluations and checkpoints for a run of so many steps."""
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps}.")
    return {
        "max_steps": steps,
        "warmup_steps": steps // 8,
        "lr_scheduler_type": "linear",
        "adam_beta2": 0.98,
        "max_grad_norm": 1.0,
        "logging_steps": max(1, min(50, steps // _CHECKPOINTS)),
        "eval_strategy": "steps",
        "eval_steps": max(1, steps // _EVALUATIONS),
        "save_strategy": "steps",
        "save_steps": max(1, steps // _CHECKPOINTS),
    }
