"""The alignment error rate as a module for `evaluate`.

`evaluate.load` copies only this file to a cache folder, so the package is imported when the metric is loaded.
"""

import dataclasses

import datasets
import evaluate

_CITATION = """\
@article{och-ney-2003-systematic,
    title = "A Systematic Comparison of Various Statistical Alignment Models",
    author = "Och, Franz Josef and Ney, Hermann",
    journal = "Computational Linguistics",
    volume = "29",
    number = "1",
    year = "2003",
    pages = "19--51",
}
"""


def _import_scoring():
    try:
        from hf_attncal.data import pharaoh
        from hf_attncal.metrics import aer
    except ImportError as error:
        raise ImportError(
            "The metric `aer` computes with the package hf_attncal, which cannot be imported "
            f"({error}). Install it in this environment: `pip install .` in a clone of hf_attncal, or with its wheel "
            "in place of the dot."
        ) from error
    return aer, pharaoh


class AlignmentErrorRate(evaluate.Metric):
    """Alignment error rate (AER) of word alignments in Pharaoh format, with precision, recall and F1.

    With sure links S, possible links P (P includes S) and hypothesis A, counted over all sentence pairs:
    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), precision |A & P| / |A|, recall |A & S| / |S|. A lower AER is better.

    Args:
        predictions: proposed links, one string per sentence pair: "0-0 1-2", source index first. Scores as in
            "0-0:0.93" are ignored.
        references: annotated links: `i-j` is sure, `ipj` or `i?j` possible.
        base: index of the first word in `predictions`, 0 or 1.
        reference_base: index of the first word in `references`, 0 or 1.
        unit: unit that the indices count, "word" or "subword". Appears only in the signature.
        symmetrization: method that merged two directions. Appears only in the signature.
        ignore_possible: True to count only sure links.
        bootstrap: number of resamples for the 95 % confidence interval of AER. Default: 0, no interval.

    Returns:
        A dictionary: "aer", "precision", "recall" and "f1" as fractions between 0 and 1; "signature"; the counts
        "sentences", "sure", "possible" (sure ones included), "proposed", "sure_hits" and "possible_hits"; "interval",
        the bounds of the confidence interval, or None.

    Examples:
        >>> aer = evaluate.load(hf_attncal.alignment.AER_METRIC)
        >>> aer.compute(predictions=["0-0 1-1"], references=["0-0 1p1"])["aer"]
        0.0
    """

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=self.__doc__ or "",
            citation=_CITATION,
            inputs_description=self.__doc__ or "",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _download_and_prepare(self, dl_manager) -> None:
        _import_scoring()  # when the metric is loaded, not after hours of evaluation

    def _compute(
        self,
        predictions: list[str],
        references: list[str],
        base: int = 0,
        reference_base: int = 0,
        unit: str = "word",
        symmetrization: str = "none",
        ignore_possible: bool = False,
        bootstrap: int = 0,
    ) -> dict:
        aer, pharaoh = _import_scoring()
        score = aer.alignment_error_rate(
            _parse("references", pharaoh.parse_alignments, references, reference_base),
            _parse("predictions", pharaoh.parse_hypotheses, predictions, base),
            unit=unit,
            symmetrization=symmetrization,
            base=str(base) if base == reference_base else f"gold={reference_base},hyp={base}",
            ignore_possible=ignore_possible,
            bootstrap=bootstrap,
        )
        return dataclasses.asdict(score)


def _parse(name: str, parse, lines: list[str], base: int) -> list:
    try:
        return parse(lines, base=base)
    except ValueError as error:
        raise ValueError(f"`{name}`, {error}") from error
