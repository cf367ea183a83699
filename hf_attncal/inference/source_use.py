"""Measure a model's loss without the source or single tokens of it, and which scores point to those tokens.

`metrics/trust.py` derives its verdict from it. Targets are teacher-forced; tokens of no word, such as the end of the
sentence, are neither removed nor predicted.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.batching import batches_by_length, beginning, padded
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.metrics.reliability import layer_rows
from hf_attncal.metrics.trust import SourceUse
from hf_attncal.models.losses import IGNORE_INDEX

from .reading import TokenPair, padded_batch, position_limit, read, readable, teacher_forced, token_pairs

MOST_READ = 60  # pairs
_MAX_REMOVED = 16  # source tokens of a pair that are removed, one at a time
_MAX_TOKENS = 100_000  # approximate number that the model reads: seconds for small models, a minute for base ones
_MIN_LOG_PROBABILITY = -30.0  # nats; the lower bound keeps nearly impossible tokens from dominating a mean
_MIN_INFORMED_SHARE = 0.5  # share of steps from which on a layer's masks count as distinguishing source tokens
_NAMES = ("attention", "diagonal", "contribution", "best")


@torch.no_grad()
def source_use(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 32, seed: int = 0
) -> SourceUse | None:
    """Measure the loss of a model without its source.

    At most 16 tokens of each source, drawn at random, are removed one at a time: a token of a random source replaces
    them. The effect of a token is the fall of the log-probability of each target token. The best token is the one with
    the largest effect in a second measurement, in which it is hidden from the cross-attention; measured twice, no
    token wins by chance.

    Args:
        model: encoder-decoder of transformers, on the device to use; its mode is not changed.
        tokenizer: its tokenizer.
        sources, targets: sentences, of which the first `MOST_READ` are used, or fewer if they are long. Sentences
            longer than the model can read are truncated.
        batch_size: maximum number of sources per batch.
        seed: seed of the draws.

    Returns:
        The measurements; None without a pair of at least two source words.

    Raises:
        ValueError: the model has no cross-attention to read; see also `token_pairs`.
    """
    pairs = _pairs(model, tokenizer, sources, targets)
    if not pairs:
        return None
    generator = np.random.default_rng(seed)
    removed = [np.sort(generator.permutation(_word_tokens(pair.source))[:_MAX_REMOVED]) for pair in pairs]
    pool = np.concatenate([pair.source.ids[_word_tokens(pair.source)] for pair in pairs])
    choices, informed = _chosen_tokens(model, tokenizer, pairs, removed, batch_size)
    words = [_word_tokens(pair.target) for pair in pairs]
    scores_of = partial(_scores, model, tokenizer, batch_size=batch_size)
    plain = scores_of([ForcedRow(pair, pair.source.ids, of_pair) for pair, of_pair in zip(pairs, words, strict=True)])
    swapped = None
    if (wrong_sources := _wrong_sources(pairs)) is not None:
        after = scores_of([ForcedRow(*row) for row in zip(pairs, wrong_sources, words, strict=True)])
        swapped = np.array([[(right - wrong).sum(), len(right)] for right, wrong in zip(plain, after, strict=True)])
    hidden: list[ForcedRow] = []
    replaced: list[ForcedRow] = []
    for pair, places, of_pair in zip(pairs, removed, words, strict=True):
        for place in places:
            hidden.append(ForcedRow(pair, pair.source.ids, of_pair, [place]))
            ids = pair.source.ids.copy()
            drawn = generator.permutation(pool)
            ids[place] = next((token for token in drawn[:100] if token != ids[place]), ids[place])
            replaced.append(ForcedRow(pair, ids, of_pair))
    after_hiding, after_replacing = iter(scores_of(hidden)), iter(scores_of(replaced))
    counts, by_place = np.zeros((len(pairs), len(_NAMES))), []
    for number, (before, places) in enumerate(zip(plain, removed, strict=True)):
        # (removed tokens, steps)
        falls_hidden = np.stack([before - next(after_hiding) for _ in places])
        falls = np.stack([before - next(after_replacing) for _ in places])
        chosen = choices[number] | {"best": falls_hidden.argmax(axis=0)}
        steps = np.arange(len(before))
        counts[number] = [
            (falls[chosen[name], steps] - falls.mean(axis=0)).sum() if name in chosen else 0.0 for name in _NAMES
        ]
        by_place.append((falls[chosen["places"], steps] - falls.mean(axis=0)).sum(axis=-1))
    effects = {name: counts[:, [column, -1]] for column, name in enumerate(_NAMES)}
    return SourceUse(
        swapped=swapped,
        attention=effects["attention"],
        diagonal=effects["diagonal"],
        contribution=effects["contribution"] if "contribution" in choices[0] else None,
        informed=informed,
        by_place=np.stack(by_place),
    )


def _scores(model, tokenizer, rows: Sequence["ForcedRow"], batch_size: int) -> list[np.ndarray]:
    scores = score_rows(model, tokenizer, rows, batch_size)
    return [of_row.clip(min=_MIN_LOG_PROBABILITY) for of_row in scores]


def _pairs(model, tokenizer, sources: Sequence[str], targets: Sequence[str]) -> list[TokenPair]:
    """Return the first pairs with words to remove and to predict, truncated to the positions of the model."""
    texts = [pair for pair in zip(sources, targets, strict=True) if all(side.strip() for side in pair)][:MOST_READ]
    limit = position_limit(model, tokenizer)
    pairs: list[TokenPair] = []
    tokens = 0
    for pair in token_pairs(model, tokenizer, [source for source, _ in texts], [target for _, target in texts]):
        cut = TokenPair(len(pairs), _cut(pair.source, limit), _cut(pair.target, limit))
        if len(_word_tokens(cut.source)) > 1 and len(_word_tokens(cut.target)):
            pairs.append(cut)
            tokens += 2 * _MAX_REMOVED * (len(cut.source.ids) + len(cut.target.ids))
        if tokens > _MAX_TOKENS:
            break
    return pairs


def _cut(tokens: WordTokens, limit: int) -> WordTokens:
    ids, words = (np.array(beginning(list(row), limit), dtype=np.int64) for row in (tokens.ids, tokens.word_ids))
    return WordTokens(ids, words, tokens.words)


def _word_tokens(tokens: WordTokens) -> np.ndarray:
    return np.flatnonzero(tokens.word_ids != NO_WORD)


def _wrong_sources(pairs: Sequence[TokenPair]) -> list[np.ndarray] | None:
    """Return a different pair's source for each pair, from half the corpus away on; None if there is none."""
    wrong_sources = []
    for number, pair in enumerate(pairs):
        further = chain(range(number + len(pairs) // 2, 2 * len(pairs)), range(number + len(pairs) // 2))
        sources = (pairs[place % len(pairs)].source.ids for place in further)
        wrong_source = next((ids for ids in sources if not np.array_equal(ids, pair.source.ids)), None)
        if wrong_source is None:
            return None
        wrong_sources.append(wrong_source)
    return wrong_sources


def _chosen_tokens(
    model, tokenizer, pairs: Sequence[TokenPair], removed: Sequence[np.ndarray], batch_size: int
) -> tuple[list[dict[str, np.ndarray]], float | None]:
    """Return the removed tokens that attention, contribution and the diagonal rank highest, and the informed share.

    Returns:
        For each pair, by name of the score or `places`: index among the removed tokens for each target token; and the
        share of target tokens at which the masks of the best layer distinguish source tokens, None without masks.
    """
    counts: list[Tensor] = []
    steps = 0
    weights: list[dict[str, np.ndarray]] = [{} for _ in pairs]
    for numbers in batches_by_length([(len(pair.target.ids), len(pair.source.ids)) for pair in pairs], batch_size):
        batch = [pairs[number] for number in numbers]
        sides = [pair.source.ids for pair in batch], [pair.target.ids for pair in batch]
        inputs = padded_batch(model, tokenizer, *sides)
        reading = read(model, inputs, details=True)
        kinds = {"attention": [layer for layer in reading.attentions if layer is not None]}
        if any(mask is not None for mask in reading.masks):
            real, masked = reading.target_mask, reading.calibrated
            rows = [layer_rows(layer.attention, reading.source_mask, mask=layer.mask).layer for layer in masked]
            counts.append(torch.stack([row["informed"][real].double().sum() for row in rows]).cpu())
            steps += int(real.sum())
            kinds["contribution"] = [layer.contribution for layer in masked]
        for row, number in enumerate(numbers):
            for name, layers in kinds.items():
                heads = torch.stack([reading.unpadded(layer, row).double() for layer in layers])
                weights[number][name] = heads.cpu().numpy()  # (layers, heads, steps, source)
    share = (sum(counts[1:], counts[0]) / steps).numpy() if steps else None
    choices = []
    for pair, places, by_name in zip(pairs, removed, weights, strict=True):
        if share is not None:  # only layers whose masks distinguish source tokens
            by_name["contribution"] = by_name["contribution"][np.flatnonzero(share >= _MIN_INFORMED_SHARE)]
        target = _word_tokens(pair.target)
        diagonal = target * (len(pair.source.ids) / len(pair.target.ids))
        chosen = {"diagonal": np.abs(places[:, None] - diagonal).argmin(axis=0)}
        for name, layers_of_pair in by_name.items():
            if layers_of_pair.size:
                chosen[name] = layers_of_pair.mean(axis=(0, 1))[target][:, places].argmax(axis=1)
        chosen["places"] = _chosen_at_places(by_name["attention"], target, places)
        choices.append(chosen)
    return choices, None if share is None else float(share.max())


def _chosen_at_places(attention: np.ndarray, target: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the removed tokens with the most attention by `SourceUse.by_place`, (layers, heads + 1, 2, targets).

    Args:
        attention: weights of a pair, (layers, heads, steps, source).
        target: target tokens of words.
        places: removed source tokens.
    """
    with_mean = np.concatenate([attention, attention.mean(axis=1, keepdims=True)], axis=1)
    steps = np.stack([target, np.minimum(target + 1, attention.shape[2] - 1)])
    return with_mean[:, :, steps][..., places].argmax(axis=-1)


# ---- log-probabilities of targets of changed sources ----


class ForcedRow(NamedTuple):
    """Forward pass of a pair.

    Args:
        pair: the pair, whose target is scored.
        source: tokens that the encoder reads.
        tokens: positions of the target tokens to score.
        hidden: positions of the source that are hidden from the decoder, but not from the encoder. Default: none.
    """

    pair: TokenPair
    source: np.ndarray
    tokens: np.ndarray
    hidden: Sequence[int] | np.ndarray = ()


def score_rows(model, tokenizer, rows: Sequence[ForcedRow], batch_size: int) -> list[np.ndarray]:
    """Return the log-probabilities of the target tokens of each row, teacher-forced, (tokens,) float64."""
    scores: dict[int, np.ndarray] = {}
    targets = [row.pair.target.ids[: row.tokens.max(initial=0) + 1] for row in rows]  # later ones have no influence
    lengths = [(len(target), len(row.source)) for target, row in zip(targets, rows, strict=True)]
    with readable(model, attentions=False):
        for numbers in batches_by_length(lengths, batch_size):
            chosen = [rows[number] for number in numbers]
            sides = [row.source for row in chosen], [targets[number] for number in numbers]
            inputs, labels = teacher_forced(model, padded_batch(model, tokenizer, *sides))
            encoded = None
            if any(len(row.hidden) for row in chosen):
                source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
                encoded = model.get_encoder()(**source, return_dict=True)
                for place, row in enumerate(chosen):
                    inputs["attention_mask"][place, row.hidden] = 0
            steps, _ = padded([np.append(row.tokens, 0) for row in chosen], 0)  # every row needs a step
            values = log_probabilities(model, inputs, labels, encoded, steps.to(model.device))
            for number, of_row in zip(numbers, values.double().cpu().numpy(), strict=True):
                scores[number] = of_row[: len(rows[number].tokens)]
    return [scores[number] for number in range(len(rows))]


def log_probabilities(
    model, inputs: dict[str, Tensor], labels: Tensor, encoded: Any = None, steps: Tensor | None = None
) -> Tensor:
    """Return the log-probability of each label, (batch, steps), in float32 or better; 0 where there is no label.

    Args:
        model: encoder-decoder in evaluation mode.
        inputs, labels: see `reading.teacher_forced`.
        encoded: encoder output of the source. Default: run the encoder.
        steps: (batch, k), indices of the steps to return; the expensive output layer is skipped for the others.
            Default: all.
    """

    def rows(states: Tensor) -> Tensor:
        return states if steps is None else states.gather(1, steps.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    copies = getattr(model, "copying", None) is not None
    with ExitStack() as hooks:
        if steps is not None:
            labels = labels.gather(1, steps)
            if not copies:  # copying needs the logits of all steps
                head = model.get_output_embeddings()
                hooks.enter_context(head.register_forward_pre_hook(lambda module, args: (rows(args[0]),)))
        logits = model(**inputs, encoder_outputs=encoded, use_cache=False, return_dict=True).logits
    logits = (rows(logits) if copies else logits).to(torch.promote_types(logits.dtype, torch.float32))
    missing = labels == IGNORE_INDEX
    labels = labels.masked_fill(missing, 0).unsqueeze(-1)
    return torch.log_softmax(logits, dim=-1).gather(-1, labels).squeeze(-1).masked_fill(missing, 0.0)
