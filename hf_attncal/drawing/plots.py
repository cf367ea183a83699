"""Draw figures with matplotlib: heat maps, lines, bars."""

import io
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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

# All text and rules use these colours, which a page inverts in its dark style.
TEXT_COLOUR, FAINT = "#222222", "#6b6b6b"
_BACKGROUND = "white"
_RULE: dict[str, Any] = {"color": FAINT, "alpha": 0.35}
_GRID: dict[str, Any] = {"color": FAINT, "alpha": 0.15, "linewidth": 0.8}
_GOLD = "#e08214"  # orange on blue is safe for colour blindness
POINTS = 9  # font size
_INCHES = POINTS / 72  # inches per em
_CELL = 0.24  # inches, as all lengths below
_GAP, _MARGIN = 0.30, 0.10
_LINE = 0.24  # height of a line of text
_BELOW, _LEGEND = 0.55, 3.9  # height and width of the legend below the panels


class Picture(Figure):
    """Figure that notebooks show, also without pyplot."""

    def __init__(self, **options):
        super().__init__(**{"facecolor": _BACKGROUND} | options)

    def draw(self, renderer) -> None:
        """Draw without matplotlib's warning per missing glyph; `families_for` warns once."""
        with warnings.catch_warnings():
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
    sides = _Side("source", source_words), _Side("target", target_words)
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
    sides = _Side("head", list(map(str, range(values.shape[1])))), _Side("layer", list(map(str, layers)))
    return _draw_panels({name: matrix}, *sides, measure, float(matrix.max()) or 1.0)


class _Side(NamedTuple):
    """Axis of a matrix: name and labels."""

    name: str
    words: Sequence[str]

    @property
    def inches(self) -> float:
        """Width of the longest label in inches."""
        return _INCHES * max(map(text_width, self.words), default=0)


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
    families = families_for("".join((*across.words, *down.words)))
    left = _MARGIN + _LINE + down.inches + 0.1
    grid_width, grid_height = _CELL * len(across.words), _CELL * len(down.words)
    # A name may be wider than its matrix, and the title or legend wider than all matrices.
    step = max(grid_width, *(1.2 * _INCHES * text_width(name) for name in matrices)) + _GAP
    heading = _LINE if title else 0
    panel = 2 * _LINE + max(across.inches, _INCHES) + 0.1 + grid_height  # height of a matrix with name and labels
    width = left + max(len(matrices) * step - _GAP, _LEGEND, _INCHES * text_width(title or "")) + _MARGIN
    height = heading + panel + _BELOW
    figure = Picture(figsize=(width, height))
    style: dict[str, Any] = {"va": "center", "color": TEXT_COLOUR}
    if title:
        figure.text(left / width, 1 - (_MARGIN + _LINE / 2) / height, title, fontsize=POINTS, **style)
    for number, (name, matrix) in enumerate(matrices.items()):
        x, y = left + number * step, 1 - (heading + _MARGIN + _LINE / 2) / height
        figure.text(x / width, y, name, fontsize=POINTS + 1, weight="bold", **style)
        bottom = 1 - (heading + panel) / height
        axes = figure.add_axes((x / width, bottom, grid_width / width, grid_height / height))
        if name == signed:
            most = float(np.abs(matrix).max(initial=0)) or 1.0
            scale = axes.imshow(matrix, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
            _draw_scale(figure, scale, x, "change")
        else:
            image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
        _label_axes(axes, across, down if number == 0 else _Side("", ()), families)
        for i, j in links:
            outline = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor=_GOLD, linewidth=1.6, zorder=3)
            axes.add_patch(outline).set_clip_on(False)  # or the edge of the grid would clip the line
    many = f"{measure}, {'left' if signed else 'in all'} panels"
    _draw_scale(figure, image, left, many if len(matrices) > 1 else measure)
    if links:  # legend of the outlines
        x, size = left + 3.0, 0.13
        corner = x / width, (0.335 - size / 2) / height
        figure.add_artist(Rectangle(corner, size / width, size / height, fill=False, edgecolor=_GOLD, linewidth=1.6))
        figure.text((x + 0.22) / width, 0.335 / height, "gold link", fontsize=POINTS, **style)
    return figure


def _label_axes(axes, across: _Side, down: _Side, families: Sequence[str]) -> None:
    """Label the axes; without words in `down` only the columns."""
    style = {"fontsize": POINTS, "color": TEXT_COLOUR, "fontfamily": families, "parse_math": False}
    name = {"fontsize": POINTS - 1, "color": FAINT, "labelpad": 4}
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    upright = across.inches < _CELL
    axes.set_xticks(range(len(across.words)), list(map(shown, across.words)), rotation=0 if upright else 90, **style)
    axes.set_yticks(range(len(down.words)), list(map(shown, down.words)), **style)
    axes.set_xlabel(across.name, loc="left", **name)
    if down.words:
        axes.set_ylabel(down.name, loc="top", **name)
    axes.tick_params(length=0, pad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    # The minor grid draws white lines between the cells.
    rows, columns = axes.get_images()[0].get_array().shape
    axes.set_xticks([i - 0.5 for i in range(columns + 1)], minor=True)
    axes.set_yticks([j - 0.5 for j in range(rows + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)


def _draw_scale(figure: Figure, image, left: float, measure: str) -> None:
    """Draw a colour scale and the name of its measure below the panels, `left` inches from the edge."""
    width, height = figure.get_size_inches()
    bar = figure.add_axes((left / width, 0.29 / height, 1.2 / width, 0.09 / height))
    scale = figure.colorbar(image, cax=bar, orientation="horizontal")
    bottom, top = image.get_clim()
    scale.set_ticks([bottom, top], labels=["0" if bottom == 0 else f"{bottom:.2g}".replace("-", "−"), f"{top:.2g}"])
    scale.outline.set_visible(False)
    bar.tick_params(length=0, labelsize=POINTS - 1, labelcolor=TEXT_COLOUR, pad=2)
    first, last = bar.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    figure.text((left + 1.3) / width, 0.335 / height, measure, va="center", color=TEXT_COLOUR, fontsize=POINTS)


# Colours of Okabe and Ito, safe for colour blindness; shapes and hatches also distinguish them in print.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", TEXT_COLOUR, "#e69f00", "#56b4e9")
_SHAPES = "osD^vP*"
_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oo")
_PANEL = 4.2  # inches


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
    legend = _LINE * -(-len(series) // 2)  # two names side by side
    width, height = 1.4 * _PANEL, _PANEL + _BELOW + legend
    figure = Picture(figsize=(width, height))
    left, bottom = 0.65, _BELOW + legend
    box = (left / width, bottom / height, 1 - (left + 2 * _MARGIN) / width, 1 - (bottom + 2 * _MARGIN) / height)
    axes = figure.add_axes(box)
    for (name, points), colour, shape in zip(series.items(), _COLOURS, _SHAPES, strict=False):
        axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=shape, markersize=4.5, linewidth=1.4)
        if bands and name in bands:
            low, high = zip(*bands[name], strict=True)
            places = [place for place, _ in points]
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across, fontsize=POINTS, color=TEXT_COLOUR)
    axes.set_ylabel(up, fontsize=POINTS, color=TEXT_COLOUR)
    axes.grid(**_GRID)
    _rule(axes)
    style: dict[str, Any] = {"loc": "lower center", "ncols": 2, "frameon": False, "handlelength": 3.2}
    figure.legend(*axes.get_legend_handles_labels(), fontsize=POINTS, labelcolor=TEXT_COLOUR, **style)
    return figure


def _rule(axes) -> None:
    """Draw the left and the lower axis, with tick labels."""
    axes.tick_params(labelsize=POINTS - 1, labelcolor=TEXT_COLOUR, color=FAINT, length=2.5)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), **_RULE)


# ---- bars ----

# A number with its interval; None for no interval.
Bar = tuple[float, tuple[float, float] | None]
_BAR = 0.15  # inches
_WIDE, _NARROW = 5.2, 2.3  # width of all panels together, and minimum width of a panel


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
    step = _BAR / (most * _BAR + 0.1)  # height of a bar, in units of a group
    left = _MARGIN + _INCHES * max(map(text_width, labels)) + 0.15
    wide = max(_NARROW, _WIDE / len(panels))
    width = left + len(panels) * (wide + _GAP)
    columns = max(1, int(width / (_INCHES * max(map(text_width, names)) + 0.8)))
    legend = _LINE * -(-len(names) // columns) if len(names) > 1 else 0
    rows = len(labels) * (most * _BAR + 0.1)
    bottom = _BELOW + legend
    height = _MARGIN + rows + bottom
    figure = Picture(figsize=(width, height))
    for number, (panel, series) in enumerate(panels.items()):
        box = ((left + number * (wide + _GAP)) / width, bottom / height, wide / width, rows / height)
        axes = figure.add_axes(box)
        for row, (name, values) in enumerate(series.items()):
            places = np.arange(len(values)) + (row - (len(series) - 1) / 2) * step
            colour, hatch = _COLOURS[names.index(name)], _HATCHES[names.index(name)]
            style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
            axes.barh(places, [value for value, _ in values], height=0.86 * step, label=name, **style)
            for place, (_, interval) in zip(places, values, strict=True):
                if interval is not None:
                    axes.plot(interval, (place, place), color=TEXT_COLOUR, linewidth=1.1, solid_capstyle="butt")
        axes.set_ylim(len(labels) - 0.5, -0.5)
        font: dict[str, Any] = {"fontfamily": families_for("".join(labels)), "parse_math": False}
        axes.set_yticks(range(len(labels)), labels if number == 0 else [""] * len(labels), **font)
        axes.set_xlabel(panel, fontsize=POINTS, color=TEXT_COLOUR)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
        axes.xaxis.set_major_formatter("{x:.4g}")
        axes.grid(axis="x", **_GRID)
        axes.set_axisbelow(True)
        axes.axvline(0, linewidth=0.8, **_RULE)
        _rule(axes)
        axes.tick_params(axis="y", length=0, labelsize=POINTS)
    if legend:
        bars: list[Any] = [handle for axes in figure.axes for handle in axes.containers]
        handles = {handle.get_label(): handle for handle in bars if handle.patches}
        style = {"loc": "lower center", "ncols": columns, "frameon": False}
        shown_bars = [handles[name] for name in names]
        figure.legend(shown_bars, names, fontsize=POINTS, labelcolor=TEXT_COLOUR, **style)
    return figure
