"""Word alignment from the cross-attention of any encoder-decoder of transformers, stock or ours.

The model reads the source, is given the target (teacher forcing), and each target token is aligned with what a decoder
step attended to. With labels y_0 ... y_n-1 (end of sentence included) and decoder inputs start, y_0 ... y_n-2, step t
has y_t as its output and y_t-1 as its input. Two steps may speak for y_t:

- Naive-Att: step t, where y_t is the output. The model does not know y_t yet.
- Shift-Att (Chen et al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation"): step t + 1, where
  y_t is the input.

Which layer and heads align best differs from model to model: `select_attention` finds out on annotated pairs.
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
    readings_of_pairs,
)
from hf_attncal.inference.seals import sealed, write_sealed
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.layouts import SETTINGS_FILE
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.models.functional import token_rows

from .sources import Weights, WeightSource, Words, check_threshold

# What is read: of a cross-attention the weights that are used, or what each token contributes (Lu et al., eq. 6); or
# what the unsupervised alignment module says, as one layer with one head.
READABLE_WEIGHTS = ("attention", "contribution", "uam")


# ---- settings ----


@dataclass(frozen=True)
class Seq2SeqAttention:
    """Which attention of an encoder-decoder is its word alignment.

    Args:
        layer: decoder layer from 0; a negative one counts from the top. 0 for `"uam"`, which has one.
        heads: the heads that are averaged, from 0; None for all.
        shift: Shift-Att if True, Naive-Att if False.
        source_prefix: what the model wants in front of every source (">>deu<< ", "translate English to German: ").
        weights: `"attention"`, or `"contribution"` (Lu et al., eq. 6) for a model or adapter with `calibration`, whose
            masks say what each source token contributes, or `"uam"` for a model with `uam`: what its alignment module
            predicts at the step where the target token is the output (so without `shift`).
        threshold: a target word is linked to all source words that have more of its weight, or to none; None: to the
            one that has most.

    Raises:
        ValueError: a value of the wrong kind, a threshold out of range, no head, a negative head, or one named twice.
    """

    layer: int
    heads: tuple[int, ...] | None = None
    shift: bool = True
    source_prefix: str = ""
    weights: str = "attention"
    threshold: float | None = None
    beside: "Seq2SeqAttention | None" = None

    def __post_init__(self):
        check_weights(self.weights)
        if isinstance(self.beside, dict):  # as in a file
            object.__setattr__(self, "beside", Seq2SeqAttention(**self.beside))
        if self.beside is not None and {one.weights for one in self.readings} != {"attention"}:
            raise ValueError(f"`beside` is another reading of attention, beside attention, got {self.beside}.")
        if not is_index(self.layer):
            raise ValueError(f"`layer` must be a whole number, got {self.layer!r}.")
        if self.threshold is not None:
            check_threshold(self.threshold)
        if not isinstance(self.shift, bool):
            raise ValueError(f"`shift` must be True or False, got {self.shift!r}.")
        if not isinstance(self.source_prefix, str):
            raise ValueError(f"`source_prefix` must be text, got {self.source_prefix!r}.")
        if self.heads is not None:
            heads = self.heads if isinstance(self.heads, tuple | list) else ()
            if not heads or not all(is_index(h) and h >= 0 for h in heads) or len(set(heads)) < len(heads):
                raise ValueError(
                    "`heads` must be different head numbers from 0, at least one, or None for all, got "
                    f"{self.heads!r}."
                )
            object.__setattr__(self, "heads", tuple(heads))
        if self.weights == "uam" and (self.layer not in (0, -1) or self.heads not in (None, (0,))):
            raise ValueError(
                "`layer` and `heads` are those of attention and must be left out with `weights='uam'`, got "
                f"{self.layer} and {self.heads}."
            )

    def to_dict(self) -> dict:
        """Return plain data, for JSON."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, values: dict) -> "Seq2SeqAttention":
        """Return the settings that `to_dict` gave.

        Raises:
            ValueError: an unknown key, no `layer`, or a wrong value.
        """
        known = {field.name for field in fields(cls)}
        if not isinstance(values, dict) or "layer" not in values or not set(values) <= known:
            raise ValueError(
                f"Alignment settings must have the key `layer` and no keys but {sorted(known)}: {values!r}"
            )
        return cls(**values)

    def save(self, folder: str | Path, model: str | Path | None = None) -> Path:
        """Write the settings beside the checkpoint in `folder`, or of another `model`; return the path of the file."""
        path = Path(folder) / SETTINGS_FILE
        write_sealed(self.to_dict(), path, model)
        return path

    @classmethod
    def load(cls, folder: str | Path) -> "Seq2SeqAttention | None":
        """Load the settings that were saved in `folder`; None where it holds none.

        Raises:
            ValueError: the file does not hold settings; the message names it.
        """
        path = Path(folder) / SETTINGS_FILE
        if not path.is_file():
            return None
        with sealed(path) as values:
            return cls.from_dict(values)

    @property
    def readings(self) -> "tuple[Seq2SeqAttention, ...]":
        """What the mean is taken of: these settings, and those beside them."""
        return (self,) if self.beside is None else (self, *self.beside.readings)

    @classmethod
    def default(cls, layers: int, weights: str = "attention") -> "Seq2SeqAttention":
        """Return the settings to try on a decoder of `layers` layers about which nothing is known.

        Shift-Att on the average of all heads in the last layer of the lower half: the third of six, as in Chen et al.
        """
        if weights == "uam":
            return cls(layer=0, shift=False, weights=weights)
        return cls(layer=max(0, layers // 2 - 1), weights=weights)

    @classmethod
    def default_of(cls, model, weights: str | None = None) -> "Seq2SeqAttention":
        """Return the settings to try where nothing else is known: those of the alignment module, if there is one.

        Args:
            model: an encoder-decoder. weights: one of `READABLE_WEIGHTS`, if that is known.
        """
        if weights is None:
            weights = "uam" if has_uam(model.config) else "attention"
        return cls.default(decoder_size(model.config)[0], weights)

    def check(self, model) -> None:
        """Raise ValueError unless the decoder of `model` has this layer and these heads, and what is to be read."""
        for one in self.readings[1:]:
            one.check(model)
        if self.weights == "uam":
            check_uam(model.config)
            return
        masked = None
        if self.weights == "contribution":
            masked = calibrated_layers(model)
            if not masked:
                raise ValueError(
                    "`weights='contribution'` needs a model or an active adapter with `calibration`, got None: "
                    "without masks there are no contributions."
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
                f"`layer` must be one with masks, {list(present)}, to read contributions, got {self.layer}: the "
                "adapter leaves the others as they are."
            )

    def pick(self, layers: Sequence[Tensor | None]) -> Tensor:
        """Average the chosen heads of the chosen layer.

        Args:
            layers: (..., heads, steps, source) of each layer; None for a layer without contributions.

        Returns:
            (..., steps, source).

        Raises:
            ValueError: there is no such layer or head, or the layer has no contributions.
        """
        present = {number: layer for number, layer in enumerate(layers) if layer is not None}
        self._check(len(layers), next(iter(present.values())).shape[-3], list(present))
        layer = present[self.layer % len(layers)]
        return (layer if self.heads is None else layer[..., list(self.heads), :, :]).mean(dim=-3)


def is_index(value: object) -> bool:
    """Return whether a value is a whole number; to Python `True` is one, too."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_weights(weights: object) -> None:
    """Raise ValueError unless `weights` is one of `READABLE_WEIGHTS`."""
    if weights not in READABLE_WEIGHTS:
        raise ValueError(f"`weights` must be one of {READABLE_WEIGHTS}, got {weights!r}.")


# ---- weights between words ----


def read_weights(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    weights: str = "attention",
) -> Iterator[tuple[list[TokenPair], Layers, Reading]]:
    """Yield `readings_of_pairs` with one of `READABLE_WEIGHTS` of every layer, (batch, heads, steps, source)."""
    check_weights(weights)
    for pairs, reading in readings_of_pairs(
        model,
        tokenizer,
        sources,
        targets,
        batch_size=batch_size,
        source_prefix=source_prefix,
        attentions=weights == "attention",
        details=weights == "contribution",
        uam=weights == "uam",
    ):
        if reading.uam is not None:
            yield pairs, (reading.uam.unsqueeze(1),), reading
        else:
            yield pairs, reading.attentions if weights == "attention" else reading.contributions, reading


def between_words(steps: Tensor, pair: TokenPair, shift: bool) -> Tensor:
    """Turn (..., steps, source) of a pair into (..., target words, source words), on the CPU, in float32 or better."""
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
    """Return the attention between the words of every pair, in the layer and heads of `settings`.

    Args:
        model: an encoder-decoder of transformers, on the device to use. Its mode and attention are left as they are.
        tokenizer: its tokenizer.
        sources: source sentences.
        targets: their translations.
        settings: None for `Seq2SeqAttention.default_of`.
        batch_size: most pairs at once. Pairs are batched by length.

    Returns:
        For every pair (target words, source words) on the CPU: summed over the subwords of a source word, averaged
        over those of a target word. One of the two numbers is 0 where a side has no word.

    Raises:
        ValueError: see `readings_of_pairs`; also a layer or head that the model does not have.
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
) -> Iterator[tuple[int, Tensor]]:
    """Yield the index and (target words, source words) of every pair with words on both sides."""
    settings = settings or Seq2SeqAttention.default_of(model)
    chosen = {"source_prefix": settings.source_prefix, "weights": settings.weights}
    for pairs, layers, reading in read_weights(model, tokenizer, sources, targets, batch_size=batch_size, **chosen):
        picked = [(one.pick(layers), one.shift) for one in settings.readings]
        for row, pair in enumerate(pairs):
            words = [between_words(reading.unpadded(steps, row), pair, shift) for steps, shift in picked]
            yield pair.index, torch.stack(words).mean(dim=0)


# ---- the source of the aligner ----


class Seq2SeqSource(WeightSource):
    """One direction, between words: what a decoder attends to while it is given the target."""

    kind = "an encoder-decoder"
    has_settings = True
    symmetrizations = ("forward",)
    why_no_other = "which has one direction (align both with two models, and merge them with `alignment.symmetrize`)"
    symmetrization = "forward"
    has_null = False
    may_have_prior = True

    def __init__(self, model, tokenizer, settings: Seq2SeqAttention | None = None):
        if not has_uam(model.config):  # whose alignment module needs no attention
            check_attends(model.config)
        if settings is not None and settings.beside is not None and hasattr(model, "told_layers"):
            settings = replace(settings, beside=None, threshold=None)  # CTranslate2 tells the first
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
        chosen = self.settings is not None
        known = self.settings or Seq2SeqAttention.default_of(self.model)
        if known.weights == "uam" and {"layer", "heads"} & changes.keys():
            changes = {"weights": "attention"} | changes  # whose they are
        weights = changes.get("weights", known.weights)
        if (weights == "uam") != (known.weights == "uam"):  # layer, heads and steps are those of the other one
            prefix, chosen = known.source_prefix, False
            known = replace(Seq2SeqAttention.default_of(self.model, weights), source_prefix=prefix)
        if not chosen and weights != "uam" and "heads" in changes and "layer" not in changes:
            raise ValueError("`heads` are those of one layer, and none is chosen yet: give `layer`, too.")
        if {"layer", "heads", "shift", "weights"} & changes.keys():
            changes = {"threshold": None, "beside": None} | changes  # the known ones are of other weights
        self.settings = Seq2SeqAttention.from_dict(known.to_dict() | changes)

    def check_settings(self) -> None:
        self.settings.check(self.model)

    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield single pairs, as they differ in size. `batch_size` alone decides how many are read at once."""
        sources, targets = ([" ".join(pair[side]) for pair in pairs] for side in (0, 1))
        cells = None if self.prior is None else self.prior.cells(pairs)
        for index, found in _of_pairs(self.model, self.tokenizer, sources, targets, self.settings, batch_size):
            if cells is not None and self.prior is not None:
                found = torch.lerp(found, torch.from_numpy(cells[index].T).to(found), self.prior.share)
            t, s = found.shape
            ids = (torch.arange(s)[None], s), (torch.arange(t)[None], t)
            yield [index], Weights(found[None], None, None, None, *ids, [(s, t)])
