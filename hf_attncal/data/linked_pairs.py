"""Links of sentence pairs: the words that they count, and gold links with their texts.

Words are separated by any white space of Unicode, or by spaces alone. Most texts have the same words either way. Where
they have not (a no-break space in `10 000`), links of the one reading are links of wrong words in the other. So the
separator is given, or stands on record beside the links, or is found: links and tags that go beyond the words of one
reading are of the other.
"""

import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hf_attncal.io.errors import LineError, in_line
from hf_attncal.io.files import Text, is_file, lines_of, read_pairs, sha256, text_name, write_text
from hf_attncal.io.gate import open_descriptor
from hf_attncal.io.messages import LOG

from .pharaoh import (
    GoldAlignment,
    Link,
    check_index_base,
    check_inside_pair,
    displacement_warning,
    iter_alignments,
)
from .words import WORDS, split_words

if TYPE_CHECKING:
    from datasets import Dataset

RECORD = ".words"  # behind the name of a file of links: what parts its words, and the SHA-256 of the file
_OTHER = re.compile(r"[^\S \t\n\r\f\v]")  # white space that parts words in the first of `WORDS` alone


class LinkedPair(NamedTuple):
    """What says what parts the words of a sentence pair.

    Args:
        source, target: texts.
        links: of their words.
        tags: number of the tags of the source words; None without any.
        sizes: numbers of words of both sides, where links come with them.
    """

    source: str
    target: str
    links: Collection[Link]
    tags: int | None = None
    sizes: tuple[int, int] | None = None


def may_differ(text: str) -> bool:
    """Return whether a text has other white space than ASCII's, or a reference (`&nbsp;`) that may stand for some."""
    return "&" in text or _OTHER.search(text) is not None


def readings_differ(*texts: str | None) -> bool:
    """Return whether what parts words matters to one of these texts."""
    some = (text for text in texts if text and _OTHER.search(text))
    return any(len(word.split()) != 1 for text in some for word in split_words(text, WORDS[1]))


class WordParting:
    """Finds out what parts the words of sentence pairs, unless it is said.

    Args:
        words: one of `WORDS`; None for what stands on record, or to find out.
        links: the file that has the links, where it is one.
    """

    def __init__(self, words: str | None = None, links: Any = None):
        self.words, self.links = words or recorded_words(links), links

    @classmethod
    def of(cls, words: "str | WordParting | None") -> "WordParting":
        """Return one of what is said, or that which is given."""
        return words if isinstance(words, WordParting) else cls(words)

    def split(self, pair: LinkedPair) -> tuple[list[str], list[str]]:
        """Return the words of both sides.

        Raises:
            ValueError: nothing tells what parts them.
        """
        if len(self.see(pair)) > 1:
            file = os.fspath(self.links) if is_file(self.links) and os.path.isfile(self.links) else None
            said = "" if file else "Say `words` in Python, or save the links as a file LINKS. "
            said += f"Write `{WORDS[0]}` or `{WORDS[1]}` into {file or 'LINKS'}{RECORD}."
            both = ["{} and {}".format(*map(len, _sides(pair, words))) for words in WORDS]
            raise ValueError(
                f"the links fit {both[0]} words, parted by any white space, and {both[1]}, parted by spaces alone "
                f"(the text has a no-break space or the like). Which do they count? {said}"
            )
        source, target = _sides(pair, self.words or WORDS[0])
        return source, target

    def see(self, pair: LinkedPair) -> list[str]:
        """Learn from a pair; return what may part words still, of those that matter to the pair."""
        if self.words is not None or not (pair.links or pair.tags) or not readings_differ(*pair[:2]):
            return []
        fitting = [words for words in WORDS if _fits(pair, words)]
        if len(fitting) == 1:
            (self.words,) = fitting
        return fitting

    def find(self, pairs: Iterable[LinkedPair]) -> None:
        """Learn from pairs until one fits only one reading; errors of theirs are left to who reads them."""
        with suppress(ValueError):
            for pair in pairs:
                self.see(pair)
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


def in_white_space(gold: GoldAlignment, source: str, target: str) -> GoldAlignment:
    """Turn links of words that spaces part into links of words that white space parts.

    The pieces of two linked words are linked each to each if both have as many, else all with all.
    """
    pieces = []
    for text in (source, target):
        places, ends = [], 0
        for word in split_words(text, WORDS[1]):
            count = len(word.split())
            places.append(range(ends, ends + count))
            ends += count
        pieces.append(places)
    both = [(pieces[0][i], pieces[1][j]) for i, j in gold.possible]
    sure = [(pieces[0][i], pieces[1][j]) for i, j in gold.sure]
    each = (zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) else product(*sides) for sides in sure)
    found = frozenset(link for links in each for link in links)
    return GoldAlignment(found, found | frozenset(link for sides in both for link in product(*sides)))


# ---- on record ----


def recorded_words(links: Any) -> str | None:
    """Return what parts the words of a file of links as the file beside it says, or None.

    That says it with a word, `white-space` or `spaces`; behind it may be the SHA-256 of the links.
    """
    if not is_file(links) or not os.path.isfile(links) or not os.path.isfile(f"{os.fspath(links)}{RECORD}"):
        return None
    with suppress(OSError, ValueError):
        with open(f"{os.fspath(links)}{RECORD}", encoding="utf-8") as file:
            words, *hashes = file.read(1000).split()
        if words in WORDS and hashes[:1] in ([], [sha256(links)]):
            return words
    LOG.warning("%s%s is not of this file, and not read", links, RECORD)
    return None


Window = TypeVar("Window", bound=tuple[Iterable[tuple], Any])


class SeenWords:
    """Notes whether what parts words mattered to the texts that were aligned.

    Args:
        words: what parts words, one of `WORDS`; None for the first.
    """

    def __init__(self, words: str | None = None):
        self._words, self._matters = words or WORDS[0], False

    @property
    def told(self) -> str | None:
        """What is to be said of the links (`record_words`); None if it does not matter."""
        return self._words if self._matters else None

    def see(self, *texts: Any) -> None:
        """Look at texts; lists of words are as they are."""
        self._matters = self._matters or readings_differ(*(text for text in texts if isinstance(text, str)))

    def window(self, window: Window) -> Window:
        """Look at the pairs of a window, and return it."""
        for pair in window[0]:
            self.see(*pair)
        return window


def record_words(links: str | os.PathLike[str] | None, words: str | None) -> None:
    """Write beside a file of links what parts its words; None: nothing need be said, and what was said is removed.

    What is open already (/dev/stdout) or no file has nothing beside it.
    """
    if links is None or not os.path.isfile(links) or open_descriptor(links) is not None:
        return
    path = f"{os.fspath(links)}{RECORD}"
    if os.path.lexists(path) and not _is_record(path):
        if words is not None:
            LOG.warning(
                "%s is something else, so nothing says that %s has links of words that %s part", path, links, words
            )
    elif words is not None:
        write_text(f"{words}\n{sha256(links)}\n", path)
    elif os.path.lexists(path):
        os.unlink(path)


def _is_record(path: str) -> bool:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return re.fullmatch(rf"({'|'.join(WORDS)})(\s+[0-9a-f]{{64}})?\s*", file.read(1000)) is not None
    return False


# ---- gold links ----


@dataclass(frozen=True)
class Gold:
    """Sentence pairs with annotated links."""

    pairs: Sequence[tuple[str, str]]
    links: Sequence[GoldAlignment]

    @classmethod
    def load(cls, corpus: dict[str, Any], gold: str | Path, lowercase: bool = False) -> "Gold":
        """Read text, in lower case if so, and links; the number of lines and every index are checked.

        Warns:
            UserWarning: indices that are probably displaced (`displaced_pairs`).
        """
        from .corpora import load_parallel, lowercased  # `datasets`, for those who train

        text = lowercased(load_parallel(corpus)) if lowercase else load_parallel(corpus)
        pairs = list(zip(text["source"], text["target"], strict=True))
        return cls(pairs, gold_links(gold, pairs))

    @classmethod
    def read(cls, source: Text, target: Text, gold: Text) -> "Gold":
        """Read text and links, each from a file or from its lines.

        Raises:
            ValueError: see `read_pairs` and `gold_links`.
        """
        pairs = list(zip(*read_pairs(source, target), strict=True))
        return cls(pairs, gold_links(gold, pairs))


def gold_links(text: Text | Sequence[GoldAlignment], pairs: Sequence[tuple[str, str]]) -> list[GoldAlignment]:
    """Return the links of sentence pairs that people have drawn, checked.

    Args:
        text: a file in Pharaoh format, its lines, or links.
        pairs: the sentence pairs.

    Raises:
        ValueError: see `iter_links`; links of words that there are not.

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
    """Yield the links of every sentence pair of a text in turn, between the words that white space parts.

    Where they count words that spaces part, they become links of those (`in_white_space`).

    Args:
        links: a file in Pharaoh format, its lines, or links.
        text: the sentence pairs, or a Dataset of them.

    Raises:
        ValueError: another number of lines than pairs, a line that is no links, or links that may count words in two
            ways; it names the file.
    """
    path = text_name(links, "the links")
    try:
        lines = lines_of(links)
        if len(lines) != len(text):
            raise ValueError(f"{path} has {len(lines)} lines of links for {len(text)} sentence pairs.")
        given = bool(lines) and isinstance(lines[0], GoldAlignment)
        sides = text if isinstance(text, Sequence) else zip(text["source"], text["target"], strict=True)
        unlike = {row: (s or "", t or "") for row, (s, t) in enumerate(sides) if readings_differ(s, t)}
        parting = WordParting(None, links)
        found = (LinkedPair(*unlike[row], gold.possible) for row, gold in _golds(lines, given) if row in unlike)
        parting.find(found if unlike else ())
        for row, gold in _golds(lines, given):
            if row in unlike:
                with in_line(row + 1):
                    parting.split(LinkedPair(*unlike[row], gold.possible))
                gold = in_white_space(gold, *unlike[row]) if parting.words == WORDS[1] else gold
            yield gold
    except ValueError as error:
        named = str(path) in str(error) and not isinstance(error, LineError)
        raise ValueError(str(error) if named else f"{path}: {error}") from error


def _golds(lines: Sequence, given: bool) -> Iterator[tuple[int, GoldAlignment]]:
    return enumerate(lines if given else iter_alignments(lines))
