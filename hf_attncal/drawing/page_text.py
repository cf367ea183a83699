"""Text on pages and in terminals: widths, characters that a page may hold, and tables."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

# Widths of characters; those of East Asia are as wide as high, other ones that are not named as `_OTHER`.
_WIDTHS = {"ijlI.,:;'|!()[]/ft’": 0.4, "mwMW@%—…ЖШЩЮЫжшщюы": 1.0}
_CHARACTERS = {character: width for characters, width in _WIDTHS.items() for character in characters}
_CAPITAL, _OTHER = 0.75, 0.63
# What HTML does not allow: control characters, halves of characters and what Unicode reserves.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def text_width(text: str) -> float:
    """Estimate how wide a text is in a usual proportional font, in em: rather too much than too little."""
    return sum(map(_character_width, text))


@cache
def _character_width(character: str) -> float:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    return _CHARACTERS.get(character, _CAPITAL if character.isupper() else _OTHER)


def shown(text: str) -> str:
    """Return the text with a replacement character for what no page may hold: control characters and the like."""
    return _NOT_TEXT.sub("\ufffd", text)


def text_table(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: its headings, then its rows; the first column is aligned left, numbers right."""
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns.items()]
    for name, *numbers in [list(columns), *zip(*columns.values(), strict=True)]:
        padded = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()
