"""Word alignments in Pharaoh format, and the alignment error rate (Och and Ney, 2003, "A Systematic Comparison of
Various Statistical Alignment Models").

A link is a pair (i, j): source word i, target word j, both counted from 0.
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib.metadata import version

Link = tuple[int, int]

# `3-4` is a sure link, `3p4` and `3?4` are possible ones.
_LINK = re.compile(r"(?P<source>\d+)(?P<kind>[-p?])(?P<target>\d+)")

# Below this number of sentences a corpus in which no first word is linked may well be a coincidence.
_SENTENCES_FOR_BASE_CHECK = 10


@dataclass(frozen=True)
class GoldAlignment:
    """Annotated links of one sentence pair. `possible` includes every link of `sure` (P includes S)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """Scores of a whole corpus, as fractions between 0 and 1 (a lower `aer` is better), and how they were computed."""

    aer: float
    precision: float
    recall: float
    signature: str

    def __str__(self) -> str:
        return (
            f"AER {100 * self.aer:.1f} (precision {100 * self.precision:.1f}, recall {100 * self.recall:.1f}) "
            f"{self.signature}"
        )


def parse_alignments(lines: Iterable[str], base: int = 0) -> list[GoldAlignment]:
    """Read Pharaoh lines, one sentence pair a line: `i-j` is a sure link, `ipj` or `i?j` a possible one.

    Args:
        lines: text lines; an empty one is a pair without links.
        base: index of the first word in the file, 0 or 1. The links that are returned count from 0.

    Raises:
        ValueError: a token that is no link or an index below `base`, with the number and the text of the line.
    """
    return [_parse_line(line, number, base) for number, line in enumerate(lines, start=1)]


def _parse_line(line: str, number: int, base: int) -> GoldAlignment:
    sure: set[Link] = set()
    possible: set[Link] = set()
    for token in line.split():
        match = _LINK.fullmatch(token)
        if match is None:
            raise ValueError(
                f"line {number}: {token!r} is not a link; expected `i-j` (sure), `ipj` or `i?j` (possible) "
                f"in {line.strip()!r}"
            )
        link = int(match["source"]) - base, int(match["target"]) - base
        if min(link) < 0:
            raise ValueError(f"line {number}: {token!r} has an index below the base {base} in {line.strip()!r}")
        (sure if match["kind"] == "-" else possible).add(link)
    return GoldAlignment(sure=frozenset(sure), possible=frozenset(sure | possible))


def check_index_base(gold: Sequence[GoldAlignment], lengths: Sequence[tuple[int, int]] | None = None) -> None:
    """Refuse links that do not count from 0: a 1-based file read as 0-based gives an error rate near 70 %.

    Args:
        gold: links of every sentence pair, as they were read.
        lengths: (source words, target words) of every pair, where known.

    Raises:
        ValueError: an index that lies outside its sentence, or a corpus in which no first word has any link.
    """
    links = [link for pair in gold for link in pair.possible]
    one_based = bool(links) and all(min(link) > 0 for link in links)
    advice = " No link of the whole file has an index 0: it looks 1-based, read it with `base=1`." if one_based else ""
    if lengths is not None:
        if len(lengths) != len(gold):
            raise ValueError(f"{len(gold)} lines of links for {len(lengths)} sentence pairs.{advice}")
        for number, (pair, (source_length, target_length)) in enumerate(zip(gold, lengths, strict=True), start=1):
            for i, j in pair.possible:
                if i >= source_length or j >= target_length:
                    raise ValueError(
                        f"line {number}: link {i}-{j} lies outside a pair of {source_length} source and "
                        f"{target_length} target words (indices count from 0).{advice}"
                    )
    if one_based and len(gold) >= _SENTENCES_FOR_BASE_CHECK:
        raise ValueError(advice.strip())


def alignment_error_rate(
    gold: Sequence[GoldAlignment],
    hypotheses: Sequence[AbstractSet[Link]],
    *,
    unit: str = "word",
    symmetrization: str = "none",
) -> AlignmentScore:
    """AER, precision and recall over a whole corpus.

    With sure links S, possible links P (P includes S) and hypothesis A, counted over all pairs:
    `AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)`, precision `|A & P| / |A|`, recall `|A & S| / |S|`.
    Where a denominator is 0 nothing was asked or nothing was claimed, and no error was made: precision and recall are
    1, AER is 0.

    Args:
        gold: annotated links of every pair.
        hypotheses: proposed links of every pair, in the same order.
        unit: what the indices count, "word" or "subword"; stated in the signature.
        symmetrization: how two directions were merged ("none" for one direction); stated in the signature.

    Raises:
        ValueError: unequal numbers of pairs, or an annotation that looks 1-based.
    """
    if len(gold) != len(hypotheses):
        raise ValueError(f"{len(gold)} annotated sentence pairs, but {len(hypotheses)} proposed alignments.")
    check_index_base(gold)
    proposed = sum(len(links) for links in hypotheses)
    sure = sum(len(pair.sure) for pair in gold)
    hit_sure = sum(len(links & pair.sure) for pair, links in zip(gold, hypotheses, strict=True))
    hit_possible = sum(len(links & pair.possible) for pair, links in zip(gold, hypotheses, strict=True))
    return AlignmentScore(
        aer=1 - _ratio(hit_sure + hit_possible, proposed + sure),
        precision=_ratio(hit_possible, proposed),
        recall=_ratio(hit_sure, sure),
        signature=(
            f"AER|base:0|possible:used|unit:{unit}|symm:{symmetrization}|n:{len(gold)}|version:{version('hf_attncal')}"
        ),
    )


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else 1.0
