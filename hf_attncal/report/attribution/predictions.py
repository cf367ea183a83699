"""Methods by the log-probability of y_t: its gradients, and its fall when a token is replaced.

There is one backward pass for each step, of a whole batch at once.

The gradient is that of the function that the model computes: unlike in training, the mask of a calibrated model is no
constant in it. Where attention chooses one position (`gumbel` in evaluation mode) there is none through the choice.

captum would do a forward pass for each backward pass, as it knows one output a pass; here one forward pass serves all
steps of a target.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal.data.words import NO_WORD
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.models.cross_attention import AttentionContext
from hf_attncal.models.losses import IGNORE_INDEX
from hf_attncal.report.attribution.attention_vectors import check_blocks
from hf_attncal.report.attribution.method import Batch, Method, Scores, check_number


def check_embeddings(model) -> None:
    """Raise ValueError for a model without one embedding for each token of source and target."""
    stacks = (model.get_encoder(), model.get_decoder())
    if any(getattr(stack, "syntactic_embed_tokens", None) is not None for stack in stacks):
        raise ValueError("it needs one embedding for each token, and a model with two streams has two")


@dataclass(frozen=True)
class InputXGradient(Method):
    """The embedding of a token times the gradient there, added up over its dimensions.

    Args:
        norm: the length of the product in place of its sum: never negative, and nothing adds up.
        prefix: of the tokens that the decoder reads, too.
    """

    norm: bool = False
    prefix: bool = False
    differentiates = True
    signed = True
    needs = (check_embeddings,)
    baseline = None
    nodes = ((1.0, 1.0),)  # weight of a point between baseline (0) and input (1), and where it is

    @classmethod
    def choices(cls, model) -> list[dict[str, Any]]:
        return [{}, {"norm": True}]

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        """Sum (x - x') times the gradient at x' + alpha (x - x') over the nodes; x' is the baseline."""
        sides = [(model.get_encoder(), "input_ids"), (model.get_decoder(), "decoder_input_ids")][: 1 + self.prefix]
        ends, ways = [], []
        for stack, name in sides:
            embed, tokens = stack.get_input_embeddings(), batch.inputs[name]
            with torch.no_grad():
                ends.append(embed(tokens))
                start = 0.0 if self.baseline is None else embed(torch.full_like(tokens, self.baseline))
                ways.append(ends[-1] - start)
        totals = [[0.0] * batch.labels.shape[1] for _ in sides]
        for weight, alpha in self.nodes:
            points = [(end - (1 - alpha) * way).requires_grad_() for end, way in zip(ends, ways, strict=True)]
            prefix = points[1] if self.prefix else None
            found = log_probabilities(model, batch, encode(model, batch, points[0]), prefix)
            for step, gradients in enumerate(step_gradients(found, points)):
                for total, way, gradient in zip(totals, ways, gradients, strict=True):
                    product = weight * way * gradient
                    total[step] = total[step] + (product if self.norm else product.sum(dim=-1))
        stacked = [torch.stack(total, dim=1) for total in totals]
        return Scores(*(total.norm(dim=-1) if self.norm else total for total in stacked))


@dataclass(frozen=True)
class IntegratedGradients(InputXGradient):
    """Integrated gradients (Sundararajan et al. 2017) along the straight line from a baseline to the embeddings.

    Scores, those of the prefix included where it is on the path, add up to the difference of the log-probabilities
    with embeddings and baseline, as well as the sum over `steps` points (Gauss-Legendre) is the integral.

    Args:
        steps: points on the line, at least 1.
        baseline: number of the token whose embedding is the baseline; None for zeros.
        norm: see `InputXGradient`.
        prefix: the path begins with the baseline in place of the decoder's inputs, too; otherwise they stay.
    """

    steps: int = 32
    baseline: int | None = None

    def check(self, model) -> None:
        check_number("steps", self.steps, 1, 10_000, optional=False)
        check_number("baseline", self.baseline, 0, model.get_encoder().get_input_embeddings().num_embeddings - 1)

    @property
    def nodes(self) -> list[tuple[float, float]]:
        places, weights = np.polynomial.legendre.leggauss(self.steps)  # on [-1, 1]
        return list(zip((weights / 2).tolist(), ((places + 1) / 2).tolist(), strict=True))


@dataclass(frozen=True)
class LayerGradientXActivation(Method):
    """The state of the encoder at a token times the gradient there, added up over its dimensions.

    Args:
        layer: after this encoder layer, from 0, negative ones from the top; None for what the decoder attends to.
        norm: the length of the product in place of its sum.
    """

    layer: int | None = None
    norm: bool = False
    differentiates = True
    signed = True
    needs = (check_embeddings,)

    @classmethod
    def choices(cls, model) -> list[dict[str, Any]]:
        layers: list[dict[str, Any]] = [{}]
        with suppress(ValueError):  # of others what the decoder attends to is all there is
            check_blocks(model)
            layers += [{"layer": layer} for layer in range(len(model.get_encoder().layers))]
        return [options | norm for options in layers for norm in ({}, {"norm": True})]

    def check(self, model) -> None:
        if self.layer is not None:
            check_blocks(model)
            layers = len(model.get_encoder().layers)
            check_number("layer", self.layer, -layers, layers - 1)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        states = []

        def cut(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
            states.append(output.detach().requires_grad_())
            return states[0]

        if self.layer is None:
            with torch.no_grad():
                encoded = encode(model, batch)
            encoded["last_hidden_state"] = cut(None, (), encoded.last_hidden_state)
        else:
            with model.get_encoder().layers[self.layer].register_forward_hook(cut):
                encoded = encode(model, batch)
        gradients = step_gradients(log_probabilities(model, batch, encoded), states)
        products = (states[0] * gradient for (gradient,) in gradients)
        return Scores(torch.stack([p.norm(dim=-1) if self.norm else p.sum(dim=-1) for p in products], dim=1).detach())


@dataclass(frozen=True)
class Occlusion(Method):
    """Fall of the log-probability of y_t when a token is replaced, one at a time.

    Args:
        by: number of the token that stands in its place; None for the tokenizer's unknown one.
        unit: `"word"`: all subwords of a word are replaced at once and share the difference evenly (of the target,
            those that have been read); `"token"`: each alone.
        prefix: replace the tokens that the decoder reads, too.
    """

    by: int | None = None
    unit: str = "word"
    prefix: bool = False
    signed = True

    def check(self, model) -> None:
        if self.unit not in ("word", "token"):
            raise ValueError(f"`unit` must be 'word' or 'token', got {self.unit!r}.")
        check_number("by", self.by, 0, model.get_encoder().get_input_embeddings().num_embeddings - 1)

    def scores(self, model, tokenizer, batch: Batch) -> Scores:
        by = tokenizer.unk_token_id if self.by is None else self.by
        if by is None:
            raise ValueError("`by` must be the number of a token, for the tokenizer has no unknown one, got None.")
        whole = log_probabilities(model, batch)

        def falls(name: str, word_ids: list[np.ndarray]) -> Tensor:
            """Return the falls, (batch, steps, tokens), of replacing each group of tokens of an input."""
            tokens = batch.inputs[name]
            groups = torch.full_like(tokens, -1)  # numbered from 0; padding is in none
            for row, ids in enumerate(word_ids):
                starts = (ids[1:] != ids[:-1]) | (ids[1:] == NO_WORD) | (self.unit == "token")
                groups[row, : len(ids)] = torch.from_numpy(np.cumsum(np.append(False, starts)))
            found = whole.new_zeros(*whole.shape, tokens.shape[1])
            seen = torch.ones_like(found[0])
            if name == "decoder_input_ids":  # of a word that is being written, only what has been read
                seen = seen.tril()
            for number in range(int(groups.max()) + 1):
                chosen = groups == number
                rows = chosen.any(dim=1)
                inputs = {**batch.inputs, name: tokens.masked_fill(chosen, by)}
                inputs = {part: tensor[rows] for part, tensor in inputs.items()}
                fall = whole[rows] - log_probabilities(model, replace(batch, inputs=inputs, labels=batch.labels[rows]))
                share = chosen[rows].unsqueeze(1) * seen
                found[rows] += fall.unsqueeze(-1) * share / share.sum(dim=-1, keepdim=True).clamp(min=1)
            return found

        source = falls("input_ids", [pair.source.word_ids for pair in batch.pairs])
        if not self.prefix:
            return Scores(source)
        read = [np.append(NO_WORD, pair.target.word_ids[:-1]) for pair in batch.pairs]  # the start token, then y_0 ...
        return Scores(source, falls("decoder_input_ids", read))


# ---- passes ----


def encode(model, batch: Batch, embeddings: Tensor | None = None) -> BaseModelOutput:
    """Run the encoder on the source, or on embeddings (batch, source, d) in place of its own."""
    encoder = model.get_encoder()
    with encoder.get_input_embeddings().register_forward_hook(lambda *call: embeddings):  # None changes nothing
        source = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
        return encoder(**source, return_dict=True)


def log_probabilities(
    model,
    batch: Batch,
    encoded: BaseModelOutput | None = None,
    prefix: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Return the log-probability of each label, (batch, steps), in float32 or better; 0 where there is no label.

    Args:
        encoded: what the encoder made of the source; None to do it now.
        prefix: embeddings of what the decoder reads, (batch, steps, d), in place of its own.
        steps: (batch, k), the numbers of those that are wanted; None for all. The layer of the vocabulary, which costs
            as much as many others, is left out for the others.
    """
    context = {}
    copies = getattr(model, "copying", None) is not None
    if calibrated_layers(model):  # others would not know what it is
        context["attention_context"] = AttentionContext(copies=copies, mask_gradients=True)
    # Copies are added to the words of the vocabulary step by step.
    head = None if steps is None or copies else model.get_output_embeddings()
    with ExitStack() as hooks:
        embed = model.get_decoder().get_input_embeddings()
        hooks.enter_context(embed.register_forward_hook(lambda *call: prefix))
        if head is not None:
            hooks.enter_context(head.register_forward_pre_hook(lambda module, args: (_rows(args[0], steps),)))
        outputs = model(**batch.inputs, encoder_outputs=encoded, use_cache=False, return_dict=True, **context)
    logits, labels = outputs.logits.to(torch.promote_types(outputs.logits.dtype, torch.float32)), batch.labels
    if steps is not None:
        labels = labels.gather(1, steps)
        logits = _rows(logits, steps) if head is None else logits
    missing = labels == IGNORE_INDEX
    labels = labels.masked_fill(missing, 0).unsqueeze(-1)
    return torch.log_softmax(logits, dim=-1).gather(-1, labels).squeeze(-1).masked_fill(missing, 0.0)


def step_gradients(log_probabilities: Tensor, points: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """Yield for each step the gradients of its log-probability, (batch, ...) at each of `points`."""
    for column in log_probabilities.unbind(dim=1):  # rows of a batch do not touch each other
        yield torch.autograd.grad(column.sum(), points, retain_graph=True, allow_unused=True, materialize_grads=True)


def _rows(states: Tensor, steps: Tensor) -> Tensor:
    """Select the states of some steps: (batch, all steps, d) -> (batch, k, d)."""
    return states.gather(1, steps.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
