"""What the charts of all kinds are put together from: cells with intervals, and bars that are drawn when asked for.

matplotlib is imported when a figure is drawn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .contents import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hf_attncal.analysis.plots import Bar


def cells(value: float, interval: tuple[float, float] | None) -> tuple[Cell, Cell, Cell]:
    """Value and bounds, None for those that are not there."""
    return None if math.isnan(value) else value, *(interval or (None, None))


def bars(panels: Mapping[str, Mapping[str, Sequence["Bar"]]], labels: Sequence[str]) -> Callable[[], "Figure"]:
    """What draws bars; args are those of `analysis.plots.bars`."""
    return partial(_draw, panels, labels)


def _draw(panels: Mapping[str, Mapping[str, Sequence["Bar"]]], labels: Sequence[str]) -> "Figure":
    from hf_attncal.analysis import plots

    return plots.bars(panels, labels)
