"""Which models a probe can be put into. Training one is tested with the command."""

import pytest
from seq2seq_helpers import text_model
from transformers import T5Config, T5ForConditionalGeneration

from hf_attncal.report.analysis import check_can_have_probe


def test_stock_models_can_have_one(family):
    check_can_have_probe(text_model(family, "stock"), "model")


def test_models_that_cannot_have_a_probe_get_the_option_without_one():
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    for model, reason in ((t5, "T5ForConditionalGeneration"), (text_model("marian", "ours"), "must be a stock model")):
        with pytest.raises(ValueError, match=f"No probe: .*{reason}.*--no-probe"):
            check_can_have_probe(model, "model")
