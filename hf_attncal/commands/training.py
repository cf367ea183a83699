"""Parts of `attncal train`, `attncal adapt` and `attncal align train`: options, settings, the last line."""

import argparse
import copy
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from hf_attncal.data.streams import check_folder, check_readable
from hf_attncal.errors import CommandError, user_errors
from hf_attncal.messages import job_progress

from .common import positive

_PRESETS = Path(__file__).parents[1] / "training" / "presets"
_SETTING = re.compile(r"[a-z_]+(\.\w+)*=")
_SIDES = ("source", "target", "gold")  # belong together
CALIBRATIONS = ("fixed", "annealed", "gated", "none")
# Option -> section and key of the settings.
_KEYS = {
    "lowercase": ("data", "lowercase"),
    "tokenize": ("data", "raw_text"),
    "fold": ("data", "fold"),
    "output": ("training", "output_dir"),
    "epochs": ("training", "num_train_epochs"),
    "steps": ("training", "max_steps"),
    "seed": ("training", "seed"),
    "license": ("card", "license"),
    "tokenizer": ("tokenizer", "pretrained"),
    "init_from": ("model", "init_from"),
}
Values = dict[str, Any]


def add_text(parser: argparse.ArgumentParser, **splits: str) -> argparse._ArgumentGroup:
    """Add the options for the text; returns their group.

    Args:
        parser: parser of the command.
        splits: what happens without the text of a split ("dev", "test").
    """
    text = parser.add_argument_group("text (without it, that of --config)")
    text.add_argument(
        "--source", nargs="+", metavar="FILE", help="source sentences, one in a line; .gz, .xz and .zst too"
    )
    text.add_argument("--target", nargs="+", metavar="FILE", help="target sentences, as many lines")
    for split, without in splits.items():
        text.add_argument(
            f"--{split}-source", metavar="FILE", help=f"sentences of {split} text; without it, {without}"
        )
        text.add_argument(f"--{split}-target", metavar="FILE", help="their translations")
    text.add_argument("--lowercase", action="store_true", default=None, help="lower-case all text")
    return text


def add_output(parser: argparse.ArgumentParser, *jobs: str) -> argparse._ArgumentGroup:
    """Add the options for what is made of the presets of the command's jobs; returns their group, "model"."""
    model = parser.add_argument_group("model")
    model.add_argument(
        "--output", metavar="FOLDER", help="for the model and its checkpoints; without it, that of --config"
    )
    names = sorted({path.stem for job in jobs for path in (_PRESETS / job).glob("*.yaml")})
    model.add_argument(
        "--preset", choices=names, help="what the settings are made for; without it small, or what --config says"
    )
    model.add_argument(
        "--config", metavar="FILE", help="YAML file of settings, which options go before; without it, a preset"
    )
    model.add_argument(
        "--license", metavar="NAME", help="of the model, for its card (cc-by-4.0, ...); without it, none"
    )
    return model


def add_switches(model: argparse._ArgumentGroup, default: str, *others: tuple[str, str]) -> None:
    """Add the switches of the cross-attention (see `switches_of`).

    Args:
        model: the group "model".
        default: value of --calibration without the option, for its help.
        others: switches that are on or off beside --leaky, with their help.
    """
    model.add_argument(
        "--calibration",
        choices=CALIBRATIONS,
        help=f"of the cross-attention, by what the model really uses; without it {default}, or what --config says",
    )
    for name, text in (("leaky", "attention may look at nothing"), *others):
        model.add_argument(f"--{name}", action="store_true", help=text)


def add_guide(text: argparse._ArgumentGroup, model: argparse._ArgumentGroup) -> None:
    """Add what a head that learns links needs: --guided, --guide, and --dev-gold and --test-gold to measure it."""
    model.add_argument(
        "--guided",
        action="store_true",
        help="one head of the cross-attention learns word links, for translations with good alignments; which head: "
        "`guided_layer` and `guided_head` in the settings, without them the first of the second last layer",
    )
    text.add_argument(
        "--guide",
        metavar="FILE",
        help="links of the training pairs in Pharaoh format, for --guided, which it implies; without it, --guided "
        "learns those of an aligner that counts",
    )
    for split in ("dev", "test"):
        text.add_argument(
            f"--{split}-gold",
            metavar="FILE",
            help=f"links of the {split} text in Pharaoh format, to measure a guided head with; without it, none is",
        )


def add_links(text: argparse._ArgumentGroup, learned: argparse._ArgumentGroup, without: str) -> None:
    """Add --dev-gold, --test-gold and --guide of an aligner; `without` says which links it learns without --guide."""
    for split in ("dev", "test"):
        text.add_argument(
            f"--{split}-gold",
            metavar="FILE",
            help=f"their links in Pharaoh format, counted from 0, `p` or `?`: possible; all three of {split} or none",
        )
    learned.add_argument(
        "--guide",
        metavar="FILE",
        help=f"links of the training pairs in Pharaoh format, from any other aligner; without it, {without}",
    )


def switches_of(options: argparse.Namespace) -> Values:
    """Return the given switches as settings."""
    switches: Values = {name: True for name in ("leaky", "gumbel", "guided") if getattr(options, name, False)}
    if getattr(options, "guide", None):
        switches["guided"] = True
    if options.calibration:
        switches["calibration"] = None if options.calibration == "none" else options.calibration
    return switches


def add_start(model: argparse._ArgumentGroup, what: str) -> None:
    """Add --tokenizer and --init-from: what a training begins with; `what` may be gone on from."""
    model.add_argument(
        "--tokenizer", metavar="NAME", help="fast tokenizer of a folder or Hub name; without it, one is trained"
    )
    model.add_argument("--init-from", metavar="MODEL", help=f"{what} to go on from; without it, from nothing")


def add_running(parser: argparse.ArgumentParser, *jobs: str) -> None:
    """Add the options for how a training runs, and `section.key=value`, which may stand anywhere."""
    running = parser.add_argument_group("running")
    length = running.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="optimiser steps; without it, as many as fit the text")
    length.add_argument("--epochs", type=float, help="passes over the text; without it, --steps")
    running.add_argument("--minutes", type=float, help="time budget, for fewer steps if need be; without it, no limit")
    running.add_argument("--seed", type=int, help="of the model and of the order of the text; without it, 1")
    running.add_argument("--dry-run", action="store_true", help="say what would be trained and how long, no more")
    running.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    running.add_argument("--allow-changes", action="store_true", help="--resume with other settings or data")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="section.key=value",
        help="any other setting, as in " + " or ".join(f"configs/reference_{job}.yaml" for job in jobs),
    )
    parse = parser.parse_known_args

    def parse_known_args(args=None, namespace=None):
        """Parse settings anywhere: argparse would take them for a positional argument or the last file of --source."""
        found = [argument for argument in args if _SETTING.match(argument)]
        options, unknown = parse([argument for argument in args if argument not in found], namespace)
        options.settings += found
        options.command = [*parser.prog.split(), *args]
        return options, unknown

    parser.parse_known_args = parse_known_args


def check_options(options: argparse.Namespace, optional: Collection[str] = ()) -> None:
    """Refuse files and folders that cannot be what they are given for, before anything is loaded.

    Args:
        options: options of the command.
        optional: which of source, target and gold may be missing where the others of a split are given.

    Raises:
        CommandError: a file is refused; the message names it.
    """
    for prefix in ("", "dev_", "test_"):
        text = getattr(options, f"{prefix}text", None) or []
        check_readable(*([text] if isinstance(text, str) else text))
        sides = {name: getattr(options, f"{prefix}{name}", None) for name in _SIDES}
        names = [f"--{prefix}{name}".replace("_", "-") for name in sides if hasattr(options, f"{prefix}{name}")]
        files = [file for file in sides.values() if file is not None]
        needed = [name for name in names if name.rpartition("-")[2] not in optional]
        if files and any(sides[name.rpartition("-")[2]] is None for name in needed):
            raise CommandError(f"{', '.join(needed[:-1])} and {needed[-1]} belong together: give all or none.")
        check_readable(*(name for file in files for name in ([file] if isinstance(file, str) else file)))
    check_readable(options.config, getattr(options, "guide", None))
    if options.output is not None:
        check_folder(options.output)


class Stated(NamedTuple):
    """Settings that a user wrote: in the file of --config, and as `section.key=value` behind it."""

    file: Values
    overrides: Values

    def section(self, name: str) -> Values:
        """Return a section with the overrides in it, not checked yet; empty where it is no section."""
        sections = [values.get(name) for values in self]
        return {key: value for values in sections if isinstance(values, dict) for key, value in values.items()}


def stated_settings(options: argparse.Namespace) -> Stated:
    """Read what a user wrote; the file is parsed here, and nowhere else.

    Raises:
        CommandError: the file, or a setting, cannot be read.
    """
    from hf_attncal.training.settings_yaml import apply_overrides, read_settings

    with user_errors():
        return Stated(read_settings(options.config) if options.config else {}, apply_overrides({}, options.settings))


def settings_of(options: argparse.Namespace, *, base: Values | None = None, stated: Stated | None = None) -> Values:
    """Return the settings for a command: those of --config, then options, then `section.key=value`.

    Args:
        options: options of the command.
        base: settings of options that this command alone has.
        stated: what the user wrote, if it has been read.

    Raises:
        CommandError: no text, or no output folder.
        ValueError, OSError: the file cannot be read, or a setting.
    """
    from hf_attncal.training.settings_yaml import merge_settings

    file, overrides = stated or stated_settings(options)
    values = copy.deepcopy(file)
    if options.preset or not options.config:
        values["preset"] = options.preset or "small"
    for split, prefix in (("train", ""), ("dev", "dev_"), ("test", "test_")):
        entry = {name: getattr(options, f"{prefix}{name}", None) for name in (*_SIDES, "guide", "text")}
        entry = {name: _absolute(given, values) for name, given in entry.items() if given}
        if entry:
            data = values.setdefault("data", {})
            # Links alone are of the text of the file, and text has no links of another.
            data[split] = entry if entry.keys() & {"source", "target", "text"} else (data.get(split) or {}) | entry
    for option, (section, key) in _KEYS.items():
        given = getattr(options, option, None)
        if given is not None:
            merge_settings(values, {section: {key: given}})
    if options.minutes is not None:
        values["minutes"] = options.minutes
    merge_settings(merge_settings(values, base or {}), overrides)
    train = "--source and --target, or --text," if hasattr(options, "text") else "--source and --target"
    for section, key, option in (("data", "train", train), ("training", "output_dir", "--output")):
        if not (values.get(section) or {}).get(key):
            raise CommandError(f"{option} must be given, or `{section}.{key}` in the file of --config.")
    return values


def _absolute(given: str | list[str], values: Values) -> str | list[str]:
    """Return files of the command line, as absolute paths if the files of --config are under a folder."""
    if not (values.get("data") or {}).get("root"):
        return given
    return str(Path(given).absolute()) if isinstance(given, str) else [str(Path(name).absolute()) for name in given]


def run_training(
    options: argparse.Namespace, job: str, *, use: str, base: Values | None = None, stated: Stated | None = None
) -> Values | None:
    """Run a job with the settings of a command, and say where its result is.

    Args:
        options: options of the command.
        job: its name, as `training.job.JOBS` has it.
        use: command that uses the result, with `{}` in the place of its folder.
        base, stated: see `settings_of`.

    Returns:
        Its results; None after a dry run.

    Raises:
        CommandError: whatever is wrong with settings or data.
        KeyboardInterrupt: with how to go on.
    """
    from hf_attncal.training.job import JOBS

    running = {"resume": options.resume, "allow_changes": options.allow_changes, "dry_run": options.dry_run}
    with user_errors():
        values, runs = settings_of(options, base=base, stated=stated), resolve_name(JOBS[job])
        if values.get("job", job) != job:
            raise CommandError(
                f"{options.config or 'the settings'}: `job` is {values['job']}, and this command trains another: "
                f"{job}. Give it settings of that job."
            )
        config = runs.settings.make(values)
        if options.dry_run:
            runs.train(config, **running)
            return None
        with job_progress():
            results = runs.train(config, **running, command=options.command)
    folder = config.training["output_dir"]
    print(f"{folder}: {results['steps']} steps in {results['wall_seconds'] / 60:.1f} minutes")
    print(f"Use it: {use.format(shlex.quote(folder))}")
    return results
