# Copyright 2026 The hf_attncal authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Loading and saving of whole checkpoints: missing or non-finite weights are errors."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:  # at run time the mixin goes before transformers' classes
    from transformers import PreTrainedModel as Model
else:
    Model = object

_CHECKED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class WholeCheckpointMixin(Model):
    """Mixin before transformers' classes with `from_pretrained` and `save_pretrained` of our models."""

    _auto_class: Any
    config_class: Any
    _tied_weights_keys: Any
    _auto_classes: dict[str, str] = {}  # Auto class -> our class, where several classes load from one folder

    @classmethod
    def from_pretrained(cls, *args, output_loading_info: bool = False, **kwargs):
        """Load as transformers does, and check the weights.

        Raises:
            ValueError: a weight is missing, which transformers would fill with random numbers, or is not finite. With
                `output_loading_info=True`, which returns the names of missing weights, the caller checks them.
        """
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **kwargs)
        model, report = loaded
        if output_loading_info:
            return model, report
        name = args[0] if args else kwargs.pop("pretrained_model_name_or_path", None)
        if report["missing_keys"] and kwargs.get("state_dict") is None:
            check_missing(name, model, report["missing_keys"] & cls._keys_of(name, model, kwargs))
        check_finite(model)
        return model

    def _auto_classes_of_weights(self) -> dict[str, str]:
        """Return the entries of `_auto_classes` that this model's weights fit."""
        return self._auto_classes

    def save_pretrained(self, *args, **kwargs) -> None:
        """Save as transformers does, with the code of every class that loads the folder.

        Raises:
            ValueError: the folder holds an adapter, which transformers would load in place of the model.
        """
        folder = Path(args[0] if args else kwargs["save_directory"])
        if (folder / "adapter_config.json").exists() and not getattr(self, "_hf_peft_config_loaded", False):
            raise ValueError(
                f"{folder} holds an adapter (adapter_config.json), which would be loaded in place of the model "
                "that is saved (config.json, model.safetensors). Save the model into another folder."
            )
        classes = self._auto_classes_of_weights()
        if self._auto_class is not None and type(self).__name__ in classes.values():
            module = type(self).__module__.rpartition(".")[2]
            named = {auto: f"{module}.{name}" for auto, name in classes.items()}
            self.config.auto_map = (getattr(self.config, "auto_map", None) or {}) | named
        super().save_pretrained(*args, **kwargs)

    @classmethod
    def _keys_of(cls, name, model: nn.Module, options: dict) -> set[str]:
        """Return the names of the weights that the checkpoint `name` must have, by its own configuration.

        Parts that are switched on in loading are not among them, nor the head if a bare model was saved.
        """
        options = {option: value for option, value in options.items() if option not in ("config", "state_dict")}
        try:
            saved, _ = cls.config_class.get_config_dict(name, **options)
        except OSError:  # a checkpoint of weights only
            return set(model.state_dict())
        with torch.device("meta"):
            keys = set(cls(cls.config_class.from_dict(saved)).state_dict())
        bare = type(model.base_model).__name__.removeprefix("AttnCal")
        if [name.removeprefix("AttnCal") for name in saved.get("architectures") or ()] == [bare]:
            keys = {key for key in keys if key.startswith(f"{cls.base_model_prefix}.") or model.base_model is model}
        return keys


def check_missing(name, model: nn.Module, missing: Collection[str]) -> None:
    """Raise an error if weights of `model` are missing in the checkpoint `name`, except computed sinusoids.

    Raises:
        ValueError: the message names the first missing weight.
    """
    parents = {key: type(model.get_submodule(key.rpartition(".")[0])).__name__ for key in missing}
    missing = sorted(key for key, parent in parents.items() if "Sinusoidal" not in parent)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(
            f"{name} lacks weights of the model, which would be random: {', '.join(missing[:3])}{more}. The "
            "checkpoint is damaged, or its config.json belongs to another model."
        )


def check_report(name, model: nn.Module, report: dict, *, all_known: bool) -> None:
    """Check a checkpoint by the `output_loading_info` of `from_pretrained`.

    Args:
        name: name of the checkpoint.
        model: model that was loaded with `ignore_mismatched_sizes`.
        report: names of weights from transformers.
        all_known: True if every weight of the checkpoint must be one of the model, and not only those in numbered
            layers.

    Raises:
        ValueError: weights are missing, of another shape, or of another model; the message names the first.
    """
    for weight, shape, expected in sorted(report["mismatched_keys"]):
        raise ValueError(
            f"{name} has weights whose shape does not fit its config.json: `{weight}` must be {tuple(expected)}, "
            f"got {tuple(shape)}. The checkpoint is damaged, or its config.json belongs to another model."
        )
    check_missing(name, model, report["missing_keys"])
    foreign = sorted(key for key in report["unexpected_keys"] if all_known or re.search(r"\.\d+\.", key))
    if foreign:
        raise ValueError(
            f"{name} has {len(foreign)} weights that its config.json has no place for, such as `{foreign[0]}`. The "
            "checkpoint is damaged, or its config.json belongs to another model."
        )


@torch.no_grad()
def check_finite(model: nn.Module) -> None:
    """Raise an error for weights that are NaN or infinite, and tables that cannot result from counting.

    Raises:
        ValueError: the message names the first such tensor.
    """
    for name, tensor in model.state_dict().items():
        if tensor.dtype not in _CHECKED or tensor.is_meta or not tensor.numel():
            continue
        if not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():  # both are NaN where anything is
            raise ValueError(
                f"`{name}` has values that are not finite in {tensor.dtype}. The checkpoint is damaged, or its "
                "precision is too low for it."
            )
    if check_tables := getattr(model, "check_tables", None):
        check_tables()
