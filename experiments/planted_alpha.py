"""Do contributions name the source word that makes a target word, at every alpha? On a task whose answer is known.

    python experiments/planted_alpha.py

A gated model of 32 dimensions learns to write four words in reverse, for 900 steps, with five seeds at each alpha.
`results/planted_alpha.json` has the share of target words whose planted source word has the largest contribution, and
the largest attention; and by layer the same of its heads, and the mean contribution of the most attended word where
that is another one.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.reading import read
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records
from hf_attncal.report.attribution import word_scores

WORDS = [f"{a}{b}" for a in ("ba", "do", "fe") for b in ("gu", "ki", "la", "mo")]
LENGTH, BATCH, STEPS, RATE, PAIRS = 4, 32, 900, 3e-3, 60
ALPHAS, SEEDS = (0.003, 0.01, 0.03, 0.1), range(5)
OF_BOTH = {"layers": 2, "attention_heads": 2, "ffn_dim": 12}
FIELDS = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in OF_BOTH.items()}
FIELDS |= {"d_model": 32, "max_position_embeddings": 24, "dropout": 0.0, "init_std": 0.1}


def reversed_words(count: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return sources of different words, and the same words in reverse."""
    rows = [list(rng.choice(WORDS, LENGTH, replace=False)) for _ in range(count)]
    return [" ".join(row) for row in rows], [" ".join(row[::-1]) for row in rows]


def reversing(alpha: float, seed: int, steps: int) -> tuple[AttnCalMarianMTModel, PreTrainedTokenizerFast]:
    """Return a model that has learned to write its source in reverse, and its tokenizer."""
    tokenizer = train_bpe_tokenizer([" ".join(WORDS)] * 3, vocab_size=90)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    ids |= {"decoder_start_token_id": tokenizer.pad_token_id, "forced_eos_token_id": None}
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    fields = FIELDS | ids | {"vocab_size": len(tokenizer), "calibration": "gated", "mask_penalty": alpha}
    model = AttnCalMarianMTModel(AttnCalMarianConfig(**fields))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(steps):
        sources, targets = reversed_words(BATCH, rng)
        optimizer.zero_grad()
        model(**tokenizer(sources, text_target=targets, return_tensors="pt", padding=True)).loss.backward()
        optimizer.step()
    return model.eval(), tokenizer


def measure(alpha: float, seed: int) -> dict[str, Any]:
    """Return what names the planted words in a model."""
    model, tokenizer = reversing(alpha, seed, STEPS)
    pairs = reversed_words(PAIRS, np.random.default_rng(1))
    planted = torch.arange(LENGTH).flip(0)
    found: dict[str, Any] = {}
    for method in ("contribution", "attention"):
        scores = np.stack(word_scores(model, tokenizer, *pairs, method))  # (pairs, target words, source words)
        found[method] = (scores.argmax(axis=2) == planted.numpy()).mean().item()
    reading = read(model, tokenizer(pairs[0], text_target=pairs[1], return_tensors="pt", padding=True), details=True)
    found["layers"] = [layer_of(one.attention, one.contribution, planted) for one in reading.calibrated]
    return found


def layer_of(attention: Tensor, contribution: Tensor, planted: Tensor) -> dict[str, float | None]:
    """Return the means over the heads of a layer; each word is one token."""
    attention, contribution = (weights[:, :, :LENGTH] for weights in (attention, contribution))
    peak = attention.argmax(3)
    elsewhere = contribution.gather(3, peak[..., None])[..., 0][peak != planted]
    return {
        "attention": (peak == planted).double().mean().item(),
        "contribution": (contribution.argmax(3) == planted).double().mean().item(),
        "contribution_elsewhere": elsewhere.mean().item() if len(elsewhere) else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("results/planted_alpha.json"))
    args = parser.parse_args()
    found = {f"{alpha:g}": {str(seed): measure(alpha, seed) for seed in SEEDS} for alpha in ALPHAS}
    config = FIELDS | {"words": LENGTH, "batch": BATCH, "steps": STEPS, "rate": RATE, "pairs": PAIRS}
    write_json(records.record(config, {}) | {"by_alpha": found}, args.output)


if __name__ == "__main__":
    main()
