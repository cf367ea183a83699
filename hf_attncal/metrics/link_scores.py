"""Score files of word links against a gold alignment, detecting whether they count from 0 or 1."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_attncal.data.pharaoh import (
    check_inside_sentences,
    detect_index_base,
    displacement_warning,
    parse_alignments,
    parse_hypotheses,
)
from hf_attncal.data.texts import ScoredText, words_of_sides
from hf_attncal.io.errors import CommandError

from .aer import AER, AlignmentScore, alignment_error_rate, find_index_mismatch, paired_counts
from .tables import SEED, ScoreTable, comparison_columns, interval_columns

Lengths = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class LinkScore(AlignmentScore):
    """Scores of one hypothesis.

    Args:
        hypothesis: name of the hypothesis.
        better_than_first: share of resamples in which its AER is lower than the first hypothesis's
            (`Metric.paired_bootstrap`).
        p_value: p-value of the two-sided test that both have the same AER (`Metric.paired_p_value`).
    """

    hypothesis: str = ""
    better_than_first: float | None = None
    p_value: float | None = None


def score_links(
    gold: ScoredText,
    hypotheses: Iterable[ScoredText],
    sides: Sequence[ScoredText] = (),
    *,
    words: str | None = None,
    ignore_possible: bool = False,
    punctuation: bool = True,
    bootstrap: int = 1000,
    format: str = "text",
) -> ScoreTable:
    """Score hypotheses against a gold alignment. A paired bootstrap compares each further one with the first.

    Args:
        gold: annotated links.
        hypotheses: proposed links, one text per hypothesis.
        sides: source and target sentences, to check that links are inside them. Default: none, not checked.
        words: word separator of the sentences, "white-space" or "spaces". Default: None, the separator recorded beside
            the links, or the one that they fit.
        ignore_possible: True to count only the sure links of `gold`. Default: False.
        punctuation: False to leave out links of words that are only punctuation, which needs `sides`. Default: True.
        bootstrap: number of resamples of the sentence pairs; 0 for no intervals and comparisons. Default: 1000.
        format: format in which the table is printed, "text" or "json". Default: "text".

    Warns:
        UserWarning: words are counted from 1; or it is unclear whether they are counted from 0 or 1; or the indices of
            gold links do not fit the sentences, as if words had been split or dropped after the annotation.

    Raises:
        CommandError: lines that are no links, links outside the sentences, or files that count words differently.
    """
    for side in sides:
        side.check_length()
    hypotheses = list(hypotheses)
    parsed = [(gold, partial(_counted, gold, parse_alignments))]
    parsed += [(text, partial(_counted, text, parse_hypotheses)) for text in hypotheses]
    sentences = words_of_sides(sides, parsed, words)
    lengths = [(len(source), len(target)) for source, target in sentences]
    annotated, gold_base = _links_of(gold, parse_alignments, lengths)
    if sentences and (problem := displacement_warning(annotated, sentences)):
        warnings.warn(f"{gold.label}: {problem}", stacklevel=2)
    selection: dict[str, Any] = {
        "ignore_possible": ignore_possible,
        "sentences": sentences or None,
        "punctuation": punctuation,
    }
    resampled: dict[str, Any] = {"bootstrap": bootstrap, "seed": SEED}
    parsed_hypotheses = [(text, *_links_of(text, parse_hypotheses, lengths)) for text in hypotheses]
    rows: list[LinkScore] = []
    for text, links, base in parsed_hypotheses:
        if problem := find_index_mismatch(annotated, links):
            raise CommandError(
                f"{text.label} and {gold.label}: {problem} Change the indices of one of the files, or exchange its "
                "columns."
            )
        both = base if base == gold_base else f"gold={gold_base},hyp={base}"
        score = alignment_error_rate(
            annotated, links, base=both, symmetrization="unstated", check_indices=False, **selection, **resampled
        )
        compared: dict[str, Any] = {}
        if rows and bootstrap:
            counts = paired_counts(annotated, parsed_hypotheses[0][1], links, **selection)
            compared["better_than_first"] = AER.paired_bootstrap(*counts, **resampled)
            compared["p_value"] = AER.paired_p_value(*counts, **resampled)
        rows.append(LinkScore(**vars(score), hypothesis=text.name, **compared))
    intervals, interval_notes = interval_columns(rows, "AER", bootstrap, len(annotated), "sentence pairs", scale=100)
    comparison, comparison_notes = comparison_columns(rows, "AER", "lower")
    rates = {"AER": "aer", "precision": "precision", "recall": "recall", "F1": "f1"}
    cells = {name: [f"{100 * getattr(row, field):.1f}" for row in rows] for name, field in rates.items()}
    columns = {
        "hypothesis": [row.hypothesis for row in rows],
        "AER": cells.pop("AER"),
        **intervals,
        **cells,
        "links": [str(row.proposed) for row in rows],
        **comparison,
    }
    corpus = (
        f"{len(annotated)} sentence pairs, {rows[0].sure} sure links, {rows[0].possible} possible links (sure ones "
        "included). Rates in per cent."
    )
    notes = [corpus, *interval_notes, *comparison_notes]
    return ScoreTable(rows, {"gold": gold.name}, bootstrap, format, columns, notes)


def _links_of(text: ScoredText, parse: Callable[..., list], lengths: Lengths) -> tuple[list, str]:
    """Return the links of a text, counted from 0, and its index base for the signature.

    Args:
        text: lines with links.
        parse: `parse_alignments` or `parse_hypotheses`.
        lengths: numbers of source and target words of each pair; empty if unknown.
    """
    links = text.parsed(parse)
    base = detect_index_base(links)
    why = "none of its links has an index 0"
    if base is None and lengths and not _inside(links, lengths):
        from_one = text.parsed(parse, base=1)
        if _inside(from_one, lengths) and not _inside(links, _exchanged(lengths)):
            base, why = 1, "counted from 0, some links are outside the sentences"
    if base == 1:
        warnings.warn(f"{text.label} is read as counting words from 1: {why}.", stacklevel=3)
        links = text.parsed(parse, base=1)
    if lengths:
        try:
            check_inside_sentences(links, lengths, remedy="take 1 from each index")
        except ValueError as error:
            message = f"{text.label}: {error}"
            if _inside(links, _exchanged(lengths)):
                message += " All are inside with source and target exchanged. Exchange --source and --target, or the "
                message += f"columns of {text.label}."
            raise CommandError(message) from error
    if base is None and any(line.strip() for line in text.lines):
        warnings.warn(
            f"{text.label} has no index 0 and too few lines with links to detect whether words are counted from 0 or "
            "1. It is read as counting from 0.",
            stacklevel=3,
        )
    return links, "1(auto)" if base == 1 else "0"


def _counted(text: ScoredText, parse: Callable[..., list]) -> list:
    """Return the links of each pair, counted from 0, with the index base detected from the links only."""
    links = text.parsed(parse)
    links = text.parsed(parse, base=1) if detect_index_base(links) == 1 else links
    return [getattr(pair, "possible", pair) for pair in links]


def _inside(links: list, lengths: Lengths) -> bool:
    with suppress(ValueError):
        check_inside_sentences(links, lengths)
        return True
    return False


def _exchanged(lengths: Lengths) -> Lengths:
    return [(target, source) for source, target in lengths]
