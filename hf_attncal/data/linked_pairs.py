"""Word separators of linked sentence pairs, and gold links with their texts.

Words are separated by any white space of Unicode, or by ASCII spaces only. Most texts have the same words either way.
Otherwise (a no-break space in `10 000`) links with one separator point to wrong words with the other. So the separator
is an argument, or inferred: links and tags outside the words of one separator use the other.
"""

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hf_attncal.io.errors import LineError, in_line
from hf_attncal.io.files import Text, lines_of, read_pairs, text_name

from .pharaoh import GoldAlignment, Link, check_index_base, check_inside_pair, displacement_warning, iter_alignments
from .words import SEPARATORS, split_words

if TYPE_CHECKING:
    from datasets import Dataset

_SPECIAL_SPACE = re.compile(r"[^\S \t\n\r\f\v]")  # white space other than ASCII's


class LinkedPair(NamedTuple):
    """Linked sentence pair, from which its word separator is inferred.

    Args:
        source, target: texts.
        links: word links.
        tags: number of tags of the source words. None: no tags.
        sizes: numbers of words of both sides. None: not recorded with the links.
    """

    source: str
    target: str
    links: Collection[Link]
    tags: int | None = None
    sizes: tuple[int, int] | None = None


def may_have_special_space(text: str) -> bool:
    """Return whether a text has white space other than ASCII's, or a reference that may be one (`&nbsp;`)."""
    return "&" in text or _SPECIAL_SPACE.search(text) is not None


def separators_differ(*texts: str | None) -> bool:
    """Return whether the words of one of these texts depend on the separator."""
    special = (text for text in texts if text and _SPECIAL_SPACE.search(text))
    return any(len(word.split()) != 1 for text in special for word in split_words(text, SEPARATORS[1]))


class WordSeparator:
    """Word separator of linked sentence pairs, inferred from them unless it is set.

    Args:
        words: separator, one of `SEPARATORS`. Default: inferred.
    """

    def __init__(self, words: str | None = None):
        self.words = words

    @classmethod
    def of(cls, words: "str | WordSeparator | None") -> "WordSeparator":
        """Return `words` if it is a WordSeparator already, else a new one."""
        return words if isinstance(words, WordSeparator) else cls(words)

    def split(self, pair: LinkedPair) -> tuple[list[str], list[str]]:
        """Return the words of both sides.

        Raises:
            ValueError: the links fit both separators.
        """
        if len(self._infer(pair)) > 1:
            both = ["{} and {}".format(*map(len, _sides(pair, words))) for words in SEPARATORS]
            raise ValueError(
                f"the links fit {both[0]} words separated by any white space, and {both[1]} words separated by spaces "
                f"only (the text has a no-break space or similar). Set `words` to {SEPARATORS[0]} or {SEPARATORS[1]} "
                "where there is such an option, or replace these spaces in the text."
            )
        source, target = _sides(pair, self.words or SEPARATORS[0])
        return source, target

    def _infer(self, pair: LinkedPair) -> list[str]:
        """Set the separator if a pair fits only one; return the separators that fit, [] if it makes no difference."""
        if self.words is not None or not (pair.links or pair.tags) or not separators_differ(*pair[:2]):
            return []
        fitting = [words for words in SEPARATORS if _fits(pair, words)]
        if len(fitting) == 1:
            (self.words,) = fitting
        return fitting

    def find(self, pairs: Iterable[LinkedPair]) -> None:
        """Infer the separator from the first pair that fits only one; errors in pairs are left to later checks."""
        with suppress(ValueError):
            for pair in pairs:
                self._infer(pair)
                if self.words is not None:
                    break


def _sides(pair: LinkedPair, words: str) -> list[list[str]]:
    return [split_words(text, words) for text in pair[:2]]


def _fits(pair: LinkedPair, words: str) -> bool:
    source, target = map(len, _sides(pair, words))
    if pair.sizes is not None:
        return pair.sizes == (source, target)
    with suppress(ValueError):
        check_inside_pair(pair.links, (source, target))
        return pair.tags in (None, source)
    return False


# ---- gold links ----


@dataclass(frozen=True)
class Gold:
    """Sentence pairs with gold links."""

    pairs: Sequence[tuple[str, str]]
    links: Sequence[GoldAlignment]

    @classmethod
    def read(cls, source: Text, target: Text, gold: Text) -> "Gold":
        """Read text and links, each a file or lines.

        Raises:
            ValueError: see `read_pairs` and `gold_links`.

        Warns:
            UserWarning: see `gold_links`.
        """
        pairs = list(zip(*read_pairs(source, target), strict=True))
        return cls(pairs, gold_links(gold, pairs))


def gold_links(text: Text | Sequence[GoldAlignment], pairs: Sequence[tuple[str, str]]) -> list[GoldAlignment]:
    """Return the checked gold links of sentence pairs.

    Args:
        text: file in Pharaoh format, lines of it, or links.
        pairs: sentence pairs.

    Raises:
        ValueError: see `iter_links`; also links outside their pair.

    Warns:
        UserWarning: indices that are probably displaced (`displaced_pairs`).
    """
    path = text_name(text, "the links")
    links = list(iter_links(text, pairs))
    words = [(source.split(), target.split()) for source, target in pairs]
    try:
        check_index_base(links, [(len(source), len(target)) for source, target in words], "take 1 from each index")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if problem := displacement_warning(links, words):
        warnings.warn(f"{path}: {problem}", stacklevel=2)
    return links


def iter_links(links: Text | Sequence[GoldAlignment], text: "Dataset | Sequence") -> Iterator[GoldAlignment]:
    """Yield the links of every sentence pair between its white-space words.

    Args:
        links: file in Pharaoh format, lines of it, or links.
        text: sentence pairs, or a Dataset of them.

    Raises:
        ValueError: unequal numbers of lines and pairs, a malformed line, or an ambiguous word separator. The message
            names the file.
    """
    path = text_name(links, "the links")
    try:
        lines = lines_of(links)
        if len(lines) != len(text):
            raise ValueError(f"{path} has {len(lines)} lines of links for {len(text)} sentence pairs.")
        sides = text if isinstance(text, Sequence) else zip(text["source"], text["target"], strict=True)
        unclear = {row: (s or "", t or "") for row, (s, t) in enumerate(sides) if separators_differ(s, t)}
        separator = WordSeparator()
        linked = (LinkedPair(*unclear[row], gold.possible) for row, gold in _parsed(lines) if row in unclear)
        separator.find(linked if unclear else ())
        for row, gold in _parsed(lines):
            if row in unclear:
                with in_line(row + 1):
                    separator.split(LinkedPair(*unclear[row], gold.possible))
            yield gold
    except ValueError as error:
        named = str(path) in str(error) and not isinstance(error, LineError)
        raise ValueError(str(error) if named else f"{path}: {error}") from error


def _parsed(lines: Sequence) -> Iterator[tuple[int, GoldAlignment]]:
    is_parsed = bool(lines) and isinstance(lines[0], GoldAlignment)
    return enumerate(lines if is_parsed else iter_alignments(lines))
