"""The measurement of receptive fields on the stack language: a model with known fields, and a soft one."""

import pytest
import torch
from stack_sequences import VOCABULARY, generate_sequences, true_dependencies

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForCausalLM
from hf_attncal.data.tokenizer import LANGUAGE_TOKENS, train_word_tokenizer


@pytest.fixture(scope="module")
def stack_language(experiment):
    return experiment("stack_language")


@pytest.fixture
def folder(tmp_path):
    """Saves a tiny random model with these settings, and its vocabulary."""

    def save(**settings) -> str:
        special = [token for token in LANGUAGE_TOKENS if token != "</s>"]
        tokenizer = train_word_tokenizer([" ".join(VOCABULARY)], 20, special_tokens=special)
        torch.manual_seed(0)
        sizes = {"d_model": 8, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 8}
        tokens = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id, "eos_token_id": None}
        config = DiscreteTransformerConfig(vocab_size=len(tokenizer), **sizes, **tokens, **settings)
        DiscreteTransformerForCausalLM(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return str(tmp_path)

    return save


def test_a_model_that_reads_nothing(stack_language, folder):
    """Every head chooses NULL: the token read last is in each field, and nothing else."""
    sequences = generate_sequences(20, seed=1)
    measured = stack_language.scores(folder(leaky=True, null_bias=1e4), sequences, bootstrap=10)
    true = true_dependencies(sequences)
    assert measured["field_size"] == 1
    assert measured["begin"]["precision"] == 1
    assert measured["begin"]["recall"] == pytest.approx(20 * 30 / true.sum())
    assert measured["no_begin_no_current"]["recall"] == 0


def test_a_soft_model_is_read_by_its_weights(stack_language, folder):
    sequences = generate_sequences(5, seed=1)
    where = folder(hard_attention=False)
    found = stack_language.fields(where, sequences)
    assert found.dtype != bool
    expected = (found >= stack_language.SOFT).sum() / (5 * 30)
    assert stack_language.scores(where, sequences, bootstrap=0)["field_size"] == pytest.approx(expected)
