"""Training of the aligner that counts, from a tokenised text: settings, log, and links that guide a network."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from torch import Tensor

from hf_attncal.alignment.count_learner import IDENTICAL, ITERATIONS, CountLearner
from hf_attncal.data.rows import Rows
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

from .settings_types import NotNegative, Positive

_SAMPLE = 2000  # pairs that tell how long counting takes


@dataclass
class CountsConfig:
    """Settings of the aligner that counts, which is trained first and whose links guide the network.

    Args:
        guide: False: no such aligner; the network learns from nothing but the text, as in the paper.
        without_jumps, with_jumps: iterations over the text.
        link_above: tokens guide where the probability that both directions align them is above it.
    """

    guide: bool = True
    without_jumps: Positive = ITERATIONS[0]
    with_jumps: NotNegative = ITERATIONS[1]
    link_above: float = 0.1

    def __post_init__(self):
        if not 0 <= self.link_above <= 1:
            raise ValueError(f"`counts.link_above` must be in [0, 1], got {self.link_above}.")


def learn_counts(
    text: Dataset, settings: CountsConfig, folder: str | Path | None = None, **fields: Any
) -> tuple[HMMAlignModel, CountLearner, dict[str, Any]]:
    """Train an aligner that counts on a tokenised text; return the model, its learner, and the log.

    Args:
        text: columns "input_ids" and "target_input_ids".
        settings: section `counts` of the settings.
        folder: see `CountLearner`.
        fields: fields of the model's configuration.
    """
    start = time.perf_counter()
    model = HMMAlignModel(HMMAlignConfig(**{"identical_prior": IDENTICAL} | fields)).eval()
    learner = CountLearner(model, Rows.of(text, "input_ids"), Rows.of(text, "target_input_ids"), folder)
    log: list[dict[str, Any]] = []

    def report(iteration: int, likelihood: Tensor) -> None:
        forward, backward = likelihood.tolist()
        log.append({"iteration": iteration, "forward_log_likelihood": forward, "backward_log_likelihood": backward})
        print(f"counts: iteration {iteration}, log-likelihood of a token {forward:.3f} and {backward:.3f}", flush=True)

    learner.run((settings.without_jumps, settings.with_jumps), report)
    return model, learner, {"wall_seconds": time.perf_counter() - start, "log_history": log}


def counted_links(
    text: Dataset, settings: CountsConfig, folder: str | Path, **fields: Any
) -> tuple[Rows, HMMAlignModel, dict[str, Any]]:
    """Link the tokens of each pair of a text by the counts of the text itself.

    Args: as of `learn_counts`.

    Returns:
        Source and target token of each link in turn, of each pair; the model; and how it went.
    """
    model, learner, counted = learn_counts(text, settings, folder, **fields)
    linked = ((row, (of_pair > settings.link_above).nonzero()) for row, of_pair in learner.shares())
    links = Rows.gathered(((row, links.flip(1).flatten().numpy()) for row, links in linked), len(text))
    return links, model, counted


def counting_seconds(text: Dataset, settings: CountsConfig, **fields: Any) -> float:
    """Estimate from a sample of the pairs how many seconds it takes to count over a text."""
    sample = text.select(range(0, len(text), -(-len(text) // _SAMPLE)))
    began = time.monotonic()
    sides = (Rows.of(sample, name) for name in ("input_ids", "target_input_ids"))
    learner = CountLearner(HMMAlignModel(HMMAlignConfig(**fields)), *sides)
    learner.run((settings.without_jumps, settings.with_jumps))
    return (time.monotonic() - began) * len(text) / len(sample)
