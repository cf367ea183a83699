"""Measure whether attention names the source tokens that a model uses. Plots are in `hf_attncal.analysis.plots`."""

from .reliability import (
    attention_entropy,
    attention_is_reliable,
    contributions,
    head_average,
    jensen_shannon,
    reliability_level,
)

__all__ = [
    "attention_entropy",
    "attention_is_reliable",
    "contributions",
    "head_average",
    "jensen_shannon",
    "reliability_level",
]
