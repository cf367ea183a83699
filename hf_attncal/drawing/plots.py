"""Draw figures with matplotlib: heat maps, lines, bars, reliability diagrams."""

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

# The only colours of text and rules, so that a page can turn them round at night; and what lies behind them.
TEXT_COLOUR, FAINT = "#222222", "#6b6b6b"
_BACKGROUND = "white"
_RULE: dict[str, Any] = {"color": FAINT, "alpha": 0.35}
_GRID: dict[str, Any] = {"color": FAINT, "alpha": 0.15, "linewidth": 0.8}
_GOLD = "#e08214"  # orange on blue: told apart by everyone
POINTS = 9  # size of words
_INCHES = POINTS / 72  # of an em
_CELL = 0.24  # inches, as everything below
_GAP, _MARGIN = 0.30, 0.10
_LINE = 0.24  # of a line of text
_BELOW, _LEGEND = 0.55, 3.9  # height and width of the legend below the panels


class Picture(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot has been imported."""

    def __init__(self, **options):
        super().__init__(**{"facecolor": _BACKGROUND} | options)

    def draw(self, renderer) -> None:
        """Draw without matplotlib's warning for each glyph: `families_for` has warned of all at once."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


# ---- fonts ----


def families_for(text: str) -> list[str]:
    """Return the font families that matplotlib shall try in turn, so that each character of a text is found.

    They are the configured ones, and installed fonts with the characters that those lack.

    Warns:
        UserWarning: no installed font has some of the characters, which are drawn as boxes.
    """
    families = list(matplotlib.rcParams["font.family"])
    missing = {character for character in text if character.isprintable() and not character.isspace()}
    for family in families:
        missing -= _characters(font_manager.findfont(font_manager.FontProperties(family=[family])))
    for font in _installed() if missing else ():
        if found := missing & _characters(font.fname):
            families.append(font.name)
            missing -= found
    if missing:
        shown = "".join(sorted(missing)[:10]) + ("..." if len(missing) > 10 else "")
        warnings.warn(
            f"No installed font has the characters {shown}: boxes are drawn in their place. Install a font that has "
            "them (the Noto fonts have those of most scripts) and start Python again.",
            stacklevel=3,
        )
    return families


def _installed() -> list[font_manager.FontEntry]:
    """Return the upright fonts of the machine. Those that matplotlib brings are its defaults, or for formulas."""
    own = Path(matplotlib.get_data_path())
    upright = (font for font in font_manager.fontManager.ttflist if font.style == "normal")
    return sorted((font for font in upright if own not in Path(font.fname).parents), key=lambda font: font.name)


@cache
def _characters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
    except (OSError, RuntimeError):  # removed since matplotlib made its list, or no font at all
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
    """Draw matrices over one sentence pair side by side: source words across, target words down, shared by all panels.

    All panels have one colour scale, from white at 0 to dark at the largest value of all: a cell is as dark as it
    matters.

    Args:
        panels: name -> (target, source) matrix, not negative.
        source_words: one label for every column.
        target_words: one label for every row.
        links: gold links (i source, j target), outlined in every panel.
        title: a line above the panels.
        change: name and matrix of one more panel, for differences: blue above 0, red below, on a scale of its own.

    Returns:
        A figure, which a notebook shows; `figure.savefig("name.png", dpi=200)` writes it.

    Warns:
        UserWarning: no installed font has some characters of the words.

    Raises:
        ValueError: no panel, or a matrix of another shape than the words ask for.
    """
    if not panels:
        raise ValueError("`panels` is empty: give at least one matrix.")
    matrices = {}
    shape = len(target_words), len(source_words)
    for name, matrix in (*panels.items(), *([] if change is None else [change])):
        if tuple(matrix.shape) != shape:
            raise ValueError(
                f"Panel {name!r} has the shape {tuple(matrix.shape)}, but there are {shape[0]} target and {shape[1]} "
                "source words."
            )
        matrices[name] = torch.as_tensor(matrix).detach().float().cpu().numpy()
    largest = max((float(matrices[name].max()) for name in panels if matrices[name].size), default=0) or 1
    sides = _Side("source", source_words), _Side("target", target_words)
    return _draw_panels(matrices, *sides, "weight", largest, links, title, None if change is None else change[0])


def head_map(name: str, values: np.ndarray, layers: Sequence[int], measure: str) -> Figure:
    """Draw a measure of each head of each layer: heads across, layers down, white at 0.

    Args:
        name: above the map.
        values: (layers, heads), not negative.
        layers: their numbers.
        measure: what it is.

    Returns:
        A figure, as `heat_map` does.
    """
    matrix = values.astype(np.float32)
    sides = _Side("head", list(map(str, range(values.shape[1])))), _Side("layer", list(map(str, layers)))
    return _draw_panels({name: matrix}, *sides, measure, float(matrix.max()) or 1.0)


class _Side(NamedTuple):
    """An axis of a matrix: its name and one label for every column or row."""

    name: str
    words: Sequence[str]

    @property
    def inches(self) -> float:
        """Return the width of the longest label."""
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
    """Draw matrices side by side, above the scale of all, on which `largest` of `measure` is dark.

    That of the name `signed` has positive and negative values, and a scale of its own.
    """
    families = families_for("".join((*across.words, *down.words)))
    left = _MARGIN + _LINE + down.inches + 0.1
    grid_width, grid_height = _CELL * len(across.words), _CELL * len(down.words)
    # A name may be wider than its matrix, and the title or the legend wider than all of them.
    step = max(grid_width, *(1.2 * _INCHES * text_width(name) for name in matrices)) + _GAP
    heading = _LINE if title else 0
    panel = 2 * _LINE + max(across.inches, _INCHES) + 0.1 + grid_height  # a matrix with its name and labels
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
            axes.add_patch(outline).set_clip_on(False)  # or the edge of the grid would cut the line in half
    many = f"{measure}, {'other' if signed else 'in all'} panels"
    _draw_scale(figure, image, left, many if len(matrices) > 1 else measure)
    if links:  # what the outlines are
        x, size = left + 3.0, 0.13
        corner = x / width, (0.335 - size / 2) / height
        figure.add_artist(Rectangle(corner, size / width, size / height, fill=False, edgecolor=_GOLD, linewidth=1.6))
        figure.text((x + 0.22) / width, 0.335 / height, "gold link", fontsize=POINTS, **style)
    return figure


def _label_axes(axes, across: _Side, down: _Side, families: Sequence[str]) -> None:
    """Write words and names of the axes; without words `down` those of another panel are meant."""
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
    # White lines between the cells, drawn as the grid of the minor ticks.
    rows, columns = axes.get_images()[0].get_array().shape
    axes.set_xticks([i - 0.5 for i in range(columns + 1)], minor=True)
    axes.set_yticks([j - 0.5 for j in range(rows + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.0)
    axes.tick_params(which="minor", length=0)


def _draw_scale(figure: Figure, image, left: float, measure: str) -> None:
    """Draw a colour scale below the panels, `left` inches from the edge, and what it measures."""
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


# Of Okabe and Ito: told apart by everyone. Shapes and hatches tell them apart in print.
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
    """Draw a line with a mark at every point for each of several systems; both axes begin at 0.

    Args:
        series: name -> points, in the order of the legend; at most seven.
        across, up: what the axes are called.
        bands: name -> the interval (low, high) of each point of a line, shaded; those without a name have none.

    Returns:
        A figure, as `heat_map` does.
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


def reliability_diagram(series: Mapping[str, Sequence[tuple[float, float, int]]]) -> Figure:
    """Draw the share of statements that came true against their probability, bin by bin.

    Args:
        series: name -> bins (mean probability, share that is right, how many), of `metrics.probabilities`. Below the
            broken line of what was promised, probabilities are too high.

    Returns:
        A figure, as `heat_map` does.
    """
    points = {name: [bin[:2] for bin in bins] for name, bins in series.items()}
    figure = lines(points, "probability", "share that is right")
    axes = figure.axes[0]
    low = min(value for marks in points.values() for mark in marks for value in mark)
    ends = [0.1 * np.floor(10 * low), 1.0]
    axes.plot(ends, ends, color=FAINT, linestyle="--", linewidth=1, zorder=0)
    margin = 0.02 * (ends[1] - ends[0])
    axes.set(xlim=(ends[0] - margin, ends[1] + margin), ylim=(ends[0] - margin, ends[1] + margin))
    return figure


def _rule(axes) -> None:
    """Draw rules at the left and below, with their numbers."""
    axes.tick_params(labelsize=POINTS - 1, labelcolor=TEXT_COLOUR, color=FAINT, length=2.5)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), **_RULE)


# ---- bars ----

# A number with its interval; None for no interval.
Bar = tuple[float, tuple[float, float] | None]
_BAR = 0.15  # inches
_WIDE, _NARROW = 5.2, 2.3  # all panels together, and a panel at least


def bars(panels: Mapping[str, Mapping[str, Sequence[Bar]]], labels: Sequence[str]) -> Figure:
    """Draw numbers of several kinds of things with their intervals, each kind with horizontal bars of its own.

    Panels stand side by side and have the same kinds from top to bottom, each its own scale from 0. A name has the
    same colour and hatch in all of them.

    Args:
        panels: what is measured -> name -> a bar for every label; NaN for none. At most seven names in all.
        labels: of the kinds, from top to bottom.

    Returns:
        A figure, as `heat_map` does.
    """
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    most = max(map(len, panels.values()))
    step = _BAR / (most * _BAR + 0.1)  # of a bar, where a kind is 1 high
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
