"""Looking inside attention: how it relates to what the model uses. The plots are in `hf_attncal.analysis.plots`."""

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
