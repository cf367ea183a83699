"""Measure the loss without the source or single tokens, and which scores name those tokens.

The verdict of `metrics/trust.py` goes by it. Teacher-forced; tokens of no word, such as the end of the sentence, are
neither taken away nor predicted.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.batching import batches_by_length, beginning
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.metrics.reliability import layer_rows
from hf_attncal.metrics.trust import SourceUse
from hf_attncal.models.losses import IGNORE_INDEX

from .reading import TokenPair, padded_batch, position_limit, read, readable, teacher_forced, token_pairs

MOST_READ = 60  # pairs
_MOST_TAKEN = 16  # source tokens of a pair that are taken away, one at a time
_MOST_TOKENS = 100_000  # that the model reads for it, about: seconds for small models, a minute for base ones
_IMPOSSIBLE = -30.0  # nats: what is less likely is as good as impossible, and has no say of its own in a mean
_MOST_STEPS = 0.5  # at fewer of them, masks that tell source tokens apart are the exception
_Row = tuple[TokenPair, np.ndarray, int | None]  # a pair, its source, and the place of a token that is hidden
_NAMES = ("attention", "diagonal", "contribution", "best")


@torch.no_grad()
def source_use(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 32, seed: int = 0
) -> SourceUse | None:
    """Measure the loss of a model without its source.

    At most 16 tokens of each source are taken away, drawn at random. Each gives way to a token of any source, and the
    fall of the log-probability of each target token says how much it counts. The best token is the one whose loss
    hurts most in another way: hidden from the cross-attention. So nobody gains by chance.

    Args:
        model: an encoder-decoder of transformers, on the device to use; its mode is left as it is.
        tokenizer: the model's.
        sources, targets: sentences, of which the first `MOST_READ` are looked at, or fewer if they are long. What is
            longer than the model can read is cut.
        batch_size: most sources at once.
        seed: seed of the draws.

    Returns:
        What was measured; None without a pair of two source words or more.

    Raises:
        ValueError: the model has no cross-attention to read, or see `token_pairs`.
    """
    pairs = _pairs(model, tokenizer, sources, targets)
    if not pairs:
        return None
    generator = np.random.default_rng(seed)
    taken = [np.sort(generator.permutation(_of_words(pair.source))[:_MOST_TAKEN]) for pair in pairs]
    pool = np.concatenate([pair.source.ids[_of_words(pair.source)] for pair in pairs])
    named, informed = _named(model, tokenizer, pairs, taken, batch_size)
    rows = _Rows(model, tokenizer, batch_size)
    whole = rows.read([(pair, pair.source.ids, None) for pair in pairs])
    swapped = None
    if (others := _others(pairs)) is not None:
        after = rows.read([(pair, other, None) for pair, other in zip(pairs, others, strict=True)])
        swapped = np.array([[(one - other).sum(), len(one)] for one, other in zip(whole, after, strict=True)])
    hidden: list[_Row] = []
    replaced: list[_Row] = []
    for pair, places in zip(pairs, taken, strict=True):
        for place in places:
            hidden.append((pair, pair.source.ids, place))
            ids = pair.source.ids.copy()
            drawn = generator.permutation(pool)
            ids[place] = next((one for one in drawn[:100] if one != ids[place]), ids[place])
            replaced.append((pair, ids, None))
    after_hiding, after_replacing = iter(rows.read(hidden)), iter(rows.read(replaced))
    counts = np.zeros((len(pairs), len(_NAMES)))
    for number, (before, places) in enumerate(zip(whole, taken, strict=True)):
        # (taken, steps)
        of_hidden = np.stack([before - next(after_hiding) for _ in places])
        falls = np.stack([before - next(after_replacing) for _ in places])
        best = named[number] | {"best": of_hidden.argmax(axis=0)}
        steps = np.arange(len(before))
        counts[number] = [
            (falls[best[name], steps] - falls.mean(axis=0)).sum() if name in best else 0.0 for name in _NAMES
        ]
    reached = {name: counts[:, [column, -1]] for column, name in enumerate(_NAMES)}
    return SourceUse(
        swapped=swapped,
        attention=reached["attention"],
        diagonal=reached["diagonal"],
        contribution=reached["contribution"] if "contribution" in named[0] else None,
        informed=informed,
    )


def _pairs(model, tokenizer, sources: Sequence[str], targets: Sequence[str]) -> list[TokenPair]:
    """Return the first pairs with words to remove and to predict, truncated to the positions of the model."""
    texts = [pair for pair in zip(sources, targets, strict=True) if all(side.strip() for side in pair)][:MOST_READ]
    limit = position_limit(model, tokenizer)
    pairs: list[TokenPair] = []
    tokens = 0
    for pair in token_pairs(model, tokenizer, [source for source, _ in texts], [target for _, target in texts]):
        cut = TokenPair(len(pairs), _cut(pair.source, limit), _cut(pair.target, limit))
        if len(_of_words(cut.source)) > 1 and len(_of_words(cut.target)):
            pairs.append(cut)
            tokens += 2 * _MOST_TAKEN * (len(cut.source.ids) + len(cut.target.ids))
        if tokens > _MOST_TOKENS:
            break
    return pairs


def _cut(tokens: WordTokens, limit: int) -> WordTokens:
    ids, words = (np.array(beginning(list(row), limit), dtype=np.int64) for row in (tokens.ids, tokens.word_ids))
    return WordTokens(ids, words, tokens.words)


def _of_words(tokens: WordTokens) -> np.ndarray:
    return np.flatnonzero(tokens.word_ids != NO_WORD)


def _others(pairs: Sequence[TokenPair]) -> list[np.ndarray] | None:
    """Return for each pair the source of another one that differs, from half the corpus away on; None without."""
    found = []
    for number, pair in enumerate(pairs):
        further = chain(range(number + len(pairs) // 2, 2 * len(pairs)), range(number + len(pairs) // 2))
        sources = (pairs[place % len(pairs)].source.ids for place in further)
        other = next((ids for ids in sources if not np.array_equal(ids, pair.source.ids)), None)
        if other is None:
            return None
        found.append(other)
    return found


def _named(
    model, tokenizer, pairs: Sequence[TokenPair], taken: Sequence[np.ndarray], batch_size: int
) -> tuple[list[dict[str, np.ndarray]], float | None]:
    """Return whom attention, contributions and the diagonal name, and how often masks tell source tokens apart.

    Returns:
        For each pair, by name: (target tokens of words,), which of the tokens that are taken away is named; and at
        how many of the target tokens the layer with the best masks tells source tokens apart, None without masks.
    """
    counts: list[Tensor] = []
    steps = 0
    weights: list[dict[str, np.ndarray]] = [{} for _ in pairs]
    for numbers in batches_by_length([(len(pair.target.ids), len(pair.source.ids)) for pair in pairs], batch_size):
        batch = [pairs[number] for number in numbers]
        inputs = padded_batch(model, tokenizer, [one.source.ids for one in batch], [one.target.ids for one in batch])
        reading = read(model, inputs, details=True)
        kinds = {"attention": [layer for layer in reading.attentions if layer is not None]}
        if any(mask is not None for mask in reading.masks):
            real, masked = reading.target_mask, reading.calibrated
            told = [layer_rows(one.attention, reading.source_mask, mask=one.mask).layer["informed"] for one in masked]
            counts.append(torch.stack([informed[real].double().sum() for informed in told]).cpu())
            steps += int(real.sum())
            kinds["contribution"] = [one.contribution for one in masked]
        for row, number in enumerate(numbers):
            for name, layers in kinds.items():
                heads = torch.stack([reading.unpadded(layer, row).double().mean(dim=0) for layer in layers])
                weights[number][name] = heads.cpu().numpy()  # (layers, steps, source)
    share = (sum(counts[1:], counts[0]) / steps).numpy() if steps else None
    named = []
    for pair, places, by_name in zip(pairs, taken, weights, strict=True):
        if share is not None:  # only those of layers whose masks tell source tokens apart
            by_name["contribution"] = by_name["contribution"][np.flatnonzero(share >= _MOST_STEPS)]
        target = _of_words(pair.target)
        same = target * (len(pair.source.ids) / len(pair.target.ids))
        found = {"diagonal": np.abs(places[:, None] - same).argmin(axis=0)}
        for name, layers_of_pair in by_name.items():
            if layers_of_pair.size:
                found[name] = layers_of_pair.mean(axis=0)[target][:, places].argmax(axis=1)
        named.append(found)
    return named, None if share is None else float(share.max())


class _Rows:
    """A model that reads targets after sources; arguments as in `source_use`."""

    def __init__(self, model, tokenizer, batch_size: int):
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size

    def read(self, rows: Sequence[_Row]) -> list[np.ndarray]:
        """Return log-probabilities of the target tokens of words, for each row of pair, source, and a hidden token."""
        found: dict[int, np.ndarray] = {}
        lengths = [(len(pair.target.ids), len(source)) for pair, source, _ in rows]
        with readable(self.model, attentions=False):
            for numbers in batches_by_length(lengths, self.batch_size):
                for number, values in zip(numbers, self._batch([rows[number] for number in numbers]), strict=True):
                    found[number] = values
        return [found[number] for number in range(len(rows))]

    def _batch(self, rows: Sequence[_Row]) -> list[np.ndarray]:
        batch = padded_batch(
            self.model, self.tokenizer, [source for _, source, _ in rows], [pair.target.ids for pair, *_ in rows]
        )
        inputs, labels = teacher_forced(self.model, batch)
        encoded = None
        if any(place is not None for *_, place in rows):  # the encoder sees it, and only the decoder does not
            whole = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            encoded = self.model.get_encoder()(**whole, return_dict=True)
            for row, (*_, place) in enumerate(rows):
                inputs["attention_mask"][row, place] = 0
        outputs = self.model(**inputs, encoder_outputs=encoded, use_cache=False, return_dict=True)
        tokens = _log_probabilities(outputs.logits, labels).double().cpu().numpy()
        return [values[_of_words(pair.target)] for values, (pair, *_) in zip(tokens, rows, strict=True)]


def _log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability of each label, (batch, steps), 0 where there is none."""
    labels = labels.masked_fill(labels == IGNORE_INDEX, 0).unsqueeze(-1)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits, dim=-1).gather(-1, labels).squeeze(-1).clamp(min=_IMPOSSIBLE)
