"""Training of the aligner that counts, from a tokenised text, and the links and heads that guide a network by it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_attncal.data.linked_pairs import Gold
from hf_attncal.data.rows import Rows
from hf_attncal.data.words import special_numbers
from hf_attncal.inference.reading import read
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.functional import token_rows
from hf_attncal.models.modeling_hmm_align import HMMAlignModel
from hf_attncal.training.folder import Run, in_first_process
from hf_attncal.training.progress import duration
from hf_attncal.training.sections import NotNegative, Positive
from hf_attncal.training.text import LINKERS, with_links

from .aligner import WordAligner
from .belief import Witness
from .count_learner import IDENTICAL, ITERATIONS, CountLearner
from .gold import score_aligner, tune_threshold
from .seq2seq import Seq2SeqAttention

# Iterations without which counts say little; seconds of the first that tell how long it takes; how much longer one
# with jumps takes; seconds after which it is said how far counting is.
_LEAST_ITERATIONS, _TRIED, _WITH_JUMPS, _SILENCE = 3, 5.0, 1.5, 30.0


@dataclass
class CountsConfig:
    """Settings of the aligner that counts, which is trained first and whose links guide the network.

    Args:
        guide: False: no such aligner; the network learns from nothing but the text, as in the paper.
        without_jumps, with_jumps: iterations over the text.
        link_above: tokens guide where the probability that both directions align them is above it.
        encoder: folder or Hub name of a multilingual encoder that helps (`EncoderPrior`); None for none. It is not
            needed to use what is learned.
    """

    guide: bool = True
    without_jumps: Positive = ITERATIONS[0]
    with_jumps: NotNegative = ITERATIONS[1]
    link_above: float = 0.1
    encoder: str | None = None

    def __post_init__(self):
        if not 0 <= self.link_above <= 1:
            raise ValueError(f"`counts.link_above` must be in [0, 1], got {self.link_above}.")


@dataclass
class _Pace:
    """Says how far counting is, and does fewer iterations where time is short.

    Args:
        iterations: those of the settings.
        pairs: sentence pairs of the text.
        ends: when counting must be over, by `time.monotonic`; None: no limit.
    """

    iterations: tuple[int, int]
    pairs: int
    ends: float | None
    began: float = field(default_factory=time.monotonic)
    said: float = field(default_factory=time.monotonic)

    def __post_init__(self):
        self.asked = self.iterations  # the machine may become faster again

    def within(self, number: int, share: float) -> None:
        """Say how far iteration `number` is, of which this share is done.

        Raises:
            ValueError: the time is too short for a few iterations.
        """
        now, total = time.monotonic(), sum(self.iterations)
        whole = (now - self.began) / share
        least = min(total, _LEAST_ITERATIONS)
        known = number == 1 and now - self.began > _TRIED
        if self.ends is not None and known and self.began + least * whole > self.ends:
            raise ValueError(
                f"`minutes` must leave time to count the text: an iteration over its {self.pairs:,} pairs takes about "
                f"{duration(whole)}, {least} are needed, and {duration(max(0.0, self.ends - self.began))} are for "
                "them. Give more `minutes` or less text; a network can learn without: `counts.guide=false`."
            )
        if now - self.said >= _SILENCE:
            self.said, left = now, (total - number + 1 - share) * whole
            print(f"counts: {share:.0%} of iteration {number} of {total}, about {duration(left)} left", flush=True)

    def after(self, number: int) -> tuple[int, int] | None:
        """Return what iterations there should be in all, after so many of them."""
        now, without = time.monotonic(), self.iterations[0]
        took, self.began, self.said = now - self.began, now, now
        if self.ends is None:
            return None
        most = sum(self.asked)
        slower = _WITH_JUMPS if number <= without < most else 1.0
        total = min(most, number + max(0, int((self.ends - now) / (slower * took))))
        if number <= without:
            without = max(number, min(self.asked[0], round(total * self.asked[0] / most)))
        if total != sum(self.iterations):
            print(f"counts: there is time for {total} iterations of {most}", flush=True)
        self.iterations = min(without, total), max(0, total - without)
        return self.iterations


def learn_counts(
    text: Dataset,
    settings: CountsConfig,
    folder: str | Path | None = None,
    ends: float | None = None,
    witness: Witness | None = None,
    **fields: Any,
) -> tuple[HMMAlignModel, CountLearner, dict[str, Any]]:
    """Train an aligner that counts on a tokenised text; return the model, its learner, and the log.

    Args:
        text: columns "input_ids" and "target_input_ids".
        settings: section `counts` of the settings.
        folder: folder for a temporary file; see `CountLearner`.
        ends: when it must be over, by `time.monotonic`: there are fewer iterations then.
        witness: what an encoder says of the text, `witness_of`; None for none.
        fields: fields of the model's configuration.

    Raises:
        ValueError: there is no time for a few iterations.
    """
    start = time.perf_counter()
    model = HMMAlignModel(HMMAlignConfig(**{"identical_prior": IDENTICAL} | fields)).eval()
    iterations = settings.without_jumps, settings.with_jumps
    sources, targets = (Rows.of(text, name) for name in ("input_ids", "target_input_ids"))
    learner = CountLearner(model, sources, targets, folder, witness)
    pace = _Pace(iterations, len(text), ends)
    log: list[dict[str, Any]] = []

    def report(iteration: int, likelihood: Tensor) -> tuple[int, int] | None:
        forward, backward = likelihood.tolist()
        log.append({"iteration": iteration, "forward_log_likelihood": forward, "backward_log_likelihood": backward})
        print(f"counts: iteration {iteration}, log-likelihood of a token {forward:.3f} and {backward:.3f}", flush=True)
        return pace.after(iteration)

    learner.run(iterations, report, pace.within)
    return model, learner, {"wall_seconds": time.perf_counter() - start, "log_history": log}


def counted_links(
    text: Dataset, settings: CountsConfig, run: Run, witness: Witness | None = None, **fields: Any
) -> tuple[Rows, HMMAlignModel, dict[str, Any]]:
    """Link the tokens of each pair of a text by the counts of the text itself, in half of the time that there is.

    Args: as of `learn_counts`.

    Returns:
        Source and target token of each link in turn, of each pair; the model; and how it went.
    """
    now = time.monotonic()
    ends = None if run.ends is None else now + (run.ends - now) / 2
    model, learner, counted = learn_counts(text, settings, run.args.output_dir, ends, witness, **fields)
    linked = ((row, (of_pair > settings.link_above).nonzero()) for row, of_pair in learner.shares())
    links = Rows.gathered(((row, links.flip(1).flatten().numpy()) for row, links in linked), len(text))
    return links, model, counted


def with_counted_links(text: Dataset, tokenizer: PreTrainedTokenizerBase, run: Run) -> tuple[Dataset, dict[str, Any]]:
    """Link the tokens of an encoder-decoder's text by the text's own counts.

    The first process counts, and tells the others.

    Args:
        text: tokenised text with `input_ids` and `labels`.
        tokenizer: its tokenizer, whose special tokens are not linked.
        run: the run.

    Returns:
        The text; and how counting went, as `counts` in results.
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
        for side, of_side in enumerate(places):  # a source and a target token in turn
            half = slice(side, None, 2)
            links.values[half] = of_side.values[of_side.starts[pairs[half]] + links.values[half]]
        return links, {"counts": counted}

    links, counted = in_first_process(run.args.process_index == 0, learned)
    return with_links(text, links), counted


# ---- heads that learn links ----


def guided_head_on_gold(
    golds: dict[str, Gold], model, tokenizer, layer: int, heads: tuple[int, ...], shift: bool
) -> tuple[Seq2SeqAttention, dict[str, Any]]:
    """Choose the threshold of a head that has learned links, on the annotated pairs of dev, and score it.

    Args:
        golds: annotated pairs, by split; with those of dev the threshold is chosen.
        model, tokenizer: the translation model.
        layer, heads, shift: where the links are read, see `Seq2SeqAttention`.

    Returns:
        The settings with which the head aligns, and `settings` and the AER of each split, for the results.
    """
    settings = Seq2SeqAttention(layer, heads, shift)
    aligner = WordAligner(model, tokenizer, settings)
    if "dev" in golds:
        threshold, _ = tune_threshold(aligner, golds["dev"])
        settings = replace(settings, threshold=threshold)
        aligner = WordAligner(model, tokenizer, settings)
    scores: dict[str, Any] = {"settings": settings.to_dict()}
    for name, gold in golds.items():
        scores[name] = asdict(score_aligner(aligner, gold, bootstrap=1000))
        if PartialState().is_main_process:
            print(f"{name}: AER {100 * scores[name]['aer']:.1f}  {scores[name]['signature']}")
    return settings, scores


def nearest_head(model, batches: Iterable[Mapping[str, Tensor]]) -> tuple[Seq2SeqAttention, float]:
    """Find the head that already looks where links are: one that learns them has the least to learn.

    Args:
        model: the translation model.
        batches: of `LinkCollator`: `input_ids`, `attention_mask`, `labels`, and `links`, (batch, target, source).

    Returns:
        Layer, head and step, and the share of linked target tokens whose source token with most weight is linked.

    Raises:
        ValueError: no token is linked; see also `read`.
    """
    hits: dict[tuple[int, bool], Tensor] = {}
    linked = 0
    for batch in batches:
        links = batch["links"].bool()
        reading = read(model, {name: tensor for name, tensor in batch.items() if name != "links"})
        linked += int(links.any(dim=-1).sum())
        for layer, weights in enumerate(reading.attentions):
            if weights is None:
                continue
            for shift in (False, True):
                best = token_rows(weights.cpu(), shift).argmax(dim=-1, keepdim=True)  # (B, heads, T, 1)
                right = links.unsqueeze(1).expand(-1, best.shape[1], -1, -1).gather(-1, best)
                hits[layer, shift] = hits.get((layer, shift), 0) + right.sum(dim=(0, 2, 3))
    if not linked:
        raise ValueError("no token of the text is linked, so no head is near its links. Check the links.")
    (layer, shift), found = max(hits.items(), key=lambda item: int(item[1].max()))
    return Seq2SeqAttention(layer, (int(found.argmax()),), shift), int(found.max()) / linked


LINKERS.update(
    with_counted_links=with_counted_links, guided_head_on_gold=guided_head_on_gold, nearest_head=nearest_head
)
