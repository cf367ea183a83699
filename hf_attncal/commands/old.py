"""Spellings of an earlier version, which are accepted for one more, with a line that says the new one."""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hf_attncal.errors import CommandError


class Old(NamedTuple):
    """An option that has another spelling now.

    Args:
        new: the new option or setting, `{}` in place of its value; empty: it is left out.
        values: how many values follow the old one.
        why: what is said of one that is left out.
        beside: the new spelling if the command line has the option `new` already.
        refused: one that is left out is an error, as without it the result would be another.
        unless: values of other options with which it is left out.
        bare: the option is as before, but has this value where it had none.
        many: all values up to the next option are its, and commas join them.
    """

    new: str
    values: int = 1
    why: str = ""
    beside: str = ""
    refused: bool = False
    unless: tuple[str, ...] = ()
    bare: str = ""
    many: bool = False


_COUNTED = Old("", 1, "whether words are counted from 0 or from 1 is detected.")
_REVERSE = Old(
    "",
    0,
    "the source index comes first. Exchange the columns of the file: sed -E 's/([0-9]+)([-p?])([0-9]+)/\\3\\2\\1/g'.",
    refused=True,
)
_CHECKED = Old("", 0, "files that do not count alike are refused.")
_STATED = Old("", 1, "the signature says what is computed here: words, and links as they are.")
_LINKS = {"--aligner": Old("--links")}
# What all commands that train had.
_TRAINING = {
    "--preset": Old("--config", beside="preset={}"),
    "--steps": Old("training.max_steps={}"),
    "--epochs": Old("training.num_train_epochs={}"),
    "--seed": Old("training.seed={}"),
    "--license": Old("card.license={}"),
    "--lowercase": Old("data.lowercase=true", 0),
    "--guide": Old("--links"),
    "--allow-changes": Old("resume=changed", 0),
}
_START = {"--tokenizer": Old("tokenizer.pretrained={}"), "--init-from": Old("model.init_from={}")}
_STATES = ("layer", "source-language", "target-language", "source-prefix", "target-prefix")
_READ = ("heads", "weights", *_STATES)
_SEARCH = {
    "--input": Old("--source"),
    "--length-penalty": Old("length_penalty={}"),
    "--max-new-tokens": Old("max_new_tokens={}"),
}
# For each command its old options; under "" those of any.
OLD: dict[str, dict[str, Old]] = {
    "align calibrate": {
        "--bins": Old("", 1, "the calibration error has 10 bins."),
        "--bootstrap": Old("", 1, "there are 1000 resamples."),
    },
    "align compare": {
        "--held-out": Old("", 1, "at most 2000 pairs are predicted."),
        "--pairs": Old("", 1, "a page has at most 50 pairs."),
        "--bootstrap": Old("", 1, "there are 1000 resamples."),
        "--longest-line": Old("", 1, "a line may have 1000000 bytes."),
    },
    "align lexicon": _LINKS,
    "align project": _LINKS,
    "analyze": {
        "--figures": Old("--report"),
        "--no-probe": Old("--probe=none", 0),
        "--pairs": Old("", 1, "give the text that is to be looked at."),
        "--measured": Old("", 1, "faithfulness is measured on 30 pairs."),
        "--browse": Old("", 1, "the page shows 100 pairs."),
        "--seed": Old("", 1, "draws, resamples and the probe have the seed 1."),
        "--probe-steps": Old("", 1, "the text of the probe says how many."),
    },
    "data": {"--from": Old("--source")},
    "align quick": {"--no-tokenize": Old("", 0, "words are cut further with --tokenize alone.")},
    "align run": {
        "--input": Old("--source"),
        **{f"--{name}": Old(f"--read {name.replace('-', '_')}={{}}") for name in _READ},
        "--shift": Old("--read shift=true", 0),
        "--no-shift": Old("--read shift=false", 0),
        "--raw-scores": Old("", 0, "remove link_probabilities.json from a copy of the model for the scores it has."),
        "--batch-tokens": Old("", 1, "--batch-size says how many pairs are aligned at once, of 64 tokens each."),
    },
    "align select": {
        "--top": Old("", 1, "the ten best are printed."),
        **{f"--{name}": Old(f"--read {name.replace('-', '_')}={{}}") for name in ("weights", *_STATES[1:])},
    },
    "check": {
        "--together": Old("", 0, "files are read twice."),
        "--no-together": Old("", 0, "a pipe is judged line by line: give the texts as <(cat FILE).", refused=True),
    },
    "publish": {
        "--license": Old("--card license={}"),
        "--title": Old("--card title={}"),
        "--base-model": Old("--card base_model={}"),
        "--language": Old("--card language={}", many=True),
        "--dataset": Old("--card dataset={}", many=True),
    },
    "demo": {
        "--seed": Old("", 1, "the demo is made with the seed 1."),
        "--steps": Old("", 1, "the demo takes 1,000; `hf_attncal.demo(steps=N)` in Python takes N.", refused=True),
    },
    "score": {
        "--base": _COUNTED,
        "--gold-base": _COUNTED,
        "--reverse": _REVERSE,
        "--reverse-gold": _REVERSE,
        "--index-check": _CHECKED,
        "--no-index-check": _CHECKED,
        "--unit": _STATED,
        "--symmetrization": _STATED,
        "--longest-line": Old("", 1, "a line may have 1000000 bytes."),
        "--reference": Old("--references"),
    },
    "train": _TRAINING
    | _START
    | {"--text": Old("--source"), "--dev-text": Old("--dev"), "--test-text": Old("--test")},
    "adapt": _TRAINING,
    "align train": _TRAINING
    | _START
    | {
        "--tokenize": Old("data.raw_text=true", 0),
        "--fold": Old("data.fold=true", 0),
        "--no-fold": Old("data.fold=false", 0),
    },
    "align tune": _TRAINING | {f"--{name}": Old(f"states.{name.replace('-', '_')}={{}}") for name in _STATES},
    "summarize": _SEARCH
    | {
        "--copied": Old("--format copied", 0, "the other forms say what is copied.", unless=("json", "marked")),
        "--min-new-tokens": Old("min_new_tokens={}"),
        "--no-repeat-ngrams": Old("no_repeat_ngram_size={}"),
        "--prefix": Old("prefix={}"),
    },
    "translate": _SEARCH | {"--alignments": Old("--alignments", bare="-")},
}
_SPLITS = {
    f"--{split}": tuple(f"--{split}-{side}" for side in ("source", "target", "gold")) for split in ("dev", "test")
}
# Options that were several and are one now: new option, and the old ones in the order of its values. The last one may
# have been given alone.
JOINED: dict[str, dict[str, tuple[str, ...]]] = {
    "analyze": {"--probe-text": ("--probe-source", "--probe-target")},
    **dict.fromkeys(("train", "adapt", "align train", "align tune"), _SPLITS),
}
_SWITCHES = {"--calibration": "{}", "--leaky": "leaky", "--guided": "guided"}
# Options whose values are names in one option now, joined by `+`: new option, and what each old one is in it: a name,
# `{}` for its value, or a name for each value.
GATHERED: dict[str, dict[str, dict[str, str | Mapping[str, str]]]] = {
    "train": {
        "--model": {
            "--task": {"translation": "translator", "summarization": "summarizer"},
            "--backbone": "{}",
            "--streams": "discrete-{}",
            "--copy": "copy",
            "--gumbel": "gumbel",
            **_SWITCHES,
        }
    },
    "adapt": {"--calibration": _SWITCHES},
}
_PLAIN = re.compile(r"(?!(?:yes|no|on|off|y|n|null|true|false|~)$)[\w./:+-]+", re.IGNORECASE)  # YAML reads it as it is
_SETTING = re.compile(r"[a-z_]+(\.\w+)*=")


def respelled(command: str, tokens: Sequence[str]) -> list[str]:
    """Return a command line with old spellings replaced.

    Settings that take the place of options come before the others: an option never went before a setting.

    Warns:
        UserWarning: for each; it says the new spelling.

    Raises:
        CommandError: an option without which the result would be another.
    """
    old = OLD.get("", {}) | OLD.get(command, {})
    result: list[str] = []
    settings: list[str] = []
    waiting = list(tokens)
    while waiting:
        token = waiting.pop(0)
        option, equals, value = token.partition("=")
        if not option.startswith("--") or option not in old:
            result.append(token)
            continue
        spelling = old[option]
        if spelling.refused:
            raise CommandError(f"{option} is left out: {spelling.why}")
        if spelling.bare:
            result.append(token)
            if not equals and (not waiting or waiting[0].startswith("--")):
                result.append(spelling.bare)
                warnings.warn(f"{option} without a value is {option} {spelling.bare} now.", stacklevel=2)
            continue
        if spelling.many:
            end = next((place for place, word in enumerate(waiting) if word.startswith("-")), len(waiting))
            value, equals, waiting = ",".join([value] * bool(equals) + waiting[:end]), "=", waiting[end:]
        values = [value] if equals else [waiting.pop(0) for _ in range(min(spelling.values, len(waiting)))]
        new = spelling.beside if spelling.beside and _place_of(spelling.new, tokens) is not None else spelling.new
        if not new or {*spelling.unless} & {token.rpartition("=")[2] for token in tokens}:
            warnings.warn(f"{option} is left out: {spelling.why}", stacklevel=2)
            continue
        warnings.warn(f"{option} is {new.partition('{')[0].rstrip('= ')} now.", stacklevel=2)
        if _SETTING.match(new):
            values = [text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False) for text in values]
            settings.append(new.format(*values))
        else:
            result += [part.format(*values) for part in new.split()] + ([] if "{}" in new else values)
    size = len(command.split())
    return _gathered(command, _joined(command, [*result[:size], *settings, *result[size:]]))


def _place_of(option: str, tokens: Sequence[str]) -> int | None:
    """Return where an option stands in a command line, alone or with `=value`, if it does."""
    return next((place for place, token in enumerate(tokens) if token.partition("=")[0] == option), None)


def _taken(option: str, tokens: list[str], takes_value: bool = True) -> str | None:
    """Take an option and its value out of a command line, and return the value; None if the option is not there."""
    place = _place_of(option, tokens)
    if place is None:
        return None
    _, equals, value = tokens.pop(place).partition("=")
    if equals or not takes_value:
        return value
    return tokens.pop(place) if place < len(tokens) else ""


def _joined(command: str, tokens: list[str]) -> list[str]:
    for new, names in (JOINED.get("", {}) | JOINED.get(command, {})).items():
        given = tuple(name for name in names if _place_of(name, tokens) is not None)
        if given and given in (names[: len(given)], names[-1:]):
            tokens = [*tokens]
            tokens += [new, *(str(_taken(name, tokens)) for name in given)]
            message = f"{given[0]} is" if len(given) == 1 else f"{' and '.join(given)} are together"
            warnings.warn(f"{message} {new} now.", stacklevel=2)
    return tokens


def _gathered(command: str, tokens: list[str]) -> list[str]:
    for new, names in GATHERED.get(command, {}).items():
        if not any(_place_of(name, tokens) is not None for name in names if name != new):
            continue
        tokens, parts = [*tokens], []
        for name, part in ({new: "{}"} | names).items():
            value = _taken(name, tokens, part if isinstance(part, Mapping) else "{}" in part)
            if value is not None:
                parts.append(part.get(value, value) if isinstance(part, Mapping) else part.format(value))
                if name != new:
                    warnings.warn(f"{name} is a name in {new} now: {new} {parts[-1]}.", stacklevel=2)
        tokens += [new, "+".join(parts)]
    return tokens
