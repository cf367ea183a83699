"""Compare word aligners on a text that nobody annotated: where they agree, and whose lexicon predicts other pairs."""

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

HELD_OUT = 2000  # most pairs of which the likelihood is taken
_FEWEST = 10  # pairs of which the likelihood tells anything
_NATS = """\
nats: of a word of held-out pairs, under the lexicon of the links of all others, with the 95 % interval.
Of aligners with about as many links, the one with fewer nats is better; more links alone have fewer,
too. With gold links, `attncal score` tells the error rate."""
Words = Sequence[str]
Links = Sequence[Collection[Link]]


@dataclass(frozen=True)
class ComparedLinks:
    """What a text says of the links of one aligner, without a gold alignment.

    Args:
        links: how many there are.
        source_linked, target_linked: share of the words that have a link.
        nats: negative log-likelihood of a word of held-out pairs, of both sides, under the lexicon of the links of all
            other pairs; None for fewer than ten held-out pairs. Lower is better, with as many links.
        agreement: F1 of the links with those of the first aligner, `2 |A ∩ B| / (|A| + |B|)`. None: no links.
        nats_to_first: `nats` minus those of the first aligner, on the same words.
        same_lines: share of the pairs whose links are those of the first aligner, all of them.
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
    """Several aligners on the same text, which print as a table or as JSON.

    Args:
        rows: name of an aligner -> what the text says of its links.
        pairs: source and target words of each sentence pair.
        links: name of an aligner -> links of each pair.
        format: how it prints: "text" or "json".
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
        """Return a table with one row for each aligner, shares in per cent, and notes that explain it."""
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
        shared = "agreement and same lines: with the first hypothesis."
        notes = [f"{len(self.pairs)} sentence pairs. Shares in per cent; {shared}"]
        if rows[0].nats:
            columns["nats"] = [nats(row.nats, ".3f") for row in rows]
            columns["to the first"] = [nats(row.nats_to_first, "+.3f") for row in rows]
            notes.append(_NATS)
        else:
            notes.append("No nats: a tenth of the text is too little to be predicted, 100 pairs or more are needed.")
        return [*text_table(columns), "", *notes]


def compare_texts(
    texts: Iterator[ScoredText], *, words: str | None = None, form: str = "text", **options
) -> AlignerComparison:
    """Compare aligners on texts: source and target sentences, and the links of each aligner.

    Args:
        texts: of `read_scored`.
        words: what parts the words that links count; see `words_of_sides`.
        form: how the comparison prints.
        options: of `compare_links`.

    Raises:
        ValueError: see `compare_links`; a CommandError for lines that are no links.
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
    """Compare aligners on the same text without a gold alignment.

    Two that agree can be wrong together, so the likelihood says more than the agreement. The links of nine tenths of
    the pairs make a lexicon, and this has to predict the words of the rest, whose links it does not see
    (`held_out_nats`). Compare the nats of aligners with about as many links: more links alone make a better lexicon,
    though more of them may be wrong.

    Args:
        pairs: source and target words of each sentence pair.
        systems: name of an aligner -> links of each pair; the first is what the others are compared with.
        held_out: most pairs of which the likelihood is taken, evenly spread, and at most a tenth of all.
        lowercase: words that differ in capitals alone are one, for the likelihood.
        bootstrap: resamples of the held-out pairs for 95 % intervals, at least 1.
        seed: of the resamples.

    Raises:
        ValueError: no aligner, no pair, other numbers of lines, a link of a word that is not there, or links that
            count from 1 (naming the aligner).
    """
    if not systems or not pairs:
        raise ValueError(f"There must be a sentence pair and an aligner, got {len(pairs)} and {len(systems)}.")
    lengths = [(len(source), len(target)) for source, target in pairs]
    for name, links in systems.items():
        try:
            check_index_base(links, lengths, "take 1 from each index")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    rows = predicted_rows(len(pairs), held_out)
    (first, *_), base = systems.values(), None
    found = {}
    for name, links in systems.items():
        counts = held_out_nats(pairs, links, rows, lowercase) if len(rows) >= _FEWEST else None
        base = counts if base is None else base
        total, shared = sum(map(len, links)), sum(len(a & b) for a, b in _sets(links, first))
        both = total + sum(map(len, first))
        found[name] = ComparedLinks(
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
    return found


def predicted_rows(count: int, most: int = HELD_OUT) -> range:
    """Return the pairs of which the likelihood is taken: evenly spread, at most `most` and at most a tenth."""
    chosen = min(most, count // 10)
    return range(0, count, -(-count // chosen)) if chosen else range(0)


def held_out_nats(
    pairs: Sequence[tuple[Words, Words]], links: Links, rows: Collection[int], lowercase: bool = False
) -> np.ndarray:
    """Predict the words of some pairs by the lexicon that the links of all others make, in both directions.

    Of a source word s with N links of the other pairs, to T different words, the lexicon says
    `p(t|s) = (c(s, t) + T q(t)) / (N + T)` (Witten-Bell), where q is how often t is a word of the other pairs, with
    half a count added to each, and to all unknown words together. A target word is predicted as by IBM model 1 with a
    NULL of q: `p(t) = (q(t) + sum_i p(t|s_i)) / (1 + I)`. The other direction is the same with the sides exchanged.

    Returns:
        (rows, 2): nats of the words of each pair, of both sides, and their number.
    """
    left_out = frozenset(rows)
    counts = LinkCounts()
    words: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    cased = [(_cased(source, lowercase), _cased(target, lowercase)) for source, target in pairs]
    for number, (pair, found) in enumerate(zip(cased, links, strict=True)):
        if number not in left_out:
            counts.add(*pair, found)
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
    """p(target word | source word) with Witten-Bell smoothing; see `held_out_nats`."""

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
        known = [word for word in source if word in self.linked]  # the others say what q says
        weights = [(word, 1 / (self.linked[word] + self.different[word])) for word in known]
        rest = 1 + len(source) - len(known) + sum(self.different[word] * weight for word, weight in weights)
        mass = [
            rest * (self.words[word] + 0.5) / self.total
            + sum(self.pairs.get((other, word), 0) * weight for other, weight in weights)
            for word in target
        ]
        return float(len(target) * np.log(1 + len(source)) - np.log(mass).sum()) if target else 0.0


def _sets(*systems: Links) -> Iterator[tuple[frozenset[Link], ...]]:
    return (tuple(map(frozenset, row)) for row in zip(*systems, strict=True))


def _linked(pairs: Sequence[tuple[Words, Words]], links: Links, side: int) -> float:
    words = sum(len(pair[side]) for pair in pairs)
    return sum(len({link[side] for link in found}) for found in links) / words if words else 0.0
