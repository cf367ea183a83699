"""Copying: each word is generated from the vocabulary, or copied from where one head of attention looks.

Shapes use B = batch, T = target steps, S = source tokens, V = vocabulary, E = slots for words that only a source has,
d = d_model. What is said of a source may have R rows, of which B is a multiple: beams that share their source.

Sources: "Get To The Point: Summarization with Pointer-Generator Networks" (See et al., ACL 2017), "Incorporating
Copying Mechanism in Sequence-to-Sequence Learning" (Gu et al., ACL 2016), and Lu et al. (TASLP 2022), who copy by one
head of a Transformer.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Probabilities below e^-80 count as such: an underflow must not become an infinite loss or gradient.
_LOWEST = -80.0


class CopySource(NamedTuple):
    """What can be copied.

    Args:
        ids: what each source token is among the V + E words, (R, S).
        real: where a source token is not padding, boolean (R, S).
        states: of the encoder, (R, S, d).
    """

    ids: Tensor
    real: Tensor
    states: Tensor


class _Mixture(torch.autograd.Function):
    """`log(p_gen P_vocab(w) + sum over the places of w of what is copied)`: log space, changed at S places of a row.

    Keeps the logits and what is of size (R, N, S).
    """

    @staticmethod
    def forward(ctx, logits: Tensor, generating: Tensor, copied: Tensor, ids: Tensor, slots: int) -> Tensor:
        vocabulary, places = logits.shape[-1], ids.unsqueeze(1).expand_as(copied)
        wide = logits.to(copied.dtype)
        mixture = copied.new_zeros(*logits.shape[:-1], vocabulary + slots)
        # A word that stands in several places is copied from all of them.
        total = mixture.scatter_add_(-1, places, copied).gather(-1, places)
        log_normalizer = torch.logsumexp(wide, dim=-1, keepdim=True)
        torch.add(wide, generating.unsqueeze(-1) - log_normalizer, out=mixture[..., :vocabulary])
        mixture[..., vocabulary:] = torch.finfo(mixture.dtype).min
        generated = mixture.gather(-1, places)
        impossible = (total == 0) & (places < vocabulary)
        log_copied = total.clamp(min=math.exp(_LOWEST)).log().masked_fill(impossible, -math.inf)
        mixed = torch.logaddexp(generated, log_copied)
        ctx.save_for_backward(logits, log_normalizer, generated, mixed, total, ids)
        return mixture.scatter_(-1, places, mixed)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        logits, log_normalizer, generated, mixed, total, ids = ctx.saved_tensors
        vocabulary, places = logits.shape[-1], ids.unsqueeze(1).expand_as(mixed)
        of_copies = grad.gather(-1, places)
        copied_grad = of_copies * torch.exp(-mixed.clamp(min=_LOWEST))
        floored = (total < math.exp(_LOWEST)) & (places >= vocabulary)
        copied_grad.masked_fill_(floored, 0.0)
        # Of each word, the share that is generated.
        share = of_copies * torch.exp(generated - mixed)
        of_generated = grad.scatter(-1, places, share)[..., :vocabulary]
        generating_grad = of_generated.sum(dim=-1)
        logits_grad = (logits.to(grad.dtype) - log_normalizer).exp_()
        logits_grad.mul_(-generating_grad.unsqueeze(-1)).add_(of_generated)
        return logits_grad.to(logits.dtype), generating_grad, copied_grad, None, None


def mixture_log_probabilities(logits: Tensor, generating: Tensor, copied: Tensor, ids: Tensor, slots: int) -> Tensor:
    """`log P(w) = log(p_gen P_vocab(w) + sum_(s: x_s = w) c_s)` (See et al., eq. 9), with `P_vocab = softmax(logits)`.

    Args:
        logits: (R, N, V). generating: log p_gen, (R, N), in float32 at least. copied: c_s, the probability of copying
            each source token, (R, N, S), of the same dtype. ids: (R, S), each below V + E. slots: E.

    Returns:
        (R, N, V + E), of that dtype. A slot that no source token has is at the lowest finite value, one that a source
        token has not below -80.
    """
    return _Mixture.apply(logits, generating, copied, ids, slots)


class CopyMechanism(nn.Module):
    """The switch between generating and copying (See et al., eq. 8), and the mixture of the two.

    The chance to copy is `sigmoid(w^T [z_t; c_t] + b)`: z_t is the decoder's final state, c_t the encoder's states as
    weighted by the attention that copies.
    """

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(2 * config.d_model, 1)
        self.slots = config.max_copied_tokens

    def forward(
        self, logits: Tensor, hidden_states: Tensor, attention: Sequence[Tensor], source: CopySource
    ) -> Tensor:
        """Log-probabilities of V + E words, (B, T, V + E), in float32 at least.

        Args:
            logits: (B, T, V). hidden_states: z_t, (B, T, d). attention: of consecutive steps, one or more parts of as
                many values as (B, steps, S); what is missing in the sum of a row, as the weight of NULL, is generated.
        """
        batch, rows, length = len(logits), *source.ids.shape
        weights = torch.cat([part.reshape(batch, -1, length) for part in attention], dim=1)
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32)).view(rows, -1, length)
        weights = weights.masked_fill(~source.real.unsqueeze(1), 0.0)
        total = weights.sum(dim=-1, keepdim=True)
        weights = weights / total.clamp(min=1.0)
        context = torch.matmul(weights.to(source.states.dtype), source.states)
        states = hidden_states.reshape(rows, -1, hidden_states.shape[-1])
        score = self.gate(torch.cat([states, context.to(states.dtype)], dim=-1)).squeeze(-1).to(weights.dtype)
        copying = torch.sigmoid(score)
        generating = torch.sigmoid(-score) + copying * (1 - total.squeeze(-1)).clamp(min=0.0)
        log_generating = generating.clamp(min=math.exp(_LOWEST)).log()
        logits = logits.reshape(rows, -1, logits.shape[-1])
        copied = copying.unsqueeze(-1) * weights
        mixture = mixture_log_probabilities(logits, log_generating, copied, source.ids, self.slots)
        return mixture.view(batch, -1, mixture.shape[-1])


def copy_source(
    config, ids: Tensor | None, extended_ids: Tensor | None, attention_mask: Tensor | None, states: Tensor
) -> CopySource:
    """What a batch can copy.

    Args:
        ids: `input_ids`. extended_ids: `extended_input_ids`, in their place. attention_mask: (R, S), 1 for real
            tokens. states: of the encoder, (R, S, d).

    Raises:
        ValueError: neither kind of ids; or `extended_input_ids` of another shape than the source, or beyond the slots.
    """
    if extended_ids is None and ids is None:
        raise ValueError(
            "`input_ids` or `extended_input_ids` are needed by a model with `copy`, got neither: it copies tokens of "
            "the source. Pass them, beside `encoder_outputs` or `inputs_embeds` if those are given."
        )
    if extended_ids is not None:
        if extended_ids.shape != states.shape[:2]:
            raise ValueError(
                f"`extended_input_ids` must have the shape of the source, {tuple(states.shape[:2])}, got "
                f"{tuple(extended_ids.shape)}."
            )
        width = config.vocab_size + config.max_copied_tokens
        # Elsewhere the answer would have to be waited for.
        if extended_ids.device.type == "cpu" and int(extended_ids.max()) >= width:
            raise ValueError(
                f"`extended_input_ids` must be below {width} (`vocab_size` {config.vocab_size} and "
                f"`max_copied_tokens` {config.max_copied_tokens}), got {int(extended_ids.max())}. Raise "
                "`max_copied_tokens`, or leave the words that have no slot unknown."
            )
        ids = extended_ids
    ids = ids.to(states.device)
    real = torch.ones_like(ids) if attention_mask is None else attention_mask.to(states.device)
    return CopySource(ids, real.bool(), states)


def known_ids(ids: Tensor | None, config) -> Tensor | None:
    """Ids with the unknown word in place of those beyond the vocabulary: what has an embedding; any shape."""
    if ids is None or not config.max_copied_tokens:
        return ids
    return ids.masked_fill(ids >= config.vocab_size, config.unk_token_id)
