"""What `attncal train`, `attncal adapt` and `attncal align train` share: options, settings, the last line."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .common import CommandError, positive

_PRESETS = Path(__file__).parents[1] / "training" / "presets"
_SETTING = re.compile(r"[a-z_]+(\.\w+)*=")
CALIBRATIONS = ("fixed", "annealed", "gated", "none")
# Option -> section and key of the settings.
_KEYS = {
    "lowercase": ("data", "lowercase"),
    "output": ("training", "output_dir"),
    "epochs": ("training", "num_train_epochs"),
    "steps": ("training", "max_steps"),
    "seed": ("training", "seed"),
    "license": ("card", "license"),
    "tokenizer": ("tokenizer", "pretrained"),
    "init_from": ("model", "init_from"),
}
Values = dict[str, Any]


def add_text(parser: argparse.ArgumentParser, *splits: str) -> argparse._ArgumentGroup:
    """Add the options for the text, `--source` and `--target` and the same of each split; returns their group."""
    text = parser.add_argument_group("text")
    text.add_argument("--source", nargs="+", metavar="FILE", help="source sentences, one in a line; .gz and .xz too")
    text.add_argument("--target", nargs="+", metavar="FILE", help="target sentences, as many lines")
    for split in splits:
        text.add_argument(f"--{split}-source", metavar="FILE", help=f"source sentences of {split} text")
        text.add_argument(f"--{split}-target", metavar="FILE", help="their translations")
    text.add_argument("--lowercase", action="store_true", default=None, help="lower-case all text")
    return text


def add_output(parser: argparse.ArgumentParser, job: str) -> argparse._ArgumentGroup:
    """Add the options for what is made of a job's presets; returns their group, "model"."""
    model = parser.add_argument_group("model")
    model.add_argument("--output", metavar="FOLDER", help="where the model and its checkpoints go")
    names = sorted(path.stem for path in (_PRESETS / job).glob("*.yaml"))
    model.add_argument(
        "--preset", choices=names, help="what the settings are made for; without it small, or what --config says"
    )
    model.add_argument("--config", metavar="FILE", help="YAML file of settings; options of the command go before it")
    model.add_argument("--license", metavar="NAME", help="of the model, for its card; without it, the card names none")
    return model


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options for how a training runs, and `section.key=value`, which may stand anywhere."""
    running = parser.add_argument_group("running")
    length = running.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive, help="optimiser steps; without it, as many as fit the text")
    length.add_argument("--epochs", type=float, help="passes over the text, in place of --steps")
    running.add_argument("--minutes", type=float, help="time budget: no more steps than this machine has time for")
    running.add_argument("--seed", type=int, help="of the model and of the order of the text; without it, 1")
    running.add_argument("--dry-run", action="store_true", help="say what would be trained and how long, no more")
    running.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    running.add_argument("--allow-changes", action="store_true", help="--resume with other settings or data")
    parser.add_argument(
        "settings", nargs="*", metavar="section.key=value", help="any other setting (docs: configs/reference_*.yaml)"
    )
    parse = parser.parse_known_args

    def parse_known_args(args=None, namespace=None):
        """argparse takes what stands between options for another positional argument, or the last file of --source."""
        found = [argument for argument in args if _SETTING.match(argument)]
        options, unknown = parse([argument for argument in args if argument not in found], namespace)
        options.settings += found
        options.command = [*parser.prog.split(), *args]
        return options, unknown

    parser.parse_known_args = parse_known_args


def settings_of(options: argparse.Namespace, *, base: Values | None = None) -> Values:
    """The settings that a command was given: those of --config, then options, then `section.key=value`.

    Args:
        options: of the command.
        base: settings of options that this command alone has.

    Raises:
        CommandError: no text or no output folder.
        ValueError, OSError: the file cannot be read, or a setting.
    """
    from hf_attncal.training.settings import apply_overrides, merge, read_settings

    values = read_settings(options.config) if options.config else {}
    if options.preset or not options.config:
        values["preset"] = options.preset or "small"
    for split, prefix in (("train", ""), ("dev", "dev_"), ("test", "test_")):
        entry = {name: getattr(options, f"{prefix}{name}", None) for name in ("source", "target", "gold", "guide")}
        entry = {name: _absolute(given, values) for name, given in entry.items() if given}
        if ("source" in entry) != ("target" in entry):
            option = f"--{prefix.replace('_', '-')}"
            raise CommandError(f"{option}source and {option}target belong together: give both.")
        if entry:
            values.setdefault("data", {})[split] = entry
    for option, (section, key) in _KEYS.items():
        given = getattr(options, option, None)
        if given is not None:
            merge(values, {section: {key: given}})
    if options.minutes is not None:
        values["minutes"] = options.minutes
    apply_overrides(merge(values, base or {}), options.settings)
    for section, key, option in (("data", "train", "--source and --target"), ("training", "output_dir", "--output")):
        if not (values.get(section) or {}).get(key):
            raise CommandError(f"{option} must be given, or `{section}.{key}` in the file of --config.")
    return values


def _absolute(given: str | list[str], values: Values) -> str | list[str]:
    """Files of the command line, as they are; whole paths where the files of --config are under a folder."""
    if not (values.get("data") or {}).get("root"):
        return given
    return str(Path(given).absolute()) if isinstance(given, str) else [str(Path(name).absolute()) for name in given]


def run_training(
    options: argparse.Namespace, job: Callable[..., Values], config_class: type, *, base: Values | None = None
) -> Values | None:
    """Run a job with the settings of a command, and say where its result is.

    Args:
        options: of the command.
        job: such as `train_translation`.
        config_class: of its settings.
        base: see `settings_of`.

    Returns:
        Its results; None after a dry run.

    Raises:
        CommandError: whatever is wrong with settings or data.
        KeyboardInterrupt: with how to go on.
    """
    from hf_attncal.training.run import run_job

    running = {"resume": options.resume, "allow_changes": options.allow_changes, "dry_run": options.dry_run}
    try:
        config = config_class.make(settings_of(options, base=base))
        results = run_job(job, config, options.command, **running)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if options.dry_run:
        return None
    folder = config.training["output_dir"]
    print(f"{folder}: {results['steps']} steps in {results['wall_seconds'] / 60:.1f} minutes")
    return results
