"""transformers' own conformance suite on our classes: no failure, and no skip that the stock classes do not have.

`conftest.py` turns any further skip into a failure.
"""

import unittest

import pytest
import stock_cases  # the module and not its classes, which would be collected here once more
from testers import OursMixin
from upstream import announce

from hf_attncal import (
    AttnCalBartConfig,
    AttnCalBartForConditionalGeneration,
    AttnCalBartModel,
    AttnCalMarianConfig,
    AttnCalMarianModel,
    AttnCalMarianMTModel,
)

announce("attncal_marian", AttnCalMarianModel, AttnCalMarianMTModel)
announce("attncal_bart", AttnCalBartModel, AttnCalBartForConditionalGeneration)


class MarianMixin(OursMixin):
    stock_test_case = stock_cases.StockMarianTest
    config_class = AttnCalMarianConfig
    all_model_classes = (AttnCalMarianModel, AttnCalMarianMTModel)


class BartMixin(OursMixin):
    stock_test_case = stock_cases.StockBartTest
    config_class = AttnCalBartConfig
    all_model_classes = (AttnCalBartModel, AttnCalBartForConditionalGeneration)


class OffMarianTest(MarianMixin, unittest.TestCase):
    switches = {}


class OffBartTest(BartMixin, unittest.TestCase):
    switches = {}
    repeats = True


class GatedLeakyMarianTest(MarianMixin, unittest.TestCase):
    switches = {"calibration": "gated", "leaky": True}


@pytest.mark.slow
class GatedLeakyBartTest(BartMixin, unittest.TestCase):
    switches = {"calibration": "gated", "leaky": True}


# The bare models add nothing to these, and every class adds to the time of the suite. The usual run takes each of
# these switches on one backbone: the mechanism is written once for both.


class AlignedMarianTest(MarianMixin, unittest.TestCase):
    switches = {"uam": True, "null_token_id": 5}
    all_model_classes = (AttnCalMarianMTModel,)


class AnnealedHeadMarianTest(MarianMixin, unittest.TestCase):
    switches = {"calibration": "annealed", "mask_projection": "head"}
    all_model_classes = (AttnCalMarianMTModel,)


@pytest.mark.slow
class AnnealedHeadBartTest(BartMixin, unittest.TestCase):
    switches = {"calibration": "annealed", "mask_projection": "head"}
    all_model_classes = (AttnCalBartForConditionalGeneration,)


@pytest.mark.slow
class GumbelMarianTest(MarianMixin, unittest.TestCase):
    switches = {"gumbel": True}
    all_model_classes = (AttnCalMarianMTModel,)


class OutputGateMarianTest(MarianMixin, unittest.TestCase):
    switches = {"output_gate": True}
    all_model_classes = (AttnCalMarianMTModel,)


class GumbelBartTest(BartMixin, unittest.TestCase):
    switches = {"gumbel": True}
    all_model_classes = (AttnCalBartForConditionalGeneration,)


WITHOUT_TOKENS = "what is copied are tokens of the source, which embeddings do not tell"
OWN_LOSS = "its loss is computed beside the logits, not of them; tests/models/test_copying.py compares gradients"


class CopyingMixin:
    switches = {"copy": True, "max_copied_tokens": 3, "unk_token_id": 4, "calibration": "gated"}
    own_skips = {"test_inputs_embeds": WITHOUT_TOKENS, "test_encoder_decoder_loss_no_double_shift": OWN_LOSS}

    @unittest.skip(WITHOUT_TOKENS)
    def test_inputs_embeds(self):
        pass

    @unittest.skip(OWN_LOSS)
    def test_encoder_decoder_loss_no_double_shift(self):
        pass


@pytest.mark.slow
class CopyingMarianTest(CopyingMixin, MarianMixin, unittest.TestCase):
    all_model_classes = (AttnCalMarianMTModel,)


class CopyingBartTest(CopyingMixin, BartMixin, unittest.TestCase):
    all_model_classes = (AttnCalBartForConditionalGeneration,)
