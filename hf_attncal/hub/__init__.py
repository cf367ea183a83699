"""Publish a folder, a page or a metric on the Hub: check it, write its card, load it without this package."""

from .cards import (
    CardFacts,
    Result,
    read_model_card,
    write_adapter_card,
    write_model_card,
    write_trained_adapter_card,
    write_tuned_encoder_card,
)
from .export import ExportError, export_graph
from .folder import HubFolder, inspect_folder
from .isolated import load_in_fresh_process, translate_in_fresh_process
from .publish import Publication, PublishError, publish_folder
from .published_card import CardFields
from .space import publish_metric, publish_page
from .translator_export import export_translator

__all__ = [
    "CardFacts",
    "CardFields",
    "ExportError",
    "HubFolder",
    "Publication",
    "PublishError",
    "Result",
    "export_graph",
    "export_translator",
    "inspect_folder",
    "load_in_fresh_process",
    "publish_folder",
    "publish_metric",
    "publish_page",
    "read_model_card",
    "translate_in_fresh_process",
    "write_adapter_card",
    "write_model_card",
    "write_trained_adapter_card",
    "write_tuned_encoder_card",
]
