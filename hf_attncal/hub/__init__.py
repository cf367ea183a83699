"""Publish a saved model on the Hub: check its folder, write its card, load it without this package."""

from .hub_folder import HubFolder, inspect_folder
from .isolated import load_in_fresh_process, translate_in_fresh_process
from .model_cards import Result, write_adapter_card, write_model_card, write_trained_adapter_card
from .publication import Publication, PublishError, publish_folder
from .published_card import CardFields
from .translator_export import ExportError, export_translator

__all__ = [
    "CardFields",
    "ExportError",
    "HubFolder",
    "Publication",
    "PublishError",
    "Result",
    "export_translator",
    "inspect_folder",
    "load_in_fresh_process",
    "publish_folder",
    "translate_in_fresh_process",
    "write_adapter_card",
    "write_model_card",
    "write_trained_adapter_card",
]
