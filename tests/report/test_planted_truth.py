"""Methods of attribution find the source word that is known to make each target word."""

import numpy as np
import pytest
import torch
from helpers import TINY

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.report.attribution import CONTROLS, word_scores, works_on

WORDS = [f"{a}{b}" for a in ("ba", "do", "fe") for b in ("gu", "ki", "la", "mo")]
LENGTH, STEPS, PAIRS = 4, 300, 20


def shuffled(count: int, generator: np.random.Generator) -> tuple[list[str], list[str]]:
    """Sources of different words, and as targets the same words in reverse."""
    rows = [list(generator.choice(WORDS, LENGTH, replace=False)) for _ in range(count)]
    return [" ".join(row) for row in rows], [" ".join(row[::-1]) for row in rows]


@pytest.fixture(scope="module")
def reversing():
    """A model that has learned to write its source in reverse, and its tokenizer."""
    generator = np.random.default_rng(0)
    tokenizer = train_bpe_tokenizer([" ".join(WORDS)] * 3, vocab_size=90)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    fields |= {"d_model": 32, "dropout": 0.0, "init_std": 0.1}
    torch.manual_seed(0)
    model = AttnCalMarianMTModel(AttnCalMarianConfig(**fields, calibration="gated"))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        sources, targets = shuffled(32, generator)
        batch = tokenizer(sources, text_target=targets, return_tensors="pt", padding=True)
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model.eval(), tokenizer


def test_methods_name_the_word_that_was_planted(reversing):
    sources, targets = shuffled(PAIRS, np.random.default_rng(1))
    accuracy = {}
    for name in works_on(reversing[0]):
        scores = np.stack(word_scores(*reversing, sources, targets, name))  # (pairs, target words, source words)
        accuracy[name] = (scores.argmax(axis=2) == np.arange(LENGTH)[::-1]).mean()
    by_chance = max(accuracy[name] for name in CONTROLS if name in accuracy)
    assert by_chance < 0.4
    for name in accuracy.keys() - {*CONTROLS}:
        assert accuracy[name] > 0.95, name
