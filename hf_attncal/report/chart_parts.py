"""What the charts of all kinds are put together from: cells with intervals, words, and bars drawn when asked for.

matplotlib is imported when a figure is drawn.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.analysis.attribution import CONTROLS

from .contents import Cell
from .names import display

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hf_attncal.analysis.plots import Bar


def cells(value: float, interval: tuple[float, float] | None) -> tuple[Cell, Cell, Cell]:
    """Value and bounds, None for those that are not there."""
    return None if math.isnan(value) else value, *(interval or (None, None))


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def about_controls(methods: Iterable[str]) -> str:
    """A sentence on those of the methods that never look at the model, with a space before it; "" without any."""
    controls = [name for name in methods if name in CONTROLS]
    if not controls:
        return ""
    return f" What never looks at the model is a control: {listed(controls)}. Any other method has to be better."


def draw_bars(panels: Mapping[str, Mapping[str, Sequence["Bar"]]], labels: Sequence[str]) -> Callable[[], "Figure"]:
    """What draws bars; args are those of `analysis.plots.bars`."""
    return partial(_draw, panels, labels)


def _draw(panels: Mapping[str, Mapping[str, Sequence["Bar"]]], labels: Sequence[str]) -> "Figure":
    from hf_attncal.analysis import plots

    return plots.bars(panels, list(map(display, labels)))
