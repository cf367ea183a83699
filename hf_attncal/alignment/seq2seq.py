"""Word alignment from the cross-attention of an encoder-decoder, under teacher forcing.

Each target token is aligned by the attention of a decoder step. With labels y_0 ... y_n-1 (end of sentence included)
and decoder inputs start, y_0 ... y_n-2, step t has y_t as its output and y_t-1 as its input. Two steps can align y_t:

- Naive-Att: step t, where y_t is the output, which the model has not read yet.
- Shift-Att (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation"): step t + 1, where
  y_t is the input.

The best layer and heads differ between models; `select_attention` finds them on annotated pairs.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_attncal.inference.files import file_beside
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import (
    Layers,
    Reading,
    TokenPair,
    check_attends,
    check_uam,
    decoder_size,
    has_uam,
    observed_place,
    observer_of,
    readings_of_pairs,
    token_pairs,
)
from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.layouts import SETTINGS_FILE
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.models.functional import token_rows

from .sources import Weights, WeightSource, Words, check_threshold

# Weights of a cross-attention, contributions of its tokens (Lu et al., eq. 6), predictions of the unsupervised
# alignment module, or weights of an observer. The last two are one layer with one head.
READABLE_WEIGHTS = ("attention", "contribution", "uam", "observer")
_ONE_HEAD = ("uam", "observer")
_OBSERVED = 0.4  # threshold of an observer's links
_ENCODER_SHARE = 0.6  # factor of an encoder's share: an observer makes fewer errors than a head
_Observed = dict[tuple[tuple[int, ...], tuple[int, ...]], Tensor]  # (target, source) by the tokens of both


# ---- settings ----


@dataclass(frozen=True)
class Seq2SeqAttention:
    """Settings that read word alignments from the attention of an encoder-decoder.

    Args:
        layer: Decoder layer from 0; negative numbers count from the top. 0 for "uam" and "observer".
        heads: Heads to average, from 0. Default: None, all heads.
        shift: True for Shift-Att, False for Naive-Att. Default: True.
        source_prefix: Prefix of every source (">>deu<< ", "translate English to German: "). Default: "".
        weights: "attention"; "contribution" (Lu et al., eq. 6) for a model or adapter with `calibration`; "observer"
            for one with `observe`; or "uam" for the predictions of a model's alignment module, without `shift`.
            Default: "attention".
        threshold: Exclusive minimum weight of a link. Default: None, each target word is linked to its best source
            word.
        beside: Settings of another reading that is averaged with this one. Default: None.
        mutual: True to multiply a weight by its share among the weights that its source word gets, and take the root:
            both words must prefer each other. Default: False.

    Raises:
        ValueError: a value of the wrong type, a threshold out of range, no heads, or negative or repeated heads.
    """

    layer: int
    heads: tuple[int, ...] | None = None
    shift: bool = True
    source_prefix: str = ""
    weights: str = "attention"
    threshold: float | None = None
    beside: "Seq2SeqAttention | None" = None
    mutual: bool = False

    def __post_init__(self):
        check_weights(self.weights)
        if isinstance(self.beside, dict):  # loaded from JSON
            object.__setattr__(self, "beside", Seq2SeqAttention(**self.beside))
        if self.beside is not None and {reading.weights for reading in self.readings} != {"attention"}:
            raise ValueError(f"`beside` needs `weights='attention'` in both readings, got {self.beside}.")
        if not is_index(self.layer):
            raise ValueError(f"`layer` must be a whole number, got {self.layer!r}.")
        if self.threshold is not None:
            check_threshold(self.threshold)
        for name in ("shift", "mutual"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` must be True or False, got {getattr(self, name)!r}.")
        if not isinstance(self.source_prefix, str):
            raise ValueError(f"`source_prefix` must be text, got {self.source_prefix!r}.")
        if self.heads is not None:
            heads = self.heads if isinstance(self.heads, tuple | list) else ()
            if not heads or not all(is_index(h) and h >= 0 for h in heads) or len(set(heads)) < len(heads):
                raise ValueError(
                    f"`heads` must be one or more different numbers from 0, or None for all, got {self.heads!r}."
                )
            object.__setattr__(self, "heads", tuple(heads))
        if self.weights in _ONE_HEAD and (self.layer not in (0, -1) or self.heads not in (None, (0,))):
            raise ValueError(
                f"`layer` and `heads` are not for `weights={self.weights!r}`, got {self.layer} and {self.heads}. "
                "Leave them out."
            )

    def to_dict(self) -> dict:
        """Return the settings as JSON data."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, values: dict) -> "Seq2SeqAttention":
        """Return the settings in the data of `to_dict`.

        Raises:
            ValueError: an unknown key, no `layer`, or a wrong value.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or "layer" not in values or not set(values) <= names:
            raise ValueError(
                f"The settings must have `layer` and may have {', '.join(sorted(names - {'layer'}))}, got {values!r}. "
                "Correct them, or write alignment.json again with `attncal align select`."
            )
        return cls(**values)

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Save the settings in `folder`, for its checkpoint or for another `model`; return the path of the file."""
        path = Path(folder) / SETTINGS_FILE
        write_sealed(self.to_dict(), path, model)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> "Seq2SeqAttention | None":
        """Load the settings saved in `folder`; None if there are none.

        Raises:
            ValueError: the file does not hold settings. The message names it.
        """
        path = Path(folder) / SETTINGS_FILE
        if not path.is_file():
            return None
        with sealed(path) as values:
            return cls.from_dict(values)

    @property
    def readings(self) -> "tuple[Seq2SeqAttention, ...]":
        """All readings that are averaged: these settings, and the ones in `beside`."""
        return (self,) if self.beside is None else (self, *self.beside.readings)

    @classmethod
    def default(cls, layers: int, weights: str = "attention") -> "Seq2SeqAttention":
        """Return the default settings of a decoder with `layers` layers.

        Shift-Att on the average of all heads in the last layer of the lower half: the third of six, as in Chen et al.
        """
        if weights == "uam":
            return cls(layer=0, shift=False, weights=weights)
        return cls(layer=max(0, layers // 2 - 1), weights=weights)

    @classmethod
    def default_of(cls, model, weights: str | None = None) -> "Seq2SeqAttention":
        """Return the default settings of a model.

        Args:
            model: Encoder-decoder.
            weights: One of `READABLE_WEIGHTS`. Default: None, the observer or the alignment module if there is one,
                else attention.
        """
        observer = observer_of(model)
        if weights is None:
            weights = "uam" if has_uam(model.config) else "attention" if observer is None else "observer"
        if weights == "observer" and observer is not None:
            return cls(layer=0, shift=observer.guided_shift, weights=weights, threshold=_OBSERVED, mutual=True)
        return cls.default(decoder_size(model.config)[0], weights)

    def check(self, model) -> None:
        """Raise ValueError unless the decoder of `model` has this layer, these heads and these weights."""
        for reading in self.readings[1:]:
            reading.check(model)
        if self.weights in _ONE_HEAD:
            check_uam(model.config) if self.weights == "uam" else observed_place(model)
            return
        masked = None
        if self.weights == "contribution":
            masked = calibrated_layers(model)
            if not masked:
                raise ValueError(
                    "`weights='contribution'` needs a model or an active adapter with `calibration`, got None. Use "
                    "`weights='attention'`."
                )
        self._check(*decoder_size(model.config), masked)

    def _check(self, layers: int, heads: int, present: Sequence[int] | None = None) -> None:
        if not -layers <= self.layer < layers:
            raise ValueError(
                f"`layer` must be from {-layers} to {layers - 1} (the decoder has {layers} layers), got {self.layer}."
            )
        if self.heads is not None and max(self.heads) >= heads:
            raise ValueError(
                f"`heads` must be from 0 to {heads - 1} (each layer has {heads} heads), got {self.heads}."
            )
        if present is not None and self.layer % layers not in present:
            raise ValueError(
                f"`layer` must be one of {list(present)}, which have masks, to read contributions, got {self.layer}."
            )

    def pick(self, layers: Sequence[Tensor | None]) -> Tensor:
        """Average the chosen heads of the chosen layer.

        Args:
            layers: Weights of each layer, (..., heads, steps, source); None for a layer without contributions.

        Returns:
            Weights, (..., steps, source).

        Raises:
            ValueError: an unknown layer or head, or a layer without contributions.
        """
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        self._check(len(layers), next(iter(present.values())).shape[-3], list(present))
        layer = present[self.layer % len(layers)]
        return (layer if self.heads is None else layer[..., list(self.heads), :, :]).mean(dim=-3)


def is_index(value: object) -> bool:
    """Return True for an integer that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_weights(weights: object) -> None:
    """Raise ValueError unless `weights` is one of `READABLE_WEIGHTS`."""
    if weights not in READABLE_WEIGHTS:
        raise ValueError(f"`weights` must be one of {READABLE_WEIGHTS}, got {weights!r}.")


# ---- weights between words ----


def read_weights(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], *, weights: str = "attention", **batching: Any
) -> Iterator[tuple[list[TokenPair], Layers, Reading]]:
    """Yield `readings_of_pairs` with the chosen weights of each layer, (batch, heads, steps, source).

    Args:
        model, tokenizer, sources, targets: See `readings_of_pairs`.
        weights: One of `READABLE_WEIGHTS`. Default: "attention".
        **batching: `batch_size` and `source_prefix` of `readings_of_pairs`.
    """
    check_weights(weights)
    wanted = {"attention": "attentions", "contribution": "details", "uam": "uam", "observer": "observed"}[weights]
    options = batching | {"attentions": False, wanted: True}
    for pairs, reading in readings_of_pairs(model, tokenizer, sources, targets, **options):
        if weights in _ONE_HEAD:
            of_head: Any = reading.uam if reading.observed is None else reading.observed[0]
            yield pairs, (of_head.unsqueeze(1),), reading
        else:
            yield pairs, reading.attentions if weights == "attention" else reading.contributions, reading


def between_words(steps: Tensor, pair: TokenPair, shift: bool) -> Tensor:
    """Turn weights (..., steps, source) into (..., target words, source words), on the CPU in float32 or better."""
    rows = token_rows(steps.to("cpu", torch.promote_types(steps.dtype, torch.float32)), shift)
    return word_attention(rows, pair.source, pair.target)


def seq2seq_weights(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    settings: Seq2SeqAttention | None = None,
    *,
    batch_size: int = 32,
) -> list[Tensor]:
    """Return the word attention of each pair, in the layer and heads of `settings`.

    Args:
        model: Encoder-decoder of transformers on the device to use; its mode is kept.
        tokenizer: Tokenizer of the model.
        sources: Source sentences.
        targets: Their translations.
        settings: Layer, heads and step. Default: None, `Seq2SeqAttention.default_of`.
        batch_size: Maximum number of pairs per batch. Default: 32.

    Returns:
        Weights of each pair on the CPU, (target words, source words): sums over the subwords of a source word, means
        over the subwords of a target word.

    Raises:
        ValueError: see `readings_of_pairs`; also an unknown layer or head.
    """
    result = [torch.zeros(len(t.split()), len(s.split())) for s, t in zip(sources, targets, strict=False)]
    for index, weights in _of_pairs(model, tokenizer, sources, targets, settings, batch_size):
        result[index] = weights
    return result


def _of_pairs(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    settings: Seq2SeqAttention | None,
    batch_size: int,
    observed: _Observed | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index and the weights, (target words, source words), of each pair with words on both sides."""
    settings = settings or Seq2SeqAttention.default_of(model)
    finish = mutual_weights if settings.mutual else Tensor.contiguous
    chosen = {"source_prefix": settings.source_prefix, "weights": settings.weights}
    if observed:
        sources = list(sources)
        for pair in token_pairs(model, tokenizer, sources, targets, source_prefix=settings.source_prefix):
            rows = observed.get((tuple(pair.source.ids), tuple(pair.target.ids)))
            if rows is not None:
                yield pair.index, finish(between_words(rows, pair, False))
                sources[pair.index] = ""  # a pair with an empty side is not read
    for pairs, layers, reading in read_weights(model, tokenizer, sources, targets, batch_size=batch_size, **chosen):
        picked = [(part.pick(layers), part.shift) for part in settings.readings]
        for row, pair in enumerate(pairs):
            words = [between_words(reading.unpadded(steps, row), pair, shift) for steps, shift in picked]
            mean = torch.stack(words).mean(dim=0)
            yield pair.index, finish(mean)


def mutual_weights(weights: Tensor) -> Tensor:
    """Return `sqrt(a_ts a_ts / sum_t a_ts)`, (target words, source words): 1 where two words have only each other."""
    return weights / weights.sum(dim=-2, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny).sqrt()


# ---- source of weights ----


class Seq2SeqSource(WeightSource):
    """Word attention of a decoder under teacher forcing, in one direction."""

    kind = "an encoder-decoder"
    has_settings = True
    symmetrizations = ("forward",)
    why_no_other = "which has one direction (merge two models with `alignment.symmetrize_links`)"
    symmetrization = "forward"
    has_null = False
    accepts_encoder = True

    def __init__(self, model, tokenizer, settings: Seq2SeqAttention | None = None):
        self.observed: _Observed = {}  # weights of texts that a search has observed, until they are aligned
        if not has_uam(model.config):  # an alignment module needs no attention
            check_attends(model.config)
        if settings is not None and settings.beside is not None and hasattr(model, "exported_layers"):
            settings = replace(settings, beside=None, threshold=None)  # CTranslate2 returns one reading
        super().__init__(model, tokenizer, settings)

    @property
    def threshold(self) -> float | None:
        return None if self.settings is None else self.settings.threshold

    @classmethod
    def saved_settings(cls, name: str | Path, revision: str | None = None) -> Seq2SeqAttention | None:
        file = file_beside(name, SETTINGS_FILE, revision)
        return None if file is None else Seq2SeqAttention.load(file.parent)

    @classmethod
    def load(cls, name: str | Path, *, dtype, **options: Any) -> tuple:
        return load_seq2seq(name, dtype=dtype, **options)

    def choose(self, **changes: Any) -> None:
        settings = self.settings or Seq2SeqAttention.default_of(self.model)
        if settings.weights in _ONE_HEAD and {"layer", "heads"} & changes.keys():
            changes = {"weights": "attention"} | changes  # only attention has layers and heads
        weights = changes.get("weights", settings.weights)
        if weights != settings.weights and {weights, settings.weights} & set(_ONE_HEAD):
            # Layer, heads and shift do not apply to both.
            prefix = settings.source_prefix
            settings = replace(Seq2SeqAttention.default_of(self.model, weights), source_prefix=prefix)
        if {"layer", "heads", "shift", "weights"} & changes.keys():
            changes = {"threshold": None, "beside": None} | changes  # the old ones belong to other weights
        self.settings = Seq2SeqAttention.from_dict(settings.to_dict() | changes)

    def check_settings(self) -> None:
        self.settings.check(self.model)

    def reads_observer_of(self, model: Any) -> bool:
        settings = self.settings or Seq2SeqAttention.default_of(self.model)
        return model is self.model and settings.weights == "observer"

    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield single pairs; only `batch_size` limits the batches of the model."""
        sources, targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
        cells = None if self.prior is None else self.prior.cells(pairs)
        observed = self.observed.copy()
        self.observed.clear()  # the search goes on with this dictionary
        settings = self.settings or Seq2SeqAttention.default_of(self.model)
        reading = settings, batch_size, observed
        for index, forward in _of_pairs(self.model, self.tokenizer, sources, targets, *reading):
            if cells is not None and self.prior is not None:
                share = self.prior.share * (_ENCODER_SHARE if settings.weights == "observer" else 1)
                forward = torch.lerp(forward, torch.from_numpy(cells[index].T).to(forward), share)
            t, s = forward.shape
            ids = (torch.arange(s)[None], s), (torch.arange(t)[None], t)
            yield [index], Weights(forward[None], None, None, None, *ids, [(s, t)])
