"""Read and write word alignments in Pharaoh format, and detect wrong indices.

A link is a pair (i, j): source word i, target word j, both counted from 0.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hf_attncal.io.errors import in_line

Link = tuple[int, int]

# `3-4` is a sure link, `3p4` and `3?4` are possible ones. `++` keeps the pattern from backtracking in a long token.
_LINK = r"(?P<first>[0-9]++)(?P<kind>[-p?])(?P<second>[0-9]++)"
_GOLD_LINK = re.compile(_LINK)

# `3-4`, or with a score `3-4:0.93`. Possible links are recognised only to be refused with a better message.
_PROPOSED_LINK = re.compile(_LINK + r"(?::(?P<score>[-+]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][-+]?[0-9]++)?))?")

_MOST_DIGITS = 9  # of an index; more are not the number of a word

# More than this share of displaced pairs, and at least this number, is an error and no matter of taste: thirteen
# published gold sets have at most 5 %, and one whose tokens were changed after the annotation has 16 %
# (docs/log.md).
_MOST_DISPLACED = 0.08
_FEWEST_DISPLACED = 3

# In fewer sentence pairs with links than this, it may be a coincidence that no first word is linked.
_PAIRS_FOR_INDEX_CHECKS = 10


@dataclass(frozen=True)
class GoldAlignment:
    """Annotated links of one sentence pair; `possible` includes every link of `sure` (P includes S)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_alignments(lines: Iterable[str], base: int = 0, reverse: bool = False) -> list[GoldAlignment]:
    """Read annotated Pharaoh lines into a list, as `iter_alignments` yields them."""
    return list(iter_alignments(lines, base, reverse))


def iter_alignments(lines: Iterable[str], base: int = 0, reverse: bool = False) -> Iterator[GoldAlignment]:
    """Read annotated Pharaoh lines, one sentence pair a line: `i-j` is a sure link, `ipj` or `i?j` a possible one.

    Args:
        lines: text lines; an empty one is a pair without links.
        base: index of the first word in the file, 0 or 1. Links are returned with indices from 0.
        reverse: the file has the target index first.

    Raises:
        ValueError: a token that is not a link, or an index below `base` or of more than nine digits; the message has
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
    """Read proposed links, one sentence pair a line: `i-j`, or `i-j:0.93` with a score, which is not kept.

    Args and errors are those of `iter_alignments`; a possible link, and a link with two scores, are errors, too.
    """
    _check_base(base)
    links = []
    for number, line in enumerate(lines, start=1):
        with in_line(number):
            links.append(frozenset(_scored_links(line, base, reverse)))
    return links


def parse_scored(line: str) -> tuple[tuple[Link, ...], tuple[float, ...] | None]:
    """Read the proposed links of one sentence pair, sorted, and their scores; None unless each link has one.

    Raises:
        ValueError: as `parse_hypotheses`, without a number of the line; also a score that is not from 0 to 1.
    """
    scores = _scored_links(line, 0, False)
    for link, score in scores.items():
        if not 0 <= (score or 0) <= 1:
            raise ValueError(f"{link[0]}-{link[1]}:{score:g} has a score that is not from 0 to 1. Leave it out.")
    links = tuple(sorted(scores))
    known = tuple(score for link in links if (score := scores[link]) is not None)
    return links, known if len(known) == len(links) else None


def _scored_links(line: str, base: int, reverse: bool) -> dict[Link, float | None]:
    """Return the links of a line of a hypothesis, each with its score or None."""
    scores: dict[Link, float | None] = {}
    for match, link in _parse_line(line, base, reverse, _PROPOSED_LINK):
        if match["kind"] != "-":
            raise ValueError(
                f"{_quoted(match[0])} is a possible link, and a hypothesis has none: a link is proposed (`i-j`) or "
                "not. Is this a gold file?"
            )
        score = None if match["score"] is None else float(match["score"])
        if scores.setdefault(link, score) != score:
            raise ValueError(
                f"the link {match['first']}-{match['second']} is given twice, with different scores, the second time "
                f"as {_quoted(match[0])}. Leave one of them out."
            )
    return scores


def format_links(links: Iterable[Link], scores: Iterable[float] | None = None) -> str:
    """Write the links of one sentence pair in Pharaoh format, sorted: `i-j i-j`, or with scores `i-j:0.9300`."""
    if scores is None:
        return " ".join(f"{i}-{j}" for i, j in sorted(links))
    return " ".join(f"{i}-{j}:{score:.4f}" for (i, j), score in sorted(zip(links, scores, strict=True)))


def _check_base(base: int) -> None:
    if base not in (0, 1):
        raise ValueError(f"`base` must be 0 or 1, the index of the first word, got {base!r}.")


def _parse_line(line: str, base: int, reverse: bool, pattern: re.Pattern) -> Iterator[tuple[re.Match, Link]]:
    """Yield every token of a line as a match of `pattern` and as a link that counts from 0, source first."""
    for token in line.split():
        match = pattern.fullmatch(token)
        if match is None:
            expected = "`i-j` (sure), `ipj` or `i?j` (possible)" if pattern is _GOLD_LINK else "`i-j` or `i-j:score`"
            raise ValueError(f"{_quoted(token)} is not a link; expected {expected} in {_quoted(line)}")
        if max(len(match["first"]), len(match["second"])) > _MOST_DIGITS:
            raise ValueError(f"{_quoted(token)} has an index of more than {_MOST_DIGITS} digits, which no word has.")
        first, second = int(match["first"]) - base, int(match["second"]) - base
        if min(first, second) < 0:
            raise ValueError(
                f"{_quoted(token)} has an index below the base {base} in {_quoted(line)}: read the file with the "
                "base 0."
            )
        yield match, (second, first) if reverse else (first, second)


def _quoted(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 200 else text[:200] + "...")


def enough_for_index_checks(pairs: Sequence[GoldAlignment | Collection[Link]]) -> bool:
    """Return whether ten or more sentence pairs have links; in fewer, wrong-looking indices may be a coincidence."""
    return sum(bool(_all_links(pair)) for pair in pairs) >= _PAIRS_FOR_INDEX_CHECKS


def detect_index_base(pairs: Sequence[GoldAlignment | Collection[Link]]) -> int | None:
    """Guess the index of the first word in links that were read as 0-based.

    Returns:
        0 if any index is 0; 1 if none is in enough pairs (`enough_for_index_checks`); None if there are too few pairs.
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
        pairs: annotated or proposed links of every sentence pair, as they were read.
        lengths: (source words, target words) of every pair, if known.
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
    """Raise ValueError for links of words that do not exist; arguments are those of `check_index_base`.

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
    """Raise ValueError for a link outside a pair with these numbers of source and target words."""
    for i, j in sorted(links):
        if not (0 <= i < lengths[0] and 0 <= j < lengths[1]):
            raise ValueError(
                f"link {i}-{j} lies outside a pair of {lengths[0]} source and {lengths[1]} target words (indices "
                "count from 0)."
            )


def displaced_pairs(
    pairs: Sequence[GoldAlignment | Collection[Link]], sentences: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> tuple[list[int], int]:
    """Find pairs in which a number or mark that appears once on each side is linked, but not to itself.

    Their indices have probably slipped by a token in the middle of a sentence. No other check sees that, as the
    indices stay inside the sentence.

    Args:
        pairs: annotated or proposed links of every sentence pair, with indices from 0.
        sentences: source and target words of every pair.

    Returns:
        The displaced pairs (from 0), and the number of pairs with such a number or mark.
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
    """Return the places of the numbers and marks that appear only once in a sentence."""
    counts = Counter(words)
    return {
        word: place
        for place, word in enumerate(words)
        if counts[word] == 1 and (any(map(str.isdigit, word)) or not any(map(str.isalnum, word)))
    }


def displacement_warning(
    pairs: Sequence[GoldAlignment | Collection[Link]], sentences: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> str | None:
    """Return a warning about `displaced_pairs`, or None if there are no more than in good annotations."""
    displaced, candidates = displaced_pairs(pairs, sentences)
    if len(displaced) < _FEWEST_DISPLACED or len(displaced) <= _MOST_DISPLACED * candidates:
        return None
    lines = ", ".join(str(row + 1) for row in displaced[:10]) + (", ..." if len(displaced) > 10 else "")
    return (
        f"{len(displaced)} of the {candidates} sentence pairs that have the same number or punctuation mark once on "
        f"each side link it to something else (lines {lines}): their indices are probably displaced, and no aligner "
        "can be right there. Were tokens split or dropped after the annotation?"
    )


def _all_links(pair: GoldAlignment | Collection[Link]) -> Collection[Link]:
    return pair.possible if isinstance(pair, GoldAlignment) else pair


def _one_based(remedy: str) -> str:
    return f"No link of the whole file has an index 0: it looks 1-based, {remedy}."
