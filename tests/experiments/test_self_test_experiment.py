"""What the experiment writes and prints of a self-test."""

import json

import numpy as np
import pytest
import torch
from self_test import judge_stack, stack_scores
from stack_sequences import VOCABULARY, generate_sequences, true_dependencies

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForCausalLM
from hf_attncal.data.tokenizer import LANGUAGE_TOKENS, train_word_tokenizer


@pytest.fixture
def experiment_of(experiment, tmp_path, monkeypatch):
    """The script, with a result in the place of a training."""
    script = experiment("self_test")

    def score(value: float) -> dict:
        intervals = {"accuracy": (value - 0.1, value + 0.1)}
        return {"accuracy": value, "by_chance": 0.2, "one_place": 0.25, "intervals": intervals}

    found = {
        "training": {"config": {}, "steps": 3, "wall_seconds": 1.0, "parameters": 9, "test": {"bleu": 1.0}},
        "methods": {"attention": {"links": score(0.5)}, "alti": {"links": score(0.8)}},
        "best_method": "alti",
        "metrics": {"hide": {"sufficiency": {"usable": False, "above_random": 0.5, "interval": (-1, 2), "tau": None}}},
    }
    given = {}

    def run(folder, **options):
        given.update(options)
        return dict(found)

    monkeypatch.setattr(script, "run_self_test", run)
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    return script, given


def test_a_result_is_written(experiment_of, tmp_path):
    script, given = experiment_of
    script.main(["--seed", "3", "--steps", "7"])
    written = json.loads((tmp_path / "analysis" / "self_test_seed3.json").read_text())
    assert given == {"steps": 7, "seed": 3, "measured": 30, "bootstrap": 1000}
    assert (written["config"]["seed"], written["best_method"], written["training"]["steps"]) == (3, "alti", 3)
    assert written["software"]


# ---- the stack language ----


@pytest.fixture(scope="module")
def stack():
    special = [token for token in LANGUAGE_TOKENS if token != "</s>"]
    tokenizer = train_word_tokenizer([" ".join(VOCABULARY)], 20, special_tokens=special)
    torch.manual_seed(0)
    sizes = {"d_model": 8, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 8}
    tokens = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id, "eos_token_id": None}
    config = DiscreteTransformerConfig(vocab_size=len(tokenizer), hard_attention=False, **sizes, **tokens)
    return DiscreteTransformerForCausalLM(config).double().eval(), tokenizer


def test_the_stack_language_is_judged_without_the_token_read_last():
    sequences = generate_sequences(30, seed=1, length=12)
    truths = true_dependencies(sequences)
    near = -np.abs(np.arange(12)[:, None] - np.arange(12)).astype(float)
    judged = judge_stack(sequences, {"truth": truths.astype(float), "nearest": [near] * 30}, bootstrap=20)
    assert judged["truth"].pooled_auc == 1
    assert judged["nearest"].accuracy == judged["nearest"].auc == 1
    assert judged["nearest"].pooled_auc < 1
    current = np.eye(12)
    assert judge_stack(sequences, {"current": [current] * 30}, bootstrap=0)["current"].auc == 0.5


def test_effects_of_symbols_are_those_of_every_sequence_read_alone(stack):
    model, tokenizer = stack
    sequences = generate_sequences(2, seed=4, length=6)
    found = stack_scores(model, tokenizer, sequences)
    assert {name: [of.shape for of in values] for name, values in found.items()} == dict.fromkeys(
        ("fields", "attention", "occlusion", "nearest", "random"), [(6, 6)] * 2
    )

    @torch.no_grad()
    def log_probability(read: list[str], symbol: str) -> float:
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(["<s>", *read])])
        return float(model(ids).logits[0, -1].log_softmax(-1)[tokenizer.convert_tokens_to_ids(symbol)])

    symbols = sequences[1].split()
    for number, symbol in enumerate(symbols):
        read = symbols[:number]
        for place in range(number):
            others = [other for other in VOCABULARY if other != read[place]]
            after = [log_probability([*read[:place], other, *read[place + 1 :]], symbol) for other in others]
            expected = log_probability(read, symbol) - sum(after) / len(after)
            assert found["occlusion"][1][number, place + 1] == pytest.approx(expected, abs=1e-10)
    assert not np.triu(found["occlusion"][1], k=1).any()
    assert not np.triu(found["attention"][1], k=1).any()
