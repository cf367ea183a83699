"""Train the statistical aligner on a tokenised text, and derive the links and heads of guided alignment from it."""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.pharaoh import Link
from hf_attncal.data.rows import Rows
from hf_attncal.data.word_tokens import special_numbers
from hf_attncal.inference.word_attention import best_source_words
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.training.folder import Run, in_first_process
from hf_attncal.training.sections import NotNegative, Positive
from hf_attncal.training.text import LINKERS, with_links

from .count_learner import IDENTICAL, ITERATIONS, CountLearner
from .likelihood_ratio import EncoderFactors
from .seq2seq import Seq2SeqAttention, seq2seq_weights
from .sources import THRESHOLDS

_MIN_ITERATIONS = 3
_JUMPS_SLOWDOWN = 1.5  # factor of the time of an iteration with jumps


@dataclass
class CountsConfig:
    """Settings of the statistical aligner whose links guide the network.

    Args:
        guide: False to train the network without guidance, as in the paper. Default: True.
        without_jumps, with_jumps: Numbers of iterations. Default: 3 and 6.
        link_above: Exclusive minimum probability of a guiding link. Default: 0.1.
        encoder: Folder or Hub name of a multilingual encoder (`EncoderPrior`) that helps in training. Default: None.
    """

    guide: bool = True
    without_jumps: Positive = ITERATIONS[0]
    with_jumps: NotNegative = ITERATIONS[1]
    link_above: float = 0.1
    encoder: str | None = None

    def __post_init__(self):
        if not 0 <= self.link_above <= 1:
            raise ValueError(f"`counts.link_above` must be in [0, 1], got {self.link_above}.")


def learn_counts(
    text: Dataset,
    settings: CountsConfig,
    folder: str | Path | None = None,
    ends: float | None = None,
    encoder_factors: EncoderFactors | None = None,
    **fields: Any,
) -> tuple[HMMAlignModel, CountLearner, dict[str, Any]]:
    """Train a statistical aligner on a tokenised text.

    Args:
        text: Text with columns "input_ids" and "target_input_ids".
        settings: Section `counts` of the settings.
        folder: Folder of a temporary file. Default: None, the system's.
        ends: Time at which to stop, as a value of `time.monotonic()`, after three iterations at least. Default: None,
            no limit.
        encoder_factors: Factors by which an encoder raises or lowers the translation probabilities of this text.
            Default: None.
        fields: Fields of the model's configuration.

    Returns:
        The model; the learner, which still has the statistics of the text; and the time and log-likelihoods for
        results.json.
    """
    start = time.perf_counter()
    model = HMMAlignModel(HMMAlignConfig(**{"identical_prior": IDENTICAL} | fields)).eval()
    iterations = settings.without_jumps, settings.with_jumps
    sources, targets = (Rows.of(text, name) for name in ("input_ids", "target_input_ids"))
    learner = CountLearner(model, sources, targets, folder, encoder_factors)
    log: list[dict[str, Any]] = []
    planned, began = iterations, time.monotonic()

    def report(iteration: int, likelihood: Tensor) -> tuple[int, int]:
        nonlocal planned, began
        forward, backward = likelihood.tolist()
        log.append({"iteration": iteration, "forward_log_likelihood": forward, "backward_log_likelihood": backward})
        print(f"counts: iteration {iteration}, log-likelihood per token {forward:.3f} and {backward:.3f}", flush=True)
        now = time.monotonic()
        if ends is not None:
            planned = _in_time(iterations, planned, iteration, now - began, ends - now)
        began = now
        return planned

    learner.run(iterations, report)
    return model, learner, {"wall_seconds": time.perf_counter() - start, "log_history": log}


def _in_time(
    wanted: tuple[int, int], planned: tuple[int, int], done: int, seconds: float, left: float
) -> tuple[int, int]:
    """Return the numbers of iterations without and with jumps for which there is time, three or more.

    Args:
        wanted: Wanted numbers.
        planned: Last result.
        done: Number of finished iterations.
        seconds: Duration of the last one.
        left: Seconds that are left.
    """
    without_jumps, total = planned[0], sum(wanted)
    slowdown = _JUMPS_SLOWDOWN if done <= without_jumps < total else 1.0
    possible = min(total, max(_MIN_ITERATIONS, done + max(0, int(left / (slowdown * seconds)))))
    if done <= without_jumps:
        without_jumps = max(done, min(wanted[0], round(possible * wanted[0] / total)))
    return min(without_jumps, possible), max(0, possible - without_jumps)


def counted_links(
    text: Dataset, settings: CountsConfig, run: Run, encoder_factors: EncoderFactors | None = None, **fields: Any
) -> tuple[Rows, HMMAlignModel, dict[str, Any]]:
    """Link the tokens of each pair by the text's own counts, in at most half of the remaining time.

    Returns:
        Links of each pair, source and target token in turn; the model; and the log.
    """
    now = time.monotonic()
    ends = None if run.ends is None else now + (run.ends - now) / 2
    model, learner, counted = learn_counts(text, settings, run.args.output_dir, ends, encoder_factors, **fields)
    linked = ((row, (of_pair > settings.link_above).nonzero()) for row, of_pair in learner.shares())
    links = Rows.gathered(((row, links.flip(1).flatten().numpy()) for row, links in linked), len(text))
    return links, model, counted


def with_counted_links(text: Dataset, tokenizer: PreTrainedTokenizerBase, run: Run) -> tuple[Dataset, dict[str, Any]]:
    """Link the tokens of an encoder-decoder's text by the text's own counts.

    The first process counts and sends the links to the others.

    Args:
        text: Tokenised text with `input_ids` and `labels`.
        tokenizer: Tokenizer, whose special tokens are not linked.
        run: Training run.

    Returns:
        The text with links, and the log of counting as `counts`.
    """
    special = special_numbers(tokenizer)
    places, columns, largest = [], {}, 0
    for side, column in (("input_ids", "input_ids"), ("target_input_ids", "labels")):
        rows = Rows.of(text, column)
        inner = ~np.isin(rows.values, list(special[column == "labels"]))
        columns[side] = rows.where(inner)
        places.append(Rows(rows.within(), rows.starts).where(inner))
        largest = max(largest, columns[side].values.max(initial=0))
    tokens = Dataset.from_dict({side: rows.column() for side, rows in columns.items()})
    settings = CountsConfig()

    def learned() -> tuple[Rows, dict[str, Any]]:
        links, _, counted = counted_links(tokens, settings, run, vocab_size=1 + int(largest))
        pairs = np.repeat(np.arange(len(links)), np.diff(links.starts))
        for side, of_side in enumerate(places):  # source and target tokens alternate
            half = slice(side, None, 2)
            links.values[half] = of_side.values[of_side.starts[pairs[half]] + links.values[half]]
        return links, {"counts": counted}

    links, counted = in_first_process(run.args.process_index == 0, learned)
    return with_links(text, links), counted


# ---- guided heads ----


def guided_head_on_gold(
    golds: dict[str, Gold], model, tokenizer, **place: Any
) -> tuple[Seq2SeqAttention, dict[str, Any]]:
    """Tune the threshold of a guided head on dev, and score it on all annotated splits.

    The head's own threshold wins a tie.

    Args:
        golds: Annotated pairs by split; the threshold is chosen on "dev".
        model, tokenizer: Translation model.
        place: `layer`, `heads` and `shift` of the guided head, see `Seq2SeqAttention`; none for an observer.

    Returns:
        The settings of the head, and the results: `settings` and the AER of each split.
    """
    settings = Seq2SeqAttention(**place) if place else Seq2SeqAttention.default_of(model)
    weights: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for name, gold in golds.items():
            sources, targets = ([" ".join(pair[side].split()) for pair in gold.pairs] for side in (0, 1))
            weights[name] = seq2seq_weights(model.eval(), tokenizer, sources, targets, settings, batch_size=256)

    def score(split: str, threshold: float | None, bootstrap: int = 0) -> AlignmentScore:
        links = [_links(of_pair, threshold) for of_pair in weights[split]]
        options: dict[str, Any] = {"bootstrap": bootstrap, "check_indices": False}
        return alignment_error_rate(golds[split].links, links, symmetrization="forward", **options)

    if "dev" in golds:
        own = settings.threshold
        settings = replace(settings, threshold=min((own, *THRESHOLDS), key=lambda tau: score("dev", tau).aer))
    scores: dict[str, Any] = {"settings": settings.to_dict()}
    for name in golds:
        scores[name] = asdict(score(name, settings.threshold, bootstrap=1000))
        if PartialState().is_main_process:
            print(f"{name}: AER {100 * scores[name]['aer']:.1f}  {scores[name]['signature']}")
    return settings, scores


def _links(weights: Tensor, threshold: float | None) -> set[Link]:
    """Return the links above a threshold; without one, the best source word of each target word."""
    if threshold is None:
        return {(i, j) for j, i in enumerate(best_source_words(weights).tolist()) if i >= 0}
    return {(i, j) for j, i in (weights > threshold).nonzero().tolist()}


LINKERS.update(with_counted_links=with_counted_links, guided_head_on_gold=guided_head_on_gold)
