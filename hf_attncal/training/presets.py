"""Presets: settings made for a purpose, a file each in `presets/`, and settings that fit the amount of text.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hf_attncal.families import Family

from .sections import check_section, hints_of, merge_settings, read_settings
from .settings import Settings
from .text import Texts

LEAST_PAIRS, MOST_PAIRS = 2_000, 2_000_000
# Where the two sides of most rules meet: the text of configs/translation/wpt03_small.yaml, whose numbers these are.
_ANCHOR = 100_000
_EVALUATIONS = 4
_CHECKPOINTS = 20
_AVERAGED = 5
_FOLDER = Path(__file__).with_name("presets")
_FITTED = ("small", "probe")  # presets whose sizes and steps follow from the amount of text
_HARDENED = 2 / 3  # of the steps
_ANNEALED = 2 / 3  # of the steps, as in Lu et al. (2021): 1e5 of 150,000
_MASK_COST = 0.1  # docs/experiments/translation.md, "A mask network that always learns"
_SHARES = ("warmup_steps", "logging_steps", "eval_steps", "save_steps")


def preset_names(job: str) -> tuple[str, ...]:
    """Return the names of the presets of a job ("translation", "adapter", "aligner", "language")."""
    return tuple(sorted(path.stem for path in (_FOLDER / job).glob("*.yaml")))


def read_preset(job: str, name: str) -> dict[str, Any]:
    """Read the sections of a preset."""
    return read_settings(_FOLDER / job / f"{name}.yaml")


def sections_of(
    config_class: type[Settings],
    values: dict[str, Any],
    fitted: Callable[[int, int | None], dict[str, Any]],
    texts: Texts,
) -> dict[str, Any]:
    """Return the sections of the preset that `values` name, fitted to their text.

    Args:
        config_class: class of the settings of the job.
        values: settings as YAML gives them.
        fitted: gives sections for a number of lines of text, and of optimiser steps (None: as many as fit the text).
        texts: reads the text.

    Raises:
        ValueError: no such preset, or no text to fit it to.
    """
    name, job = values["preset"], config_class.job
    check_section({"preset": name}, {"preset": Literal[preset_names(job)]})
    sections = read_preset(job, name)
    if name in _FITTED:
        steps = config_class.steps_given(values)
        fitting = fitted(count_lines(values.get("data", {}), config_class, texts), steps or None)
        if "num_train_epochs" in values.get("training", {}) and not steps:  # how many steps is up to the tokens
            planned = fitting["training"].pop("max_steps")
            fitting["training"] |= {key: fitting["training"][key] / planned for key in _SHARES}
        sections = merge_settings(fitting, sections)
    return sections


def check_preset(job: str, preset: str | None, family: Family, families: dict[str, Family]) -> None:
    """Raise ValueError if a preset of the job is not for this family; `families` are those that the job can train."""
    if preset in preset_names(job) and preset not in family.presets:
        others = ", ".join(other.name for other in families.values() if preset in other.presets)
        fitting = " or ".join(repr(name) for name in preset_names(job) if name in family.presets)
        raise ValueError(
            f"`preset` must be {fitting} with `model.backbone` {family.name}, got {preset!r}, which is for {others}."
        )


def anneal(sections: dict[str, Any], section: str, values: dict[str, Any]) -> None:
    """Let an annealed calibration of a preset be annealed when two thirds of the steps are done.

    Args:
        sections: defaults, which are changed.
        section: name of the section with the switches.
        values: settings as YAML gives them.
    """
    switches = sections[section] | values.get(section, {})
    if switches.get("calibration") == "annealed" and "annealing_steps" not in switches:
        steps = (sections["training"] | values.get("training", {})).get("max_steps", 0)
        if steps > 0:
            sections[section]["annealing_steps"] = round(_ANNEALED * steps)


def wait_for_attention(sections: dict[str, Any], values: dict[str, Any]) -> None:
    """Let the mask network of a new, calibrated model of a preset wait until its attention is of use.

    Args:
        sections: defaults, which are changed.
        values: settings as YAML gives them.
    """
    given = values.get("model", {})
    if given.get("calibration") and not given.get("init_from"):
        sections["model"]["mask_cost"] = _MASK_COST


def harden(sections: dict[str, Any], values: dict[str, Any]) -> None:
    """Give a Discrete Transformer of a preset what hard attention is learned with (docs/experiments/other_models.md).

    Relative positions, no noise, and one-hot weights that have taken the place of soft ones when two thirds of the
    steps are done.

    Args:
        sections: defaults, which are changed.
        values: settings as YAML gives them.
    """
    model_settings = values.get("model", {})
    if model_settings.get("hard_attention") is False or model_settings.get("init_from"):
        return
    model = {"relative_positions": 16, "gumbel_noise": 0.0}
    steps = (sections["training"] | values.get("training", {})).get("max_steps", 0)
    if "gumbel_straight_through" not in model_settings and steps > 0:
        model |= {"gumbel_straight_through": True, "gumbel_straight_through_steps": round(_HARDENED * steps)}
    sections["model"] |= model


def count_lines(section: dict[str, Any], config_class: type[Settings], texts: Texts) -> int:
    """Return the number of lines of the training text, of each side, that a section `data` names.

    Raises:
        ValueError: it names none, or text that cannot be read.
    """
    data_class = hints_of(config_class)["data"]
    check_section(section, hints_of(data_class), "data")
    data = data_class(**section)
    data.texts = texts
    data.check(config_class.links)
    return data.size()


# ---- settings by the amount of text ----


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
    del sections["evaluation"]
    both = sections["model"]
    model = {name: both[name] for name in both if not name.startswith("encoder_") and name != "label_smoothing"}
    sections["model"] = model | {"decoder_layers": 4, "decoder_ffn_dim": 4 * both["d_model"]}
    return sections


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
