"""Tiny random Discrete Transformers and batches for them."""

import torch
from helpers import TINY
from transformers import PreTrainedModel

from hf_attncal import (
    DiscreteTransformerConfig,
    DiscreteTransformerForCausalLM,
    DiscreteTransformerForConditionalGeneration,
)

PAD, EOS = TINY["pad_token_id"], TINY["eos_token_id"]
MODELS = {"seq2seq": DiscreteTransformerForConditionalGeneration, "causal": DiscreteTransformerForCausalLM}
KINDS = [(kind, streams) for kind in MODELS for streams in (1, 2)]
SOURCES = [[4, 7, 3, 9, 2], [5, 8, 2]]
TEXTS = [[6, 10, 4, 9, 3, 2], [9, 5, 8, 2]]


def tiny_discrete(kind: str, dtype: torch.dtype = torch.float64, scale: float = 0.4, **config) -> PreTrainedModel:
    """Return a tiny random model with scattered parameters; `config` overrides fields."""
    torch.manual_seed(3)
    model = MODELS[kind](DiscreteTransformerConfig(**TINY | config)).to(dtype)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(scale * noise.to(parameter.dtype))
    return model


def padded(rows: list[list[int]], value: int = PAD, *, left: bool = False) -> torch.Tensor:
    """Pad rows to the same length."""
    longest = max(map(len, rows))
    fill = [[value] * (longest - len(row)) for row in rows]
    return torch.tensor([more + row if left else row + more for row, more in zip(rows, fill, strict=True)])


def batch_for(kind: str, *, left: bool = False, labels: bool = True) -> dict[str, torch.Tensor]:
    """Return a batch of two sentences or pairs of different lengths; a causal model's padding may be on the left."""
    if kind == "seq2seq":
        ids = padded(SOURCES)
        inputs = {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}
        return inputs | ({"labels": padded(TEXTS, -100)} if labels else {})
    ids = padded(TEXTS, left=left)
    mask = ids.ne(PAD).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    if left:
        inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
    return inputs | ({"labels": ids.masked_fill(mask == 0, -100)} if labels else {})
