"""From what a user asks for (files, names, `key=value`) to the settings of a job, and its run."""

import copy
import os
import shlex
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.families import Family, default_of, translators
from hf_attncal.inference.running import Spoken
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import check_readable
from hf_attncal.io.messages import silenced_if_quiet
from hf_attncal.metrics import records
from hf_attncal.variants import VARIANTS

from .sections import apply_overrides, merge_settings, read_settings

if TYPE_CHECKING:
    from .job import Job

_PRESETS = Path(__file__).with_name("presets")
_DEFAULT_PRESET = "small"
_JOBS = {"translator": "translation", "summarizer": "summarization"}
_LANGUAGE = "language"
_SLOTS = 50  # for words of a source that are not in the vocabulary
Values = dict[str, Any]
Rows = Mapping[str, Values]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Trained:
    """What a training has left; as text the lines that a command prints at its end.

    Args:
        folder: folder of the model.
        scores: content of results.json; of a dry run the settings.
        lines: what to say of it.
    """

    folder: Path
    scores: Values
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Asked:
    """What a user asks a training for, and the files and folders are there.

    Args:
        function: name of the public function that was called.
        settings: `key=value`, which go before all else; `resume=changed` is for the run, not for its job.
        source, target: files of the training text; a language model has a source alone.
        dev, test: source, target and links; source and target; or links of the text of `config`. Of a language model
            a text.
        links: file of links of the training text.
        output: folder of the model.
        config: name of a preset, or a YAML file of settings.
        minutes: time budget.
        default: the preset without `config`; None: the job chooses.
        started: when it began, by `time.monotonic`.

    Raises:
        CommandError: a file is missing, or cannot be what it is given for.
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
            name for paths in (self.source, self.target, self.dev, self.test, self.links) for name in named(paths)
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
        self.changed = self.overrides.pop("resume", None)
        if self.changed not in (None, "changed"):
            raise CommandError(f"`resume` must be changed (go on with other settings or data), got {self.changed!r}.")

    @property
    def preset(self) -> str | None:
        """The preset that `config` names; None if it is a file, as `./small` is, or left out."""
        return self.config if self.config in {path.stem for path in _PRESETS.glob("*/*.yaml")} else None

    def speak(self, running: Spoken) -> None:
        """Take the languages of the text, which go before those of `config`."""
        if running.languages is not None:
            given = running.languages
            self.overrides = {"languages": given if isinstance(given, str) else "-".join(given)} | self.overrides

    def section(self, name: str) -> Values:
        """Return a section of the settings, not checked yet; empty where it is no section."""
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
        sides = {"text" if plain else "source": named(self.source), "target": named(self.target)}
        entries["train"] = sides | ({} if self.links is None else {"guide": os.fspath(self.links)})
        for split, files in (("dev", named(self.dev)), ("test", named(self.test))):
            if len(files) > (1 if plain else 3):
                rule = "one file of a language model" if plain else "SOURCE TARGET [LINKS]"
                raise CommandError(f"--{split} takes {rule}, got {len(files)} files.")
            keys = ("text",) if plain else ("source", "target", "gold")[-1 if len(files) == 1 else 0 :]
            entries[split] = dict(zip(keys, files, strict=False))
        return {split: {key: given for key, given in entry.items() if given} for split, entry in entries.items()}

    def values(self, job: str, base: Values) -> Values:
        """Return the settings for a job: those of `config`, then `base` and the arguments, then `settings`.

        Args:
            job: its name.
            base: settings of arguments that one command alone has.

        Raises:
            CommandError: no text, no output folder, or a file of settings for another job.
        """
        values = copy.deepcopy(self.file)
        for split, entry in self.text(job).items():
            if entry:
                entry = {key: _absolute(given, values) for key, given in entry.items()}
                data = values.setdefault("data", {})
                # Links alone are of the text of the file, and text has no links of another.
                data[split] = entry if entry.keys() & {"source", "text"} else (data.get(split) or {}) | entry
        if self.output is not None:
            merge_settings(values, {"training": {"output_dir": os.fspath(self.output)}})
        if self.minutes is not None:
            values["minutes"] = self.minutes
        merge_settings(merge_settings(values, base), self.overrides)
        for section, key, option in (("data", "train", "--source"), ("training", "output_dir", "--output")):
            if not (values.get(section) or {}).get(key):
                raise CommandError(f"{option} must be given, or `{section}.{key}` in the file of --config.")
        if values.get("job", job) != job:
            raise CommandError(
                f"{self.config or 'the settings'}: `job` is {values['job']}, and this command trains another: {job}. "
                "Give it settings of that job."
            )
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
    ) -> Trained:
        """Run a job, and say where its result is.

        Args:
            job: its name.
            load: imports and returns its class.
            base: as for `values`.
            use: command that uses the result, with `{}` in the place of its folder.
            dry_run: train nothing.
            resume: go on from the last checkpoint.
            scores: returns lines about the results.

        Raises:
            CommandError: whatever is wrong with settings or data.
            KeyboardInterrupt: with how to go on.
        """
        typed = records.command_line()
        with user_errors(), records.recorded_as(f"hf_attncal.{self.function}"):
            values, runs = self.values(job, base), load()
            config = runs.settings.make(values)
            folder = config.training["output_dir"]
            if dry_run:
                return Trained(Path(folder), runs.train(config, resume=resume, dry_run=True, started=self.started))
            changed = self.changed is not None
            with silenced_if_quiet():
                results = runs.train(
                    config,
                    resume=resume or changed,
                    allow_changes=changed,
                    command=typed,
                    started=self.started,
                )
        lines = [
            f"{folder}: {results['steps']} steps in {results['wall_seconds'] / 60:.1f} minutes",
            f"Use it: {use.format(shlex.quote(folder))}",
        ]
        told = [results["verdict"]["text"]] if "verdict" in results else []
        return Trained(Path(folder), results, (*lines, *scores(results), *told))


def named(paths: Paths | None) -> list[str]:
    """Return one file or several, or none, as a list of names."""
    if paths is None:
        return []
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def _absolute(given: str | list[str], values: Values) -> str | list[str]:
    """Return the names of files as absolute paths if the files of `config` are under a folder."""
    if not (values.get("data") or {}).get("root"):
        return given
    return str(Path(given).absolute()) if isinstance(given, str) else [str(Path(name).absolute()) for name in given]


# ---- names of --model and --calibration, joined by + in any order ----


def model_names() -> Rows:
    """Return the names of `--model`, each with its settings of the section `model`, or its `job`."""
    families = translators().values()
    rows: dict[str, Values] = {family.name: {"backbone": family.name} for family in families}
    rows |= {name: {"backbone": family.name} | own for family in families for name, own in family.forms.items()}
    rows |= {variant.name: {variant.field: variant.value} for variant in VARIANTS.values()}
    return rows | {"none": {"calibration": None}} | {name: {"job": job} for name, job in _JOBS.items()}


def adapter_names() -> Rows:
    """Return the names of `--calibration`, each with its settings of the section `adapter`."""
    rows: dict[str, Values] = {v.name: {v.field: v.value} for v in VARIANTS.values() if v.adapter}
    return rows | {"none": {"calibration": None}}


def chosen(text: str | None, option: str, rows: Rows) -> Values:
    """Return the settings of names that are joined by `+`.

    Raises:
        CommandError: an unknown name, or two that set one thing to different values.
    """
    settings: Values = {}
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


def adapter_chosen(calibration: str | None, asked: Asked) -> Values:
    """Return the section `adapter` for the names of `--calibration`; links of the text are to be learned.

    Raises:
        CommandError: see `chosen`.
    """
    settings = chosen(calibration, "--calibration", adapter_names())
    return settings if asked.links is None else settings | {"guided": True}


def model_chosen(model: str | None, asked: Asked) -> tuple[str, Values]:
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
        own = default_of(_LANGUAGE)
        for name in model.split("+") if model else ():
            if model_names()[name].get("backbone") != own.name:
                raise CommandError(
                    f"`{name}` of --model is for pairs of --source and --target; of --source alone {own.label} is "
                    "trained, a language model. Give --target, or leave the name out."
                )
        settings.pop("backbone", None)
        return job, {"model": settings} if settings else {}
    if asked.links is not None:
        settings["guided"] = True
    if "backbone" in settings:
        _check_variants(translators()[settings["backbone"]], settings)
    if settings.get("guided") and job == "summarization":
        raise CommandError("`guided` is for a translation, whose words have links. Leave it out for summaries.")
    base = {"model": settings} if settings else {}
    asked_model, tokenizer = asked.section("model"), asked.section("tokenizer")
    pretrained = tokenizer.get("pretrained") or asked_model.get("init_from")
    if settings.get("copy") and not pretrained and tokenizer.get("kind", "words") == "words":
        settings["max_copied_tokens"] = asked_model.get("max_copied_tokens", _SLOTS)
        base["tokenizer"] = {"kind": "words"}
    return job, base


def _check_variants(family: Family, settings: Values) -> None:
    """Raise CommandError for a variant that the family does not have."""
    for name, variant in VARIANTS.items():
        value = settings.get(variant.field, False)
        if value in (variant.value, None) and variant.field not in family.switches:
            taken = ", ".join(name for name, other in VARIANTS.items() if other.field in family.switches)
            raise CommandError(
                f"`{'none' if value is None else name}` of --model is not for {family.label}, which takes "
                f"{taken or 'no variant'}. Leave one of them out."
            )


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
