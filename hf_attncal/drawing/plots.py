"""Draw figures with matplotlib: heat maps, lines, bars."""

import io
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hf_attncal.io.extras import need

need("plot")

import matplotlib
import numpy as np
import torch
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from hf_attncal.drawing.page import shown, text_width

TEXT_COLOUR, FAINT = "#222222", "#6b6b6b"
_GOLD = "#e08214"  # orange on blue is safe for colour blindness
POINTS = 9  # font size
_INCHES = POINTS / 72  # inches per em
_CELL, _PANEL, _BAR = 0.24, 4.2, 0.15  # inches: side of a cell, size of a panel of lines, height of a bar
_STYLE = matplotlib.rc_params_from_file(Path(__file__).with_name("plots.mplstyle"), use_default_template=False)


class Picture(Figure):
    """Figure that notebooks show, also without pyplot.

    Args:
        text: text whose characters the fonts must have. Default: none.
        **options: options of matplotlib's figure.
    """

    def __init__(self, text: str = "", **options):
        self.style: Any = {**_STYLE, "font.family": families_for(text)}
        super().__init__(**{"facecolor": "white", "layout": "constrained"} | options)

    def draw(self, renderer) -> None:
        """Draw in our style, without matplotlib's warning per missing glyph; `families_for` warns once."""
        with warnings.catch_warnings(), matplotlib.rc_context(self.style):
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


# ---- fonts ----


def families_for(text: str) -> list[str]:
    """Return font families that together have all characters of a text.

    These are the configured families, and installed fonts for missing characters.

    Warns:
        UserWarning: no installed font has some characters, which are drawn as boxes.
    """
    families = list(matplotlib.rcParams["font.family"])
    missing = {character for character in text if character.isprintable() and not character.isspace()}
    for family in families:
        missing -= _characters(font_manager.findfont(font_manager.FontProperties(family=[family])))
    for font in _installed() if missing else ():
        if available := missing & _characters(font.fname):
            families.append(font.name)
            missing -= available
    if missing:
        shown = "".join(sorted(missing)[:10]) + ("..." if len(missing) > 10 else "")
        warnings.warn(
            f"No installed font has the characters {shown}, so they are drawn as boxes. Install a font with them "
            "(such as Noto) and restart Python.",
            stacklevel=3,
        )
    return families


def _installed() -> list[font_manager.FontEntry]:
    """Return the installed upright fonts, without the fonts of matplotlib."""
    own = Path(matplotlib.get_data_path())
    upright = (font for font in font_manager.fontManager.ttflist if font.style == "normal")
    return sorted((font for font in upright if own not in Path(font.fname).parents), key=lambda font: font.name)


@cache
def _characters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):  # deleted after matplotlib listed it, or not a font
        return frozenset()


# ---- heat maps ----


def heat_map(
    panels: Mapping[str, Tensor],
    source_words: Sequence[str],
    target_words: Sequence[str],
    links: Collection[tuple[int, int]] = (),
    title: str | None = None,
    change: tuple[str, Tensor] | None = None,
) -> Figure:
    """Draw matrices of a sentence pair side by side: source words as columns, target words as rows.

    All panels share a colour scale, from white at 0 to dark at the largest value.

    Args:
        panels: name -> (target, source) matrix, not negative.
        source_words: column labels.
        target_words: row labels.
        links: gold links (i source, j target), outlined in every panel. Default: none.
        title: line above the panels. Default: none.
        change: name and matrix of a panel of differences, blue above 0 and red below, with its own scale. Default:
            none.

    Returns:
        The figure; notebooks show it, and `figure.savefig("name.png", dpi=200)` writes it.

    Warns:
        UserWarning: no installed font has some characters of the words.

    Raises:
        ValueError: no panel, or a matrix whose shape does not fit the words.
    """
    if not panels:
        raise ValueError("`panels` must have at least one matrix, got none.")
    matrices = {}
    shape = len(target_words), len(source_words)
    for name, matrix in (*panels.items(), *([] if change is None else [change])):
        if tuple(matrix.shape) != shape:
            raise ValueError(
                f"`panels` must have matrices of shape {shape} (target words, source words), got "
                f"{tuple(matrix.shape)} for {name!r}."
            )
        matrices[name] = torch.as_tensor(matrix).detach().float().cpu().numpy()
    largest = max((float(matrices[name].max()) for name in panels if matrices[name].size), default=0) or 1
    sides = ("source", source_words), ("target", target_words)
    return _draw_panels(matrices, *sides, "weight", largest, links, title, None if change is None else change[0])


def head_map(name: str, values: np.ndarray, layers: Sequence[int], measure: str) -> Figure:
    """Draw a measure per head and layer: heads as columns, layers as rows, white at 0.

    Args:
        name: title of the map.
        values: (layers, heads), not negative.
        layers: numbers of the layers, counted from 0.
        measure: name of the measure.

    Returns:
        A figure like that of `heat_map`.
    """
    matrix = values.astype(np.float32)
    sides = ("head", list(map(str, range(values.shape[1])))), ("layer", list(map(str, layers)))
    return _draw_panels({name: matrix}, *sides, measure, float(matrix.max()) or 1.0)


_Side = tuple[str, Sequence[str]]  # name and labels of an axis


def _draw_panels(
    matrices: Mapping[str, np.ndarray],
    across: _Side,
    down: _Side,
    measure: str,
    largest: float,
    links: Collection[tuple[int, int]] = (),
    title: str | None = None,
    signed: str | None = None,
) -> Figure:
    """Draw matrices side by side above a common scale of `measure`, dark at `largest`.

    The matrix named `signed` has positive and negative values and its own scale.
    """
    columns, rows = (list(map(shown, labels)) for _, labels in (across, down))
    labels_across, labels_down = (_INCHES * max(map(text_width, labels), default=0) for labels in (columns, rows))
    # A name may be wider than its matrix, and the title or the scale wider than all matrices.
    panel = max(_CELL * len(columns), *(1.3 * _INCHES * text_width(name) for name in matrices)) + 0.3
    width = labels_down + 0.5 + max(len(matrices) * panel, 3.0, 1.2 * _INCHES * text_width(title or ""))
    height = labels_across + 1.5 + _CELL * len(rows) + (0.3 if title else 0)
    figure = Picture("".join((*columns, *rows)), figsize=(width, height))
    with matplotlib.rc_context(figure.style):
        if title:
            figure.suptitle(title, x=0.02, ha="left", fontsize=POINTS)
        grid = figure.subplots(1, len(matrices), squeeze=False)[0]
        for axes, (name, matrix) in zip(grid, matrices.items(), strict=True):
            most = float(np.abs(matrix).max(initial=0)) or 1.0
            scale = {"cmap": "RdBu", "vmin": -most, "vmax": most} if name == signed else {"cmap": "Blues", "vmin": 0}
            axes.imshow(matrix, aspect="auto", **{"vmax": largest} | scale)
            axes.set_title(name)
            axes.set_xticks(range(len(columns)), columns, rotation=0 if labels_across < _CELL else 90)
            axes.set_yticks(range(len(rows)), rows if axes is grid[0] else [""] * len(rows))
            axes.tick_params(length=0, labeltop=True, labelbottom=False)
            axes.xaxis.set_label_position("top")
            axes.set_xlabel(across[0], loc="left", color=FAINT)
            axes.set_ylabel(down[0] if axes is grid[0] else "", loc="top", color=FAINT)
            axes.spines[:].set_visible(False)
            # The minor grid draws white lines between the cells.
            axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
            axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
            axes.grid(which="minor", color="white", linewidth=1.0, alpha=1)
            axes.tick_params(which="minor", length=0)
            for i, j in links:
                outline = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor=_GOLD, linewidth=1.6, zorder=3)
                axes.add_patch(outline).set_clip_on(False)  # or the edge of the grid would clip the line
        many = f"{measure}, {'left' if signed else 'all'} panels" if len(matrices) > 1 else measure
        scales = [(many, grid[0])] + ([("change", grid[-1])] if signed else [])
        for name, axes in scales:
            image = axes.get_images()[0]
            bar = figure.colorbar(image, ax=axes, location="bottom", label=name, pad=0.02, aspect=16)
            bottom, top = image.get_clim()
            bar.set_ticks([bottom, top], labels=["0" if bottom == 0 else f"{bottom:.2g}", f"{top:.2g}"])
            bar.ax.tick_params(length=0)
            bar.outline.set_visible(False)
        if links:
            outline = Rectangle((0, 0), 1, 1, fill=False, edgecolor=_GOLD, linewidth=1.6, label="gold link")
            figure.legend(handles=[outline], loc="outside lower right", handlelength=1, handleheight=1)
    return figure


# Colours of Okabe and Ito, safe for colour blindness; shapes and hatches also distinguish them in print.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", TEXT_COLOUR, "#e69f00", "#56b4e9")
_SHAPES = "osD^vP*"
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oo")


# ---- lines ----


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
    up: str,
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Figure:
    """Draw lines with markers; both axes start at 0.

    Args:
        series: name -> points, in the order of the legend; at most seven.
        across, up: names of the axes.
        bands: name -> interval (low, high) of each point, shaded. Default: none.

    Returns:
        A figure like that of `heat_map`.
    """
    figure = Picture(figsize=(1.4 * _PANEL, _PANEL + 0.6 + 0.24 * -(-len(series) // 2)))
    with matplotlib.rc_context(figure.style):
        axes = figure.subplots()
        for (name, points), colour, shape in zip(series.items(), _COLOURS, _SHAPES, strict=False):
            axes.plot(
                *zip(*points, strict=True), label=name, color=colour, marker=shape, markersize=4.5, linewidth=1.4
            )
            if bands and name in bands:
                places, (low, high) = [place for place, _ in points], zip(*bands[name], strict=True)
                axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel=across, ylabel=up, xlim=(0, None), ylim=(0, None))
        axes.grid()
        figure.legend(loc="outside lower center", ncols=2, handlelength=3.2)
    return figure


# ---- bars ----

# A number with its interval; None for no interval.
Bar = tuple[float, tuple[float, float] | None]


def bars(panels: Mapping[str, Mapping[str, Sequence[Bar]]], labels: Sequence[str]) -> Figure:
    """Draw horizontal bars with intervals, grouped by label, in panels side by side.

    Each panel has its own scale from 0. A name has the same colour and hatch in all panels.

    Args:
        panels: measure -> name -> a bar per label, NaN for no bar; at most seven names.
        labels: labels of the groups, from top to bottom.

    Returns:
        A figure like that of `heat_map`.
    """
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    most = max(map(len, panels.values()))
    wide = max(2.3, 5.2 / len(panels))
    width = len(panels) * wide + _INCHES * max(map(text_width, labels)) + 0.5
    step = _BAR / (most * _BAR + 0.1)  # height of a bar, in units of a group
    figure = Picture(
        "".join(labels), figsize=(width, len(labels) * (most * _BAR + 0.1) + 0.75 + 0.24 * len(names) / 3)
    )
    with matplotlib.rc_context(figure.style):
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        drawn: dict[str, Any] = {}
        for axes, (panel, series) in zip(grid, panels.items(), strict=True):
            for row, (name, values) in enumerate(series.items()):
                places = np.arange(len(values)) + (row - (len(series) - 1) / 2) * step
                style = {"color": _COLOURS[names.index(name)], "hatch": _HATCHES[names.index(name)]}
                widths = [value for value, _ in values]
                drawn[name] = axes.barh(places, widths, height=0.86 * step, edgecolor="white", linewidth=0, **style)
                for place, (_, interval) in zip(places, values, strict=True):
                    if interval is not None:
                        axes.plot(interval, (place, place), color=TEXT_COLOUR, linewidth=1.1, solid_capstyle="butt")
            axes.set(xlabel=panel, ylim=(len(labels) - 0.5, -0.5))
            axes.set_yticks(range(len(labels)), labels if axes is grid[0] else [""] * len(labels))
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
            axes.grid(axis="x")
            axes.set_axisbelow(True)
            axes.axvline(0, color=FAINT, linewidth=0.4)
            axes.tick_params(axis="y", length=0)
        if len(names) > 1:
            longest = max(map(text_width, names))
            columns = max(1, int(width / (_INCHES * longest + 0.8)))
            figure.legend([drawn[name] for name in names], names, loc="outside lower center", ncols=columns)
    return figure
