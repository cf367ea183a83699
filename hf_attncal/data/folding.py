"""Fold words: the one rule by which an aligner looks words up, so that it knows `L’Été` if it has read `l'été`.

Only what the aligner looks up is folded. The words that a user gives, and their numbers, stay as they are.
"""

import unicodedata
from functools import lru_cache

_QUOTES = {"'": "`´‘’‚‛′‵ʹʻʼˈ＇", '"': "“”„‟«»″‶〝〞＂", "-": "‐‑‒–—―−﹘﹣－"}
# Nobody sees a soft hyphen, a zero-width space, a word joiner or a mark of byte order.
_TABLE = str.maketrans(
    {other: plain for plain, others in _QUOTES.items() for other in others}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff", "")
)
NOTHING = "_"  # stands for a word of which nothing is left, such as a no-break space


@lru_cache(maxsize=1 << 17)
def fold(word: str) -> str:
    """Return the form in which a word is looked up; never empty, never with white space in it.

    - Case is folded (`Straße`, `STRASSE`: `strasse`).
    - Quotes are `'` or `"` (`''` and two backquotes, too), and dashes are `-`.
    - Characters of full and half width, ligatures and digits of any script are the plain ones (NFKC).
    - White space inside a word (`10 000` with a no-break or thin space) and characters without width are left out.
    """
    plain, before = word, None
    while plain != before:  # folding may compose a character that can be folded
        before = plain
        plain = unicodedata.normalize("NFKC", plain.translate(_TABLE).casefold())
        plain = "".join(plain.split())
    if not plain.isascii():
        plain = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in plain)
    return '"' if plain == "''" else plain or NOTHING


def fold_line(line: str) -> str:
    """Fold the words of a text that white space parts; they keep their number."""
    return " ".join(map(fold, line.split()))


def solid(word: str) -> str:
    """Leave out the white space inside a word, for a tokenizer that parts words at any."""
    return "".join(word.split()) or NOTHING
