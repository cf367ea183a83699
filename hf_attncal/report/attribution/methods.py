"""List the methods of attribution by name, those of other packages too (`attncal.attributions`), and apply them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields

import numpy as np
import torch
from torch import Tensor

from hf_attncal.inference.reading import (
    TokenPair,
    batches_of_pairs,
    check_encoder_decoder,
    readable,
    teacher_forced,
)
from hf_attncal.io.extras import Table
from hf_attncal.report.attribution.attention_vectors import (
    AttentionWeights,
    Contribution,
    FullNorm,
    TransformedNorm,
    ValueNorm,
)
from hf_attncal.report.attribution.method import Attribution, Batch, Method

from .controls import Diagonal, Posterior, Random
from .flow import ALTI, Rollout, ValueZeroing
from .predictions import InputXGradient, IntegratedGradients, LayerGradientXActivation, Occlusion

_OWN: dict[str, type[Method]] = {
    "attention": AttentionWeights,
    "value_norm": ValueNorm,
    "transformed_norm": TransformedNorm,
    "full_norm": FullNorm,
    "contribution": Contribution,
    "rollout": Rollout,
    "alti": ALTI,
    "value_zeroing": ValueZeroing,
    "input_x_gradient": InputXGradient,
    "integrated_gradients": IntegratedGradients,
    "layer_gradient_x_activation": LayerGradientXActivation,
    "occlusion": Occlusion,
    "posterior": Posterior,
    "random": Random,
    "diagonal": Diagonal,
}
METHODS = Table(_OWN, "attncal.attributions")
CONTROLS = tuple(name for name, method in _OWN.items() if not method.reads_model)


def attribute(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    method: str = "alti",
    *,
    batch_size: int = 32,
    source_prefix: str = "",
    **options,
) -> Iterator[Attribution]:
    """Attribute the prediction of every target token to the tokens of its source, teacher-forced on the targets.

    The targets are references or what the model itself wrote; both are predictions of the model. Nothing of a batch is
    kept, and the model is left as it was between two of them.

    Args:
        model: an encoder-decoder of transformers, stock, ours, or with an active adapter, on the device to use.
        tokenizer: the model's.
        sources, targets: sentences. Pairs with a side of no word are left out.
        method: one of `METHODS`.
        batch_size: most pairs at once. Pairs are batched by length.
        source_prefix: what the model wants in front of every source.
        **options: of the method; its class in `METHODS` says which.

    Yields:
        An attribution for each pair, the longest pairs first: `index` says which it is.

    Raises:
        ValueError: a method that there is not, an option that it has not or with a value that it does not take, a
            model that it does not work on (the message says which methods do), and see `batches_of_pairs`.
    """
    check_encoder_decoder(model.config)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    known = {field.name: field.default is MISSING for field in fields(METHODS[method])}
    for option in options:
        if option not in known:
            raise ValueError(f"`method` {method!r} has the options {', '.join(known) or 'none'}, got {option!r}.")
    for option, is_needed in known.items():
        if is_needed and option not in options:
            raise ValueError(f"`method` {method!r} needs the option `{option}`, got none.")
    chosen = METHODS[method](**options)
    try:
        chosen.check_model(model)
    except ValueError as reason:
        raise ValueError(
            f"`method` {method!r} does not work on this model: {reason}. Those that do: {', '.join(works_on(model))}."
        ) from None
    chosen.check(model)
    reading = {"batch_size": batch_size, "source_prefix": source_prefix}
    batches = batches_of_pairs(model, tokenizer, sources, targets, **reading)
    return _attributions(model, tokenizer, sources, targets, batches, chosen)


def word_scores(
    model, tokenizer, sources: Sequence[str], targets: Sequence[str], method: str = "alti", **options
) -> list[np.ndarray | None]:
    """Return the scores between the words of every pair, in their order, as `analysis.faithfulness` takes them.

    Args and errors are those of `attribute`.

    Returns:
        (target words, source words) for each pair, see `Attribution.words`; None for one with a side of no word.
    """
    found = {
        one.index: one.words().numpy() for one in attribute(model, tokenizer, sources, targets, method, **options)
    }
    return [found.get(index) for index in range(len(sources))]


def works_on(model) -> list[str]:
    """Return the names of the methods that work on an encoder-decoder."""
    names = []
    for name, method in METHODS.items():
        with suppress(ValueError):
            method.check_model(model)
            names.append(name)
    return names


def _attributions(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    batches: Iterable[tuple[list[TokenPair], dict[str, Tensor]]],
    method: Method,
) -> Iterator[Attribution]:
    for pairs, tensors in batches:
        texts = [(sources[pair.index], targets[pair.index]) for pair in pairs]
        batch = Batch(pairs, texts, *teacher_forced(model, tensors))
        with readable(model, False, method.reads_self_attention), torch.set_grad_enabled(method.differentiates):
            scores = method.scores(model, tokenizer, batch)
        for row, pair in enumerate(pairs):
            steps, source = len(pair.target.ids), len(pair.source.ids)
            shapes = (steps, source), (steps, steps), (steps,)
            kept = []
            for tensor, shape in zip(scores, shapes, strict=True):
                if tensor is not None:  # a copy, as a view would keep the whole batch
                    part, dtype = (
                        tensor[row][tuple(map(slice, shape))],
                        torch.promote_types(tensor.dtype, torch.float32),
                    )
                    tensor = part.detach().to("cpu", dtype, copy=True)
                kept.append(tensor)
            yield Attribution(pair.index, pair.source, pair.target, *kept)
