"""Compare word aligners on a text without gold links, by their agreement and the held-out loss of their lexicons."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from hf_attncal.data.pharaoh import Link, check_index_base, parse_hypotheses
from hf_attncal.data.texts import ScoredText, words_of_sides
from hf_attncal.drawing.page import text_table
from hf_attncal.metrics.base import Measured, mean_difference, means
from hf_attncal.metrics.tables import SEED

from .linked_texts import LinkCounts

HELD_OUT = 2000  # maximum number of held-out pairs
_MIN_HELD_OUT = 10
_NATS = """\
nats: loss per word of held-out pairs with the lexicon of all other pairs' links, with the 95 % interval.
Fewer nats are better between aligners with similar numbers of links; more links also lower them.
With gold links, `attncal score` measures the error rate."""
Words = Sequence[str]
Links = Sequence[Collection[Link]]


@dataclass(frozen=True)
class ComparedLinks:
    """Statistics of the links of one aligner, without gold links.

    Args:
        links: Number of links.
        source_linked, target_linked: Shares of the words with a link.
        nats: Negative log-likelihood per word of held-out pairs, both sides, with the lexicon of all other pairs'
            links; None for fewer than ten held-out pairs. Lower is better at the same number of links.
        agreement: F1 of the links with the first aligner, `2 |A ∩ B| / (|A| + |B|)`; None without links.
        nats_to_first: Difference of `nats` to the first aligner.
        same_lines: Share of the pairs with exactly the first aligner's links.
    """

    links: int
    source_linked: float
    target_linked: float
    nats: Measured | None
    agreement: float | None
    nats_to_first: Measured | None
    same_lines: float


@dataclass(frozen=True)
class AlignerComparison:
    """Comparison of several aligners on the same text, which prints as a table or as JSON.

    Args:
        rows: Statistics by name of the aligner.
        pairs: Source and target words of each sentence pair.
        links: Links of each pair by name of the aligner.
        format: Printed form, "text" or "json". Default: "text".
    """

    rows: Mapping[str, ComparedLinks]
    pairs: Sequence[tuple[Words, Words]]
    links: Mapping[str, Links]
    format: str = "text"

    def __repr__(self) -> str:
        return f"AlignerComparison(rows={self.rows!r})"

    def __str__(self) -> str:
        if self.format == "json":
            rows = [{"hypothesis": name, **asdict(row)} for name, row in self.rows.items()]
            return json.dumps({"compared": rows}, indent=2)
        return "\n".join(self._text())

    def _text(self) -> list[str]:
        """Return a table with a row per aligner, and notes that explain it."""
        rows = list(self.rows.values())

        def nats(measured: Measured | None, form: str) -> str:
            if measured is None:
                return ""
            interval = measured.interval
            ends = f" ({interval[0]:{form}} to {interval[1]:{form}})" if interval else ""
            return f"{measured.value:{form}}{ends}"

        columns = {
            "hypothesis": list(self.rows),
            "links": [str(row.links) for row in rows],
            "source linked": [f"{100 * row.source_linked:.1f}" for row in rows],
            "target linked": [f"{100 * row.target_linked:.1f}" for row in rows],
            "agreement": ["" if row.agreement is None else f"{100 * row.agreement:.1f}" for row in rows],
            "same lines": [f"{100 * row.same_lines:.1f}" for row in rows],
        }
        reference = "agreement and same lines: with the first hypothesis."
        notes = [f"{len(self.pairs)} sentence pairs. Shares in per cent; {reference}"]
        if rows[0].nats:
            columns["nats"] = [nats(row.nats, ".3f") for row in rows]
            columns["to the first"] = [nats(row.nats_to_first, "+.3f") for row in rows]
            notes.append(_NATS)
        else:
            notes.append("No nats: they need at least 100 pairs, of which a tenth is held out.")
        return [*text_table(columns), "", *notes]


def compare_texts(
    texts: Iterator[ScoredText], *, words: str | None = None, form: str = "text", **options
) -> AlignerComparison:
    """Compare aligners on texts: source sentences, target sentences, and the links of each aligner.

    Args:
        texts: Texts of `read_scored`.
        words: Word separator, see `words_of_sides`. Default: None.
        form: Printed form, "text" or "json". Default: "text".
        options: Options of `compare_links`.

    Raises:
        ValueError: see `compare_links`; CommandError for lines that are not links.
    """
    sides = [next(texts), next(texts)]
    sides[1].check_length()
    parsed = [(text, text.parsed(parse_hypotheses)) for text in texts]
    pairs = words_of_sides(sides, [(text, partial(list, links)) for text, links in parsed], words)
    systems = {text.label: links for text, links in parsed}
    return AlignerComparison(compare_links(pairs, systems, **{"seed": SEED} | options), pairs, systems, form)


def compare_links(
    pairs: Sequence[tuple[Words, Words]],
    systems: Mapping[str, Links],
    *,
    held_out: int = HELD_OUT,
    lowercase: bool = False,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, ComparedLinks]:
    """Compare aligners on the same text without gold links.

    Two aligners that agree can both be wrong, so the held-out loss is the better measure: the links of nine tenths of
    the pairs form a lexicon that predicts the words of the other pairs (`held_out_nats`). Compare aligners with
    similar numbers of links: more links give a better lexicon even if more of them are wrong.

    Args:
        pairs: Source and target words of each sentence pair.
        systems: Links of each pair by name of the aligner; the first aligner is the reference.
        held_out: Maximum number of held-out pairs, evenly spread, and at most a tenth of all. Default: 2000.
        lowercase: Ignore case in the lexicon. Default: False.
        bootstrap: Number of resamples of the held-out pairs for 95 % intervals, at least 1. Default: 1000.
        seed: Seed of the resamples. Default: 0.

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
    rows = predicted_rows(len(pairs), held_out)
    (first, *_), base = systems.values(), None
    compared = {}
    for name, links in systems.items():
        counts = held_out_nats(pairs, links, rows, lowercase) if len(rows) >= _MIN_HELD_OUT else None
        base = counts if base is None else base
        total, shared = sum(map(len, links)), sum(len(a & b) for a, b in _sets(links, first))
        both = total + sum(map(len, first))
        compared[name] = ComparedLinks(
            links=total,
            source_linked=_linked(pairs, links, 0),
            target_linked=_linked(pairs, links, 1),
            nats=None if counts is None else means(counts, bootstrap, seed)[0],
            agreement=2 * shared / both if both else None,
            nats_to_first=None
            if counts is None or base is None or counts is base
            else mean_difference(counts, base, bootstrap, seed),
            same_lines=float(np.mean([a == b for a, b in _sets(links, first)])),
        )
    return compared


def predicted_rows(count: int, most: int = HELD_OUT) -> range:
    """Return the indices of the held-out pairs: evenly spread, at most `most` and at most a tenth of all."""
    chosen = min(most, count // 10)
    return range(0, count, -(-count // chosen)) if chosen else range(0)


def held_out_nats(
    pairs: Sequence[tuple[Words, Words]], links: Links, rows: Collection[int], lowercase: bool = False
) -> np.ndarray:
    """Return the loss of held-out pairs with the lexicon of all other pairs' links, in both directions.

    For a source word s with N links to T different words, `p(t|s) = (c(s, t) + T q(t)) / (N + T)` (Witten-Bell). q is
    the unigram distribution of the other pairs, with half a count added to each word and to the class of all unknown
    words. A target word is predicted by IBM model 1 with q as NULL: `p(t) = (q(t) + sum_i p(t|s_i)) / (1 + I)`.

    Returns:
        Nats and number of words of each held-out pair, both sides together, (rows, 2).
    """
    held_out = frozenset(rows)
    counts = LinkCounts()
    words: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    cased = [(_cased(source, lowercase), _cased(target, lowercase)) for source, target in pairs]
    for number, (pair, of_pair) in enumerate(zip(cased, links, strict=True)):
        if number not in held_out:
            counts.add(*pair, of_pair)
            for counter, side in zip(words, pair, strict=True):
                counter.update(side)
    directions = [
        _Lexicon(counts.pairs, words[1]),
        _Lexicon({(t, s): n for (s, t), n in counts.pairs.items()}, words[0]),
    ]
    sums = np.zeros((len(rows), 2))
    for row, number in enumerate(rows):
        source, target = cased[number]
        sums[row] = directions[0].nats(source, target) + directions[1].nats(target, source), len(source) + len(target)
    return sums


def _cased(words: Words, lowercase: bool) -> Words:
    return [word.lower() for word in words] if lowercase else words


class _Lexicon:
    """Lexicon p(target word | source word) with Witten-Bell smoothing; see `held_out_nats`."""

    def __init__(self, pairs: Mapping[tuple[str, str], int], words: Counter[str]):
        self.pairs = pairs
        self.words = words
        self.total = words.total() + (len(words) + 1) / 2
        self.linked: Counter[str] = Counter()
        self.different: Counter[str] = Counter()
        for (source, _), count in pairs.items():
            self.linked[source] += count
            self.different[source] += 1

    def nats(self, source: Words, target: Words) -> float:
        linked = [word for word in source if word in self.linked]  # p(t|s) of the others is q(t)
        weights = [(word, 1 / (self.linked[word] + self.different[word])) for word in linked]
        rest = 1 + len(source) - len(linked) + sum(self.different[word] * weight for word, weight in weights)
        mass = [
            rest * (self.words[word] + 0.5) / self.total
            + sum(self.pairs.get((source_word, word), 0) * weight for source_word, weight in weights)
            for word in target
        ]
        return float(len(target) * np.log(1 + len(source)) - np.log(mass).sum()) if target else 0.0


def _sets(*systems: Links) -> Iterator[tuple[frozenset[Link], ...]]:
    return (tuple(map(frozenset, row)) for row in zip(*systems, strict=True))


def _linked(pairs: Sequence[tuple[Words, Words]], links: Links, side: int) -> float:
    words = sum(len(pair[side]) for pair in pairs)
    return sum(len({link[side] for link in of_pair}) for of_pair in links) / words if words else 0.0
