"""A lexicon of linked words: how often two words are linked, and what share of the links of each that is."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from hf_attncal.data.pharaoh import Link, check_inside_pair


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
        """Entries by source word, the most frequent first, then by target word.

        Args:
            least_count: entries with fewer links are left out.
            least_probability: so are those of which either probability is lower. Probabilities are of all links.
            top: most entries of a source word.
        """
        sources, targets = _totals(self.pairs, 0), _totals(self.pairs, 1)
        ordered = sorted(self.pairs.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        for _, of_source in groupby(ordered, key=lambda item: item[0][0]):
            written = 0
            for (source, target), count in of_source:
                entry = Entry(source, target, count, count / sources[source], count / targets[target])
                if count >= least_count and min(entry[3:]) >= least_probability and (top is None or written < top):
                    written += 1
                    yield entry


def _totals(pairs: Mapping[tuple[str, str], int], side: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for words, count in pairs.items():
        totals[words[side]] += count
    return totals
