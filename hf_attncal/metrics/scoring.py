"""Score files of word links, translations or summaries: tables of hypotheses, compared with the first."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from hf_attncal.data.pharaoh import (
    check_inside_sentences,
    detect_index_base,
    displacement_warning,
    parse_alignments,
    parse_hypotheses,
)
from hf_attncal.data.texts import ScoredText, words_of_sides
from hf_attncal.drawing.page import text_table
from hf_attncal.io.errors import CommandError

from .aer import AER, AlignmentScore, alignment_error_rate, find_index_mismatch, paired_counts
from .base import FEWEST_SENTENCES, Metric

SEED = 0  # fixed, so that the same files always give the same intervals
Lengths = Sequence[tuple[int, int]]
Comparison = tuple[float | None, float | None]


@dataclass(frozen=True)
class ScoreTable:
    """Scores of one or more hypotheses, printed as a table or JSON.

    Args:
        rows: scores of each hypothesis, dataclasses with `hypothesis` (the name) and `signature`.
        against: names of the references.
        bootstrap: number of resamples; 0 for none.
        format: output format, "text" or "json".
        columns: heading -> cells.
        notes: lines below the table.
    """

    rows: Sequence[Any]
    against: Mapping[str, Any]
    bootstrap: int
    format: str
    columns: Mapping[str, list[str]]
    notes: Sequence[str]

    def __str__(self) -> str:
        """Return all scores as ASCII JSON, not rounded, or as a table with notes and signatures."""
        if self.format == "json":
            bootstrap = {"resamples": self.bootstrap, "seed": SEED, "confidence": 0.95} if self.bootstrap else None
            rows = [{"hypothesis": row.hypothesis} | asdict(row) for row in self.rows]
            return json.dumps({**self.against, "bootstrap": bootstrap, "scores": rows}, indent=2)
        signatures = [f"{row.hypothesis}: {row.signature}" for row in self.rows]
        if len({row.signature for row in self.rows}) == 1:
            signatures = [self.rows[0].signature]
        return "\n".join([*text_table(self.columns), "", *self.notes, *signatures])


def _compared(metric: Metric, first: np.ndarray, second: np.ndarray, bootstrap: int) -> Comparison:
    """Return the share of resamples in which `second` is better, and the p-value; both None without resamples."""
    if first is second or not bootstrap:
        return None, None
    counts = first, second, bootstrap, SEED
    return metric.paired_bootstrap(*counts), metric.paired_p_value(*counts)


def _resampled_columns(
    intervals: Sequence[tuple[float, float] | None],
    comparisons: Sequence[Comparison],
    measure: str,
    better: str,
    resampled: tuple[int, int, str],
    form: str = ".1f",
) -> tuple[dict[str, list[str]], dict[str, list[str]], list[str]]:
    """Return the column of intervals, the columns of comparisons, and the notes below the table.

    Args:
        intervals: interval of each line of the table, in the unit of the table.
        comparisons: comparison of each line with the first, see `_compared`.
        measure: name of the score.
        better: "lower" or "higher".
        resampled: number of resamples; number and name of the resampled units, such as "sentence pairs".
        form: format of the bounds. Default: one decimal.
    """
    bootstrap, count, units = resampled
    if not bootstrap or count < FEWEST_SENTENCES:
        why = f"No intervals or comparisons: needs at least {FEWEST_SENTENCES} {units}, got {count}."
        return {}, {}, [why] if bootstrap else []
    bounds = [" to ".join(f"{bound:{form}}" for bound in interval or ()) for interval in intervals]
    notes = [f"95 % interval: percentiles of {measure} over {bootstrap} resamples of the {units}."]
    columns: dict[str, list[str]] = {}
    if any(p is not None for _, p in comparisons):
        columns["better than first"] = ["" if share is None else f"{100 * share:.1f}" for share, _ in comparisons]
        columns["p"] = ["" if p is None else f"{p:.3f}" for _, p in comparisons]
        notes += [
            f"better than first: share of the same resamples in which {measure} is {better} than the first "
            "hypothesis's, without ties.",
            f"p: p-value of a two-sided paired bootstrap test that both have the same {measure}.",
        ]
    return {"95 % interval": bounds}, columns, notes


# ---- word links ----


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
        words: word separator of the sentences, "white-space" or "spaces". Default: None, the one that the links
            fit.
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
    parsed_hypotheses = [(text, *_links_of(text, parse_hypotheses, lengths)) for text in hypotheses]
    rows: list[LinkScore] = []
    comparisons: list[Comparison] = []
    for text, links, base in parsed_hypotheses:
        if problem := find_index_mismatch(annotated, links):
            raise CommandError(
                f"{text.label} and {gold.label}: {problem} Change the indices of one of the files, or exchange its "
                "columns."
            )
        both = base if base == gold_base else f"gold={gold_base},hyp={base}"
        options: dict[str, Any] = {"base": both, "symmetrization": "unstated", "check_indices": False}
        score = alignment_error_rate(annotated, links, **options, **selection, bootstrap=bootstrap, seed=SEED)
        compared: Comparison = None, None
        if rows:
            counts = paired_counts(annotated, parsed_hypotheses[0][1], links, **selection)
            compared = _compared(AER, *counts, bootstrap)
        comparisons.append(compared)
        rows.append(LinkScore(**vars(score), hypothesis=text.name, better_than_first=compared[0], p_value=compared[1]))
    bounds = [row.interval and (100 * row.interval[0], 100 * row.interval[1]) for row in rows]
    units = bootstrap, len(annotated), "sentence pairs"
    intervals, comparison, resample_notes = _resampled_columns(bounds, comparisons, "AER", "lower", units)
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
    return ScoreTable(rows, {"gold": gold.name}, bootstrap, format, columns, [corpus, *resample_notes])


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


# ---- translations and summaries ----


@dataclass(frozen=True)
class TranslationScore:
    """BLEU or chrF of one hypothesis, compared with the first as in `LinkScore`."""

    hypothesis: str
    score: float
    signature: str
    interval: tuple[float, float] | None = None
    better_than_first: float | None = None
    p_value: float | None = None


def score_translations(
    references: Sequence[ScoredText],
    hypotheses: Sequence[ScoredText],
    metric: Literal["bleu", "chrf"],
    *,
    bootstrap: int = 1000,
    format: str = "text",
) -> ScoreTable:
    """Score hypotheses against one or more references per line, and compare each with the first.

    Raises:
        CommandError: different numbers of lines.
    """
    from sacrebleu.metrics import BLEU, CHRF

    for text in (*references, *hypotheses):
        text.check_length()
    scorer: Any = BLEU(force=True) if metric == "bleu" else CHRF()
    name = type(scorer).__name__.replace("CHRF", "chrF")

    def corpus_score(sums: np.ndarray) -> float:
        return scorer._compute_score_from_stats(sums.tolist()).score

    by_sums = Metric(name, lambda sums: np.apply_along_axis(corpus_score, -1, sums))
    lines = [list(text.lines) for text in references]
    counts = [np.array(scorer._extract_corpus_statistics(list(text.lines), lines)) for text in hypotheses]
    signature = str(scorer.get_signature())
    scores = [by_sums.measured(counted, bootstrap, SEED) for counted in counts]
    comparisons = [_compared(by_sums, counts[0], counted, bootstrap) for counted in counts]
    rows = [
        TranslationScore(text.name, score.value, signature, score.interval, *compared)
        for text, score, compared in zip(hypotheses, scores, comparisons, strict=True)
    ]
    units = bootstrap, len(lines[0]), "lines"
    intervals = [row.interval for row in rows]
    interval, comparison, notes = _resampled_columns(intervals, comparisons, name, "higher", units)
    columns = {"hypothesis": [row.hypothesis for row in rows], name: [f"{row.score:.1f}" for row in rows]}
    against = {"references": [text.name for text in references]}
    return ScoreTable(rows, against, bootstrap, format, columns | interval | comparison, notes)


@dataclass(frozen=True)
class SummaryScore:
    """ROUGE of one hypothesis, as in `rouge.RougeScore`, compared with the first by each measure as in `LinkScore`."""

    hypothesis: str
    rouge1: float
    rouge2: float
    rougeL: float
    rougeLsum: float
    signature: str
    intervals: dict[str, tuple[float, float]] | None
    better_than_first: dict[str, float | None]
    p_value: dict[str, float | None]


def score_summaries(
    references: Sequence[ScoredText],
    hypotheses: Sequence[ScoredText],
    *,
    tokenize: str = "rouge",
    stemmer: bool = False,
    bootstrap: int = 1000,
    format: str = "text",
) -> ScoreTable:
    """Score hypotheses against one or more references per summary, and compare each with the first.

    Args:
        references, hypotheses: texts with one summary per line.
        tokenize, stemmer, bootstrap: see `rouge`.
        format: output format, "text" or "json".

    Warns:
        UserWarning: summaries whose references are all empty.

    Raises:
        CommandError: different numbers of lines.
    """
    from .rouge import ROUGE, ROUGE_MEASURES, RougeScore, rouge_counts, rouge_signature

    for text in (*references, *hypotheses):
        text.check_length()
    settings: dict[str, Any] = {"tokenize": tokenize, "stemmer": stemmer}
    answers = list(zip(*(text.lines for text in references), strict=True))
    empty = [number for number, texts in enumerate(answers, 1) if not any(map(str.strip, texts))]
    if empty:
        warnings.warn(
            f"{' and '.join(text.label for text in references)}: {len(empty)} of {len(answers)} lines are empty, the "
            f"first is line {empty[0]}. Every summary scores 0 there.",
            stacklevel=2,
        )
    signature = rouge_signature(answers, **settings)
    counted = [rouge_counts(text.lines, answers, **settings) for text in hypotheses]
    rows: list[SummaryScore] = []
    comparisons: list[Comparison] = []
    for text, counts in zip(hypotheses, counted, strict=True):
        by_measure = {name: _compared(ROUGE, counted[0][name], counts[name], bootstrap) for name in counts}
        comparisons += by_measure.values()
        compared = ({name: one[n] for name, one in by_measure.items()} for n in range(2))
        score = RougeScore.of(counts, signature, bootstrap, SEED)
        rows.append(SummaryScore(text.name, *vars(score).values(), *compared))
    cells = [(row, measure) for row in rows for measure in ROUGE_MEASURES]
    units = bootstrap, len(answers), "summaries"
    bounds = [(row.intervals or {}).get(measure) for row, measure in cells]
    intervals, comparison, notes = _resampled_columns(bounds, comparisons, "F1", "higher", units, ".2f")
    columns = {
        "hypothesis": [row.hypothesis for row, _ in cells],
        "measure": [measure.replace("rouge", "ROUGE-") for _, measure in cells],
        "F1": [f"{getattr(row, measure):.2f}" for row, measure in cells],
    }
    against = {"references": [text.name for text in references]}
    return ScoreTable(rows, against, bootstrap, format, columns | intervals | comparison, notes)
