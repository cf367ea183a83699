"""A lexicon: how often two words are linked, and what share of the links of each word that is."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from hf_attncal.data.parting import LinkedPair, WordParting
from hf_attncal.data.pharaoh import Link, check_inside_pair
from hf_attncal.data.piecewise import in_line
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import json_line, output_lines, write_lines

from .linked_texts import Links, Texts, links_beside, together

_HEADING = ("source", "target", "count", "p(target|source)", "p(source|target)")
# What a spreadsheet computes, or runs, where a cell begins with it. No signs alone, and no number.
_FORMULA = re.compile(r"[=+\-@](?=.*\w)(?![\d.,]*$)")


class Entry(NamedTuple):
    """Two words that are linked.

    Args:
        source, target: the words.
        count: how many links they have.
        target_given_source: p(t|s), the share of the links of the source word that lead to the target word.
        source_given_target: p(s|t), the same the other way round.
    """

    source: str
    target: str
    count: int
    target_given_source: float
    source_given_target: float


class LinkCounts:
    """Counts links of pairs of words, a sentence pair at a time; it grows with the number of different pairs of words.

    Args:
        lowercase: words that differ in capitals alone are one.
    """

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase
        self.pairs: Counter[tuple[str, str]] = Counter()

    def add(self, source: Sequence[str], target: Sequence[str], links: Collection[Link]) -> None:
        """Count the links of a sentence pair.

        Raises:
            ValueError: a link of a word that is not there; none of the pair has been counted.
        """
        check_inside_pair(links, (len(source), len(target)))
        if self.lowercase:
            source, target = [word.lower() for word in source], [word.lower() for word in target]
        self.pairs.update((source[i], target[j]) for i, j in links)

    def lexicon(self, least_count: int = 1, least_probability: float = 0.0, top: int | None = None) -> Iterator[Entry]:
        """Return entries by source word, the most frequent first, then by target word.

        Args:
            least_count: entries with fewer links are left out.
            least_probability: so are those of which either probability is lower. Probabilities are of all links.
            top: most entries of a source word.
        """
        sources: Counter[str] = Counter()
        targets: Counter[str] = Counter()
        for (source, target), count in self.pairs.items():
            sources[source] += count
            targets[target] += count
        ordered = sorted(self.pairs.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        for _, of_source in groupby(ordered, key=lambda item: item[0][0]):
            written = 0
            for (source, target), count in of_source:
                entry = Entry(source, target, count, count / sources[source], count / targets[target])
                if count >= least_count and min(entry[3:]) >= least_probability and (top is None or written < top):
                    written += 1
                    yield entry


def count_links(
    pairs: Texts,
    links: Links,
    *,
    words: str | WordParting | None = None,
    lowercase: bool = False,
    least_count: int = 1,
    least_probability: float = 0.0,
    top: int | None = None,
) -> Iterator[Entry]:
    """Count the linked words of sentence pairs, a list or a stream, and yield the lexicon; see `LinkCounts`.

    Args:
        pairs, links, words: see `project_labels`.
        lowercase: see `LinkCounts`.
        least_count, least_probability, top: see `LinkCounts.lexicon`.

    Raises:
        LineError: a line with links of words that are not there, or that the aligner fails on.
    """
    counts = LinkCounts(lowercase)
    parting = WordParting.of(words)
    pairs, links = links_beside(pairs, links, parting)
    for number, (pair, (found, _, sizes)) in enumerate(together(pairs=pairs, links=links), start=1):
        with in_line(number, "links"):
            counts.add(*parting.split(LinkedPair(*pair, found, sizes=sizes)), found)
    return counts.lexicon(least_count, least_probability, top)


def write_lexicon(entries: Iterable[Entry], path: str | os.PathLike | None, form: str) -> None:
    """Write a lexicon: a table of columns parted by tabs ("tsv"), or one object a line ("json").

    Words stay as they are. Of a table, a log message counts those that a spreadsheet may take for a formula.

    Args:
        entries: of the lexicon.
        path: of the file; None or - for standard output.
        form: which of the two.
    """
    formulas = 0

    def lines() -> Iterator[str]:
        nonlocal formulas
        if form == "json":
            yield from (json_line(entry._asdict()) for entry in entries)
            return
        yield "\t".join(_HEADING)
        for entry in entries:
            formulas += any(map(_FORMULA.match, entry[:2]))
            yield "\t".join([*entry[:2], str(entry.count), *(f"{probability:.6f}" for probability in entry[3:])])

    with output_lines(path) as file:
        write_lines(file, lines())
    if formulas:
        LOG.warning(
            "%d lines have a word that a spreadsheet may take for a formula (it begins with =, +, - or @). Words stay "
            "as they are: import the columns as text, or write --format json.",
            formulas,
        )
