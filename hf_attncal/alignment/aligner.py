"""From sentence pairs to word links: the `WordAligner`, for Mask-Align checkpoints and for any encoder-decoder.

Words are what `str.split()` gives: any run of white space (tabs, no-break and ideographic spaces too) parts two words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer
from transformers.utils import cached_file

from hf_attncal.inference.loading import load_config, load_seq2seq

from .links import argmax_links
from .seq2seq import SETTINGS_FILE, Seq2SeqAttention, seq2seq_weights
from .symmetrization import SYMMETRIZATIONS, harmonic
from .symmetrization import symmetrize as symmetrize_weights
from .windows import merge_windows, pair_windows

Link = tuple[int, int]
Sentence = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Word links of one sentence pair, all indices counted from 0.

    Args:
        links: (i source, j target), sorted.
        scores: one for each link, from 0 to 1: see `symmetrize` for what they are; with an encoder-decoder, the
            attention of the target word to the source word.
        source_null: for each source word the probability that it has no partner, the mean over its subwords (1 for a
            word of which the tokenizer leaves nothing, and where the other side is empty). None for an
            encoder-decoder, which has no NULL.
        target_null: the same for each target word.
        score: how well the pair is aligned, from 0 to 1: the mean, over the words of both sides, of the best score
            that the word has with any word of the other side, linked or not. None if a side has no word.
        symmetrization: how the two directions were merged; "forward" for an encoder-decoder.
        threshold: what the score of a link had to exceed; None where each target word got its best source word.
    """

    links: tuple[Link, ...]
    scores: tuple[float, ...]
    source_null: tuple[float, ...] | None
    target_null: tuple[float, ...] | None
    score: float | None
    symmetrization: str
    threshold: float | None

    def pharaoh(self, scores: bool = False) -> str:
        """The links as `i-j i-j ...`, or as `i-j:score` with four decimals."""
        if scores:
            return " ".join(f"{i}-{j}:{score:.4f}" for (i, j), score in zip(self.links, self.scores, strict=True))
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def to_dict(self) -> dict:
        """The fields by name, ready for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class _Side(NamedTuple):
    """One side of a pair: token ids, the word of each token (`words`: of none), and the number of words."""

    ids: np.ndarray
    word_ids: np.ndarray
    words: int


class WordAligner:
    """Aligns the words of sentence pairs.

    Args:
        model: a Mask-Align model, or an encoder-decoder of transformers; it is put into evaluation mode.
        tokenizer: its tokenizer; Mask-Align needs a fast one.
        settings: for an encoder-decoder, which attention to read; None for `Seq2SeqAttention.default`.

    Raises:
        ValueError: a slow tokenizer with Mask-Align, `settings` with Mask-Align, or a model of another kind.
    """

    def __init__(self, model, tokenizer, settings: Seq2SeqAttention | None = None):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.settings = settings
        self.is_mask_align = _check_kind(model.config, "The model")
        if self.is_mask_align and settings is not None:
            raise ValueError(
                f"`settings` choose the attention of an encoder-decoder, but the model is a Mask-Align model, got "
                f"{settings}. Leave them out."
            )
        if self.is_mask_align and not tokenizer.is_fast:
            raise ValueError(
                f"Mask-Align needs a fast tokenizer, got {type(tokenizer).__name__}: words are found by the "
                "characters that each token covers. Save the checkpoint with its fast tokenizer (`tokenizer.json`)."
            )

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        settings: Seq2SeqAttention | None = None,
    ) -> "WordAligner":
        """Load a checkpoint with its tokenizer.

        Args:
            name: folder or Hub name of a Mask-Align checkpoint, of any encoder-decoder (Marian, BART, ours, ...), or
                of an adapter for one.
            device: None for a GPU if there is one.
            dtype: None for the one that the checkpoint is saved in.
            trust_remote_code: run the model code that comes with the checkpoint.
            revision: branch, tag or commit on the Hub.
            settings: for an encoder-decoder, which attention to read; None for what `select_attention` saved beside
                the checkpoint, or else `Seq2SeqAttention.default`.

        Raises:
            OSError: there is no such checkpoint.
            ValueError: it is of another kind, or see the class.
        """
        options = {"trust_remote_code": trust_remote_code, "revision": revision}
        if _check_kind(load_config(name, **options), name):
            model = AutoModel.from_pretrained(name, dtype=dtype or "auto", **options)
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
        else:
            model, tokenizer = load_seq2seq(name, dtype=dtype, **options)
            settings = settings or _saved_settings(name, revision)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.to(device), tokenizer, settings)

    @torch.no_grad()
    def align(
        self,
        pairs: Iterable[tuple[Sentence, Sentence]],
        *,
        threshold: float | None = None,
        symmetrize: str | None = None,
        batch_size: int = 256,
        batch_tokens: int = 8192,
    ) -> list[WordAlignment]:
        """Align sentence pairs, in batches by length; the results come in the order of the pairs.

        Mask-Align: with "harmonic", two words are linked if the harmonic mean of the two directions is above the
        threshold for any two of their subwords, and that maximum is their score. The other symmetrisations work on the
        weights of each direction between words, the maximum over their subwords. A side of more tokens than the model
        has positions is read in overlapping windows (see `windows.py`); nothing is cut.

        An encoder-decoder has one direction: each target word is linked to the source word that it attends to most, or
        with a `threshold` to all above it.

        Args:
            pairs: (source, target), each a text or a list of words.
            threshold: a link must score above this; None for the model's own, or the best word of an encoder-decoder.
            symmetrize: one of `SYMMETRIZATIONS`; None for the model's own. An encoder-decoder only has "forward".
            batch_size: most pairs (or windows) in a batch.
            batch_tokens: most tokens in a batch, both sides and padding included; a pair over it goes alone. An
                encoder-decoder goes by `batch_size` only.

        Raises:
            ValueError: a setting out of range; a word that is empty or has white space in it; weights that are not
                finite; with an encoder-decoder, a side of more tokens than it has positions.
        """
        for name, value in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
            if value < 1:
                raise ValueError(f"`{name}` must be >= 1, got {value}.")
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f"`threshold` must be from 0 to 1, got {threshold}.")
        if symmetrize is not None and symmetrize not in SYMMETRIZATIONS:
            raise ValueError(f"`symmetrize` must be one of {SYMMETRIZATIONS}, got {symmetrize!r}.")
        words = [_words_of_pair(pair, number) for number, pair in enumerate(pairs)]
        if not self.is_mask_align:
            if symmetrize not in (None, "forward"):
                raise ValueError(
                    f"`symmetrize` must be 'forward' for an encoder-decoder, which has one direction, got "
                    f"{symmetrize!r}. Align the two directions with two models and merge them with `symmetrize`."
                )
            return self._align_seq2seq(words, threshold, batch_size)
        config = self.model.config
        merge = _Merge(
            symmetrize or config.symmetrization, config.alignment_threshold if threshold is None else threshold
        )
        sides = self._tokenize([side for pair in words for side in pair])
        encoded = list(zip(sides[::2], sides[1::2], strict=True))
        results: list[WordAlignment | None] = [
            None if len(source.ids) and len(target.ids) else merge.nothing(source.words, target.words)
            for source, target in encoded
        ]
        limit = config.max_position_embeddings
        open_pairs = [index for index, result in enumerate(results) if result is None]
        long_pairs = [index for index in open_pairs if max(len(side.ids) for side in encoded[index]) > limit]
        short_pairs = sorted(
            set(open_pairs).difference(long_pairs), key=lambda index: (sum(_lengths(encoded[index])), index)
        )
        for batch in _batches(short_pairs, [_lengths(pair) for pair in encoded], batch_size, batch_tokens):
            chosen = [encoded[index] for index in batch]
            aligned = merge(self._weights([(source.ids, target.ids) for source, target in chosen]), chosen)
            for index, result in zip(batch, aligned, strict=True):
                results[index] = result
        for index in long_pairs:
            weights = self._weights_in_windows(*encoded[index], limit, batch_size, batch_tokens)
            (results[index],) = merge(weights, [encoded[index]])
        return results

    # ---- Mask-Align ----

    def _tokenize(self, sentences: list[list[str]]) -> list[_Side]:
        """Tokens of every sentence, and the word that each token belongs to.

        A token belongs to the word of the last character that it covers. One that ends in the space before a word, or
        covers nothing (a byte-level "Ġ" whose offsets are trimmed), belongs to the word that follows.
        """
        if not sentences:
            return []
        texts = [" ".join(words) for words in sentences]
        if self.model.config.lowercase:
            texts = [text.lower() for text in texts]
            sentences = [text.split(" ") if text else [] for text in texts]
        encoding = self.tokenizer(
            texts,
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        lengths = [len(ids) for ids in encoding["input_ids"]]
        count = sum(lengths)
        ids = np.fromiter(chain.from_iterable(encoding["input_ids"]), dtype=np.int64, count=count)
        spans = chain.from_iterable(chain.from_iterable(encoding["offset_mapping"]))
        start, end = np.fromiter(spans, dtype=np.int64, count=2 * count).reshape(-1, 2).T
        # All texts in one line of characters, each with a gap of one behind it: one search finds every word.
        words = [len(sentence) for sentence in sentences]
        word_lengths = np.fromiter(map(len, chain.from_iterable(sentences)), dtype=np.int64, count=sum(words))
        text_start = np.cumsum([0] + [len(text) + 1 for text in texts])
        first_word = np.cumsum([0, *words])
        gaps = np.arange(len(word_lengths)) + np.repeat(
            np.equal(words, 0).cumsum(), words
        )  # an empty text has one too
        word_end = np.cumsum(word_lengths) + gaps
        text_of_token = np.repeat(np.arange(len(texts)), lengths)
        last_character = text_start[text_of_token] + np.where(end > start, end - 1, end)
        word_ids = np.searchsorted(word_end, last_character, side="right") - first_word[text_of_token]
        word_ids = np.minimum(word_ids, np.asarray(words)[text_of_token])
        bounds = [0, *accumulate(lengths)]
        return [
            _Side(ids[begin:stop], word_ids[begin:stop], number)
            for begin, stop, number in zip(bounds[:-1], bounds[1:], words, strict=True)
        ]

    def _weights(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> "_Weights":
        """Both directions of a batch of (source ids, target ids), on the model's device, in float32 or better."""
        sources, targets = zip(*pairs, strict=True)
        device, pad = self.model.device, self.model.config.pad_token_id or 0
        input_ids, attention_mask = _padded(sources, pad, device)
        target_input_ids, target_attention_mask = _padded(targets, pad, device)
        output = self.model.alignments(
            input_ids=input_ids,
            attention_mask=attention_mask,
            target_input_ids=target_input_ids,
            target_attention_mask=target_attention_mask,
        )
        found = (output.forward_attention, output.backward_attention, output.forward_null, output.backward_null)
        dtype = torch.promote_types(found[0].dtype, torch.float32)
        weights = _Weights(*(tensor.to(dtype).clamp(max=1) for tensor in found))  # a sum may be rounded up
        if not all(bool(torch.isfinite(tensor).all()) for tensor in weights):
            raise ValueError(
                f"The weights of the model are not finite in {self.model.dtype}. Load it with `dtype='float32'`; if "
                "they still are not, the checkpoint is damaged."
            )
        return weights

    def _weights_in_windows(
        self, source: _Side, target: _Side, limit: int, batch_size: int, batch_tokens: int
    ) -> "_Weights":
        """Both directions of one pair that is too long to be read at once, as a batch of one."""
        windows = pair_windows(len(source.ids), len(target.ids), limit)
        pairs = [(source.ids[source_window], target.ids[target_window]) for source_window, target_window in windows]
        forward, backward = [], []
        lengths = [(len(s), len(t)) for s, t in pairs]
        for batch in _batches(range(len(windows)), lengths, batch_size, batch_tokens):
            weights = self._weights([pairs[index] for index in batch])
            for row, index in enumerate(batch):
                s, t = lengths[index]
                source_window, target_window = windows[index]
                forward.append(
                    (target_window, source_window, weights.forward[row, :t, :s], weights.target_null[row, :t])
                )
                backward.append(
                    (source_window, target_window, weights.backward[row, :s, :t], weights.source_null[row, :s])
                )
        forward, target_null = merge_windows(forward, len(target.ids), len(source.ids))
        backward, source_null = merge_windows(backward, len(source.ids), len(target.ids))
        return _Weights(forward[None], backward[None], target_null[None], source_null[None])

    # ---- encoder-decoders ----

    def _align_seq2seq(
        self, words: list[tuple[list[str], list[str]]], threshold: float | None, batch_size: int
    ) -> list[WordAlignment]:
        sources, targets = ([" ".join(pair[side]) for pair in words] for side in (0, 1))
        results = []
        for weights in seq2seq_weights(
            self.model, self.tokenizer, sources, targets, self.settings, batch_size=batch_size
        ):
            if threshold is None:
                links, scores = argmax_links(weights), weights.T
            else:
                links, scores = symmetrize_weights(weights, None, "forward", threshold)
            results.append(_alignment(links, scores, None, None, "forward", threshold))
        return results


class _Weights(NamedTuple):
    """Directional weights of a batch, 0 at padding."""

    forward: Tensor  # (batch, target, source)
    backward: Tensor  # (batch, source, target)
    target_null: Tensor  # (batch, target)
    source_null: Tensor  # (batch, source)


@dataclass(frozen=True)
class _Merge:
    """From directional weights between subwords to word alignments."""

    method: str
    threshold: float

    def __call__(self, weights: _Weights, pairs: Sequence[tuple[_Side, _Side]]) -> list[WordAlignment]:
        """One alignment for each of `pairs`, the rows of `weights`."""
        device = weights.forward.device
        lengths = [(source.words, target.words) for source, target in pairs]
        source_ids, source_words = _padded_word_ids([source for source, _ in pairs], device)
        target_ids, target_words = _padded_word_ids([target for _, target in pairs], device)
        nulls = (
            _rows(mean_over_words(weights.source_null, source_ids, source_words), [s for s, _ in lengths]),
            _rows(mean_over_words(weights.target_null, target_ids, target_words), [t for _, t in lengths]),
        )
        if self.method == "harmonic":
            scores = harmonic(weights.forward, weights.backward)
            scores = largest_over_words(scores, source_ids, target_ids, source_words, target_words)
            return self._above_threshold(scores, lengths, nulls)
        forward = largest_over_words(weights.forward, target_ids, source_ids, target_words, source_words).cpu()
        backward = largest_over_words(weights.backward, source_ids, target_ids, source_words, target_words).cpu()
        results = []
        for row, (s, t) in enumerate(lengths):
            links, scores = symmetrize_weights(
                forward[row, :t, :s], backward[row, :s, :t], self.method, self.threshold
            )
            results.append(_alignment(links, scores, nulls[0][row], nulls[1][row], self.method, self.threshold))
        return results

    def nothing(self, source_words: int, target_words: int) -> WordAlignment:
        """A pair of which one side has no token."""
        score = 0.0 if source_words and target_words else None
        return WordAlignment((), (), (1.0,) * source_words, (1.0,) * target_words, score, self.method, self.threshold)

    def _above_threshold(
        self, scores: Tensor, lengths: list[tuple[int, int]], nulls: tuple[list[tuple], list[tuple]]
    ) -> list[WordAlignment]:
        """Links of a batch of scores (batch, source words, target words), 0 at padding, without a loop over cells."""
        linked = scores > self.threshold
        _, i, j = (index.tolist() for index in linked.nonzero(as_tuple=True))
        links = list(zip(i, j, strict=True))
        link_scores = scores[linked].tolist()
        stops = linked.sum(dim=(1, 2)).cumsum(0).tolist()
        best = scores.amax(dim=2).sum(dim=1) + scores.amax(dim=1).sum(dim=1)
        means = (best / torch.tensor([s + t for s, t in lengths], device=scores.device)).tolist()
        return [
            WordAlignment(
                tuple(links[start:stop]), tuple(link_scores[start:stop]), *null, mean, self.method, self.threshold
            )
            for start, stop, mean, *null in zip([0, *stops[:-1]], stops, means, *nulls, strict=True)
        ]


def largest_over_words(weights: Tensor, row_ids: Tensor, column_ids: Tensor, rows: int, columns: int) -> Tensor:
    """The largest weight between the subwords of two words, for all pairs of words of a batch.

    Args:
        weights: (batch, R, C), not negative.
        row_ids: (batch, R), the word of each row; `rows` for a row of no word.
        column_ids: (batch, C), the word of each column; `columns` for a column of no word.
        rows: number of words that rows belong to.
        columns: number of words that columns belong to.

    Returns:
        (batch, rows, columns), 0 for a word without subwords.
    """
    batch = len(weights)
    wide = weights.new_zeros(batch, weights.shape[1], columns + 1)
    wide.scatter_reduce_(2, column_ids[:, None, :].expand_as(weights), weights, "amax")
    words = weights.new_zeros(batch, rows + 1, columns + 1)
    words.scatter_reduce_(1, row_ids[:, :, None].expand_as(wide), wide, "amax")
    return words[:, :rows, :columns]


def mean_over_words(values: Tensor, word_ids: Tensor, words: int) -> Tensor:
    """The mean over the subwords of each word; 1 for a word without subwords.

    Args:
        values: (batch, length), one for each subword.
        word_ids: (batch, length), the word of each subword; `words` for one of no word.
        words: number of words.

    Returns:
        (batch, words).
    """
    total = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, values)
    count = values.new_zeros(len(values), words + 1).scatter_add_(1, word_ids, torch.ones_like(values))
    return torch.where(count > 0, total / count.clamp(min=1), 1)[:, :words]


def _alignment(
    links: set[Link],
    scores: Tensor,
    source_null: tuple[float, ...] | None,
    target_null: tuple[float, ...] | None,
    method: str,
    threshold: float | None,
) -> WordAlignment:
    """The alignment of one pair from its links and its scores (source words, target words)."""
    ordered = sorted(links)
    scores = scores.clamp(max=1)  # a sum over subwords may be rounded up
    i, j = torch.tensor(ordered, dtype=torch.long).reshape(-1, 2).T
    mean = None
    if scores.numel():
        mean = float(torch.cat([scores.amax(dim=1), scores.amax(dim=0)]).mean())
    values = tuple(scores[i, j].tolist())
    return WordAlignment(tuple(ordered), values, source_null, target_null, mean, method, threshold)


def _check_kind(config, name: str | Path) -> bool:
    """Whether a configuration is Mask-Align's; a ValueError if it is no encoder-decoder's either."""
    is_mask_align = config.model_type == "mask_align"
    if not is_mask_align and not config.is_encoder_decoder:
        raise ValueError(
            f"{name} is of type {config.model_type!r}. Alignment needs a Mask-Align checkpoint or an encoder-decoder "
            "(Marian, BART, ... or one of ours)."
        )
    return is_mask_align


def _saved_settings(name: str | Path, revision: str | None) -> Seq2SeqAttention | None:
    """The settings beside a checkpoint, in a folder or on the Hub; None where there are none."""
    file = cached_file(
        name,
        SETTINGS_FILE,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return Seq2SeqAttention.load(None if file is None else Path(file).parent)


def _words_of_pair(pair: tuple[Sentence, Sentence], number: int) -> tuple[list[str], list[str]]:
    if isinstance(pair, str) or len(pair) != 2:
        raise ValueError(f"`pairs[{number}]` must be a source and a target, got {pair!r}.")
    return _words(pair[0], f"pairs[{number}][0]"), _words(pair[1], f"pairs[{number}][1]")


def _words(sentence: Sentence, where: str) -> list[str]:
    if isinstance(sentence, str):
        return sentence.split()
    for word in sentence:
        if word.split() != [word]:
            raise ValueError(
                f"`{where}` has the word {word!r}. A word of a list must not be empty or hold white space: split it, "
                "or give the sentence as one text."
            )
    return list(sentence)


def _lengths(pair: tuple[_Side, _Side]) -> tuple[int, int]:
    return len(pair[0].ids), len(pair[1].ids)


def _batches(
    indices: Sequence[int], lengths: Sequence[tuple[int, int]], batch_size: int, batch_tokens: int
) -> Iterator[list[int]]:
    """`indices` in their order, in batches of so many pairs and tokens; `lengths` are those of both sides."""
    batch: list[int] = []
    source, target = 0, 0
    for index in indices:
        source, target = max(source, lengths[index][0]), max(target, lengths[index][1])
        if batch and (len(batch) == batch_size or (len(batch) + 1) * (source + target) > batch_tokens):
            yield batch
            batch = []
            source, target = lengths[index]
        batch.append(index)
    if batch:
        yield batch


def _padded(rows: Sequence[np.ndarray], value: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(batch, longest) of `rows`, filled up with `value`, and 1 where it is not filled up."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, value, dtype=np.int64)
    padded[mask] = np.concatenate(rows)
    return torch.from_numpy(padded).to(device), torch.from_numpy(mask.astype(np.int64)).to(device)


def _padded_word_ids(sides: Sequence[_Side], device: torch.device) -> tuple[Tensor, int]:
    """(batch, longest) word of each token, and the largest number of words, which stands for no word."""
    words = max(side.words for side in sides)
    rows = [np.where(side.word_ids < side.words, side.word_ids, words) for side in sides]
    return _padded(rows, words, device)[0], words


def _rows(values: Tensor, lengths: Sequence[int]) -> list[tuple[float, ...]]:
    """The first values of each row."""
    return [tuple(row[:length]) for row, length in zip(values.tolist(), lengths, strict=True)]
