"""Word separators of linked sentence pairs, and gold links with their texts.

Words are separated by any white space of Unicode, or by ASCII spaces only. Most texts have the same words either way.
Otherwise (a no-break space in `10 000`) links with one separator point to wrong words with the other. So the separator
is an argument, or recorded beside the links, or inferred: links and tags outside the words of one separator use the
other.
"""

import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hf_attncal.io.errors import LineError, in_line
from hf_attncal.io.files import Text, is_file, lines_of, read_pairs, sha256, text_name, write_text
from hf_attncal.io.messages import LOG

from .pharaoh import (
    GoldAlignment,
    Link,
    check_index_base,
    check_inside_pair,
    displacement_warning,
    iter_alignments,
)
from .words import SEPARATORS, split_words

if TYPE_CHECKING:
    from datasets import Dataset

SEPARATOR_SUFFIX = ".words"  # file beside a file of links, with its word separator and its SHA-256
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
    """Word separator of linked sentence pairs, inferred from them unless it is set or recorded.

    Args:
        words: separator, one of `SEPARATORS`. Default: the recorded one, else inferred.
        links: file of the links, if there is one.
    """

    def __init__(self, words: str | None = None, links: Any = None):
        self.words, self.links = words or read_separator(links), links

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
            file = os.fspath(self.links) if is_file(self.links) and os.path.isfile(self.links) else None
            remedy = "" if file else "Set `words` in Python, or save the links as a file LINKS. "
            remedy += f"Write `{SEPARATORS[0]}` or `{SEPARATORS[1]}` into {file or 'LINKS'}{SEPARATOR_SUFFIX}."
            both = ["{} and {}".format(*map(len, _sides(pair, words))) for words in SEPARATORS]
            raise ValueError(
                f"the links fit {both[0]} words separated by any white space, and {both[1]} words separated by spaces "
                f"only (the text has a no-break space or similar). {remedy}"
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


def to_white_space_words(gold: GoldAlignment, source: str, target: str) -> GoldAlignment:
    """Convert links between words separated by spaces into links between white-space words.

    The parts of two linked words are linked one to one if both have the same number, else all with all.
    """
    pieces = []
    for text in (source, target):
        places, end = [], 0
        for word in split_words(text, SEPARATORS[1]):
            count = len(word.split())
            places.append(range(end, end + count))
            end += count
        pieces.append(places)
    possible = [(pieces[0][i], pieces[1][j]) for i, j in gold.possible]
    sure = [(pieces[0][i], pieces[1][j]) for i, j in gold.sure]
    groups = (zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) else product(*sides) for sides in sure)
    links = frozenset(link for group in groups for link in group)
    return GoldAlignment(links, links | frozenset(link for sides in possible for link in product(*sides)))


# ---- recorded separators ----


def read_separator(links: Any) -> str | None:
    """Return the word separator recorded beside a file of links, or None.

    The record is the separator's name, optionally followed by the SHA-256 of the links.
    """
    if not is_file(links) or not os.path.isfile(links) or not os.path.isfile(f"{os.fspath(links)}{SEPARATOR_SUFFIX}"):
        return None
    with suppress(OSError, ValueError):
        with open(f"{os.fspath(links)}{SEPARATOR_SUFFIX}", encoding="utf-8") as file:
            words, *hashes = file.read(1000).split()
        if words in SEPARATORS and hashes[:1] in ([], [sha256(links)]):
            return words
    LOG.warning("%s%s belongs to another version of this file; it is ignored", links, SEPARATOR_SUFFIX)
    return None


Window = TypeVar("Window", bound=tuple[Iterable[tuple], Any])


class SeparatorWatch:
    """Record of whether the words of aligned texts depend on the separator.

    Args:
        words: separator, one of `SEPARATORS`. Default: the first.
    """

    def __init__(self, words: str | None = None):
        self._words, self._differs = words or SEPARATORS[0], False

    @property
    def separator(self) -> str | None:
        """Separator to record for the links (`write_separator`); None if the texts do not depend on it."""
        return self._words if self._differs else None

    def check(self, *texts: Any) -> None:
        """Check texts; lists of words need no separator."""
        self._differs = self._differs or separators_differ(*(text for text in texts if isinstance(text, str)))

    def window(self, window: Window) -> Window:
        """Check the pairs of a window, and return it."""
        for pair in window[0]:
            self.check(*pair)
        return window


def write_separator(links: str | os.PathLike[str] | None, words: str | None) -> None:
    """Record the word separator beside a file of links; None removes an old record.

    Pipes and devices have no record.
    """
    if links is None or not os.path.isfile(links):
        return
    path = f"{os.fspath(links)}{SEPARATOR_SUFFIX}"
    if os.path.lexists(path) and not _is_record(path):
        if words is not None:
            LOG.warning(
                "%s is another kind of file; the word separator of %s (%s) is not recorded", path, links, words
            )
    elif words is not None:
        write_text(f"{words}\n{sha256(links)}\n", path)
    elif os.path.lexists(path):
        os.unlink(path)


def _is_record(path: str) -> bool:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return re.fullmatch(rf"({'|'.join(SEPARATORS)})(\s+[0-9a-f]{{64}})?\s*", file.read(1000)) is not None
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

    Links between words separated by spaces are converted (`to_white_space_words`).

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
        separator = WordSeparator(None, links)
        linked = (LinkedPair(*unclear[row], gold.possible) for row, gold in _parsed(lines) if row in unclear)
        separator.find(linked if unclear else ())
        for row, gold in _parsed(lines):
            if row in unclear:
                with in_line(row + 1):
                    separator.split(LinkedPair(*unclear[row], gold.possible))
                gold = to_white_space_words(gold, *unclear[row]) if separator.words == SEPARATORS[1] else gold
            yield gold
    except ValueError as error:
        named = str(path) in str(error) and not isinstance(error, LineError)
        raise ValueError(str(error) if named else f"{path}: {error}") from error


def _parsed(lines: Sequence) -> Iterator[tuple[int, GoldAlignment]]:
    is_parsed = bool(lines) and isinstance(lines[0], GoldAlignment)
    return enumerate(lines if is_parsed else iter_alignments(lines))
