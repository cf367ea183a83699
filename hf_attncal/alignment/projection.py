"""Labels of source words carried over word links to the target: a tag for each word, and spans.

One rule does it all (inline markup, too: `markup.py`). A target word belongs to the label that has most of its links,
or of their scores; of equals, to that of the first of its source words, but for a span that would have no word: it
gets what it has as many links to as another. A word without links belongs to none.

A span stays one piece. What belongs to it in the target may lie in several runs; words without links between two words
of a run belong to the run, others part it. The run with most links is the span, of equals the first, and what is left
out is counted. Two spans never claim the same word.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from math import isclose
from typing import NamedTuple, TypeVar

from hf_attncal.data.pharaoh import Link, check_inside_pair

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-[^\s-]\S*")
Owner = TypeVar("Owner", bound=Hashable)
# Of a target word: source word -> weight of the link.
Votes = Sequence[dict[int, float]]


class Span(NamedTuple):
    """Words `start` to `stop - 1`, counted from 0."""

    start: int
    stop: int
    label: str


class Carried(NamedTuple):
    """Where a span or an element is in the target: words `start` to `stop - 1`.

    `dropped` target words belong to it, too, and lie elsewhere.
    """

    start: int
    stop: int
    dropped: int = 0


def project_tags(
    tags: Sequence[str], links: Sequence[Link], target_words: int, scores: Sequence[float] | None = None
) -> list[str | None]:
    """Return the tag of each target word; None for a word without links.

    Args:
        tags: one for each source word.
        links: (source word, target word).
        target_words: how many there are.
        scores: of the links; None: all are alike.

    Raises:
        ValueError: a link of a word that is not there, or another number of scores than links.
    """
    return owners(votes(links, len(tags), target_words, scores), tags)


def project_spans(
    spans: Sequence[Span],
    links: Sequence[Link],
    source_words: int,
    target_words: int,
    scores: Sequence[float] | None = None,
) -> list[Carried | None]:
    """Return the place of each span in the target; None for a span to which no target word belongs.

    Args:
        spans: of source words, in any order; no two share a word, and none is empty.
        source_words, target_words: how many there are.
        links, scores: as of `project_tags`.

    Raises:
        ValueError: as `project_tags`; also spans that are empty, share a word, or go beyond the source.
    """
    inside: list[int | None] = [None] * source_words
    for number, (start, stop, label) in enumerate(spans):
        if not 0 <= start < stop <= source_words or any(owner is not None for owner in inside[start:stop]):
            raise ValueError(
                f"`spans` must be of words from 0 to {source_words - 1}, one or more, that no other span has, got "
                f"{label!r} from {start} to {stop - 1}."
            )
        inside[start:stop] = [number] * (stop - start)
    return carried(votes(links, source_words, target_words, scores), inside, len(spans), (0, target_words))


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of tags in BIO: `B-X` begins one of type X, `I-X` goes on or begins one, `O` is outside."""
    return [Span(first, last + 1, label) for label, first, last in chunks_of(tags)]


def bio_tags(spans: Sequence[Span], words: int) -> list[str]:
    """Return the tags of so many words with these spans, which share no word."""
    tags = [OUTSIDE] * words
    for start, stop, label in spans:
        tags[start:stop] = [f"B-{label}", *[f"I-{label}"] * (stop - start - 1)]
    return tags


# ---- the rule ----


def votes(links: Sequence[Link], source_words: int, target_words: int, scores: Sequence[float] | None = None) -> Votes:
    """Return the links of each target word; arguments and errors are those of `project_spans`."""
    weights = [1.0] * len(links) if scores is None else scores
    if len(weights) != len(links):
        raise ValueError(f"`scores` must be one for each of the {len(links)} links, got {len(weights)}.")
    found: list[dict[int, float]] = [{} for _ in range(target_words)]
    check_inside_pair(links, (source_words, target_words))
    for (i, j), weight in zip(links, weights, strict=True):
        found[j][i] = weight
    return found


def owners(found: Votes, inside: Sequence[Owner]) -> list[Owner | None]:
    """Return the label of each target word: one of those of its source words (`inside`), or None without links."""
    totals = (_totals(of_word, inside) for of_word in found)
    return [max(of, key=of.__getitem__, default=None) for of in totals]  # the first of equals


def _totals(of_word: dict[int, float], inside: Sequence[Owner]) -> dict[Owner, float]:
    """Return the links of a target word to each label, in the order of the source."""
    totals: dict[Owner, float] = defaultdict(float)
    for i in sorted(of_word):
        totals[inside[i]] += of_word[i]
    return totals


def carried(found: Votes, inside: Sequence[int | None], count: int, within: tuple[int, int]) -> list[Carried | None]:
    """Return the place of each of `count` things in the target, between two places of it.

    Args:
        found: of `votes`.
        inside: the number of the thing that a source word belongs to; None for none.
        count: how many things there are; their numbers are from 0.
        within: the first target word to look at, and the one behind the last.

    Returns:
        The run of each thing that has most of its links; None for one that no target word there belongs to.
    """
    owned = owners(found, inside)
    words = range(*within)
    _claim(found, inside, owned, words)
    pieces: list[list[tuple[float, int, int, int]]] = [[] for _ in range(count)]  # weight, -start, stop, words
    last: int | None = None
    for j in words:
        if not found[j]:
            continue
        number = owned[j]
        if number is not None:
            weight = sum(score for i, score in found[j].items() if inside[i] == number)
            before, minus_start, words_before = 0.0, -j, 0
            if number == last:
                before, minus_start, _, words_before = pieces[number].pop()
            pieces[number].append((before + weight, minus_start, j + 1, words_before + 1))
        last = number
    places: list[Carried | None] = []
    for of_thing in pieces:
        if not of_thing:
            places.append(None)
            continue
        _, minus_start, stop, most = max(of_thing)
        places.append(Carried(-minus_start, stop, sum(piece[3] for piece in of_thing) - most))
    return places


def _claim(found: Votes, inside: Sequence[int | None], owned: list[int | None], words: range) -> None:
    """Give things without a word what they have as many links to as another: as none, or as one that can spare it."""
    linked: dict[int, list[int]] = defaultdict(list)
    for j in words:
        for number in {inside[i] for i in found[j]} - {None}:
            linked[number].append(j)
    counts = Counter(owned[j] for j in words)
    for number in sorted(linked.keys() - counts.keys()):
        totals = [(j, _totals(found[j], inside)) for j in linked[number]]
        tied = [j for j, of in totals if isclose(of[number], of[owned[j]])]
        free = [j for j in tied if owned[j] is None]
        for j in free or [j for j in tied if counts[owned[j]] > 1][:1]:
            counts[owned[j]] -= 1
            owned[j] = number


# ---- tags of chunks ----


def is_chunk_tag(tag: str) -> bool:
    """Return whether a tag is `O`, `B-TYPE` or `I-TYPE`."""
    return _TAG.fullmatch(tag) is not None


def chunks_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return type, first and last word (from 0) of every chunk of a sentence.

    seqeval gives the same, but it has no wheel, and building its source needs more than pip.
    """
    kinds = [tag[2:] for tag in tags]  # "" outside
    begins = [
        place
        for place, (tag, kind) in enumerate(zip(tags, kinds, strict=True))
        if kind and (tag[0] == "B" or place == 0 or kinds[place - 1] != kind)
    ]
    ends = [
        next((after for after in range(first + 1, len(tags)) if after in begins or not kinds[after]), len(tags))
        for first in begins
    ]
    return [(kinds[first], first, end - 1) for first, end in zip(begins, ends, strict=True)]
