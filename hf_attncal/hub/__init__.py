"""Prepare a folder for the Hub: check that it is complete, write its model card, load it without this package."""

from .cards import (
    CardFacts,
    Result,
    read_model_card,
    write_adapter_card,
    write_model_card,
    write_trained_adapter_card,
    write_tuned_encoder_card,
)
from .folder import HubFolder, inspect_folder
from .isolated import translate_in_fresh_process

__all__ = [
    "CardFacts",
    "HubFolder",
    "Result",
    "inspect_folder",
    "read_model_card",
    "translate_in_fresh_process",
    "write_adapter_card",
    "write_model_card",
    "write_trained_adapter_card",
    "write_tuned_encoder_card",
]
