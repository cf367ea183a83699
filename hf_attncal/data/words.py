"""Words of a text, and the words of its tokens; `word_tokens.py` finds these."""

import html
import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a command that only reads its options needs no numpy
    import numpy as np

Link = tuple[int, int]  # indices of a source word and a target word, from 0
SEPARATORS = ("white-space", "spaces")  # word separators: any white space of Unicode, or ASCII only
_WORD = re.compile(r"\S+")
_SPACED = re.compile(r"[^ \t\n\r\f\v]+")
# Maximum of source words times target words of a pair, and the approximate memory of such a cell in bytes.
MOST_CELLS, _BYTES_OF_CELL = 3 * 10**7, 60
NO_WORD = -1  # word of a token that belongs to none
# Negations in lower case: without one, a sentence has the opposite meaning.
NEGATIONS = frozenset(
    {
        *("not", "n't", "'nt", "'t", "no", "never", "nobody", "nothing", "none", "neither", "nor", "cannot"),
        *("nicht", "kein", "keine", "keinen", "keinem", "keiner", "keines", "nie", "niemals", "niemand", "nichts"),
        *("niemandem", "niemanden", "keinerlei", "keineswegs", "nirgends", "nirgendwo", "nowhere"),
        *("pas", "jamais", "rien", "aucun", "aucune", "non"),
        *("betg", "nagin", "nagina", "nagut", "nagliu"),  # Romansh
        *("niet", "geen", "nooit", "niets", "inte", "inget", "ingen", "inga", "aldrig", "ikke", "aldri"),
        *("nunca", "nada", "nadie", "ningún", "ninguno", "ninguna", "não", "nenhum", "nenhuma", "ninguém"),
        *("nessuno", "nessuna", "nessun", "niente", "nulla"),
    }
)


def split_words(text: str, words: str = SEPARATORS[0]) -> list[str]:
    """Split a text into words: at any white space as `str.split()`, or at "spaces", ASCII white space only.

    With "spaces", a no-break, thin or ideographic space is part of a word.
    """
    return text.split() if words == SEPARATORS[0] else _SPACED.findall(text)


def word_spans(text: str, words: str = SEPARATORS[0]) -> list[tuple[int, int]]:
    """Return the (start, end) character offsets of the words of `split_words`."""
    return [match.span() for match in (_WORD if words == SEPARATORS[0] else _SPACED).finditer(text)]


def check_cells(source: int, target: int) -> float:
    """Return the gigabytes that the alignment of a pair with these numbers of words takes.

    Raises:
        ValueError: more than `MOST_CELLS` pairs of words.
    """
    gigabytes = _BYTES_OF_CELL * source * target / 1e9
    if source * target > MOST_CELLS:
        raise ValueError(
            f"{source:,} times {target:,} words must be at most {MOST_CELLS:.0e}: they take about "
            f"{gigabytes:,.0f} GB. Split the line."
        )
    return gigabytes


class WordTokens(NamedTuple):
    """Tokenised sentence.

    Args:
        ids: token ids, (tokens,) int64.
        word_ids: word of each token (from 0) or `NO_WORD`, (tokens,) int64.
        words: number of words.
    """

    ids: "np.ndarray"
    word_ids: "np.ndarray"
    words: int

    def tokens_of_words(self) -> list[list[int]]:
        """Return the token positions of each word."""
        places: list[list[int]] = [[] for _ in range(self.words)]
        for token, word in enumerate(self.word_ids.tolist()):
            if word != NO_WORD:
                places[word].append(token)
        return places


def is_punctuation(word: str) -> bool:
    """Return whether a word is only punctuation (Unicode category P) or accents used as quotes, escaped or not.

    Currency and mathematical signs are not punctuation. Escaped marks look like `&quot;`.
    """
    text = html.unescape(word)
    return bool(text) and all(unicodedata.category(character)[0] == "P" or character in "`´^¨" for character in text)
