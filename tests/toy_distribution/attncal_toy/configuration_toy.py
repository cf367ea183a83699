"""The configuration of the family that this package adds: Marian's, under a name of its own."""

from transformers import MarianConfig


class ToyConfig(MarianConfig):
    model_type = "toy"


ToyConfig.register_for_auto_class()
