"""Lay out the picture of an aligned sentence pair, and write it as HTML.

Two rows of words, the source above, and a curve for each link, stronger where its score is higher. A word without
a link is grey and has the mark of NULL, with the probability that it has no partner. `pair_plot` draws the same.

All lengths are in em, the size of the words. How wide a word is depends on a font that is not known here: widths are
estimates, words are centred where they belong, and there is room between them.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from markupsafe import Markup

from hf_attncal.data.pharaoh import Link
from hf_attncal.drawing.page import PAGE_FOOT as PAGE_FOOT
from hf_attncal.drawing.page import environment, page_beginning, shown, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NULL_MARK = "∅"
LINK_COLOUR, LINK_COLOUR_AT_NIGHT = "#2171b5", "#6baed6"
SMALL = 0.7  # size of numbers and marks
_PIXELS = 15  # of an em, in HTML
_GAP = 1.0  # between two words
_LEAST_SLOT = 2.2  # what a mark of NULL needs
_ASIDE = 0.25  # from a curve to its number
_LEAST_RISE, _MOST_RISE, _RISE_OF_SPAN = 3.5, 9.0, 0.08  # between the rows: longer links need more


class Aligned(Protocol):
    """The fields of a `WordAlignment` that a picture shows."""

    @property
    def source(self) -> Sequence[str]: ...

    @property
    def target(self) -> Sequence[str]: ...

    @property
    def links(self) -> Sequence[Link]: ...

    @property
    def scores(self) -> Sequence[float]: ...

    @property
    def source_null(self) -> Sequence[float] | None: ...

    @property
    def target_null(self) -> Sequence[float] | None: ...


class PlacedWord(NamedTuple):
    """A word.

    Args:
        text: without characters that cannot be shown.
        x: its centre.
        linked: whether it has a link.
        null: the probability that it has no partner, where the model knows it.
    """

    text: str
    x: float
    linked: bool
    null: float | None

    @property
    def mark(self) -> str | None:
        """Return the mark beside a word without a link, or None for a linked word."""
        if self.linked:
            return None
        return NULL_MARK if self.null is None else f"{NULL_MARK} {short(self.null)}"


class Row(NamedTuple):
    """The words of a side, from right to left where most of its letters are.

    Args:
        words: in their order.
        right_to_left: the first word is the rightmost.
        y: base line of the words, downwards.
        mark_y: base line of the marks of NULL.
    """

    words: tuple[PlacedWord, ...]
    right_to_left: bool
    y: float
    mark_y: float


class PlacedLink(NamedTuple):
    """A link.

    Args:
        link: (i source, j target).
        score: from 0 to 1.
        curve: the four points (x, y) of a cubic Bézier curve, from the source word to the target word.
        number: base line (x, y) of the number of the score, at the end where no other link arrives if there is one.
        number_left: the number ends at this x, or else begins there: the side that the curve does not take.
    """

    link: Link
    score: float
    curve: tuple[tuple[float, float], ...]
    number: tuple[float, float]
    number_left: bool


@dataclass(frozen=True)
class PairPicture:
    """The places of all words and links, in em from the upper left corner."""

    width: float
    height: float
    source: Row
    target: Row
    links: tuple[PlacedLink, ...]


# ---- layout ----


def place(pair: Aligned) -> PairPicture:
    """Lay out the picture of a pair."""
    linked = [{link[side] for link in pair.links} for side in (0, 1)]
    sides = (pair.source, pair.source_null, linked[0]), (pair.target, pair.target_null, linked[1])
    numbered = _with_numbers(pair)
    # A number stands on either side of its word's centre, inside the word's slot, where no other number reaches.
    least = 2 * (_ASIDE + SMALL * text_width(short(1)) + 0.1)
    slots = [
        [max(text_width(word) + _GAP, least if n in of else _LEAST_SLOT + _GAP) for n, word in enumerate(words)]
        for (words, *_), of in zip(sides, numbered, strict=True)
    ]
    width = max(map(sum, slots))
    unlinked = [len(seen) < len(words) for words, _, seen in sides]  # a line for the marks of NULL
    rows = [_words(*side, widths, width) for side, widths in zip(sides, slots, strict=True)]
    centres = [[word.x for word in words] for words, _ in rows]
    span = max((abs(centres[0][i] - centres[1][j]) for i, j in pair.links), default=0)
    rise = min(_LEAST_RISE + _RISE_OF_SPAN * span, _MOST_RISE) if pair.links else 1.0
    source = Row(*rows[0], y=1.1 + unlinked[0], mark_y=0.8)
    above, below = source.y + 0.4, source.y + 0.4 + rise
    target = Row(*rows[1], y=below + 1.0, mark_y=below + 2.1)
    links = _links(pair, centres, above, below)
    return PairPicture(width, target.y + 0.4 + unlinked[1], source, target, links)


def _words(
    words: Sequence[str], nulls: Sequence[float] | None, linked: set[int], slots: Sequence[float], width: float
) -> tuple[tuple[PlacedWord, ...], bool]:
    """Place the words of a row, spread evenly over the whole width, and whether they run from right to left."""
    # One direction for the whole row, numbers and foreign words too: word i + 1 always lies beside word i.
    right_to_left = _is_right_to_left("".join(words))
    more = (width - sum(slots)) / max(1, len(words))
    placed, x = [], 0.0
    for n, (word, slot) in enumerate(zip(words, slots, strict=True)):
        centre = x + (slot + more) / 2
        null = None if nulls is None else nulls[n]
        placed.append(PlacedWord(shown(word), width - centre if right_to_left else centre, n in linked, null))
        x += slot + more
    return tuple(placed), right_to_left


def _with_numbers(pair: Aligned) -> tuple[set[int], set[int]]:
    """Return the source and target words that have numbers: a link has it at its source word if that has no other."""
    degrees = Counter(i for i, _ in pair.links)
    alone = {i for i, degree in degrees.items() if degree == 1}
    return alone, {j for i, j in pair.links if i not in alone}


def _links(pair: Aligned, centres: Sequence[Sequence[float]], above: float, below: float) -> tuple[PlacedLink, ...]:
    """Place the curves from `above` to `below`, and their numbers."""
    at_source, _ = _with_numbers(pair)
    taken: Counter[int] = Counter()  # numbers at a target word
    placed = []
    for (i, j), score in zip(pair.links, pair.scores, strict=True):
        first, last, bend = centres[0][i], centres[1][j], (below - above) / 2
        if i in at_source:
            x, y, left = first, above + SMALL, last > first
        else:
            x, y, left = last, below - 0.3 - SMALL * taken[j], first > last
            taken[j] += 1
        curve = (first, above), (first, above + bend), (last, below - bend), (last, below)
        placed.append(PlacedLink((i, j), score, curve, (x - _ASIDE if left else x + _ASIDE, y), left))
    return tuple(placed)


def _is_right_to_left(text: str) -> bool:
    directions = Counter(map(unicodedata.bidirectional, text))
    return directions["R"] + directions["AL"] > directions["L"]


def short(probability: float) -> str:
    """Write a probability with two decimals, `.93`."""
    return f"{probability:.2f}".removeprefix("0")


# ---- HTML ----


def pair_html(pair: Aligned, caption: str = "") -> str:
    """Return the picture of a pair as HTML in one line, with its style; it scrolls where it is wider than the page."""
    return str(_template().pair(place(pair), caption)).replace("\n", "")


def page_head(aligner: str) -> str:
    """Return the beginning of a page of pictures, which needs nothing but itself; `aligner` is what aligned them.

    `page_pair` makes each of its pairs, and `PAGE_FOOT` ends it.
    """
    lead = Markup(
        "By <b><bdi>{}</bdi></b>. Above the source, below the target. A curve is a link, thicker and stronger where "
        "its score (the number) is higher; {} marks a word without a link, with the probability that it has no "
        "partner where the aligner gives one."
    )
    return page_beginning("Word alignment", lead.format(shown(aligner), NULL_MARK), "pairs")


def page_pair(number: int, pair: Aligned) -> str:
    """Return a pair of the page, in one line; `number` is that of its line of the input, from 1."""
    return str(_template().section(number, place(pair))).replace("\n", "")


@cache
def _template() -> Any:
    """Return the macros of the template."""
    found = environment(Path(__file__).parent)
    found.filters |= {"px": lambda length: f"{_PIXELS * length:.1f}", "short": short}
    found.globals |= {"colour": LINK_COLOUR, "colour_at_night": LINK_COLOUR_AT_NIGHT, "small": SMALL}
    return found.get_template("pictures.html.jinja").module


# ---- matplotlib ----


def pair_plot(pair: Aligned) -> "Figure":
    """Draw an aligned pair with matplotlib: words in two rows, links with their scores, NULL.

    Args:
        pair: the pair.

    Returns:
        A figure with one axes, in em, which a notebook shows; `figure.savefig("name.png", dpi=200)` writes it.

    Warns:
        UserWarning: no installed font has some characters of the words.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    from hf_attncal.drawing.plots import FAINT, POINTS, TEXT_COLOUR, Picture, families_for

    picture = place(pair)
    points = POINTS + 2
    inches = points / 72
    width, height = picture.width + 1, picture.height + 0.5
    figure = Picture(figsize=(width * inches, height * inches))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.5, width - 0.5), ylim=(height - 0.25, -0.25))
    axes.set_axis_off()
    for link in picture.links:
        curve = Curve(link.curve, (Curve.MOVETO, *[Curve.CURVE4] * 3))
        curved = {"linewidth": 0.8 + 1.2 * link.score, "alpha": 0.3 + 0.7 * link.score, "capstyle": "round"}
        axes.add_patch(PathPatch(curve, fill=False, edgecolor=LINK_COLOUR, **curved))
        side = "right" if link.number_left else "left"
        axes.text(*link.number, short(link.score), ha=side, fontsize=SMALL * points, color=TEXT_COLOUR)
    families = families_for("".join((*pair.source, *pair.target)))
    for row in (picture.source, picture.target):
        for word in row.words:
            style: dict[str, Any] = {
                "ha": "center",
                "color": TEXT_COLOUR if word.linked else FAINT,
                "parse_math": False,
            }
            axes.text(word.x, row.y, word.text, fontsize=points, fontfamily=families, **style)
            if word.mark:
                axes.text(word.x, row.mark_y, word.mark, fontsize=SMALL * points, **style)
    return figure
