"""transformers' own conformance suite on the recurrent models: encoder-decoders without self-attention.

What Marian runs and these models do not is listed below, test by test, with the reason; `conftest.py` turns any
further skip into a failure.
"""

import unittest

import stock_cases  # the module and not its classes, which would be collected here once more
from testers import OWN_CACHE, ConformanceMixin, NewModelMixin, Seq2SeqModelTester, outlived_reasons, since_5_24
from upstream import ConfigTester, announce

from hf_attncal import LuongConfig, LuongForConditionalGeneration, LuongModel

announce("luong", LuongModel, LuongForConditionalGeneration)

TINY = {
    "vocab_size": 99,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_source_length": 50,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}


ONE_ATTENTION = "its attentions are those of one cross-attention; tests/models/test_luong.py tests them"
NO_KERNELS = "its attention has one implementation: most of its time is spent in recurrent steps"
NO_CHECKPOINTING = "gradient checkpointing is refused, which tests/models/test_luong.py tests"


class LuongModelTester(Seq2SeqModelTester):
    num_attention_heads = 1

    def get_config(self):
        return LuongConfig(**TINY, **self.switches)


class LuongMixin(NewModelMixin, ConformanceMixin):
    stock_test_case = stock_cases.StockMarianTest
    all_model_classes = (LuongModel, LuongForConditionalGeneration)
    config_class = LuongConfig
    has_attentions = False
    own_skips = {
        "test_attention_outputs": ONE_ATTENTION,
        "test_can_set_attention_dynamically": NO_KERNELS,
        "test_eager_matches_sdpa_inference": NO_KERNELS,
        "test_sdpa_can_dispatch_non_composite_models": NO_KERNELS,
        "test_enable_input_require_grads_with_gradient_checkpointing": NO_CHECKPOINTING,
        "test_capture_outputs_decorator": "it gives out its states itself, and records nothing inside its layers",
    } | since_5_24(test_bc_cache_name_forward=OWN_CACHE, test_multimodal_outputs_are_returned=ONE_ATTENTION)

    def setUp(self):
        super().setUp()
        self.model_tester = LuongModelTester(self.config_class, self.switches)

    def test_config(self):
        ConfigTester(self, config_class=LuongConfig, **TINY, **self.switches).run_common_tests()


class FedLuongTest(LuongMixin, unittest.TestCase):
    switches = {"bidirectional": True, "selective_gate": True}


class UnfedLuongTest(LuongMixin, unittest.TestCase):
    switches = {"input_feeding": False, "attention_window": "local-p", "cell": "gru"}


class CalibratedLuongTest(LuongMixin, unittest.TestCase):
    switches = {"calibration": "gated", "leaky": True, "tie_word_embeddings": True, "uam": True, "null_token_id": 5}
    all_model_classes = (LuongForConditionalGeneration,)


class OwnSkipsTest(unittest.TestCase):
    def test_no_reason_outlives_its_skip(self):
        self.assertEqual(outlived_reasons(FedLuongTest), [])
