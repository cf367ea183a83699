"""Score an aligner on annotated pairs, and choose on them its rule for links and the probabilities of its links."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import Link
from hf_attncal.drawing.page import text_table
from hf_attncal.hub.model_cards import write_probabilities_card
from hf_attncal.inference.reading import evaluating
from hf_attncal.layouts import CARD
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.metrics.probabilities import BINS, ProbabilityScore, probability_score

from .aligner import WordAligner
from .probabilities import LIKE, UNLIKE, LinkProbabilities, Platt

# What is tried on dev gold where no symmetrisation is asked for.
TUNED = ("harmonic", "intersection", "grow-diag", "grow-diag-final-and")
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))
# Probabilities are learned from all links above it, so that they hold where a user lowers the threshold.
_LEAST_THRESHOLD = THRESHOLDS[0]
_FOLDS = 10


def score_aligner(
    aligner: WordAligner,
    gold: Gold,
    threshold: float | None = None,
    symmetrization: str | None = None,
    bootstrap: int = 0,
) -> AlignmentScore:
    """Return the AER of an aligner on annotated pairs, with a 95 % interval from `bootstrap` resamples of them."""
    aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    return _score(gold, [a.links for a in aligned], aligned[0].symmetrization, bootstrap)


def _score(gold: Gold, links: Sequence[Collection[Link]], symmetrization: str, bootstrap: int = 0) -> AlignmentScore:
    # No check of indices: they come from our own words, and an early model may link anything.
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
    """Return the symmetrisation and threshold with the lowest AER, the earlier of equals, and that score.

    Args:
        model, tokenizer: the aligner; `model` keeps its mode.
        gold: annotated pairs. Use other pairs than those that are reported on.
        symmetrizations: names to try; None for the model's own alone.
        thresholds: thresholds to try.
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
    """Return the threshold with the lowest AER, the earlier of equals, and that score; first comes the aligner's own.

    That may be None: each target word has its best source word.

    Args:
        aligner: without `probabilities`.
        gold: annotated pairs. Use other pairs than those that are reported on.
        thresholds: thresholds to try.
    """
    own = (aligner.source.threshold, score_aligner(aligner, gold))
    tried = _of_thresholds(aligner, gold, aligner.source.symmetrization, thresholds)
    return min([own, *tried], key=lambda entry: entry[1].aer)


def _of_thresholds(
    aligner: WordAligner, gold: Gold, symmetrization: str, thresholds: Iterable[float]
) -> Iterator[tuple[float, AlignmentScore]]:
    """Yield each threshold and its AER."""
    # What grows from links depends on the threshold; of the others a higher one only takes links away.
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
    """Rules that turn scores of links into probabilities, and how good scores and probabilities are.

    Args:
        probabilities: what was learned.
        before: how good the scores are as probabilities, of the links by the aligner's own rule.
        after: the same of the probabilities, cross-validated: those of a pair were learned from other pairs.
        path: where the rules were saved; None: nowhere yet.

    Printed, it is a table of both scores.
    """

    probabilities: LinkProbabilities
    before: ProbabilityScore
    after: ProbabilityScore
    path: Path | None = None

    @property
    def measured_on(self) -> str:
        """Description of the pairs that both were measured on."""
        return f"the {self.probabilities.pairs} annotated pairs that they were learned from, cross-validated"

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
            "They hold for pairs like these; where more is new to the aligner, or the score of a pair is lower, a "
            "probability is at most the score."
        )
        intervals = ", 95 % intervals over pairs." if after.interval else "."
        lines += [f"ECE: expected calibration error in per cent{intervals}", after.signature]
        return "\n".join(lines if self.path is None else [*lines, "", f"wrote {self.path}"])

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Write the probabilities beside the checkpoint in `folder`, and both scores into its card if there is one.

        Args:
            model: folder or Hub name of the checkpoint, if it is another.

        Returns:
            The path of `link_probabilities.json`.
        """
        path = self.probabilities.save(folder, model)
        if (Path(folder) / CARD).exists():
            write_probabilities_card(folder, self.before, self.after, self.measured_on)
        return path


def _percent(value: float, interval: tuple[float, float] | None = None) -> str:
    ends = "" if interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in interval))
    return f"{100 * value:.1f}{ends}"


def calibrate_links(aligner: WordAligner, gold: Gold, bins: int = BINS, bootstrap: int = 0) -> Calibration:
    """Learn from annotated pairs how likely links are to be right, by their scores; the aligner stays as it is.

    A link is right if it is in P, among the sure and the possible ones: what precision counts.

    Args:
        aligner: of any kind; an encoder-decoder has one symmetrisation, others have all of `SYMMETRIZATIONS`.
        gold: annotated pairs. Use other pairs than those that are reported on.
        bins, bootstrap: see `probability_score`.

    Raises:
        ValueError: too little to learn from: fewer than two pairs, no link, or links that are all right or all wrong;
            or scores that are no higher where links are right.
    """
    if len(gold.pairs) < 2:
        raise ValueError(f"Link probabilities need two annotated pairs or more, got {len(gold.pairs)}.")
    raw, source = copy(aligner), aligner.source
    raw.probabilities = None
    own = scored_links(raw, gold)
    threshold = None if source.threshold is None else min(source.threshold, _LEAST_THRESHOLD)
    rules = {}
    for method in source.symmetrizations:
        said, right = scored_links(raw, gold, threshold, method)
        if method == source.symmetrization:
            _check_learnable(right if any(own[1]) else [])
            folds = [Platt.fit(*map(_flat, _others(said, right, fold))) for fold in range(_FOLDS)]
        rules[method] = Platt.fit(_flat(said), _flat(right))
    rules = {method: rule for method, rule in rules.items() if rule.slope > 0}
    if source.symmetrization not in rules:
        raise ValueError("Scores of right links are no higher than those of wrong ones: they say nothing.")
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
    """Return the scores of the links of each annotated pair, and whether each link is in P."""
    aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    right = [
        [link in annotated.possible for link in found.links]
        for found, annotated in zip(aligned, gold.links, strict=True)
    ]
    return [found.scores for found in aligned], right


def _ends(aligner: WordAligner, gold: Gold) -> list[tuple[float, float] | None]:
    """Return the quantiles `LIKE` and `UNLIKE` of the pairs: of unknown tokens (None if not counted), of scores."""
    scores = [one.score for one in aligner.align(gold.pairs) if one.score is not None]
    ends = (LIKE, UNLIKE), (1 - LIKE, 1 - UNLIKE)
    found = zip((aligner.unknown_shares(gold.pairs), scores), ends, strict=True)
    return [tuple(np.quantile(values, of).tolist()) if values else None for values, of in found]


def _others(said: Sequence, right: Sequence, fold: int) -> tuple[list, list]:
    """Return all pairs but those of a fold."""
    rows = [row for row in range(len(said)) if row % _FOLDS != fold]
    return [said[row] for row in rows], [right[row] for row in rows]


def _flat(of_pairs: Sequence[Sequence]) -> list:
    return [value for of_pair in of_pairs for value in of_pair]


def _check_learnable(right: Sequence[Sequence[bool]]) -> None:
    found = _flat(right)
    if all(found) or not any(found):
        what = f"all {len(found)} links of the annotated pairs are {'right' if any(found) else 'wrong'}"
        what = what if found else "there is no link"
    elif len({row % _FOLDS for row, of_pair in enumerate(right) if of_pair}) < 2:
        what = "too few of the annotated pairs have links to leave some out in turn"
    else:
        return
    raise ValueError(
        f"There is nothing to learn link probabilities from: {what}. Annotate more pairs, or look whether these "
        "belong to the text."
    )
