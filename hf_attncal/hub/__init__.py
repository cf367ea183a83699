"""Publish a folder on the Hub: check it, write its card, load it without this package."""

from .hub_folder import inspect_folder
from .isolated import translate_in_fresh_process
from .model_cards import CardFacts, Result, read_model_card, write_model_card
from .publication import PublishError, publish_folder

__all__ = [
    "CardFacts",
    "PublishError",
    "Result",
    "inspect_folder",
    "publish_folder",
    "read_model_card",
    "translate_in_fresh_process",
    "write_model_card",
]
