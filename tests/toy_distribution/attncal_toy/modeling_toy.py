"""The model of the family that this package adds."""

from transformers import MarianMTModel

from .configuration_toy import ToyConfig


class ToyForConditionalGeneration(MarianMTModel):
    config_class = ToyConfig


ToyForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
