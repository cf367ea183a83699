"""Annotated sentence pairs: their texts, and the links that people have drawn."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.io.files import Text, lines_of, read_pairs, text_name

from .parting import WORDS, LinkedPair, WordParting, in_white_space, readings_differ
from .pharaoh import GoldAlignment, check_index_base, displacement_warning, iter_alignments
from .piecewise import LineError, in_line

if TYPE_CHECKING:
    from datasets import Dataset


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
