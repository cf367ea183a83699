"""Training requests: turn files, names and `key=value` settings into the settings of a job, and run it."""

import copy
import os
import shlex
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.families import VARIANTS, Family, default_of, translators
from hf_attncal.inference.running import TextLanguages
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable
from hf_attncal.io.messages import silenced_if_quiet
from hf_attncal.metrics import records

from .sections import apply_overrides, merge_settings, read_settings

if TYPE_CHECKING:
    from .job import Job

_PRESETS = Path(__file__).with_name("presets")
_DEFAULT_PRESET = "small"
_JOB_OF_MODEL_NAME = {"translator": "translation", "summarizer": "summarization"}
_LANGUAGE = "language"
_COPY_SLOTS = 50  # copied words per source that are not in the vocabulary
Values = dict[str, Any]
Rows = Mapping[str, Values]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training; as text the lines that a command prints at its end.

    Args:
        folder: folder of the model.
        scores: content of results.json, or the settings after a dry run.
        lines: summary of the result, printed line by line.
    """

    folder: Path
    scores: Values
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass
class TrainingRequest:
    """Arguments of a training command; its files are checked when it is made.

    Args:
        function: name of the public function that was called.
        settings: `key=value` settings, which override all others.
        source, target: files of the training text; a language model has a source only.
        dev, test: files: source, target and links; source and target; or links of the text in `config`. A language
            model takes one text.
        links: file of links of the training text.
        output: folder of the model.
        config: name of a preset, or a YAML file of settings.
        minutes: time budget in minutes.
        default: preset in place of a missing `config`; None leaves the choice to the job.
        started: start of the run, by `time.monotonic`. Default: now.

    Raises:
        CommandError: a file is missing or of the wrong kind.
    """

    function: str
    settings: Sequence[str] = ()
    source: Paths | None = None
    target: Paths | None = None
    dev: Paths | None = None
    test: Paths | None = None
    links: str | os.PathLike[str] | None = None
    output: str | os.PathLike[str] | None = None
    config: str | os.PathLike[str] | None = None
    minutes: float | None = None
    default: str | None = _DEFAULT_PRESET
    started: float = field(default_factory=time.monotonic)
    file: Values = field(init=False)
    overrides: Values = field(init=False)

    def __post_init__(self):
        files = (
            name
            for paths in (self.source, self.target, self.dev, self.test, self.links)
            for name in _file_names(paths)
        )
        check_readable(*files)
        preset = self.preset
        if self.config is not None and preset is None:
            check_readable(os.fspath(self.config))
        with user_errors():
            self.overrides = apply_overrides({}, list(self.settings))
            self.file = {"preset": preset or self.default}
            if self.config is not None and preset is None:
                self.file = read_settings(self.config)

    @property
    def preset(self) -> str | None:
        """Preset named by `config`; None for a file (`./small`) or no `config`."""
        return self.config if self.config in {path.stem for path in _PRESETS.glob("*/*.yaml")} else None

    def set_languages(self, running: TextLanguages) -> None:
        """Set the languages of the text; they override the languages in `config`."""
        languages = running.languages
        if languages is not None:
            text = languages if isinstance(languages, str) else "-".join(languages)
            self.overrides = {"languages": text} | self.overrides

    def section(self, name: str) -> Values:
        """Return a section of the settings before its check; empty if it is no section."""
        sections = [values.get(name) for values in (self.file, self.overrides)]
        return {key: value for values in sections if isinstance(values, dict) for key, value in values.items()}

    def text(self, job: str) -> dict[str, Values]:
        """Return the entries of the section `data` for the files of each split.

        Raises:
            CommandError: too few or too many files for the job.
        """
        plain, entries = job == "language", {}
        if not plain and (self.source is None) != (self.target is None):
            raise CommandError("--source and --target belong together: give all or none.")
        if plain and self.links is not None:
            raise CommandError("--links is for pairs of --source and --target. Leave it out for a language model.")
        sides = {"text" if plain else "source": _file_names(self.source), "target": _file_names(self.target)}
        entries["train"] = sides | ({} if self.links is None else {"guide": os.fspath(self.links)})
        for split, files in (("dev", _file_names(self.dev)), ("test", _file_names(self.test))):
            if len(files) > (1 if plain else 3):
                rule = "one file of a language model" if plain else "SOURCE TARGET [LINKS]"
                raise CommandError(f"--{split} takes {rule}, got {len(files)} files.")
            keys = ("text",) if plain else ("source", "target", "gold")[-1 if len(files) == 1 else 0 :]
            entries[split] = dict(zip(keys, files, strict=False))
        return {split: {key: files for key, files in entry.items() if files} for split, entry in entries.items()}

    def values(self, job: str, base: Values) -> Values:
        """Return the settings for a job: from `config`, then `base` and the arguments, then `settings`.

        Args:
            job: name of the job.
            base: settings from the arguments of one command.

        Raises:
            CommandError: no text, no output folder, or a file of settings for another job.
        """
        values = copy.deepcopy(self.file)
        for split, entry in self.text(job).items():
            if entry:
                entry = {key: _absolute(names, values) for key, names in entry.items()}
                data = values.setdefault("data", {})
                # Links without text belong to the file's text; new text must not get the links of the file's text.
                data[split] = entry if entry.keys() & {"source", "text"} else (data.get(split) or {}) | entry
        if self.output is not None:
            merge_settings(values, {"training": {"output_dir": os.fspath(self.output)}})
        if self.minutes is not None:
            values["minutes"] = self.minutes
        merge_settings(merge_settings(values, base), self.overrides)
        for section, key, option in (("data", "train", "--source"), ("training", "output_dir", "--output")):
            if not (values.get(section) or {}).get(key):
                raise CommandError(f"{option} must be given, or `{section}.{key}` in the file of --config.")
        return values

    def run(
        self,
        job: str,
        load: Callable[[], type["Job"]],
        base: Values,
        *,
        use: str,
        dry_run: bool = False,
        resume: bool = False,
        scores: Callable[[Values], list[str]] = lambda results: [],
    ) -> TrainingResult:
        """Run a job and return its result.

        Args:
            job: name of the job.
            load: function that imports and returns the job's class.
            base: settings from the arguments of one command.
            use: command that uses the result, with `{}` for its folder.
            dry_run: print the settings and train nothing. Default: False.
            resume: go on from the last checkpoint. Default: False.
            scores: function that returns lines about the results. Default: no lines.

        Raises:
            CommandError: an error in settings or data.
            KeyboardInterrupt: the user interrupted the training; the message has the command that resumes it.
        """
        typed = records.command_line()
        with user_errors(), records.recorded_as(f"hf_attncal.{self.function}"):
            values, runs = self.values(job, base), load()
            config = runs.settings.make(values)
            folder = config.training["output_dir"]
            if dry_run:
                return TrainingResult(
                    Path(folder), runs.train(config, resume=resume, dry_run=True, started=self.started)
                )
            with silenced_if_quiet():
                results = runs.train(config, resume=resume, command=typed, started=self.started)
        lines = [
            f"{folder}: {results['steps']} steps in {results['wall_seconds'] / 60:.1f} minutes",
            f"Use it: {use.format(shlex.quote(folder))}",
        ]
        verdict = [results["verdict"]["text"]] if "verdict" in results else []
        return TrainingResult(Path(folder), results, (*lines, *scores(results), *verdict))


def _file_names(paths: Paths | None) -> list[str]:
    """Return file names as a list; None is an empty one."""
    if paths is None:
        return []
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def _absolute(names: str | list[str], values: Values) -> str | list[str]:
    """Return file names, as absolute paths if the settings have a `data.root`."""
    if not (values.get("data") or {}).get("root"):
        return names
    return str(Path(names).absolute()) if isinstance(names, str) else [str(Path(name).absolute()) for name in names]


# ---- names of --model and --calibration, joined by + ----


def model_names() -> Rows:
    """Map each name of `--model` to its settings in the section `model`, or to its `job`."""
    families = translators().values()
    rows: dict[str, Values] = {family.name: {"backbone": family.name} for family in families}
    rows |= {name: {"backbone": family.name} | own for family in families for name, own in family.forms.items()}
    rows |= {variant.name: {variant.field: variant.value} for variant in VARIANTS.values()}
    return rows | {"none": {"calibration": None}} | {name: {"job": job} for name, job in _JOB_OF_MODEL_NAME.items()}


def adapter_names() -> Rows:
    """Map each name of `--calibration` to its settings in the section `adapter`."""
    rows: dict[str, Values] = {v.name: {v.field: v.value} for v in VARIANTS.values() if v.adapter}
    return rows | {"none": {"calibration": None}}


def settings_of_names(text: str | None, option: str, rows: Rows) -> Values:
    """Return the settings of names joined by `+`.

    Raises:
        CommandError: an unknown name, or two names that set one key to different values.
    """
    settings: Values = {}
    names: dict[str, str] = {}
    for name in text.split("+") if text else ():
        if name not in rows:
            raise CommandError(f"{option} must be one or more of {', '.join(rows)}, joined by +, got {name!r}.")
        for key, value in rows[name].items():
            if settings.setdefault(key, value) != value:
                raise CommandError(
                    f"`{names[key]}` and `{name}` of {option} cannot go together. Leave one of them out."
                )
            names.setdefault(key, name)
    return settings


def adapter_settings(calibration: str | None, request: TrainingRequest) -> Values:
    """Return the section `adapter` for the names of `--calibration`; `--links` turns `guided` on.

    Raises:
        CommandError: see `settings_of_names`.
    """
    settings = settings_of_names(calibration, "--calibration", adapter_names())
    return settings if request.links is None else settings | {"guided": True}


def model_settings(model: str | None, request: TrainingRequest) -> tuple[str, Values]:
    """Return the job and its settings for the names of `--model` and the text.

    Raises:
        CommandError: unknown or conflicting names, names for another kind of text, or a variant that the family lacks.
    """
    settings = settings_of_names(model, "--model", model_names())
    job = _job(settings.pop("job", None), request)
    if job == _LANGUAGE:
        if model is None and request.config is None:
            warnings.warn(
                "no --target: training a language model. Give --target to train on pairs, or --model discrete-1 to "
                "silence this warning.",
                stacklevel=2,
            )
        own = default_of(_LANGUAGE)
        for name in model.split("+") if model else ():
            if model_names()[name].get("backbone") != own.name:
                raise CommandError(
                    f"`{name}` of --model needs --target; --source only trains a language model ({own.label}). Give "
                    "--target, or leave the name out."
                )
        settings.pop("backbone", None)
        return job, {"model": settings} if settings else {}
    if request.links is not None:
        settings["guided"] = True
    if "backbone" in settings:
        _check_variants(translators()[settings["backbone"]], settings)
    if settings.get("guided") and job == "summarization":
        raise CommandError("`guided` needs a translation, got a summarizer. Leave it out.")
    base = {"model": settings} if settings else {}
    model_section, tokenizer = request.section("model"), request.section("tokenizer")
    pretrained = tokenizer.get("pretrained") or model_section.get("init_from")
    if settings.get("copy") and not pretrained and tokenizer.get("kind", "words") == "words":
        settings["max_copied_tokens"] = model_section.get("max_copied_tokens", _COPY_SLOTS)
        base["tokenizer"] = {"kind": "words"}
    return job, base


def _check_variants(family: Family, settings: Values) -> None:
    """Raise CommandError for a variant that the family lacks."""
    for name, variant in VARIANTS.items():
        value = settings.get(variant.field, False)
        if value in (variant.value, None) and variant.field not in family.switches:
            variants = ", ".join(name for name, other in VARIANTS.items() if other.field in family.switches)
            raise CommandError(
                f"`{'none' if value is None else name}` of --model is not for {family.label}, which takes "
                f"{variants or 'no variant'}. Leave one of them out."
            )


def _job(wanted: str | None, request: TrainingRequest) -> str:
    """Return the job of the names or of the text, or else of the settings.

    Raises:
        CommandError: text of another job, or settings without a `job`.
    """
    if request.source is not None and request.target is None:
        if wanted is not None:
            raise CommandError(f"--model names a {wanted}, which needs pairs. Give --target.")
        return _LANGUAGE
    job = (request.file | request.overrides).get("job")
    if wanted or not (job or (request.config and request.preset is None)):
        return wanted or "translation"
    jobs = (*_JOB_OF_MODEL_NAME.values(), _LANGUAGE)
    if job not in jobs:
        raise CommandError(
            f"`job` must be {', '.join(jobs[:-1])} or {jobs[-1]} here, got {job!r}. Add it to {request.config} "
            f"(`job: {jobs[0]}`), or to the command (`job={jobs[0]}`)."
        )
    return job
