"""Draw an aligned pair with matplotlib."""

from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from hf_attncal.drawing.plots import FAINT, POINTS, TEXT_COLOUR, Picture, families_for

from .pictures import LINK_COLOUR, SMALL, Aligned, place, short


def pair_plot(pair: Aligned) -> Figure:
    """Draw an aligned pair (see `pictures.py`): words in two rows, links with their scores, NULL.

    Args:
        pair: a `WordAlignment`, or what has its fields.

    Returns:
        A figure with one axes, in em, which a notebook shows; `figure.savefig("name.png", dpi=200)` writes it.

    Warns:
        UserWarning: no installed font has some characters of the words.
    """
    picture = place(pair)
    points = POINTS + 2
    inches = points / 72
    width, height = picture.width + 1, picture.height + 0.5
    figure = Picture(figsize=(width * inches, height * inches))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.5, width - 0.5), ylim=(height - 0.25, -0.25))
    axes.set_axis_off()
    for link in picture.links:
        curve = Path(link.curve, (Path.MOVETO, *[Path.CURVE4] * 3))
        style = {"linewidth": 0.8 + 1.2 * link.score, "alpha": 0.3 + 0.7 * link.score, "capstyle": "round"}
        axes.add_patch(PathPatch(curve, fill=False, edgecolor=LINK_COLOUR, **style))
        side = "right" if link.number_left else "left"
        axes.text(*link.number, short(link.score), ha=side, fontsize=SMALL * points, color=TEXT_COLOUR)
    families = families_for("".join((*pair.source, *pair.target)))
    for row in (picture.source, picture.target):
        for word in row.words:
            style = {"ha": "center", "color": TEXT_COLOUR if word.linked else FAINT, "parse_math": False}
            axes.text(word.x, row.y, word.text, fontsize=points, fontfamily=families, **style)
            if word.mark:
                axes.text(word.x, row.mark_y, word.mark, fontsize=SMALL * points, **style)
    return figure
