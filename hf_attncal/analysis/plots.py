"""Figures. This file alone imports matplotlib; `hf_attncal.analysis` does not import this file."""

from collections.abc import Collection, Mapping, Sequence

from hf_attncal.extras import need

need("plot")

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

_TEXT = "#222222"
_LINK = "#d1495b"
_CELL_INCHES = 0.30
_CHARACTER_INCHES = 0.085  # average width of a character at the size of the word labels
_LABEL = {"va": "center", "color": _TEXT}  # of every free text


def heat_map(
    panels: Mapping[str, Tensor],
    source_words: Sequence[str],
    target_words: Sequence[str],
    links: Collection[tuple[int, int]] = (),
    title: str | None = None,
) -> Figure:
    """Matrices over one sentence pair side by side: source words across, target words down, shared by all panels.

    Every panel has a colour scale of its own, from 0 to its largest value: attention, mask and contribution are
    quantities of different size, and what matters is where each is large.

    Args:
        panels: name -> (target, source) matrix.
        source_words: one label for every column.
        target_words: one label for every row.
        links: gold links (i source, j target), outlined in every panel.
        title: a line above the panels.

    Returns:
        A figure; `figure.savefig("name.png", dpi=200)` writes it.

    Raises:
        ValueError: no panel, or a matrix of another shape than the words ask for.
    """
    if not panels:
        raise ValueError("`panels` is empty: give at least one matrix.")
    shape = len(target_words), len(source_words)
    for name, matrix in panels.items():
        if tuple(matrix.shape) != shape:
            raise ValueError(
                f"Panel {name!r} has the shape {tuple(matrix.shape)}, but there are {shape[0]} target and {shape[1]} "
                "source words."
            )

    label_width = _CHARACTER_INCHES * max(map(len, target_words), default=0) + 0.35
    label_height = _CHARACTER_INCHES * max(map(len, source_words), default=0) + 0.15
    grid_width, grid_height = _CELL_INCHES * shape[1], _CELL_INCHES * shape[0]
    heading, footing = 0.45 + (0.35 if title else 0.0), 0.75 if links else 0.50
    gap = 0.40
    width = label_width + len(panels) * (grid_width + gap)
    height = heading + label_height + grid_height + footing
    figure = Figure(figsize=(width, height), facecolor="white")
    if title:
        figure.text(label_width / width, 1 - 0.28 / height, title, fontsize=11, **_LABEL)

    for number, (name, matrix) in enumerate(panels.items()):
        left = label_width + number * (grid_width + gap)
        axes = figure.add_axes(
            (left / width, footing / height, grid_width / width, grid_height / height),
        )
        values = matrix.detach().float().cpu().numpy()
        image = axes.imshow(values, cmap="Blues", vmin=0, vmax=values.max() or 1, aspect="auto")
        _label_axes(axes, source_words, target_words if number == 0 else ())
        # Above the column labels, flush with the left edge of the grid.
        figure.text(left / width, 1 - (heading - 0.18) / height, name, fontsize=10, weight="bold", **_LABEL)
        for i, j in links:
            outline = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor=_LINK, linewidth=1.6, zorder=3)
            axes.add_patch(outline).set_clip_on(False)  # or the edge of the grid would cut the line in half
        bar = figure.add_axes((left / width, (footing - 0.20) / height, grid_width / width, 0.07 / height))
        _draw_scale(figure, image, bar)

    if links:
        _draw_legend(figure, label_width, width, height)
    return figure


def _label_axes(axes, source_words: Sequence[str], target_words: Sequence[str]) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(source_words)), source_words, rotation=90, fontsize=9, color=_TEXT)
    axes.set_yticks(range(len(target_words)), target_words, fontsize=9, color=_TEXT)
    axes.tick_params(length=0, pad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
    # White lines between the cells, drawn as the grid of the minor ticks.
    axes.set_xticks([i - 0.5 for i in range(len(source_words) + 1)], minor=True)
    rows = axes.get_images()[0].get_array().shape[0]
    axes.set_yticks([j - 0.5 for j in range(rows + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)


def _draw_scale(figure: Figure, image, bar) -> None:
    scale = figure.colorbar(image, cax=bar, orientation="horizontal")
    top = image.get_clim()[1]
    scale.set_ticks([0, top], labels=["0", f"{top:.2g}"])
    scale.outline.set_visible(False)
    bar.tick_params(length=0, labelsize=8, labelcolor=_TEXT, pad=2)
    first, last = bar.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _draw_legend(figure: Figure, left: float, width: float, height: float) -> None:
    box = 0.13
    bottom = 0.12
    figure.add_artist(
        Rectangle(
            (left / width, bottom / height),
            box / width,
            box / height,
            transform=figure.transFigure,
            fill=False,
            edgecolor=_LINK,
            linewidth=1.6,
        )
    )
    figure.text((left + box + 0.08) / width, (bottom + box / 2) / height, "gold link", fontsize=9, **_LABEL)
