"""Segment raw text of any script into words by Unicode's word boundaries (UAX #29), and map words back to the text.

White space separates words. Text between white space is split at the boundaries of UAX #29, by its default rules: runs
of letters are words, and so are numbers with their decimal and thousands marks (`1,000.50`), each ideograph, each
hiragana, and each character of Thai, Lao, Khmer and Burmese, whose words only a dictionary could find. Combining marks
stay with the character they modify. A punctuation mark (hyphens included) or a symbol is a word, and so is a run of
the same one (`...`).

Beyond these rules, an address (`https://...`, `www...`, `name@host`) is one word, and an apostrophe between Latin
letters splits a word: before the apostrophe if an English ending follows (`John 's`, `we 'll`, `don 't`), otherwise
after it (`l' homme`, `dell' arte`).

A text without spaces between its words (Chinese, Japanese, Thai, ...) has no white-space words that links could be
between: if `segment` has a function that cuts runs of such a script, each part of a run is a white-space word.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from .words import SEPARATORS, Link, is_punctuation, split_words

_ADDRESS = r"(?:(?:https?|ftp)://|www\.)[!-~]*[0-9a-z/#=&_-]|[0-9a-z._%+-]+@[0-9a-z-]+(?:\.[0-9a-z-]+)+"
_ENDING = r"['’](?:s|t|re|ve|ll|d|m)(?![\p{L}\p{M}\p{N}])"
# Not V1: its full case-folding (SS is ß) does not end for `SSSSSSSS`.
_PIECE = (
    rf"(?wi){_ADDRESS}"
    rf"|\p{{Latin}}[\p{{Latin}}\p{{M}}]*?(?={_ENDING})"
    rf"|(?<![^\p{{Latin}}\p{{M}}]){_ENDING}"
    r"|\p{Latin}[\p{Latin}\p{M}]*['’](?=\p{Latin})"
    r"|(?P<mark>[\p{P}\p{S}])(?P=mark)+(?!\p{M})"
    r"|.+?(?:\b|$)"
)
# Scripts without spaces between words, and the length of a run of their letters that is rarely a single word.
_UNSPACED = ((r"[\p{Han}\p{Hiragana}\p{Katakana}ー]", 6), (r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]", 16))
_LINES_TO_JUDGE = 1000
Cut = Callable[[str], Sequence[str]]  # function that cuts a run of letters into words
_MAX_CACHED_CHARACTERS = 32  # characters of a cached chunk: a sentence without spaces is one chunk


class Segments(NamedTuple):
    """Words of a text.

    Args:
        text: raw text.
        words: words in order; joined, they are the text without white space.
        owners: white-space word (from 0) that each word stands for; None for punctuation attached to a word.
        raw: white-space words; the words that a run without spaces is cut into also count as such.
    """

    text: str
    words: tuple[str, ...]
    owners: tuple[int | None, ...]
    raw: tuple[str, ...]

    @property
    def raw_words(self) -> int:
        """Number of white-space words."""
        return len(self.raw)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Start and end offsets of the words, in Unicode code points."""
        spans, end = [], 0
        for word in self.words:
            start = self.text.index(word, end)  # only white space precedes it
            end = start + len(word)
            spans.append((start, end))
        return tuple(spans)


def segment(text: str, separator: str = SEPARATORS[0], cut: Cut | None = None) -> Segments:
    """Segment raw text into words.

    Args:
        text: raw text.
        separator: separator of the white-space words (`words.split_words`).
        cut: function that cuts the runs of a script without spaces. Default: None, they are not cut.
    """
    words: list[str] = []
    owners: list[int | None] = []
    raw: list[str] = []
    for chunk in split_words(text, separator):
        if cut is not None and (parts := _unspaced_parts(chunk, cut)):
            owners += range(len(raw), len(raw) + len(parts))
            words += parts
            raw += parts
            continue
        pieces = _cached_pieces(chunk) if len(chunk) <= _MAX_CACHED_CHARACTERS else _pieces(chunk)
        for piece, stands_for_chunk in pieces:
            words.append(piece)
            owners.append(len(raw) if stands_for_chunk else None)
        raw.append(chunk)
    return Segments(text, tuple(words), tuple(owners), tuple(raw))


def is_unspaced(lines: Iterable[str]) -> bool:
    """Return True if a text has no spaces between words: most letters of scripts without spaces are in long runs."""
    text = "\n".join(islice(lines, _LINES_TO_JUDGE))
    if text.isascii():
        return False
    letters = sum(len(_compiled(letter).findall(text)) for letter, _ in _UNSPACED)
    in_runs = sum(len(run) for letter, most in _UNSPACED for run in _compiled(f"{letter}{{{most},}}").findall(text))
    return 2 * in_runs > letters and 2 * letters > sum(map(str.isalpha, text))


def characters(run: str) -> list[str]:
    """Cut a run of letters at the word boundaries of Unicode: mostly into single characters."""
    return [word for word, _ in _pieces(run)]


def _unspaced_parts(chunk: str, cut: Cut) -> list[str]:
    """Return the words of a chunk with letters of a script without spaces; [] for another chunk."""
    runs = [match for letter, _ in _UNSPACED for match in _compiled(f"{letter}+").finditer(chunk)]
    parts, end = [], 0
    for run in sorted(runs, key=lambda match: match.start()):
        parts += [*characters(chunk[end : run.start()]), *cut(run[0])]
        end = run.end()
    return [*parts, *characters(chunk[end:])] if runs else []


def white_space_words(text: str, separator: str = SEPARATORS[0]) -> Segments:
    """Split text at white space or spaces only (`words.split_words`)."""
    words = tuple(split_words(text, separator))
    return Segments(text, words, tuple(range(len(words))), words)


def raw_links(
    links: Sequence[Link], scores: Sequence[float], source: Segments, target: Segments
) -> tuple[tuple[Link, ...], tuple[float, ...]]:
    """Convert links between words of `segment` into sorted links between white-space words.

    Two white-space words are linked if any of their words are, with the largest score of these links. Links between
    punctuation marks attached to words (the commas of `house,` and `gut,`) are dropped.
    """
    best: dict[Link, float] = {}
    for (i, j), score in zip(links, scores, strict=True):
        raw_i, raw_j = source.owners[i], target.owners[j]
        if raw_i is not None and raw_j is not None:
            best[raw_i, raw_j] = max(score, best.get((raw_i, raw_j), score))
    return tuple(sorted(best)), tuple(best[link] for link in sorted(best))


def raw_means(values: Sequence[float], segments: Segments) -> tuple[float, ...]:
    """Return the mean value of the words that stand for each white-space word; 1 without such words."""
    sums, counts = [0.0] * segments.raw_words, [0] * segments.raw_words
    for value, owner in zip(values, segments.owners, strict=True):
        if owner is not None:
            sums[owner] += value
            counts[owner] += 1
    return tuple(total / count if count else 1.0 for total, count in zip(sums, counts, strict=True))


@lru_cache
def _compiled(pattern: str):
    import regex  # slow to import, and only needed for raw text

    return regex.compile(pattern, regex.DOTALL)


def _pieces(chunk: str) -> tuple[tuple[str, bool], ...]:
    """Split a chunk into words, each with whether it stands for the chunk; marks do only without other words."""
    words = [piece[0] for piece in _compiled(_PIECE).finditer(chunk) if not piece[0].isspace()]
    marks = [is_punctuation(word) for word in words]
    return tuple((word, not mark or all(marks)) for word, mark in zip(words, marks, strict=True))


_cached_pieces = lru_cache(maxsize=1 << 13)(_pieces)


# ---- folded words ----


_QUOTES = {"'": "`´‘’‚‛′‵ʹʻʼˈ＇", '"': "“”„‟«»″‶〝〞＂", "-": "‐‑‒–—―−﹘﹣－"}
# A soft hyphen, a zero-width space, a word joiner and a byte-order mark are invisible.
_TABLE = str.maketrans(
    {variant: plain for plain, variants in _QUOTES.items() for variant in variants}
    | dict.fromkeys("\u00ad\u200b\u2060\ufeff", "")
)
_MAX_CHARACTERS = 200
EMPTY_WORD = "_"  # in place of a word without visible characters, such as a no-break space


@lru_cache(maxsize=1 << 13)
def fold(word: str) -> str:
    """Return the folded form of a word, by which an aligner looks it up; never empty, without white space.

    - Case is folded (`Straße`, `STRASSE`: `strasse`).
    - Quotes become `'` or `"` (also `''` and two backquotes), and dashes `-`.
    - Full-width and half-width characters, ligatures and digits of any script become plain (NFKC).
    - White space inside a word (`10 000` with a no-break or thin space) and zero-width characters are removed.
    - Only the first 200 characters count, as thousands (an image in base64) would take gigabytes.
    """
    plain, before = word[:_MAX_CHARACTERS], None
    while plain != before:  # folding may compose a character that folds again
        before = plain
        plain = unicodedata.normalize("NFKC", plain.translate(_TABLE).casefold())
        plain = "".join(plain.split())
    if not plain.isascii():
        plain = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in plain)
    return '"' if plain == "''" else plain or EMPTY_WORD


def fold_line(line: str) -> str:
    """Fold the white-space words of a text; their number stays the same."""
    return " ".join(map(fold, line.split()))


def without_spaces(word: str) -> str:
    """Remove the white space inside a word, for a tokenizer that splits at any white space."""
    return "".join(word.split()) or EMPTY_WORD
