"""Training of the aligner that counts, from a tokenised text: settings, log, and links that guide a network."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_attncal.data.rows import Rows
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.training.folder import Run, in_first_process
from hf_attncal.training.guide import with_links, without_links
from hf_attncal.training.planning import describe_costs, describe_text, peak_memory
from hf_attncal.training.settings_types import NotNegative, Positive

from .count_learner import IDENTICAL, ITERATIONS, CountLearner, memory_for

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


def with_counted_links(
    text: Dataset, tokenizer: PreTrainedTokenizerBase, run: Run
) -> tuple[Dataset, dict[str, Any], float]:
    """Link the tokens of an encoder-decoder's text by the text's own counts.

    The first process counts, and tells the others; in a dry run nobody does, and there are no links.

    Args:
        text: tokenised text with `input_ids` and `labels`.
        tokenizer: its tokenizer, whose special tokens are not linked.
        run: the run.

    Returns:
        The text; how counting went, as `counts` in results; and in a dry run about how many seconds it would take.
    """
    special = list(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id})
    places, columns, largest = [], {}, 0
    for side, column in (("input_ids", "input_ids"), ("target_input_ids", "labels")):
        rows = Rows.of(text, column)
        inner = ~np.isin(rows.values, special)
        columns[side] = rows.where(inner)
        places.append(Rows(rows.within(), rows.starts).where(inner))
        largest = max(largest, columns[side].values.max(initial=0))
    tokens = Dataset.from_dict({side: rows.column() for side, rows in columns.items()})
    settings, fields = CountsConfig(), {"vocab_size": 1 + int(largest)}
    if run.dry:
        return without_links(text), {}, counting_seconds(tokens, settings, **fields)

    def learned() -> tuple[Rows, dict[str, Any]]:
        links, _, counted = counted_links(tokens, settings, run.args.output_dir, **fields)
        pairs = np.repeat(np.arange(len(links)), np.diff(links.starts))
        for side, of_side in enumerate(places):  # a source and a target token in turn
            half = slice(side, None, 2)
            links.values[half] = of_side.values[of_side.starts[pairs[half]] + links.values[half]]
        return links, {"counts": counted}

    links, counted = in_first_process(run.args.process_index == 0, learned)
    return with_links(text, links), counted, 0.0


def plan_of_counts(job) -> dict[str, Any]:
    """Describe, in print too, the training of an aligner that counts, which has no steps.

    Returns:
        `sentence_pairs` (or `sequences`), `tokens` of each side, `minutes` and `memory_bytes`.
    """
    text = job.tokenized["train"]
    described = describe_text(job, text)
    columns = (text.with_format("numpy")[name] for name in described["tokens"])
    lengths = (np.fromiter(map(len, column), np.int64, len(text)) for column in columns)
    return described | describe_costs(job.run, job.counting_seconds, (peak_memory() or 0) + memory_for(*lengths))
