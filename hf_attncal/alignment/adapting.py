"""Read the text at hand: adapt an aligner that counts to the pairs that it aligns.

`c'(x, y) = c(x, y) + sum_n w_n a_n(x, y)`: c are the counts of the training, a_n the shares of pair n in the passes
over this text (see `CountLearner`: without its own counts, damped, agreement as a product). w_n follows from how much
of the pair is new, so that known pairs of a mixed text teach little, and are aligned as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hf_attncal.io.files import fill_folder, write_json
from hf_attncal.io.gate import job, mark, reads
from hf_attncal.layouts import RUN
from hf_attncal.models.hmm_tables import HMMTablesMixin

from .count_learner import IDENTICAL, CountLearner

PASSES = 4
# Of a text of the training's domain, a tenth of the tokens were never counted with a token of the other side; of
# another domain a fifth, of another kind of text a half. The weight of a pair rises from 0 to 1 between these.
KNOWN, NEW = 0.15, 0.5
# A network leaves pairs from this weight on to the counts beside it, which have read them, if so many of the text are
# such; of text of the training's domain up to an eighth are.
REPLACED, MANY = 0.5, 0.2
ADAPTED = "an adaptation"  # mark of a folder that an adapted aligner was saved in


@dataclass(frozen=True)
class Adaptation:
    """How far an aligner was adapted.

    Args:
        pairs: pairs that were read.
        unknown: share of their tokens that were never counted with a token of the other side before.
        weight: what a link of the text counts, from 0 (nothing has changed) to 1 (as much as one of the training): the
            mean over its tokens.
        new: share of the pairs that are mostly new: that have a weight of `REPLACED` or more.
        replaced: the aligner is a network, and the counts beside it align these pairs in its place.
    """

    pairs: int
    unknown: float
    weight: float
    new: float = 0.0
    replaced: bool = False


def weights_of(unknown: Tensor) -> Tensor:
    """Return what links of pairs with such shares of unknown tokens count."""
    return ((unknown - KNOWN) / (NEW - KNOWN)).clamp(0, 1)


def adapt_counts(
    model: HMMTablesMixin,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    weight: float | None = None,
    passes: int = PASSES,
    least: float = 0.0,
) -> Adaptation:
    """Count over a tokenised text with what the model knows as the prior, and leave the result in the model.

    Args:
        model: in any type and on any device; its counts are float32 afterwards.
        sources, targets: tokens of each side of each pair.
        weight: what a link counts, in [0, 1]; None: as much as of its pair is new (`weights_of`).
        passes: times that the text is read, >= 1.
        least: if a smaller share of the pairs is new, the model stays as it is.

    Raises:
        ValueError: a setting out of range.
    """
    if passes < 1:
        raise ValueError(f"`passes` must be >= 1, got {passes}.")
    if weight is not None and not 0 <= weight <= 1:
        raise ValueError(f"`weight` must be from 0 to 1 or None, got {weight}.")
    if not any(len(source) and len(target) for source, target in zip(sources, targets, strict=True)):
        return Adaptation(len(sources), 0.0, 0.0)
    device = model.device
    model.to("cpu", torch.float32)
    learner = CountLearner(model, sources, targets)
    unknown, tokens = learner.unknown()
    share = float(unknown.sum() / tokens.sum())
    if weight is None and share <= KNOWN:  # a known text has odd pairs, too, and is aligned as before
        weight = 0.0
    weights = weights_of(unknown / tokens.clamp(min=1)) if weight is None else torch.full_like(unknown, weight)
    new = float((weights >= REPLACED).float().mean())
    mean = float(weights @ tokens / tokens.sum()) if weight is None else weight
    if mean > 0 and new >= least:
        learner.weigh(weights)
        model.config.identical_prior = max(model.config.identical_prior, IDENTICAL)
        for number in range(passes):
            learner.step(jumps=model.config.uniform_jump < 1, agree=True, damped=number > 0)
        learner.keep()
    model.to(device)
    return Adaptation(len(sources), share, mean, new)


def save_aligner(aligner, folder: str | Path) -> None:
    """Save model and tokenizer of a `WordAligner` in a folder, each file whole; of a network its adapted counts.

    Raises:
        CommandError: the folder holds another model, or is the one that the aligner was loaded from.
    """
    aligner = aligner.adapted or aligner

    def save(staged: Path) -> None:
        aligner.model.save_pretrained(staged)
        aligner.tokenizer.save_pretrained(staged)
        write_json(mark(ADAPTED), staged / RUN)

    with job():
        reads(aligner.model.name_or_path)
        fill_folder(folder, save, by=ADAPTED)
