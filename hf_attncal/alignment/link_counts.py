"""A lexicon: how often two words are linked, and what share of the links of each word that is."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, tee
from typing import NamedTuple

from hf_attncal.data.pharaoh import Link, check_inside_pair
from hf_attncal.data.piecewise import in_line

from .label_projection import Links, Texts, links_of_texts, together


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


def lexicon(
    pairs: Texts,
    links: Links,
    *,
    lowercase: bool = False,
    least_count: int = 1,
    least_probability: float = 0.0,
    top: int | None = None,
) -> Iterator[Entry]:
    """Count the linked words of sentence pairs, a list or a stream, and yield the lexicon; see `LinkCounts`.

    Args:
        pairs, links: see `project`.
        lowercase: see `LinkCounts`.
        least_count, least_probability, top: see `LinkCounts.lexicon`.

    Raises:
        LineError: a line with links of words that are not there, or that the aligner fails on.
    """
    counts = LinkCounts(lowercase)
    texts, pairs = tee(pairs)
    rows = together({"pairs": texts, "links": links_of_texts(pairs, links)})
    for number, ((source, target), (found, _)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            counts.add(source.split(), target.split(), found)
    return counts.lexicon(least_count, least_probability, top)
