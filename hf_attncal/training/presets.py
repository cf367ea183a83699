"""Presets: settings made for a purpose, a file each in `presets/`, and those that follow from the amount of text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from hf_attncal.families import Family

from .settings import Settings
from .settings_types import check_section, hints_of
from .settings_yaml import merge_settings, read_settings
from .text import Texts

_FOLDER = Path(__file__).with_name("presets")
_FITTED = ("small", "probe")  # presets whose sizes and steps follow from the amount of text
_HARDENED = 2 / 3  # of the steps
_ANNEALED = 2 / 3  # of the steps, as in Lu et al. (2021): 1e5 of 150,000
_MASK_COST = 0.1  # docs/experiments/translation.md, "A mask network that always learns"
_SHARES = ("warmup_steps", "logging_steps", "eval_steps", "save_steps")


def names_of(job: str) -> tuple[str, ...]:
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
    check_section({"preset": name}, {"preset": Literal[names_of(job)]})
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
    if preset in names_of(job) and preset not in family.presets:
        others = ", ".join(other.name for other in families.values() if preset in other.presets)
        fitting = " or ".join(repr(name) for name in names_of(job) if name in family.presets)
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
