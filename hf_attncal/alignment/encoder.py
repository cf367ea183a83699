"""Word alignment from the states of an encoder: a multilingual one (BERT, XLM-R, ...), or that of an encoder-decoder.

Each side is encoded by itself. The similarity of the states of two tokens, in one layer, becomes a probability by a
softmax in both directions, and two tokens belong together where both probabilities are above a threshold: the
extraction of awesome-align (Dou and Neubig 2021, "Word Alignment by Fine-tuning Embeddings on Parallel Corpora", sec.
2.1). Special tokens, language codes and padding have no part in it. Which layer and threshold align best differs from
model to model: `select_states` finds out, and needs no annotated pairs for it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.words import WordTokens, tokenize_words
from hf_attncal.inference.loading import load_whole

from .sources import (
    ReadingSettings,
    Weights,
    WeightSource,
    Words,
    check_finite_weights,
    check_threshold,
    is_index,
    word_ids,
)
from .windows import window_slices

STATES = "states"
SIDES = ("source", "target")


# ---- settings ----


@dataclass(frozen=True)
class EncoderStates(ReadingSettings):
    """Which states of an encoder are its word alignment, and how they are read.

    Args:
        layer: 0 for what enters the first layer, n for what leaves the nth; a negative one counts from the top.
        threshold: two tokens are linked where the probabilities of both directions are above it.
        source_language, target_language: codes of the tokenizer, for those that put one beside each text ("en" of
            M2M100, "eng_Latn" of NLLB, "en_XX" of mBART).
        source_prefix, target_prefix: what the model wants in front of every text of a side (">>deu<<").
        weights: `"states"`.
        encoder: folder or Hub name of the encoder, where the settings lie in a folder without one; None beside it.

    Raises:
        ValueError: a value of the wrong kind, or out of range.
    """

    layer: int
    threshold: float = 0.1
    source_language: str | None = None
    target_language: str | None = None
    source_prefix: str = ""
    target_prefix: str = ""
    weights: str = STATES
    encoder: str | None = None

    readable: ClassVar[tuple[str, ...]] = (STATES,)
    what: ClassVar[str] = "the states of an encoder"

    def __post_init__(self):
        if self.weights != STATES:
            raise ValueError(f"`weights` must be {STATES!r} to read an encoder, got {self.weights!r}.")
        if self.encoder is not None and not isinstance(self.encoder, str):
            raise ValueError(f"`encoder` must be a folder or a name on the Hub, got {self.encoder!r}.")
        if not is_index(self.layer):
            raise ValueError(f"`layer` must be a whole number, got {self.layer!r}.")
        check_threshold(self.threshold)
        for side in SIDES:
            prefix, language = getattr(self, f"{side}_prefix"), getattr(self, f"{side}_language")
            if not isinstance(prefix, str):
                raise ValueError(f"`{side}_prefix` must be text, got {prefix!r}.")
            if language is not None and not isinstance(language, str):
                raise ValueError(f"`{side}_language` must be the code of a language or None, got {language!r}.")

    def to_dict(self) -> dict:
        """Return plain data, for JSON; without `encoder` where there is none."""
        return {name: value for name, value in super().to_dict().items() if name != "encoder" or value is not None}

    @classmethod
    def default_of(cls, model) -> "EncoderStates":
        """Return the settings to try on a model about which nothing is known.

        The top of an encoder-decoder's encoder, which is what its decoder reads; of an encoder alone two thirds of
        the way up, the 8th of 12 layers, as in Dou and Neubig.
        """
        if model.config.is_encoder_decoder:
            return cls(layer=-1)
        return cls(layer=round(2 * model.config.get_text_config().num_hidden_layers / 3))


def changed(settings: EncoderStates, changes: dict[str, Any]) -> EncoderStates:
    """Change some fields of the settings; raise ValueError for an unknown field or a wrong value."""
    for name in changes.keys() - settings.to_dict().keys():
        raise ValueError(f"`{name}` is for cross-attention, and {settings.what} are read. Leave it out.")
    return replace(settings, **changes)


# ---- from text to states ----


class Frame(NamedTuple):
    """Tokens that an encoder reads before and after those of a text: special ones, a language code, a prefix."""

    before: np.ndarray
    after: np.ndarray


class EncoderReader:
    """An encoder, and how text of each side is given to it.

    A text whose tokens are more than the encoder has positions for is read in overlapping windows; each token's state
    is that of the window in which it has most on its nearer side.

    Args:
        model: an encoder, or a model with one; its mode is left as it is.
        tokenizer: its tokenizer.
        settings: languages and prefixes count.

    Raises:
        ValueError: languages that are missing, not known to the tokenizer, or given to one that has none; an encoder
            whose vocabulary has no target text.
    """

    def __init__(self, model, tokenizer, settings: EncoderStates):
        if getattr(tokenizer, "separate_vocabs", False):
            raise ValueError(
                "The tokenizer has a vocabulary for each language (`separate_vocabs`), and the encoder that of the "
                "source alone: it cannot read the target. Align with attention (`weights='attention'`)."
            )
        self.model, self.tokenizer = model, tokenizer
        self.encoder = model.get_encoder() if model.config.is_encoder_decoder else model.base_model
        known = (model.config.pad_token_id, tokenizer.pad_token_id)
        self.padding = next((number for number in known if number is not None), 0)
        # Marian segments target text by a model of its own. Both sides have one vocabulary, so what its decoder has
        # learned to write are the tokens whose embeddings the encoder shares; source segmentation would cut the
        # target text into pieces that neither has ever seen.
        self.two_segmentations = hasattr(tokenizer, "spm_target")
        self.frames = tuple(
            self._frame(getattr(settings, f"{side}_language"), getattr(settings, f"{side}_prefix"), side)
            for side in SIDES
        )

    def _frame(self, language: str | None, prefix: str, side: str) -> Frame:
        name, option = type(self.tokenizer).__name__, f"`{side}_language`"
        if not hasattr(self.tokenizer, "src_lang"):
            if language is not None:
                raise ValueError(
                    f"{option} is for tokenizers with language codes, and {name} has none, got {language!r}. Leave it "
                    "out."
                )
            inner, whole = self._with_and_without()
        else:
            before, inner, whole = self.tokenizer.src_lang, [], []
            if language is not None:
                with suppress(KeyError):
                    self.tokenizer.src_lang = language
                    inner, whole = self._with_and_without()
                self.tokenizer.src_lang = before
            added = Counter(whole) - Counter(inner)
            if not whole or added[self.tokenizer.unk_token_id]:
                raise ValueError(
                    f"{option} must be a code of {name}, such as 'en' of M2M100, 'eng_Latn' of NLLB or 'en_XX' of "
                    f"mBART, got {language!r}."
                )
        start = next(n for n in range(len(whole)) if whole[n : n + len(inner)] == inner)
        words = self.tokenizer(prefix, add_special_tokens=False)["input_ids"] if prefix else []
        ends = [*whole[:start], *words], whole[start + len(inner) :]
        return Frame(*(np.array(ids, dtype=np.int64) for ids in ends))

    def _with_and_without(self) -> tuple[list[int], list[int]]:
        """Return some text without special tokens, and with them."""
        return tuple(self.tokenizer("1 a .", add_special_tokens=special)["input_ids"] for special in (False, True))

    @cached_property
    def size(self) -> int | None:
        """The most tokens of a text that are read at once; None for no limit.

        Raises:
            ValueError: the encoder has no room for any.
        """
        config = self.model.config
        limit = getattr(config, "max_position_embeddings", None)
        if limit is None or limit < 1:  # relative positions; -1 in some configurations
            return None
        table = getattr(getattr(self.encoder, "embeddings", None), "position_embeddings", None)
        first = getattr(table, "padding_idx", None)
        if first is not None:  # RoBERTa counts from behind the number of padding
            limit -= first + 1
        limit = min(limit, self.tokenizer.model_max_length)
        size = limit - max(len(frame.before) + len(frame.after) for frame in self.frames)
        if size < 1:
            raise ValueError(f"The encoder has {limit} positions, and no room for a text beside its special tokens.")
        return size

    def tokenize(self, texts: Sequence[str], side: int) -> list[WordTokens]:
        """Return the tokens of each text, without special ones; `side` is 0 for source, 1 for target."""
        return tokenize_words(
            self.tokenizer, texts, target=bool(side) and self.two_segmentations, special_tokens=False
        )

    def hidden_states(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        """Return the input of the first layer and the output of each layer, (batch, length, size) each.

        Raises:
            ValueError: the encoder returns none.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        outputs = self.encoder(**inputs, output_hidden_states=True, return_dict=True)
        found = getattr(outputs, "hidden_states", None)
        if not found or any(layer is None or layer.shape[:2] != input_ids.shape for layer in found):
            raise ValueError(
                f"The encoder of a model of type {self.model.config.model_type!r} returned no states of its layers "
                "(`output_hidden_states`). Take a Transformer, such as BERT, XLM-R, Marian, BART or M2M100."
            )
        return tuple(found)

    @cached_property
    @torch.no_grad()
    def layers(self) -> int:
        """Number of layers with states, the input of the first layer included."""
        before, after = self.frames[0]
        ids, mask = padded([np.concatenate([before, after, np.array([self.padding])])], self.padding)
        return len(self.hidden_states(ids, mask))

    def states(self, ids: Sequence[np.ndarray], side: int) -> tuple[Tensor, ...]:
        """Return the states of the tokens in every layer, (batch, longest text, size); anything at padding.

        Args:
            ids: of `tokenize`, at least one text, none of them empty.
            side: 0 for source, 1 for target.
        """
        before, after = self.frames[side]
        parts = [
            (row, part)
            for row, tokens in enumerate(ids)
            for part in window_slices(len(tokens), self.size or len(tokens))
        ]
        read = padded([np.concatenate([before, ids[row][part], after]) for row, part in parts], self.padding)
        found = [layer[:, len(before) :] for layer in self.hidden_states(*read)]
        longest = max(map(len, ids))
        if len(parts) == len(ids):
            return tuple(layer[:, :longest] for layer in found)
        window, place = _best_windows(parts, [len(tokens) for tokens in ids], longest)
        return tuple(layer[window, place] for layer in found)


def _best_windows(parts: Sequence[tuple[int, slice]], lengths: Sequence[int], longest: int) -> tuple[Tensor, Tensor]:
    """Return the window to take the state of each token from, and its place there; (texts, longest) each."""
    window, place = torch.zeros(2, len(lengths), longest, dtype=torch.long)
    margin = torch.full((len(lengths), longest), -1)
    for number, (row, part) in enumerate(parts):
        places = torch.arange(part.stop - part.start)
        near = torch.minimum(places, places.flip(0))
        better = near > margin[row, part]
        window[row, part] = torch.where(better, number, window[row, part])
        place[row, part] = torch.where(better, places, place[row, part])
        margin[row, part] = torch.maximum(near, margin[row, part])
    return window, place


# ---- from states to probabilities ----


def similarities(source: Tensor, target: Tensor, source_real: Tensor, target_real: Tensor) -> Tensor:
    """Return the dot products of the states of two sides.

    Args:
        source: (batch, S, size). target: (batch, T, size).
        source_real: (batch, S) bool, False at padding. target_real: (batch, T).

    Returns:
        (batch, T, S), in float32 or better; the lowest number at padding.
    """
    dtype = torch.promote_types(source.dtype, torch.float32)
    cells = target_real.unsqueeze(2) & source_real.unsqueeze(1)
    return (target.to(dtype) @ source.to(dtype).mT).masked_fill(~cells, torch.finfo(dtype).min)


def link_probabilities(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Turn similarities into the probability that a token of one side belongs to each token of the other.

    Args:
        scores: of `similarities`, (batch, T, S).

    Returns:
        For each target token a distribution over source tokens, (batch, T, S), and for each source token one over
        target tokens, (batch, S, T); 0 at padding.
    """
    cells = scores > torch.finfo(scores.dtype).min
    return scores.softmax(dim=2) * cells, (scores.softmax(dim=1) * cells).mT


# ---- the source of the aligner ----


class EncoderSource(WeightSource):
    """Both directions of the states of an encoder, intersected between subwords.

    A link is as sure as the less sure of its directions. Settings are `EncoderStates.default_of` where none are given.
    """

    kind = "an encoder, read by its states"
    settings_type = EncoderStates
    symmetrizations = ("intersection",)
    why_no_other = "whose two directions are intersected between subwords"
    symmetrization = "intersection"
    has_null = False

    def __init__(self, model, tokenizer, settings: EncoderStates | None = None):
        super().__init__(model, tokenizer, settings)
        self._set(settings or EncoderStates.default_of(model))

    def _set(self, settings: EncoderStates) -> None:
        self.reader, self.settings = EncoderReader(self.model, self.tokenizer, settings), settings

    @classmethod
    def reads(cls, config) -> bool:
        """Accept any encoder, by itself or under a decoder; not a model that reads from left to right."""
        left_to_right = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and type(config) not in MODEL_FOR_MASKED_LM_MAPPING
        return config.is_encoder_decoder or not left_to_right

    @classmethod
    def load(cls, name: str | Path, *, dtype, **options: Any) -> tuple:
        """Load an encoder alone; a model with a decoder is loaded by `Seq2SeqSource`."""
        return load_whole(AutoModel, name, dtype=dtype, **options)

    @classmethod
    def chosen(cls, model, tokenizer, changes: dict[str, Any]) -> "EncoderSource":
        return cls(model, tokenizer, changed(EncoderStates.default_of(model), changes))

    @property
    def threshold(self) -> float:
        return self.settings.threshold

    def choose(self, **changes: Any) -> None:
        self._set(changed(self.settings, changes))

    def check_settings(self) -> None:
        layers = self.reader.layers
        if not -layers <= self.settings.layer < layers:
            raise ValueError(
                f"`layer` must be from {-layers} to {layers - 1} (0 is what enters the first of {layers - 1} layers), "
                f"got {self.settings.layer}."
            )

    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        for indices, tokens in batches_of_tokens(self.reader, pairs, batch_size, batch_tokens):
            (both,) = intersections(self.reader, tokens, [self.settings.layer])
            check_finite_weights(self.model, both)
            sources, targets = zip(*tokens, strict=True)
            ids = (word_ids(side, both.device) for side in (sources, targets))
            words = [(source.words, target.words) for source, target in tokens]
            yield indices, Weights(both.mT, both, None, None, *ids, words)


def batches_of_tokens(
    reader: EncoderReader, pairs: Sequence[Words], batch_size: int, batch_tokens: int
) -> Iterator[tuple[list[int], list[tuple[WordTokens, WordTokens]]]]:
    """Yield pairs in batches by length: indices, and tokens of both sides. Those with an empty side are left out."""
    sides = [reader.tokenize([" ".join(pair[side]) for pair in pairs], side) for side in (0, 1)]
    encoded = list(zip(*sides, strict=True))
    full = [n for n, pair in enumerate(encoded) if all(len(side.ids) and side.words for side in pair)]
    around = [len(frame.before) + len(frame.after) for frame in reader.frames]
    lengths = [tuple(len(side.ids) + more for side, more in zip(encoded[n], around, strict=True)) for n in full]
    for batch in batches_by_length(lengths, batch_size, batch_tokens):
        indices = [full[place] for place in batch]
        yield indices, [encoded[index] for index in indices]


def intersections(
    reader: EncoderReader, tokens: Sequence[tuple[WordTokens, WordTokens]], layers: Sequence[int]
) -> list[Tensor]:
    """Return the smaller of the two probabilities of each pair of tokens, (batch, S, T), in each of the layers."""
    states, real = [], []
    for side, texts in enumerate(zip(*tokens, strict=True)):
        ids = [text.ids for text in texts]
        states.append(reader.states(ids, side))
        real.append(padded(ids, 0)[1].bool().to(reader.model.device))
    directions = (link_probabilities(similarities(states[0][n], states[1][n], *real)) for n in layers)
    return [torch.minimum(forward.mT, backward) for forward, backward in directions]
