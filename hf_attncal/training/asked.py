"""From what a user asks for (files, names, `key=value`) to the settings of a job, and its run."""

import copy
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.inference.running import Spoken
from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.messages import job_progress
from hf_attncal.io.streams import check_readable
from hf_attncal.metrics import records

from .settings_yaml import apply_overrides, merge_settings, read_settings

if TYPE_CHECKING:
    from .job import Job

_PRESETS = Path(__file__).with_name("presets")
_DEFAULT_PRESET = "small"
Values = dict[str, Any]
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
            with job_progress():
                changed = self.changed is not None
                how = {"resume": resume or changed, "allow_changes": changed, "command": typed}
                results = runs.train(config, **how, started=self.started)
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
