"""transformers' own conformance suite on Marian's small models, whose decoder is recurrent in place of self-attention.

What stock Marian runs and these models do not is listed below, test by test, with the reason; `conftest.py` turns any
further skip into a failure.
"""

import unittest

import pytest
import stock_cases  # the module and not its classes, which would be collected here once more
from testers import OWN_CACHE, OursMixin, outlived_reasons, since_5_24
from upstream import announce

from hf_attncal import SSRUConfig, SSRUForConditionalGeneration, SSRUModel

announce("ssru", SSRUModel, SSRUForConditionalGeneration)


NO_SELF_ATTENTION = "its decoder has no self-attention to return; tests/models/test_ssru.py tests the other attentions"


class SSRUMixin(OursMixin):
    stock_test_case = stock_cases.StockMarianTest
    all_model_classes = (SSRUModel, SSRUForConditionalGeneration)
    config_class = SSRUConfig
    own_skips = dict.fromkeys(
        ("test_attention_outputs", "test_retain_grad_hidden_states_attentions"), NO_SELF_ATTENTION
    ) | since_5_24(test_bc_cache_name_forward=OWN_CACHE)

    @unittest.skip(NO_SELF_ATTENTION)
    def test_attention_outputs(self):
        pass

    @unittest.skip(NO_SELF_ATTENTION)
    def test_retain_grad_hidden_states_attentions(self):
        pass


class OffSSRUTest(SSRUMixin, unittest.TestCase):
    switches = {}
    repeats = True  # its attention is Marian's


@pytest.mark.slow
class CalibratedSSRUTest(SSRUMixin, unittest.TestCase):
    switches = {"calibration": "gated", "leaky": True}
    all_model_classes = (SSRUForConditionalGeneration,)


class OwnSkipsTest(unittest.TestCase):
    def test_no_reason_outlives_its_skip(self):
        self.assertEqual(outlived_reasons(OffSSRUTest), [])
