"""The templates of a page, and functions that write numbers, lists and the names of methods."""

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment

from hf_attncal.drawing import page
from hf_attncal.metrics.base import Measured

FOLDER = Path(__file__).parent

METHOD_NAMES = {
    "value_norm": "value norms",
    "transformed_norm": "transformed norms",
    "full_norm": "full norms",
    "alti": "ALTI+",
    "value_zeroing": "value zeroing",
    "input_x_gradient": "input × gradient",
    "integrated_gradients": "integrated gradients",
    "layer_gradient_x_activation": "layer gradient × activation",
    "attention_shifted": "attention of the step after",
}
_ANY = re.compile(rf"(?<![\w`])(?:{'|'.join(sorted(METHOD_NAMES, key=len, reverse=True))})(?!\w)(?!\.\w)(?!`)")


@cache
def report_templates() -> Environment:
    """Return the templates of this folder, with the filters that they use."""
    found = page.environment(FOLDER)
    found.policies["json.dumps_kwargs"] = {}  # in their own order
    found.filters |= {"cell": cell, "digits": _digits, "display": display}
    return found


def cell(value: str | int | float | None) -> str:
    """Write a cell of a table: a number with four digits, as many as a person compares."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else display(str(value))


def _digits(value: float, largest: float) -> str:
    """Write a weight in a cell, `.93`, with as many digits as tell weights apart where `largest` is the largest."""
    if largest >= 10:
        places = 1 if largest < 100 else 0
    else:
        places = min(8, max(2, 1 - math.floor(math.log10(largest)))) if largest > 0 else 2
    text = f"{abs(value):.{places}f}".removeprefix("0" if places else "")
    return f"−{text}" if value < 0 and float(text) else text


def display(text: str) -> str:
    """Return the text with the names of methods for people, where a program writes `input_x_gradient`."""
    return _ANY.sub(lambda name: METHOD_NAMES[name[0]], text)


def listed(names: Sequence[str]) -> str:
    """Write `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sentence_pairs(count: int) -> str:
    """Write a number of sentence pairs."""
    return f"{count:,} sentence pair{'' if count == 1 else 's'}"


def percent(share: Measured) -> str:
    """Write a share in percent, with its interval if it has one."""
    value, *bounds = (f"{100 * number:.1f}" for number in (share.value, *(share.interval or ())))
    return f"{value} % ({bounds[0]} to {bounds[1]})" if bounds else f"{value} %"


def nats(measured: Measured) -> str:
    """Write a number of nats and its interval, to two digits that are not 0 where they are small."""
    value, *bounds = (
        f"{number:z.2f}" if abs(number) >= 0.1 or not number else f"{number:.2g}"
        for number in (measured.value, *(measured.interval or ()))
    )
    return f"{value} nats ({bounds[0]} to {bounds[1]})" if bounds else f"{value} nats"
