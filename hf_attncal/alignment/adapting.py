"""Read the text at hand: adapt an aligner that counts to the pairs that it aligns.

`c'(x, y) = c(x, y) + w sum_n a_n(x, y)`: c are the counts of the training, a_n the shares of pair n in the passes over
this text (see `CountLearner`: without its own counts, damped, agreement as a product). w follows from how much of the
text is new, so that a known text is aligned as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hf_attncal.files import fill_folder, write_json
from hf_attncal.gate import job, mark, reads
from hf_attncal.layouts import RUN
from hf_attncal.models.hmm_tables import HMMTablesMixin

from .count_learner import IDENTICAL, CountLearner

PASSES = 4
# Of a text of the training's domain, a tenth of the tokens were never counted with a token of the other side; of
# another domain a fifth, of another kind of text a half. The weight rises from 0 to 1 between these.
KNOWN, NEW = 0.15, 0.5
# A network gives way to the counts beside it from this weight on: it has no parameters for what it never read.
REPLACED = 0.5
ADAPTED = "an adaptation"  # mark of a folder that an adapted aligner was saved in


@dataclass(frozen=True)
class Adaptation:
    """How far an aligner was adapted.

    Args:
        pairs: pairs that were read.
        unknown: share of their tokens that were never counted with a token of the other side before.
        weight: what a link of the text counts, from 0 (nothing has changed) to 1 (as much as one of the training).
        replaced: the aligner is a network, and the counts beside it are in its place now.
    """

    pairs: int
    unknown: float
    weight: float
    replaced: bool = False


def adapt_counts(
    model: HMMTablesMixin,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    weight: float | None = None,
    passes: int = PASSES,
    least: float = 0.0,
    witness: Any | None = None,
) -> Adaptation:
    """Count over a tokenised text with what the model knows as the prior, and leave the result in the model.

    Args:
        model: in any type and on any device; its counts are float32 afterwards.
        sources, targets: tokens of each side of each pair.
        weight: what a link counts, in [0, 1]; None: as much of the text as is new (`KNOWN`, `NEW`).
        passes: times that the text is read, >= 1.
        least: with a smaller weight the model stays as it is.
        witness: as of `CountLearner`.

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
    learner = CountLearner(model, sources, targets, witness=witness)
    unknown = learner.unknown_share()
    learner.weight = min(1.0, max(0.0, (unknown - KNOWN) / (NEW - KNOWN))) if weight is None else weight
    if learner.weight > 0 and learner.weight >= least:
        model.config.identical_prior = max(model.config.identical_prior, IDENTICAL)
        for number in range(passes):
            learner.step(jumps=model.config.uniform_jump < 1, agree=True, damped=number > 0)
        learner.keep()
    model.to(device)
    return Adaptation(len(sources), unknown, learner.weight)


def save_aligner(aligner, folder: str | Path) -> None:
    """Save model and tokenizer of a `WordAligner` in a folder, each file whole.

    Raises:
        CommandError: the folder holds another model, or is the one that the aligner was loaded from.
    """

    def save(staged: Path) -> None:
        aligner.model.save_pretrained(staged)
        aligner.tokenizer.save_pretrained(staged)
        write_json(mark(ADAPTED), staged / RUN)

    with job():
        reads(aligner.model.name_or_path)
        fill_folder(folder, save, by=ADAPTED)
