"""The reference: transformers' own Marian and BART pass this suite, as set up here, without a failure."""

import unittest

from testers import ConformanceMixin
from transformers import BartConfig, BartForConditionalGeneration, BartModel, MarianConfig, MarianModel, MarianMTModel


class StockMarianTest(ConformanceMixin, unittest.TestCase):
    config_class = MarianConfig
    all_model_classes = (MarianModel, MarianMTModel)


class StockBartTest(ConformanceMixin, unittest.TestCase):
    config_class = BartConfig
    all_model_classes = (BartModel, BartForConditionalGeneration)
