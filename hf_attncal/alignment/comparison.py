"""Compare the links of word aligners on a text without gold links, by their agreement."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hf_attncal.data.pharaoh import Link, check_index_base, parse_hypotheses
from hf_attncal.data.texts import ScoredText, words_of_sides
from hf_attncal.drawing.page import text_table

Words = Sequence[str]
Links = Sequence[Collection[Link]]


@dataclass(frozen=True)
class ComparedLinks:
    """Statistics of the links of one aligner.

    Args:
        links: Number of links.
        source_linked, target_linked: Shares of the words with a link.
        agreement: F1 of the links with the first aligner, `2 |A ∩ B| / (|A| + |B|)`; None without links.
    """

    links: int
    source_linked: float
    target_linked: float
    agreement: float | None


@dataclass(frozen=True)
class AlignerComparison:
    """Comparison of several aligners on the same text, which prints as a table.

    Args:
        rows: Statistics by name of the aligner.
        pairs: Number of sentence pairs.
    """

    rows: Mapping[str, ComparedLinks]
    pairs: int

    def __str__(self) -> str:
        rows = list(self.rows.values())
        columns = {
            "hypothesis": list(self.rows),
            "links": [str(row.links) for row in rows],
            "source linked": [f"{100 * row.source_linked:.1f}" for row in rows],
            "target linked": [f"{100 * row.target_linked:.1f}" for row in rows],
            "agreement": ["" if row.agreement is None else f"{100 * row.agreement:.1f}" for row in rows],
        }
        notes = [
            f"{self.pairs} sentence pairs. Shares in per cent; agreement: F1 with the links of the first hypothesis.",
            "With gold links, `attncal score` measures the error rate.",
        ]
        return "\n".join([*text_table(columns), "", *notes])


def compare_texts(texts: Iterator[ScoredText], *, words: str | None = None) -> AlignerComparison:
    """Compare aligners on texts: source sentences, target sentences, and the links of each aligner.

    Args:
        texts: Texts of `read_scored`.
        words: Word separator, see `words_of_sides`. Default: None.

    Raises:
        ValueError: see `compare_links`; CommandError for lines that are not links.
    """
    sides = [next(texts), next(texts)]
    sides[1].check_length()
    parsed = [(text, text.parsed(parse_hypotheses)) for text in texts]
    pairs = words_of_sides(sides, [(text, partial(list, links)) for text, links in parsed], words)
    return AlignerComparison(compare_links(pairs, {text.label: links for text, links in parsed}), len(pairs))


def compare_links(pairs: Sequence[tuple[Words, Words]], systems: Mapping[str, Links]) -> dict[str, ComparedLinks]:
    """Compare aligners on the same text without gold links. Two that agree can both be wrong.

    Args:
        pairs: Source and target words of each sentence pair.
        systems: Links of each pair by name of the aligner; the first aligner is the reference.

    Raises:
        ValueError: no aligners, no pairs, different numbers of lines, a link outside the pair, or 1-based links.
    """
    if not systems or not pairs:
        raise ValueError(f"`pairs` and `systems` must not be empty, got {len(pairs)} and {len(systems)}.")
    lengths = [(len(source), len(target)) for source, target in pairs]
    for name, links in systems.items():
        try:
            check_index_base(links, lengths, "take 1 from each index")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    first = next(iter(systems.values()))
    compared = {}
    for name, links in systems.items():
        shared = sum(len(frozenset(a) & frozenset(b)) for a, b in zip(links, first, strict=True))
        both = sum(map(len, links)) + sum(map(len, first))
        compared[name] = ComparedLinks(
            links=sum(map(len, links)),
            source_linked=_linked(pairs, links, 0),
            target_linked=_linked(pairs, links, 1),
            agreement=2 * shared / both if both else None,
        )
    return compared


def _linked(pairs: Sequence[tuple[Words, Words]], links: Links, side: int) -> float:
    words = sum(len(pair[side]) for pair in pairs)
    return sum(len({link[side] for link in of_pair}) for of_pair in links) / words if words else 0.0
