"""Templates of the report page, and formatting of numbers, lists and method names."""

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment

from hf_attncal.drawing import page
from hf_attncal.metrics.base import Measured

FOLDER = Path(__file__).parent

_ALTI = re.compile(r"(?<![\w`])alti(?!\w)(?!\.\w)(?!`)")


@cache
def report_templates() -> Environment:
    """Return the templates of this folder with their filters."""
    templates = page.environment(FOLDER)
    templates.policies["json.dumps_kwargs"] = {}  # do not sort keys
    templates.filters |= {"cell": cell, "digits": _digits, "display": display}
    return templates


def cell(value: str | int | float | None) -> str:
    """Return the text of a table cell; numbers have four digits."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else display(str(value))


def _digits(value: float, largest: float) -> str:
    """Return a weight as text (`.93`), with digits that suit the `largest` weight."""
    if largest >= 10:
        places = 1 if largest < 100 else 0
    else:
        places = min(8, max(2, 1 - math.floor(math.log10(largest)))) if largest > 0 else 2
    text = f"{abs(value):.{places}f}".removeprefix("0" if places else "")
    return f"−{text}" if value < 0 and float(text) else text


def display(text: str) -> str:
    """Return the text with the name of the paper in place of the method `alti`."""
    return _ALTI.sub("ALTI+", text)


def listed(names: Sequence[str]) -> str:
    """Return names as `a`, `a and b` or `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sentence_pairs(count: int) -> str:
    """Return a number of sentence pairs in words."""
    return f"{count:,} sentence pair{'' if count == 1 else 's'}"


def percent(share: Measured) -> str:
    """Return a share in percent, with its interval if it has one."""
    value, *bounds = (f"{100 * number:.1f}" for number in (share.value, *(share.interval or ())))
    return f"{value} % ({bounds[0]} to {bounds[1]})" if bounds else f"{value} %"


def nats(measured: Measured) -> str:
    """Return a number of nats with its interval; small numbers have two significant digits."""
    value, *bounds = (
        f"{number:z.2f}" if abs(number) >= 0.1 or not number else f"{number:.2g}"
        for number in (measured.value, *(measured.interval or ()))
    )
    return f"{value} nats ({bounds[0]} to {bounds[1]})" if bounds else f"{value} nats"
