"""Read and write word alignments in Pharaoh format, and detect wrong indices.

A link is a pair (i, j) of source word i and target word j, both counted from 0.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hf_attncal.io.errors import in_line

from .words import Link

# `3-4` is a sure link, `3p4` and `3?4` are possible ones. `++` keeps the pattern from backtracking in a long token.
_LINK = r"(?P<first>[0-9]++)(?P<kind>[-p?])(?P<second>[0-9]++)"
_GOLD_LINK = re.compile(_LINK)

# `3-4`, or with a score `3-4:0.93`. Possible links are recognised only to be refused with a better message.
_PROPOSED_LINK = re.compile(_LINK + r"(?::(?P<score>[-+]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][-+]?[0-9]++)?))?")

_MAX_DIGITS = 9  # digits of an index

# A larger share of displaced pairs is an error, not a matter of annotation style: thirteen published gold sets have at
# most 5 %, and one whose tokens were changed after the annotation has 16 % (docs/log.md).
_MAX_DISPLACED_SHARE = 0.08
_MIN_DISPLACED_PAIRS = 3  # fewer are no reason for a warning

# In fewer linked sentence pairs, it may be a coincidence that no first word is linked.
_MIN_PAIRS_FOR_INDEX_CHECKS = 10


@dataclass(frozen=True)
class GoldAlignment:
    """Gold links of one sentence pair; `possible` includes every link of `sure` (P includes S)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_alignments(lines: Iterable[str], base: int = 0, reverse: bool = False) -> list[GoldAlignment]:
    """Read gold links in Pharaoh format into a list; see `iter_alignments`."""
    return list(iter_alignments(lines, base, reverse))


def iter_alignments(lines: Iterable[str], base: int = 0, reverse: bool = False) -> Iterator[GoldAlignment]:
    """Read gold links in Pharaoh format, one sentence pair per line: `i-j` is sure, `ipj` or `i?j` possible.

    Args:
        lines: lines; an empty line is a pair without links.
        base: index of the first word in the file, 0 or 1. The returned links count from 0. Default: 0.
        reverse: True if the target index comes first in the file.

    Raises:
        ValueError: a token that is not a link, or an index below `base` or of more than nine digits. The message has
            the number and the text of the line.
    """
    _check_base(base)
    for number, line in enumerate(lines, start=1):
        sure: set[Link] = set()
        possible: set[Link] = set()
        with in_line(number):
            for match, link in _parse_line(line, base, reverse, _GOLD_LINK):
                (sure if match["kind"] == "-" else possible).add(link)
        yield GoldAlignment(sure=frozenset(sure), possible=frozenset(sure | possible))


def parse_hypotheses(lines: Iterable[str], base: int = 0, reverse: bool = False) -> list[frozenset[Link]]:
    """Read proposed links, one sentence pair per line: `i-j`, or `i-j:0.93` with a score, which is dropped.

    Arguments and errors as in `iter_alignments`; a possible link or a link with two scores is also an error.
    """
    _check_base(base)
    links = []
    for number, line in enumerate(lines, start=1):
        with in_line(number):
            links.append(frozenset(_scored_links(line, base, reverse)))
    return links


def parse_scored(line: str) -> tuple[tuple[Link, ...], tuple[float, ...] | None]:
    """Return the proposed links of one sentence pair, sorted, and their scores, or None if a score is missing.

    Raises:
        ValueError: see `parse_hypotheses`, without the line number; also a score outside [0, 1].
    """
    scores = _scored_links(line, 0, False)
    for link, score in scores.items():
        if not 0 <= (score or 0) <= 1:
            raise ValueError(f"{link[0]}-{link[1]}:{score:g} has a score outside 0 to 1. Remove the score.")
    links = tuple(sorted(scores))
    values = tuple(score for link in links if (score := scores[link]) is not None)
    return links, values if len(values) == len(links) else None


def _scored_links(line: str, base: int, reverse: bool) -> dict[Link, float | None]:
    """Return the proposed links of a line, each with its score or None."""
    scores: dict[Link, float | None] = {}
    for match, link in _parse_line(line, base, reverse, _PROPOSED_LINK):
        if match["kind"] != "-":
            raise ValueError(
                f"{_quoted(match[0])} is a possible link, which only a gold file may have. Propose links as `i-j`, or "
                "check whether this is the gold file."
            )
        score = None if match["score"] is None else float(match["score"])
        if scores.setdefault(link, score) != score:
            raise ValueError(
                f"the link {match['first']}-{match['second']} occurs twice with different scores, the second time as "
                f"{_quoted(match[0])}. Remove one of them."
            )
    return scores


def format_links(links: Iterable[Link], scores: Iterable[float] | None = None) -> str:
    """Return the links of one sentence pair in Pharaoh format, sorted: `i-j i-j`, or with scores `i-j:0.9300`."""
    if scores is None:
        return " ".join(f"{i}-{j}" for i, j in sorted(links))
    return " ".join(f"{i}-{j}:{score:.4f}" for (i, j), score in sorted(zip(links, scores, strict=True)))


def _check_base(base: int) -> None:
    if base not in (0, 1):
        raise ValueError(f"`base` must be 0 or 1, the index of the first word, got {base!r}.")


def _parse_line(line: str, base: int, reverse: bool, pattern: re.Pattern) -> Iterator[tuple[re.Match, Link]]:
    """Yield every token of a line as a match of `pattern` and as a link (source first, counted from 0)."""
    for token in line.split():
        match = pattern.fullmatch(token)
        if match is None:
            expected = "`i-j` (sure), `ipj` or `i?j` (possible)" if pattern is _GOLD_LINK else "`i-j` or `i-j:score`"
            raise ValueError(f"{_quoted(token)} is not a link; expected {expected} in {_quoted(line)}")
        if max(len(match["first"]), len(match["second"])) > _MAX_DIGITS:
            raise ValueError(f"{_quoted(token)} has an index of more than {_MAX_DIGITS} digits.")
        first, second = int(match["first"]) - base, int(match["second"]) - base
        if min(first, second) < 0:
            raise ValueError(
                f"{_quoted(token)} has an index below the base {base} in {_quoted(line)}. Read the file with base 0."
            )
        yield match, (second, first) if reverse else (first, second)


def _quoted(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 200 else text[:200] + "...")


def enough_for_index_checks(pairs: Sequence[GoldAlignment | Collection[Link]]) -> bool:
    """Return whether ten or more sentence pairs have links; with fewer, suspicious indices may be a coincidence."""
    return sum(bool(_all_links(pair)) for pair in pairs) >= _MIN_PAIRS_FOR_INDEX_CHECKS


def detect_index_base(pairs: Sequence[GoldAlignment | Collection[Link]]) -> int | None:
    """Guess the index of the first word in links that were read as 0-based.

    Returns:
        0 if any index is 0; 1 if no index is 0 in enough pairs (`enough_for_index_checks`); None with too few pairs.
    """
    if any(0 in link for pair in pairs for link in _all_links(pair)):
        return 0
    return 1 if enough_for_index_checks(pairs) else None


def check_index_base(
    pairs: Sequence[GoldAlignment | Collection[Link]],
    lengths: Collection[tuple[int, int]] | None = None,
    remedy: str = "read it with `base=1`",
) -> None:
    """Raise ValueError for links that do not count from 0: a 1-based file read as 0-based has an AER near 70 %.

    Args:
        pairs: gold or proposed links of every sentence pair.
        lengths: numbers of source and target words of every pair. Default: unknown.
        remedy: advice for a 1-based file.

    Raises:
        ValueError: an index outside its sentence, or a corpus in which no first word has any link.
    """
    if lengths is not None:
        check_inside_sentences(pairs, lengths, remedy)
    if detect_index_base(pairs) == 1:
        raise ValueError(_one_based(remedy))


def check_inside_sentences(
    pairs: Sequence[GoldAlignment | Collection[Link]],
    lengths: Collection[tuple[int, int]],
    remedy: str = "read it with `base=1`",
) -> None:
    """Raise ValueError for links outside their sentence pair; for the arguments see `check_index_base`.

    Raises:
        ValueError: an index outside its sentence, or unequal numbers of pairs and lengths.
    """

    def advice() -> str:
        indices = {index for pair in pairs for link in _all_links(pair) for index in link}
        return " " + _one_based(remedy) if indices and 0 not in indices else ""

    if len(lengths) != len(pairs):
        raise ValueError(f"{len(pairs)} lines of links for {len(lengths)} sentence pairs.{advice()}")
    for number, (pair, pair_lengths) in enumerate(zip(pairs, lengths, strict=True), start=1):
        try:
            check_inside_pair(_all_links(pair), pair_lengths)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}{advice()}") from error


def check_inside_pair(links: Iterable[Link], lengths: tuple[int, int]) -> None:
    """Raise ValueError for a link outside a pair of `lengths` source and target words."""
    for i, j in sorted(links):
        if not (0 <= i < lengths[0] and 0 <= j < lengths[1]):
            raise ValueError(
                f"link {i}-{j} lies outside a pair of {lengths[0]} source and {lengths[1]} target words (indices "
                "count from 0)."
            )


def displaced_pairs(
    pairs: Sequence[GoldAlignment | Collection[Link]], sentences: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> tuple[list[int], int]:
    """Find pairs in which a number or punctuation mark that occurs once on each side is linked, but not to itself.

    Their indices are probably shifted by a token from the middle of the sentence on. No other check detects that, as
    the indices stay inside the sentence.

    Args:
        pairs: gold or proposed links of every sentence pair, with indices from 0.
        sentences: source and target words of every pair.

    Returns:
        Displaced pairs (from 0), and the number of pairs with such a number or mark.
    """
    displaced, candidates = [], 0
    for row, (pair, (source, target)) in enumerate(zip(pairs, sentences, strict=True)):
        links = _all_links(pair)
        linked = {i for i, _ in links}, {j for _, j in links}
        places = [_places_of_single(words) for words in (source, target)]
        shared = [(i, places[1][word]) for word, i in places[0].items() if word in places[1]]
        candidates += bool(shared)
        if any((i, j) not in links and (i in linked[0] or j in linked[1]) for i, j in shared):
            displaced.append(row)
    return displaced, candidates


def _places_of_single(words: Sequence[str]) -> dict[str, int]:
    """Return the positions of the numbers and punctuation marks that occur once in a sentence."""
    counts = Counter(words)
    return {
        word: place
        for place, word in enumerate(words)
        if counts[word] == 1 and (any(map(str.isdigit, word)) or not any(map(str.isalnum, word)))
    }


def displacement_warning(
    pairs: Sequence[GoldAlignment | Collection[Link]], sentences: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> str | None:
    """Return a warning about `displaced_pairs`, or None if there are no more than in good gold links."""
    displaced, candidates = displaced_pairs(pairs, sentences)
    if len(displaced) < _MIN_DISPLACED_PAIRS or len(displaced) <= _MAX_DISPLACED_SHARE * candidates:
        return None
    lines = ", ".join(str(row + 1) for row in displaced[:10]) + (", ..." if len(displaced) > 10 else "")
    return (
        f"{len(displaced)} of the {candidates} sentence pairs with the same number or punctuation mark once on each "
        f"side link it to something else (lines {lines}): their indices are probably displaced. Check whether tokens "
        "were split or dropped after the annotation."
    )


def _all_links(pair: GoldAlignment | Collection[Link]) -> Collection[Link]:
    return pair.possible if isinstance(pair, GoldAlignment) else pair


def _one_based(remedy: str) -> str:
    return f"No link of the file has an index 0: it looks 1-based, {remedy}."
