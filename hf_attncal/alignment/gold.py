"""Score an aligner on annotated pairs, tune its symmetrisation and threshold, and calibrate its scores."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import Link
from hf_attncal.drawing.page import text_table
from hf_attncal.hub.model_cards import write_section
from hf_attncal.inference.reading import evaluating
from hf_attncal.layouts import CARD
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.metrics.probabilities import BINS, ProbabilityScore, probability_score

from .aligner import WordAligner
from .probabilities import LIKE, UNLIKE, LinkProbabilities, Platt
from .sources import THRESHOLDS

# Symmetrisations that are tried on dev.
TUNED = ("harmonic", "intersection", "grow-diag", "grow-diag-final-and")
# Probabilities are learned from all links above this, so that they also hold at a lower threshold.
_CALIBRATION_THRESHOLD = THRESHOLDS[0]
_FOLDS = 10


def score_aligner(
    aligner: WordAligner,
    gold: Gold,
    threshold: float | None = None,
    symmetrization: str | None = None,
    bootstrap: int = 0,
) -> AlignmentScore:
    """Return the AER of an aligner on annotated pairs, with a 95 % interval from `bootstrap` resamples."""
    aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    return _score(gold, [a.links for a in aligned], aligned[0].symmetrization, bootstrap)


def _score(gold: Gold, links: Sequence[Collection[Link]], symmetrization: str, bootstrap: int = 0) -> AlignmentScore:
    # Indices are not checked: they cannot be 1-based here, and the AER of an untrained model may be anything.
    return alignment_error_rate(
        gold.links, links, symmetrization=symmetrization, bootstrap=bootstrap, check_indices=False
    )


def tune_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    gold: Gold,
    symmetrizations: Iterable[str] | None = None,
    thresholds: Iterable[float] = THRESHOLDS,
) -> tuple[str, float, AlignmentScore]:
    """Return the symmetrisation and threshold with the lowest AER, the first one in a tie, and their score.

    Args:
        model, tokenizer: Word aligner; `model` keeps its mode.
        gold: Annotated pairs, not from the test set.
        symmetrizations: Symmetrisations to try. Default: None, only the model's.
        thresholds: Thresholds to try. Default: `THRESHOLDS`.
    """
    scores = []
    with evaluating(model):
        aligner = WordAligner(model, tokenizer)
        for name in symmetrizations or (model.config.symmetrization,):
            scores += [(name, tau, score) for tau, score in _of_thresholds(aligner, gold, name, thresholds)]
    return min(scores, key=lambda entry: entry[2].aer)


def tune_threshold(
    aligner: WordAligner, gold: Gold, thresholds: Iterable[float] = THRESHOLDS
) -> tuple[float | None, AlignmentScore]:
    """Return the threshold with the lowest AER and its score; the aligner's own threshold wins a tie.

    The aligner's own threshold may be None, which links each target word to its best source word.

    Args:
        aligner: Word aligner without `probabilities`.
        gold: Annotated pairs, not from the test set.
        thresholds: Thresholds to try. Default: `THRESHOLDS`.
    """
    own = (aligner.source.threshold, score_aligner(aligner, gold))
    scores = _of_thresholds(aligner, gold, aligner.source.symmetrization, thresholds)
    return min([own, *scores], key=lambda entry: entry[1].aer)


def _of_thresholds(
    aligner: WordAligner, gold: Gold, symmetrization: str, thresholds: Iterable[float]
) -> Iterator[tuple[float, AlignmentScore]]:
    """Yield each threshold and its AER."""
    # Except for the grow heuristics, a higher threshold only removes links, so that one alignment is enough.
    grows = symmetrization.startswith("grow")
    whole = None if grows else aligner.align(gold.pairs, threshold=0.0, symmetrize=symmetrization)
    for tau in thresholds:
        aligned = whole or aligner.align(gold.pairs, threshold=tau, symmetrize=symmetrization)
        links = [
            [link for link, score in zip(a.links, a.scores, strict=True) if grows or score > tau] for a in aligned
        ]
        yield tau, _score(gold, links, symmetrization)


# ---- probabilities ----


@dataclass(frozen=True)
class Calibration:
    """Rules that turn scores of links into probabilities, and the calibration errors of both.

    It prints as a table.

    Args:
        probabilities: Learned rules.
        before: Calibration of the scores, of the links with the aligner's own settings.
        after: Calibration of the cross-validated probabilities.
        path: File of the saved rules. Default: None, not saved.
    """

    probabilities: LinkProbabilities
    before: ProbabilityScore
    after: ProbabilityScore
    path: Path | None = None

    @property
    def measured_on(self) -> str:
        """Description of the pairs that `before` and `after` were measured on."""
        return f"the {self.probabilities.pairs} annotated pairs of the calibration, cross-validated"

    def __str__(self) -> str:
        scores, after = {"scores of the model": self.before, "probabilities": self.after}, self.after
        columns = {
            "": list(scores),
            "mean": [f"{score.mean:.3f}" for score in scores.values()],
            "ECE": [_percent(score.ece, score.interval) for score in scores.values()],
            "equal width": [_percent(score.ece_equal_width) for score in scores.values()],
            "Brier": [f"{score.brier:.4f}" for score in scores.values()],
        }
        lines = [*text_table(columns), ""]
        lines.append(f"Measured on {self.measured_on}: {after.count} links, {100 * after.right:.1f} % right.")
        lines.append(
            "The probabilities hold for similar pairs. With more unknown words or a lower pair score, they are at "
            "most the scores."
        )
        intervals = ", 95 % intervals over pairs." if after.interval else "."
        lines += [f"ECE: expected calibration error in per cent{intervals}", after.signature]
        return "\n".join(lines if self.path is None else [*lines, "", f"wrote {self.path}"])

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Save the rules in `folder`, and the calibration errors in its model card if there is one.

        Args:
            folder: Folder of the checkpoint, or of the file only.
            model: Folder or Hub name of a checkpoint elsewhere. Default: None.

        Returns:
            The path of `link_probabilities.json`.
        """
        path = self.probabilities.save(folder, model)
        if (Path(folder) / CARD).exists():
            before, after, measured_on = self.before, self.after, self.measured_on
            write_section(folder, "link_probabilities", before=before, after=after, measured_on=measured_on)
        return path


def _percent(value: float, interval: tuple[float, float] | None = None) -> str:
    ends = "" if interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in interval))
    return f"{100 * value:.1f}{ends}"


def calibrate_links(aligner: WordAligner, gold: Gold, bins: int = BINS, bootstrap: int = 0) -> Calibration:
    """Learn the probability of a link from its score, on annotated pairs; the aligner is not changed.

    A link is right if it is annotated as sure or possible, as in precision.

    Args:
        aligner: Word aligner or encoder-decoder.
        gold: Annotated pairs, not from the test set.
        bins, bootstrap: See `probability_score`.

    Raises:
        ValueError: fewer than two pairs, no links, links that are all right or all wrong, or scores that are not
            higher for right links.
    """
    if len(gold.pairs) < 2:
        raise ValueError(f"Calibration needs at least two annotated pairs, got {len(gold.pairs)}. Annotate more.")
    raw, source = copy(aligner), aligner.source
    raw.probabilities = None
    own = scored_links(raw, gold)
    threshold = None if source.threshold is None else min(source.threshold, _CALIBRATION_THRESHOLD)
    rules = {}
    for method in source.symmetrizations:
        scores, right = scored_links(raw, gold, threshold, method)
        if method == source.symmetrization:
            _check_learnable(right if any(own[1]) else [])
            folds = [Platt.fit(*map(_flat, _outside_fold(scores, right, fold))) for fold in range(_FOLDS)]
        rules[method] = Platt.fit(_flat(scores), _flat(right))
    rules = {method: rule for method, rule in rules.items() if rule.slope > 0}
    if source.symmetrization not in rules:
        raise ValueError("Scores of right links are not higher than scores of wrong links. Check the annotation.")
    crossed = [folds[row % _FOLDS].of(scores) for row, scores in enumerate(own[0])]
    settings = None if raw.settings is None else raw.settings.to_dict()
    return Calibration(
        LinkProbabilities(rules, len(gold.pairs), settings, *_ends(raw, gold)),
        probability_score(*own, bins=bins, bootstrap=bootstrap),
        probability_score(crossed, own[1], bins=bins, bootstrap=bootstrap),
    )


def scored_links(
    aligner: WordAligner, gold: Gold, threshold: float | None = None, symmetrization: str | None = None
) -> tuple[list[Sequence[float]], list[list[bool]]]:
    """Return the scores of the links of each annotated pair, and True for each link that is sure or possible."""
    alignments = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    right = [
        [link in annotated.possible for link in alignment.links]
        for alignment, annotated in zip(alignments, gold.links, strict=True)
    ]
    return [alignment.scores for alignment in alignments], right


def _ends(aligner: WordAligner, gold: Gold) -> list[tuple[float, float] | None]:
    """Return the quantiles `LIKE` and `UNLIKE` of the shares of unknown tokens (None without counts) and of scores."""
    scores = [alignment.score for alignment in aligner.align(gold.pairs) if alignment.score is not None]
    quantiles = (LIKE, UNLIKE), (1 - LIKE, 1 - UNLIKE)
    measures = zip((aligner.unknown_shares(gold.pairs), scores), quantiles, strict=True)
    return [tuple(np.quantile(values, shares).tolist()) if values else None for values, shares in measures]


def _outside_fold(scores: Sequence, right: Sequence, fold: int) -> tuple[list, list]:
    """Return the pairs outside a fold."""
    rows = [row for row in range(len(scores)) if row % _FOLDS != fold]
    return [scores[row] for row in rows], [right[row] for row in rows]


def _flat(of_pairs: Sequence[Sequence]) -> list:
    return [value for of_pair in of_pairs for value in of_pair]


def _check_learnable(right: Sequence[Sequence[bool]]) -> None:
    links = _flat(right)
    if all(links) or not any(links) or len({row % _FOLDS for row, of_pair in enumerate(right) if of_pair}) < 2:
        raise ValueError(
            f"Link probabilities cannot be learned: {sum(links)} of {len(links)} links are right, and right and wrong "
            "ones in two pairs are needed. Annotate more pairs, or check that the annotation fits the text."
        )
