"""Presets: the settings files in `presets/`, and settings fitted to the amount of text.

A "small" run takes about half an hour on two CPU cores for 100,000 pairs. Each number is a smooth, rounded function of
the number of pairs, constant below 2,000 and above 2,000,000. Measurements are in docs/log.md. At 100,000 pairs these
are the settings of configs/translation/wpt03_small.yaml; larger texts are extrapolated, not measured.

- Little text needs nearly the same number of steps: it takes hundreds of steps at any size until attention links the
  right words, and before that a model cannot translate.
- A shallow, narrow model with long subwords gets there first, because sentences are short then.
- The peak of the learning rate depends on the width: 0.5 / d_model.
- Warm-up, evaluations and checkpoints are shares of the number of steps.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hf_attncal.families import Family

from .sections import check_section, hints_of, merge_settings, read_settings
from .settings import Settings

MIN_PAIRS, MAX_PAIRS = 2_000, 2_000_000
# Number of pairs of configs/translation/wpt03_small.yaml, at which most rules have their kink.
_ANCHOR = 100_000
_EVALUATIONS = 4
_CHECKPOINTS = 20
_AVERAGED = 5
_FOLDER = Path(__file__).with_name("presets")
_FITTED = ("small", "probe")  # presets with sizes and steps fitted to the amount of text
_HARDENED = 2 / 3  # share of the steps
_ANNEALED = 2 / 3  # share of the steps; Lu et al. (2021): 1e5 of 150,000
_MASK_COST = 0.1  # docs/experiments/translation.md, "A mask network that always learns"
_SHARES = ("warmup_steps", "logging_steps", "eval_steps", "save_steps")


def preset_names(job: str) -> tuple[str, ...]:
    """Return the names of the presets of a job ("translation", "adapter", "aligner", "language")."""
    return tuple(sorted(path.stem for path in (_FOLDER / job).glob("*.yaml")))


def read_preset(job: str, name: str) -> dict[str, Any]:
    """Read the sections of a preset."""
    return read_settings(_FOLDER / job / f"{name}.yaml")


def sections_of(
    config_class: type[Settings], values: dict[str, Any], fitted: Callable[[int, int | None], dict[str, Any]]
) -> dict[str, Any]:
    """Return the sections of the preset named in `values`, fitted to their text.

    Args:
        config_class: settings class of the job.
        values: settings as in YAML.
        fitted: function from number of lines and of optimiser steps (None: fitted to the text) to sections.

    Raises:
        ValueError: an unknown preset, or no text to fit it to.
    """
    name, job = values["preset"], config_class.job
    check_section({"preset": name}, {"preset": Literal[preset_names(job)]})
    sections = read_preset(job, name)
    if name in _FITTED:
        steps = config_class.explicit_steps(values)
        fitting = fitted(count_lines(values.get("data", {}), config_class), steps or None)
        if "num_train_epochs" in values.get("training", {}) and not steps:  # the number of steps depends on the tokens
            planned = fitting["training"].pop("max_steps")
            fitting["training"] |= {key: fitting["training"][key] / planned for key in _SHARES}
        sections = merge_settings(fitting, sections)
    return sections


def check_preset(job: str, preset: str | None, family: Family, families: dict[str, Family]) -> None:
    """Raise ValueError if a preset of the job does not support a family; `families` are all families of the job."""
    if preset in preset_names(job) and preset not in family.presets:
        others = ", ".join(other.name for other in families.values() if preset in other.presets)
        fitting = " or ".join(repr(name) for name in preset_names(job) if name in family.presets)
        raise ValueError(
            f"`preset` must be {fitting} with `model.backbone` {family.name}, got {preset!r} (for {others})."
        )


def anneal(sections: dict[str, Any], section: str, values: dict[str, Any]) -> None:
    """Set the annealing steps of a preset's annealed calibration to two thirds of the steps.

    Args:
        sections: defaults, changed in place.
        section: name of the section with the switches.
        values: settings as in YAML.
    """
    switches = sections[section] | values.get(section, {})
    if switches.get("calibration") == "annealed" and "annealing_steps" not in switches:
        steps = (sections["training"] | values.get("training", {})).get("max_steps", 0)
        if steps > 0:
            sections[section]["annealing_steps"] = round(_ANNEALED * steps)


def wait_for_attention(sections: dict[str, Any], values: dict[str, Any]) -> None:
    """Set a mask cost that delays the mask network of a new calibrated model until its attention is useful.

    Args:
        sections: defaults, changed in place.
        values: settings as in YAML.
    """
    section = values.get("model", {})
    if section.get("calibration") and not section.get("init_from"):
        sections["model"]["mask_cost"] = _MASK_COST


def harden(sections: dict[str, Any], values: dict[str, Any]) -> None:
    """Set the defaults with which a preset's Discrete Transformer learns hard attention.

    These are relative positions, no noise, and one-hot weights that replace soft ones after two thirds of the steps
    (docs/experiments/other_models.md).

    Args:
        sections: defaults, changed in place.
        values: settings as in YAML.
    """
    model_settings = values.get("model", {})
    if model_settings.get("hard_attention") is False or model_settings.get("init_from"):
        return
    model = {"relative_positions": 16, "gumbel_noise": 0.0}
    steps = (sections["training"] | values.get("training", {})).get("max_steps", 0)
    if "gumbel_straight_through" not in model_settings and steps > 0:
        model |= {"gumbel_straight_through": True, "gumbel_straight_through_steps": round(_HARDENED * steps)}
    sections["model"] |= model


def count_lines(section: dict[str, Any], config_class: type[Settings]) -> int:
    """Return the number of lines per side of the training text in a section `data`.

    Raises:
        ValueError: no training text, or text that cannot be read.
    """
    data_class = hints_of(config_class)["data"]
    check_section(section, hints_of(data_class), "data")
    data = data_class(**section)
    data.check(config_class.links)
    return data.size()


# ---- settings by the amount of text ----


def translation_defaults(pairs: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of a small Marian for a number of pairs, as in `configs/reference_translation.yaml`.

    Args:
        pairs: number of pairs of the training text.
        steps: number of optimiser steps, with which warm-up, evaluations and checkpoints scale. Default: fitted to the
            text.

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
    """Return settings of a small recurrent model (`luong`) for a number of pairs.

    All but the model is as for a Marian; the scaling with the amount of text is not measured. The learning rate was
    chosen on the dev text of Multi30k.

    Args:
        pairs: number of pairs of the training text, translations or summaries.
        steps: number of optimiser steps. Default: fitted to the text.

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

    They are the settings of a translation model with four layers; not measured.

    Args:
        lines: number of lines of the training text.
        steps: number of optimiser steps. Default: fitted to the text.

    Raises:
        ValueError: `lines` or `steps` below 1.
    """
    sections = translation_defaults(lines, steps)
    del sections["evaluation"]
    both = sections["model"]
    model = {name: both[name] for name in both if not name.startswith("encoder_") and name != "label_smoothing"}
    sections["model"] = model | {"decoder_layers": 4, "decoder_ffn_dim": 4 * both["d_model"]}
    return sections


def adapter_defaults(pairs: int, steps: int | None = None) -> dict[str, Any]:
    """Return settings of an adapter's training, as in `configs/reference_adapter.yaml`.

    There are fewer steps than for a new model, since the adapted model can already translate.

    Args:
        pairs: number of pairs of the training text.
        steps: number of optimiser steps, with which warm-up, evaluations and checkpoints scale. Default: fitted to the
            text.

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
    """Return the number of pairs as a multiple of `_ANCHOR`."""
    if pairs < 1:
        raise ValueError(f"`pairs` must be at least 1, got {pairs}.")
    return min(max(pairs, MIN_PAIRS), MAX_PAIRS) / _ANCHOR


def _power(text: float, below: float, above: float) -> float:
    """Raise the size to the power `below` under the anchor, `above` over it."""
    return text ** (below if text < 1 else above)


def _rounded(value: float, step: int, least: int = 0) -> int:
    """Return the nearest multiple of `step`, at least `least`."""
    return max(least, step * round(value / step))


def _dropout(text: float) -> float:
    """Return the dropout: 0.2 at 2,000 pairs, 0.1 from 100,000 on, linear in their logarithm between."""
    share = math.log(text) / math.log(MIN_PAIRS / _ANCHOR)
    return round(0.1 + 0.1 * max(0.0, share), 2)


def _schedule(steps: int) -> dict[str, Any]:
    """Return warm-up, decay, evaluations and checkpoints of a run of `steps` steps."""
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
