"""Spellings of an earlier version, which are accepted for one more, with a line that says the new one."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple


class Old(NamedTuple):
    """An option that has another spelling now.

    Args:
        new: the new option or setting, `{}` in place of its value; empty: it is left out.
        values: how many values follow the old one.
        why: what is said of one that is left out.
    """

    new: str
    values: int = 1
    why: str = ""


_LINKS = {"--aligner": Old("--links")}
# For each command its old options; under "" those of any.
OLD: dict[str, dict[str, Old]] = {
    "align calibrate": {"--bins": Old("", 1, "the calibration error has 10 bins.")},
    "align compare": {
        "--held-out": Old("", 1, "at most 2000 pairs are predicted."),
        "--pairs": Old("", 1, "a page has at most 50 pairs."),
        "--bootstrap": Old("", 1, "there are 1000 resamples."),
        "--longest-line": Old("", 1, "a line may have 1000000 bytes."),
    },
    "align lexicon": _LINKS,
    "align project": _LINKS,
    "data": {"--from": Old("--source")},
    "demo": {"--seed": Old("", 1, "the demo is made with the seed 1.")},
}
# Options that were several and are one now: new option, and the old ones in the order of its values.
JOINED: dict[str, dict[str, tuple[str, ...]]] = {}


def respelled(command: str, tokens: Sequence[str]) -> list[str]:
    """Return a command line with old spellings replaced.

    Warns:
        UserWarning: for each; it says the new spelling.
    """
    old = OLD.get("", {}) | OLD.get(command, {})
    result: list[str] = []
    waiting = list(tokens)
    while waiting:
        token = waiting.pop(0)
        option, equals, value = token.partition("=")
        if not option.startswith("--") or option not in old:
            result.append(token)
            continue
        spelling = old[option]
        values = [value] if equals else [waiting.pop(0) for _ in range(min(spelling.values, len(waiting)))]
        new = (
            spelling.new.format(*values).split() if spelling.new and "{}" in spelling.new else [spelling.new, *values]
        )
        if spelling.new:
            warnings.warn(f"{option} is {spelling.new.partition('{')[0].rstrip('= ')} now.", stacklevel=2)
            result += new
        else:
            warnings.warn(f"{option} is left out: {spelling.why}", stacklevel=2)
    return _joined(command, result)


def _joined(command: str, tokens: list[str]) -> list[str]:
    for new, names in (JOINED.get("", {}) | JOINED.get(command, {})).items():
        given = {}
        for name in names:
            if name in tokens:
                place = tokens.index(name)
                given[name] = tokens[place + 1 : place + 2]
                del tokens[place : place + 2]
        if given:
            tokens += [new, *(value for values in given.values() for value in values)]
            warnings.warn(f"{' and '.join(given)}: {new} takes these files together now.", stacklevel=2)
    return tokens
