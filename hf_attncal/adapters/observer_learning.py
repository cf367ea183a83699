"""Teach an observer word links: record the states of a frozen model once, find heads, and learn their change.

The model runs once over the text. Everything after that works on its recorded states: seconds for some thousand
sentence pairs or ten minutes of speech.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from hf_attncal.inference.head_search import HeadPlace, LinkedWeights, Places, better_set, grown, hits
from hf_attncal.inference.reading import evaluating
from hf_attncal.models.losses import IGNORE_INDEX, shift_labels, target_rows
from hf_attncal.models.objective import guided_attention_loss
from hf_attncal.models.observing import HeadObserver

from .checkpoints import peft_uses_old_names
from .configuration import AttentionCalibrationConfig
from .layers import AdapterLayer, adapter_layers
from .observing import (
    AllRecorded,
    Layers,
    Observers,
    RecordedBatch,
    head_rows,
    real_tokens,
    recorded_states,
    stacked_rows,
)
from .tuner import check_adaptable

_RANK = 64  # or d_k if that is less
_CANDIDATES = 12  # heads nearest to the links, which are tried at both steps
_TRIAL_STEPS, _TRIAL_RATE = 200, 2e-3
_GOOD, _FEW_STEPS = 0.9, 400  # agreement of a head that learns little, and its steps
_GOOD_PART = 2  # such a head learns from every second batch
_MOST_STEPS = 3000
_NULL_SHARE = 0.01  # weight of NULL before it learns

Recorded = Sequence[RecordedBatch]
Inputs = Iterable[Mapping[str, Tensor]]  # batches of a model, with links


@dataclass(frozen=True)
class Lesson:
    """Heads that an observer stands beside, and its agreement with held-out links.

    Args:
        places: heads and steps.
        agreement: share of the linked target tokens whose best source token is linked, after learning.
        before: the same share before learning.
        steps: number of steps of the optimiser.
        seconds: CPU seconds of recording and learning.
    """

    places: Places
    agreement: float
    before: float
    steps: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"Observer of {'; '.join(map(str, self.places))}: right for {self.agreement:.1%} of the linked tokens of "
            f"held-out text, {self.before:.1%} before learning."
        )


class _RecordedText(Recorded):
    """Batches in files that are mapped into memory.

    Raises:
        ValueError: no batch, or none with links.
    """

    def __init__(self, model: nn.Module, batches: Inputs, folder: Path, layers: Layers):
        attentions = {number: layer.get_base_layer() for number, layer in layers.items()}
        self.folder, self.size, linked = folder, 0, False
        folder.mkdir()
        for batch in _states(model, batches, attentions):
            torch.save(batch._asdict(), folder / str(self.size))
            self.size, linked = self.size + 1, linked or bool(batch.links.any())
        if not linked:
            raise ValueError("`links` must link at least one token of the text, got none. Check the links.")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return RecordedBatch(**torch.load(self.folder / str(index), mmap=True))


def learn_observer(
    model: nn.Module,
    batches: Inputs,
    held_out: Inputs,
    *,
    places: Sequence[HeadPlace] | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    adapter_name: str = "default",
    seed: int = 0,
) -> tuple[PeftModel, Lesson]:
    """Add an observer to a model and teach it links, without a change of the model.

    Copies of the heads that are nearest to the links are taught a little, at both steps. Sets grow from the best head
    on held-out text, before or after this learning, while another improves the mean by more than noise. A set is
    kept if it is better than the best head by more than noise.

    Args:
        model: encoder-decoder of transformers or of this package, on the device to use, or one with observers.
        batches: batches with the inputs of the model, `labels` (B, T), and `links` (B, T, S): 1 where target token t
            is linked to source token s. A token without links teaches NULL.
        held_out: batches like these of other text.
        places: heads and steps to choose from; a single one is taken. Default: `None`, those nearest to the links.
        epochs: number of passes over the recorded states, of at most 3,000 steps in all. Default: `None`, 15, or
            400 steps on every second batch if a head is right for 90 % of the tokens, which would learn errors of the
            links.
        learning_rate: learning rate of Adam, falling linearly to 0. Default: `None`, 2e-3, or 5e-4 for such heads.
        adapter_name: name of the adapter.
        seed: seed of the initial weights and of the order of batches.

    Returns:
        The model with the observer as its active adapter, and what it learned.

    Raises:
        ValueError: a model that cannot be observed, or text without links.
    """
    start = time.process_time()
    layers = {n: AdapterLayer(attention) for n, (_, attention) in check_adaptable(model, observe=True).items()}
    with TemporaryDirectory(prefix="attncal-observer-") as folder, torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        layers = layers if places is None else {place.layer: layers[place.layer] for place in places}
        unread = _RecordedText(model, held_out, Path(folder) / "held_out", layers)
        ranked = rank_heads(layers, unread)
        is_good = max(ranked.values()) > _GOOD
        part = islice(batches, None, None, _GOOD_PART if is_good and epochs is None else 1)
        text = _RecordedText(model, part, Path(folder) / "text", layers)
        rate = learning_rate or (5e-4 if is_good else _TRIAL_RATE)
        if places is None:
            nearest = list(ranked)[:_CANDIDATES]
            places = [place._replace(shift=place.shift ^ other) for place in nearest for other in (False, True)]
        heads = tuple(places) if len(places) == 1 else _best_set(layers, tuple(places), text, unread, rate)
        steps = min((epochs or 15) * len(text), _FEW_STEPS if is_good and epochs is None else _MOST_STEPS)
        first, observers = heads[0], _taught(layers, heads, text, steps, rate)
        both = observers, _fresh(layers, heads, null=False)
        after, before = (
            float(
                torch.cat([hits(_linked(b, stacked_rows(layers, b, of).sum(dim=0))) for b in unread]).double().mean()
            )
            for of in both
        )
        lesson = Lesson(heads, after, before, steps, time.process_time() - start)
    config = AttentionCalibrationConfig(
        observe=True,
        calibration=None,
        guided=True,
        leaky=True,
        guided_layer=first.layer,
        guided_head=first.head,
        guided_shift=first.shift if len(heads) == 1 else False,
        guided_rank=observers[first.layer].rank,
        observed_heads=None if len(heads) == 1 else [list(head) for head in heads],
    )
    with peft_uses_old_names():
        if isinstance(model, PeftModel):
            model.add_adapter(adapter_name, config)
            model.set_adapter(adapter_name)
        else:
            model = get_peft_model(model, config, adapter_name=adapter_name)
    for layer in adapter_layers(model):
        if layer.observer is not None:
            layer.observer.load_state_dict(observers[layer.layer_idx].state_dict())
    return model.eval(), lesson


def nearest_head(model: nn.Module, batches: Inputs) -> tuple[HeadPlace, float]:
    """Find the head whose attention agrees most with the links, which has the least to learn.

    Args:
        model, batches: see `learn_observer`.

    Returns:
        Its place, and the share of linked target tokens whose best source token is linked.

    Raises:
        ValueError: see `learn_observer`.
    """
    layers = {n: AdapterLayer(attention) for n, (_, attention) in check_adaptable(model, observe=True).items()}
    with TemporaryDirectory(prefix="attncal-observer-") as folder, torch.no_grad():
        text = _RecordedText(model, batches, Path(folder) / "text", layers)
        return next(iter(rank_heads(layers, text).items()))


def rank_heads(layers: Layers, text: Recorded) -> dict[HeadPlace, float]:
    """Return the agreement of all heads with the links, each at its better step, in descending order."""
    every = [HeadPlace(number, head, False) for number, layer in layers.items() for head in range(layer.num_heads)]
    observers, found = _fresh(layers, every, null=False), defaultdict(list)
    for batch in text:
        for place, steps in head_rows(layers, batch, observers).items():
            for shift in (False, True):
                rows = target_rows(steps, batch.labels, shift)
                found[place._replace(shift=shift)].append(hits(_linked(batch, rows)))
    shares = {place: float(torch.cat(of_place).double().mean()) for place, of_place in found.items()}
    better = (max((False, True), key=lambda shift: shares[place._replace(shift=shift)]) for place in every)
    best = [place._replace(shift=shift) for place, shift in zip(every, better, strict=True)]
    return {place: shares[place] for place in sorted(best, key=lambda place: -shares[place])}


def _states(model: Any, batches: Inputs, attentions: Mapping[int, nn.Module]) -> Iterator[RecordedBatch]:
    """Run the model on each batch, up to the last of the attentions, and yield the states that they get."""
    with evaluating(model):
        for batch in batches:
            inputs: dict[str, Any] = {
                name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()
            }
            labels, links = inputs.pop("labels"), inputs.pop("links").bool()
            inputs.setdefault("decoder_input_ids", shift_labels(model, labels))
            with recorded_states(attentions, last=True) as (states, encoded), suppress(AllRecorded):
                model.base_model(**inputs, use_cache=False)
            decoder = {number: steps[-1] for number, steps in states.items()}
            yield RecordedBatch(
                decoder, encoded[0], real_tokens(inputs.get("attention_mask"), encoded[0]), links, labels
            )


def _fresh(layers: Layers, places: Iterable[HeadPlace], null: bool) -> Observers:
    """Return observers that attend as the heads do, by layer."""
    observers = {}
    for number in sorted({place.layer for place in places}):
        layer, weight = layers[number], layers[number].q_proj.weight
        heads = [(place.head, place.shift) for place in places if place.layer == number]
        sizes = layer.embed_dim, layer.head_dim, min(_RANK, layer.head_dim)
        observers[number] = HeadObserver(*sizes, null, heads)
        observers[number].init_parameters()
        observers[number].to(weight.device, torch.float32)
    return observers


def _best_set(layers: Layers, places: Places, text: Recorded, unread: Recorded, rate: float) -> Places:
    """Return the best set of places by its mean after some learning: one place, or a set grown around good ones."""

    def weights(observers: Observers) -> list[LinkedWeights]:
        rows = (head_rows(layers, batch, observers) for batch in unread)
        return [_linked(b, torch.stack([of[place] for place in places])) for b, of in zip(unread, rows, strict=True)]

    nearest = list(grown((), places, weights(_fresh(layers, places, null=False))))[-1]
    taught = weights(_taught(layers, places, text, _TRIAL_STEPS, max(rate, _TRIAL_RATE), together=False))
    around, anew = (list(grown(chosen, places, taught).items()) for chosen in (nearest, ()))
    return better_set(dict([anew[0], around[-1], anew[-1]]))


def _linked(batch: RecordedBatch, rows: Tensor) -> LinkedWeights:
    """Return the links of the linked target tokens, and their weights without NULL from `rows`, (..., B, T, S)."""
    linked = batch.links.any(dim=-1) & (batch.labels != IGNORE_INDEX)
    return LinkedWeights(rows[..., linked, -batch.links.shape[-1] :], batch.links[linked])


@torch.enable_grad()
def _taught(
    layers: Layers, places: Places, text: Recorded, steps: int, rate: float, together: bool = True
) -> Observers:
    """Return observers that learned the links of the text: the mean of the heads, or each head by itself."""
    observers: Any = _fresh(layers, places, null=True)
    with torch.no_grad():  # NULL begins with little weight, whatever the scale of the scores
        for (number, head, shift), rows in head_rows(layers, text[0], observers).items():
            bias = observers[number].null_bias[observers[number].heads.index((head, shift))]
            bias += torch.logit(torch.tensor(_NULL_SHARE)) - torch.logit(rows[..., 0], eps=1e-6).mean()
    optimizer = torch.optim.Adam([p for o in observers.values() for p in o.parameters()], lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    order = torch.cat([torch.randperm(len(text)) for _ in range(-(-steps // len(text)))])
    for number in order[:steps].tolist():
        batch = text[number]
        rows = stacked_rows(layers, batch, observers)
        rows = rows.mean(dim=0) if together else rows
        loss = guided_attention_loss(rows[..., 1:], rows[..., 0], batch.links, batch.labels, False)
        optimizer.zero_grad()
        (loss / (batch.labels != IGNORE_INDEX).sum()).backward()
        optimizer.step()
        schedule.step()
    for observer in observers.values():
        observer.requires_grad_(False)
    return observers
