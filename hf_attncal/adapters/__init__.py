"""Attention calibration and leaky attention as an adapter on a frozen checkpoint: a PEFT method.

Importing this package registers the method with PEFT, so that PEFT can load such adapters.
"""

from hf_attncal.io.extras import need

need("adapters")

from .checkpoints import save_adapter
from .configuration import AttentionCalibrationConfig
from .export import export_calibrated
from .layers import adapter_layers
from .tuner import AttentionCalibrationModel, register_with_peft, set_null_mass

register_with_peft()

__all__ = [
    "AttentionCalibrationConfig",
    "AttentionCalibrationModel",
    "adapter_layers",
    "export_calibrated",
    "save_adapter",
    "set_null_mass",
]
