"""Raw text of any script to words, and back: by Unicode's word boundaries (UAX #29), each with its characters.

White space parts words. What is between is cut at the boundaries of UAX #29, by its default rules: letters, and
numbers with their decimal and thousands marks (`1,000.50`), are words; so is each ideograph, each hiragana, and each
character of Thai, Lao, Khmer and Burmese, whose words only a dictionary could tell; combining marks stay with what
they stand on. A mark of punctuation, a hyphen too, or a symbol is a word, and so is a run of the same one (`...`).

Beyond that, an address (`https://...`, `www...`, `name@host`) is one word, and an apostrophe between Latin letters
parts a word: before it where one of the English endings follows (`John 's`, `we 'll`, `don 't`), else behind it
(`l' homme`, `dell' arte`).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import regex

from .pharaoh import Link
from .words import is_punctuation

_ADDRESS = r"(?:(?:https?|ftp)://|www\.)[!-~]*[0-9a-z/#=&_-]|[0-9a-z._%+-]+@[0-9a-z-]+(?:\.[0-9a-z-]+)+"
_ENDING = r"['’](?:s|t|re|ve|ll|d|m)(?![\p{L}\p{M}\p{N}])"
_PIECE = regex.compile(
    rf"(?V1wi){_ADDRESS}"
    rf"|\p{{Latin}}[\p{{Latin}}\p{{M}}]*?(?={_ENDING})"
    rf"|(?<![^\p{{Latin}}\p{{M}}]){_ENDING}"
    r"|\p{Latin}[\p{Latin}\p{M}]*['’](?=\p{Latin})"
    r"|(?P<mark>[\p{P}\p{S}])(?P=mark)+(?!\p{M})"
    r"|.+?(?:\b|$)",
    regex.DOTALL,
)
_LONGEST_KEPT = 32  # characters of what is remembered: without spaces a sentence is one chunk


class Segments(NamedTuple):
    """The words of a text.

    Args:
        text: the text.
        words: what stands in it, in order: all of it but white space.
        owners: the white-space word, from 0, that each stands for; None for a mark of punctuation on a word.
        raw_words: how many words white space parts.
    """

    text: str
    words: tuple[str, ...]
    owners: tuple[int | None, ...]
    raw_words: int

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The characters (Unicode code points) of each word, its first and the one after its last, from 0."""
        found, end = [], 0
        for word in self.words:
            start = self.text.index(word, end)  # there is nothing but white space before it
            end = start + len(word)
            found.append((start, end))
        return tuple(found)


def segment(text: str) -> Segments:
    """The words of raw text."""
    words: list[str] = []
    owners: list[int | None] = []
    chunks = text.split()
    for number, chunk in enumerate(chunks):
        pieces = _known_pieces(chunk) if len(chunk) <= _LONGEST_KEPT else _pieces(chunk)
        for piece, stands in pieces:
            words.append(piece)
            owners.append(number if stands else None)
    return Segments(text, tuple(words), tuple(owners), len(chunks))


def white_space_words(text: str) -> Segments:
    """The words that white space parts."""
    words = tuple(text.split())
    return Segments(text, words, tuple(range(len(words))), len(words))


def raw_links(
    links: Sequence[Link], scores: Sequence[float], source: Segments, target: Segments
) -> tuple[tuple[Link, ...], tuple[float, ...]]:
    """Links between words of `segment` as links between the white-space words that they stand for, sorted.

    Two are linked where any of their words are, and the score is the largest. What only marks of punctuation on words
    link (`house,` and `gut,`) is not.
    """
    found: dict[Link, float] = {}
    for (i, j), score in zip(links, scores, strict=True):
        owners = source.owners[i], target.owners[j]
        if None not in owners:
            found[owners] = max(score, found.get(owners, score))
    return tuple(sorted(found)), tuple(found[link] for link in sorted(found))


def raw_means(values: Sequence[float], segments: Segments) -> tuple[float, ...]:
    """One value for each white-space word: the mean over the words that stand for it."""
    sums, counts = [0.0] * segments.raw_words, [0] * segments.raw_words
    for value, owner in zip(values, segments.owners, strict=True):
        if owner is not None:
            sums[owner] += value
            counts[owner] += 1
    return tuple(total / count for total, count in zip(sums, counts, strict=True))


def _pieces(chunk: str) -> tuple[tuple[str, bool], ...]:
    """Words of text without white space, and whether each stands for it: a mark does where there are but marks."""
    words = [piece[0] for piece in _PIECE.finditer(chunk)]
    marks = [is_punctuation(word) for word in words]
    return tuple((word, not mark or all(marks)) for word, mark in zip(words, marks, strict=True))


_known_pieces = lru_cache(maxsize=1 << 16)(_pieces)
