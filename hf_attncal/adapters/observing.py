"""Teach an observer word links: record the states of a frozen model once, find the head, and learn its change.

The model runs once over the text. Everything after that works on its recorded states: seconds for some thousand
sentence pairs or ten minutes of speech.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from peft import PeftModel, get_peft_model
from torch import Tensor, nn

from hf_attncal.models.functional import token_rows
from hf_attncal.models.losses import IGNORE_INDEX, shift_labels
from hf_attncal.models.objective import guided_attention_loss
from hf_attncal.models.observing import HeadObserver

from .checkpoints import peft_uses_old_names
from .configuration import AttentionCalibrationConfig
from .layers import AdapterLayer, adapter_layers
from .tuner import check_adaptable

_RANK = 64  # or d_k if that is less
_CANDIDATES = 5  # heads nearest to the links, which are tried at both steps
_TRIAL_STEPS = 150
_MOST_STEPS = 3000
_NULL_SHARE = 0.01  # weight of NULL before it learns
_NOISE = 2.0  # standard errors by which another head must be better than the nearest one


class HeadPlace(NamedTuple):
    """Head of a cross-attention, and the step of a target token: the one that reads it (`shift`), or predicts it."""

    layer: int
    head: int
    shift: bool

    def __str__(self) -> str:
        step = "reads" if self.shift else "predicts"
        return f"layer {self.layer}, head {self.head} (counted from 0), at the step that {step} a token"


@dataclass(frozen=True)
class Lesson:
    """Head that an observer learned from, and its agreement with held-out links.

    Args:
        place: head and step.
        agreement: share of the linked target tokens whose best source token is linked, after learning.
        before: the same share before learning.
        steps: number of steps of the optimiser.
        seconds: CPU seconds of recording and learning.
    """

    place: HeadPlace
    agreement: float
    before: float
    steps: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"Observer of {self.place}: right for {self.agreement:.1%} of the linked tokens of held-out text, "
            f"{self.before:.1%} before learning."
        )


class _Batch(NamedTuple):
    """Recorded states of one batch.

    Args:
        decoder: inputs of each cross-attention, (B, T, d_model), by layer.
        encoder: states of the encoder, (B, S, d_model).
        real: True for real source tokens, (B, 1, 1, S); None if all are.
        links: True where target token t is linked to source token s, (B, T, S).
        labels: labels, (B, T).
    """

    decoder: dict[int, Tensor]
    encoder: Tensor
    real: Tensor | None
    links: Tensor
    labels: Tensor


class _Recorded(Sequence[_Batch]):
    """Batches in files that are mapped into memory.

    Raises:
        ValueError: no batch, or none with links.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Mapping[str, Tensor]], folder: Path):
        self.folder, self.size, linked = folder, 0, False
        folder.mkdir()
        for batch in _states(model, batches):
            torch.save(batch._asdict(), folder / str(self.size))
            self.size, linked = self.size + 1, linked or bool(batch.links.any())
        if not linked:
            raise ValueError("`links` must link at least one token of the text, got none. Check the links.")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return _Batch(**torch.load(self.folder / str(index), mmap=True))


def learn_observer(
    model: nn.Module,
    batches: Iterable[Mapping[str, Tensor]],
    held_out: Iterable[Mapping[str, Tensor]],
    *,
    places: Sequence[HeadPlace] | None = None,
    epochs: int = 15,
    learning_rate: float = 2e-3,
    adapter_name: str = "default",
    seed: int = 0,
) -> tuple[PeftModel, Lesson]:
    """Add an observer to a model and teach it links, without a change of the model.

    The heads that are nearest to the links are taught a little, at both steps. The one with the best agreement on
    held-out text learns on; the nearest one if the difference is noise.

    Args:
        model: encoder-decoder of transformers or of this package, on the device to use, or one with observers.
        batches: batches with the inputs of the model, `labels` (B, T), and `links` (B, T, S): 1 where target token t
            is linked to source token s. A token without links teaches NULL.
        held_out: batches like these of other text.
        places: heads and steps to choose from. Default: `None`, those nearest to the links.
        epochs: number of passes over the recorded states, of at most 3,000 steps in all.
        learning_rate: learning rate of Adam, falling linearly to 0.
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
        text = _Recorded(model, batches, Path(folder) / "text")
        unread = _Recorded(model, held_out, Path(folder) / "held_out")
        ranked = list(rank_heads(layers, unread))
        if places is None:
            places = [
                place._replace(shift=place.shift ^ other) for place in ranked[:_CANDIDATES] for other in (False, True)
            ]
        best, steps = places[0], min(epochs * len(text), _MOST_STEPS)
        if len(places) > 1:
            trials = {
                place: _taught(layers[place.layer], place, text, _TRIAL_STEPS, learning_rate) for place in places
            }
            best = _chosen({place: _hits(layers[place.layer], place, unread, trials[place]) for place in places})
        observer = _taught(layers[best.layer], best, text, steps, learning_rate)
        after, before = (float(_hits(layers[best.layer], best, unread, o).double().mean()) for o in (observer, None))
        lesson = Lesson(best, after, before, steps, time.process_time() - start)
    config = AttentionCalibrationConfig(
        observe=True,
        calibration=None,
        guided=True,
        leaky=True,
        guided_layer=best.layer,
        guided_head=best.head,
        guided_shift=best.shift,
        guided_rank=observer.rank,
    )
    with peft_uses_old_names():
        if isinstance(model, PeftModel):
            model.add_adapter(adapter_name, config)
            model.set_adapter(adapter_name)
        else:
            model = get_peft_model(model, config, adapter_name=adapter_name)
    active = next(layer for layer in adapter_layers(model) if layer.active_name is not None)
    active.observer.load_state_dict(observer.state_dict())
    return model.eval(), lesson


def nearest_head(model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> tuple[HeadPlace, float]:
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
        text = _Recorded(model, batches, Path(folder) / "text")
        best = rank_heads(layers, text)[0]
        return best, float(_hits(layers[best.layer], best, text).double().mean())


def rank_heads(layers: Mapping[int, AdapterLayer], text: Sequence[_Batch]) -> list[HeadPlace]:
    """Return all heads, each at its better step, in the order of their agreement with the links."""
    shares = {
        HeadPlace(number, head, shift): float(_hits(layer, HeadPlace(number, head, shift), text).double().mean())
        for number, layer in layers.items()
        for head in range(layer.num_heads)
        for shift in (False, True)
    }
    ranked = sorted(shares, key=lambda place: -shares[place])
    return list({place[:2]: place for place in reversed(ranked)}.values())[::-1]


def _states(model: Any, batches: Iterable[Mapping[str, Tensor]]) -> Iterator[_Batch]:
    """Run the model on each batch and yield the states that its cross-attentions get."""
    states: dict[int, Tensor] = {}
    encoded: list[Tensor] = []

    def record(number: int):
        def hook(attention: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            states[number] = args[0] if args else kwargs["hidden_states"]
            encoded[:] = [kwargs["key_value_states" if "key_value_states" in kwargs else "encoder_hidden_states"]]

        return hook

    attentions = check_adaptable(model, observe=True)
    hooks = [a.register_forward_pre_hook(record(n), with_kwargs=True) for n, (_, a) in attentions.items()]
    training = model.training
    model.eval()
    try:
        for batch in batches:
            inputs: dict[str, Any] = {
                name: value.to(model.device) if torch.is_tensor(value) else value for name, value in batch.items()
            }
            labels, links = inputs.pop("labels"), inputs.pop("links").bool()
            mask: Any = inputs.get("attention_mask")
            inputs.setdefault("decoder_input_ids", shift_labels(model, labels))
            model.base_model(**inputs, use_cache=False)
            is_padded = mask is not None and mask.shape[1] == encoded[0].shape[1] and not mask.all()
            real = mask[:, None, None].bool() if is_padded else None
            yield _Batch(dict(states), encoded[0], real, links, labels)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()


def _attention(
    layer: AdapterLayer, place: HeadPlace, batch: _Batch, observer: HeadObserver
) -> tuple[Tensor, Tensor | None]:
    """Return the observer's weights, (B, T, S), and its weight of NULL, (B, T)."""
    own = slice(place.head * layer.head_dim, (place.head + 1) * layer.head_dim)
    states = batch.decoder[place.layer], batch.encoder
    query, key = (
        nn.functional.linear(x, p.weight[own], None if p.bias is None else p.bias[own])
        for x, p in zip(states, (layer.q_proj, layer.k_proj), strict=True)
    )
    return observer.attend(query, key, *states, layer.scaling, batch.real)


def _fresh(layer: AdapterLayer, null: bool) -> HeadObserver:
    """Return an observer that attends as the head does."""
    weight = layer.q_proj.weight
    observer = HeadObserver(layer.embed_dim, layer.head_dim, min(_RANK, layer.head_dim), null=null)
    observer.init_parameters()
    return observer.to(weight.device, torch.float32)


def _hits(
    layer: AdapterLayer, place: HeadPlace, text: Sequence[_Batch], observer: HeadObserver | None = None
) -> Tensor:
    """Return for each linked target token whether its best source token is linked."""
    observer, hits = observer or _fresh(layer, null=False), []
    for batch in text:
        best = token_rows(_attention(layer, place, batch, observer)[0], place.shift).argmax(dim=-1, keepdim=True)
        linked = batch.links.any(dim=-1) & (batch.labels != IGNORE_INDEX)
        hits.append(batch.links.gather(-1, best).squeeze(-1)[linked])
    return torch.cat(hits)


def _chosen(hits: Mapping[HeadPlace, Tensor]) -> HeadPlace:
    """Return the place with the most hits; the first one unless another is better by more than noise."""
    first, best = next(iter(hits)), max(hits, key=lambda place: int(hits[place].sum()))
    differences = hits[best].double() - hits[first].double()
    return best if differences.sum() > _NOISE * differences.square().sum().sqrt() else first


@torch.enable_grad()
def _taught(
    layer: AdapterLayer, place: HeadPlace, text: Sequence[_Batch], steps: int, learning_rate: float
) -> HeadObserver:
    """Return an observer that learned the links of the text."""
    observer: Any = _fresh(layer, null=True)
    with torch.no_grad():  # NULL begins with little weight, whatever the scale of the scores
        null: Any = _attention(layer, place, text[0], observer)[1]
        observer.null_bias += torch.logit(torch.tensor(_NULL_SHARE)) - torch.logit(null, eps=1e-6).mean()
    optimizer = torch.optim.Adam(observer.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    order = torch.cat([torch.randperm(len(text)) for _ in range(-(-steps // len(text)))])
    for number in order[:steps].tolist():
        batch = text[number]
        attention, null = _attention(layer, place, batch, observer)
        loss = guided_attention_loss(attention, null, batch.links, batch.labels, place.shift)
        optimizer.zero_grad()
        (loss / (batch.labels != IGNORE_INDEX).sum()).backward()
        optimizer.step()
        schedule.step()
    return observer.requires_grad_(False)
