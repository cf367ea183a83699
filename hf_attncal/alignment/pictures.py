"""Draw an aligned sentence pair as HTML.

The picture has two rows of words, the source above, and a curve for each link, thicker for a higher score. A word
without a link is grey, with the NULL mark and the probability that it has no partner.

All lengths are in em. The font is unknown, so that the widths of words are estimates, with gaps between words.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from hf_attncal.data.words import Link
from hf_attncal.drawing.page import PAGE_FOOT as PAGE_FOOT
from hf_attncal.drawing.page import environment, page_beginning, shown, text_width

NULL_MARK = "∅"
LINK_COLOUR, LINK_COLOUR_AT_NIGHT = "#2171b5", "#6baed6"
SMALL = 0.7  # size of marks
_PIXELS_PER_EM = 15  # in HTML
_GAP = 1.0  # between two words
_MIN_SLOT = 2.2  # width of a NULL mark
_MIN_RISE, _MAX_RISE, _RISE_PER_SPAN = 3.5, 9.0, 0.08  # distance of the rows, which grows with the longest link


class PlacedWord(NamedTuple):
    """Word at its position.

    Args:
        text: Text without unprintable characters.
        x: Centre.
        linked: True if the word has a link.
        null: Probability that the word has no partner, or None.
    """

    text: str
    x: float
    linked: bool
    null: float | None

    @property
    def mark(self) -> str | None:
        """NULL mark of a word without a link; None for a linked word."""
        if self.linked:
            return None
        return NULL_MARK if self.null is None else f"{NULL_MARK} {short(self.null)}"


class Row(NamedTuple):
    """Row of the words of a side.

    Args:
        words: Words in their order.
        right_to_left: True if the first word is on the right.
        y: Base line of the words, from the top.
        mark_y: Base line of the NULL marks.
    """

    words: tuple[PlacedWord, ...]
    right_to_left: bool
    y: float
    mark_y: float


class PlacedLink(NamedTuple):
    """Link at its position.

    Args:
        link: (i source, j target).
        score: Score, from 0 to 1.
        curve: Four points (x, y) of a cubic Bézier curve from the source word to the target word.
    """

    link: Link
    score: float
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PairPicture:
    """Layout of the words and links of a pair, in em from the upper left corner."""

    width: float
    height: float
    source: Row
    target: Row
    links: tuple[PlacedLink, ...]


# ---- layout ----


def place(pair: Any) -> PairPicture:
    """Lay out the picture of a pair, a `WordAlignment`."""
    linked = [{link[side] for link in pair.links} for side in (0, 1)]
    sides = (pair.source, pair.source_null, linked[0]), (pair.target, pair.target_null, linked[1])
    slots = [[max(text_width(word), _MIN_SLOT) + _GAP for word in words] for words, *_ in sides]
    width = max(map(sum, slots))
    unlinked = [len(with_link) < len(words) for words, _, with_link in sides]  # rows with NULL marks
    rows = [_words(*side, widths, width) for side, widths in zip(sides, slots, strict=True)]
    centres = [[word.x for word in words] for words, _ in rows]
    span = max((abs(centres[0][i] - centres[1][j]) for i, j in pair.links), default=0)
    rise = min(_MIN_RISE + _RISE_PER_SPAN * span, _MAX_RISE) if pair.links else 1.0
    source = Row(*rows[0], y=1.1 + unlinked[0], mark_y=0.8)
    above, below = source.y + 0.4, source.y + 0.4 + rise
    target = Row(*rows[1], y=below + 1.0, mark_y=below + 2.1)
    bend, links = rise / 2, []
    for (i, j), score in zip(pair.links, pair.scores, strict=True):
        first, last = centres[0][i], centres[1][j]
        curve = (first, above), (first, above + bend), (last, below - bend), (last, below)
        links.append(PlacedLink((i, j), score, curve))
    return PairPicture(width, target.y + 0.4 + unlinked[1], source, target, tuple(links))


def _words(
    words: Sequence[str], nulls: Sequence[float] | None, linked: set[int], slots: Sequence[float], width: float
) -> tuple[tuple[PlacedWord, ...], bool]:
    """Place the words of a row evenly over the width; also return True for a row from right to left."""
    # A row has one direction, including numbers and foreign words, so that consecutive words are neighbours.
    right_to_left = _is_right_to_left("".join(words))
    more = (width - sum(slots)) / max(1, len(words))
    placed, x = [], 0.0
    for n, (word, slot) in enumerate(zip(words, slots, strict=True)):
        centre = x + (slot + more) / 2
        null = None if nulls is None else nulls[n]
        placed.append(PlacedWord(shown(word), width - centre if right_to_left else centre, n in linked, null))
        x += slot + more
    return tuple(placed), right_to_left


def _is_right_to_left(text: str) -> bool:
    directions = Counter(map(unicodedata.bidirectional, text))
    return directions["R"] + directions["AL"] > directions["L"]


def short(probability: float) -> str:
    """Format a probability with two decimals, `.93`."""
    return f"{probability:.2f}".removeprefix("0")


# ---- HTML ----


def pair_html(pair: Any, caption: str = "") -> str:
    """Return the picture of a pair as one line of HTML with its style; a wide picture scrolls."""
    return str(_template().pair(place(pair), caption)).replace("\n", "")


def page_head(aligner: str) -> str:
    """Return the head of a self-contained page of pictures; `page_pair` and `PAGE_FOOT` complete it.

    Args:
        aligner: Name of the aligner.
    """
    lead = Markup(
        "Aligned by <b><bdi>{}</bdi></b>. The source is above, the target below. A curve is a link, thicker for a "
        "higher score. {} marks a word without a link, with the probability that it has no partner."
    )
    return page_beginning("Word alignment", lead.format(shown(aligner), NULL_MARK), "pairs")


def page_pair(number: int, pair: Any) -> str:
    """Return a pair of the page as one line; `number` is its input line, from 1."""
    return str(_template().section(number, place(pair))).replace("\n", "")


@cache
def _template() -> Any:
    """Return the macros of the template."""
    templates = environment(Path(__file__).parent)
    templates.filters |= {"px": lambda length: f"{_PIXELS_PER_EM * length:.1f}", "short": short}
    templates.globals |= {"colour": LINK_COLOUR, "colour_at_night": LINK_COLOUR_AT_NIGHT, "small": SMALL}
    return templates.get_template("pictures.html.jinja").module
