"""What `--model` of a training and `--calibration` of an adapter name: families, variants, and the job.

Several names are joined by `+`, in any order.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from hf_attncal.families import default_of, translators
from hf_attncal.io.errors import CommandError
from hf_attncal.variants import VARIANTS

from .asked import Asked

_JOBS = {"translator": "translation", "summarizer": "summarization"}
_LANGUAGE = "language"
_SLOTS = 50  # for words of a source that are not in the vocabulary
Rows = Mapping[str, dict[str, Any]]


def model_names() -> Rows:
    """Return the names of `--model`, each with its settings of the section `model`, or its `job`."""
    families = translators().values()
    rows = {family.name: {"backbone": family.name} for family in families}
    rows |= {name: {"backbone": family.name} | own for family in families for name, own in family.forms.items()}
    rows |= {variant.name: {variant.field: variant.value} for variant in VARIANTS.values()}
    return rows | {"none": {"calibration": None}} | {name: {"job": job} for name, job in _JOBS.items()}


def adapter_names() -> Rows:
    """Return the names of `--calibration`, each with its settings of the section `adapter`."""
    rows = {variant.name: {variant.field: variant.value} for variant in VARIANTS.values() if variant.adapter}
    return rows | {"none": {"calibration": None}}


def chosen(text: str | None, option: str, rows: Rows) -> dict[str, Any]:
    """Return the settings of names that are joined by `+`.

    Raises:
        CommandError: an unknown name, or two that set one thing to different values.
    """
    settings: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name in text.split("+") if text else ():
        if name not in rows:
            raise CommandError(f"{option} must be names of {', '.join(rows)}, joined by +, got {name!r}.")
        for key, value in rows[name].items():
            if settings.setdefault(key, value) != value:
                raise CommandError(
                    f"`{names[key]}` and `{name}` of {option} cannot go together. Leave one of them out."
                )
            names.setdefault(key, name)
    return settings


def adapter_chosen(calibration: str | None, asked: Asked) -> dict[str, Any]:
    """Return the section `adapter` for the names of `--calibration`; links of the text are to be learned.

    Raises:
        CommandError: see `chosen`.
    """
    settings = chosen(calibration, "--calibration", adapter_names())
    return settings if asked.links is None else settings | {"guided": True}


def model_chosen(model: str | None, asked: Asked) -> tuple[str, dict[str, Any]]:
    """Return the job, and settings, for the names of `--model` and the text.

    Raises:
        CommandError: see `chosen`; names of another kind of text, or that a family does not take.
    """
    settings = chosen(model, "--model", model_names())
    job = _job(settings.pop("job", None), asked)
    if job == _LANGUAGE:
        if model is None and asked.config is None:
            warnings.warn(
                "there is no --target, so a language model is trained. Give --target for a model of pairs; "
                "--model discrete-1 says that a language model is meant.",
                stacklevel=2,
            )
        _check_language(model, settings)
        settings.pop("backbone", None)
        return job, {"model": settings} if settings else {}
    if asked.links is not None:
        settings["guided"] = True
    _check_family(settings)
    if settings.get("guided") and job == "summarization":
        raise CommandError("`guided` is for a translation, whose words have links. Leave it out for summaries.")
    base = {"model": settings} if settings else {}
    return job, _with_slots(base, asked) if settings.get("copy") else base


def _job(wanted: str | None, asked: Asked) -> str:
    """Return the job that names or text ask for, or else the settings.

    Raises:
        CommandError: text of another job, or a file that does not say its job.
    """
    if asked.source is not None and asked.target is None:
        if wanted is not None:
            raise CommandError(f"--model names a {wanted}, which is of pairs: give --target, too.")
        return _LANGUAGE
    job = (asked.file | asked.overrides).get("job")
    if wanted or not (job or (asked.config and asked.preset is None)):
        return wanted or "translation"
    jobs = (*_JOBS.values(), _LANGUAGE)
    if job not in jobs:
        raise CommandError(
            f"`job` must be {', '.join(jobs[:-1])} or {jobs[-1]} here, got {job!r}. Add it to {asked.config} "
            f"(`job: {jobs[0]}`), or to the command (`job={jobs[0]}`)."
        )
    return job


def _check_language(model: str | None, settings: dict[str, Any]) -> None:
    own = default_of(_LANGUAGE)
    crossing = next((name for name in model.split("+") if name in {*VARIANTS, "none"}), None) if model else None
    if crossing is not None or settings.get("backbone", own.name) != own.name:
        raise CommandError(
            f"`{crossing or model}` of --model is for pairs of --source and --target; of --source alone {own.label} "
            "is trained, a language model. Give --target, or leave the name out."
        )


def _check_family(settings: dict[str, Any]) -> None:
    """Raise CommandError if the settings have a variant that their family does not."""
    if "backbone" not in settings:
        return
    families = translators()
    family = families[settings["backbone"]]
    for field in sorted(settings.keys() - {"backbone", *family.switches}):
        names = [name for name, variant in VARIANTS.items() if variant.field == field]
        if not names:  # of a form of the family
            continue
        name = "none" if settings[field] is None else settings[field] if settings[field] in names else names[0]
        takers = " or ".join(other.label for other in families.values() if field in other.switches)
        taken = ", ".join(name for name, variant in VARIANTS.items() if variant.field in family.switches)
        raise CommandError(
            f"`{name}` is for {takers}, and `{family.name}` for {family.label}, which takes "
            f"{f'only {taken}' if taken else 'none'}. Leave one of them out."
        )


def _with_slots(base: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Add whole words and slots for other words, if a vocabulary is to be trained and the user says nothing else."""
    model, tokenizer = asked.section("model"), asked.section("tokenizer")
    if tokenizer.get("pretrained") or model.get("init_from") or tokenizer.get("kind", "words") != "words":
        return base
    slots = {"max_copied_tokens": model.get("max_copied_tokens", _SLOTS)}
    return base | {"model": base["model"] | slots, "tokenizer": {"kind": "words"}}
