"""The configuration of the family that `test_families.py` adds: Marian's, under a name of its own."""

from transformers import MarianConfig


class ToyConfig(MarianConfig):
    model_type = "toy"


ToyConfig.register_for_auto_class()
