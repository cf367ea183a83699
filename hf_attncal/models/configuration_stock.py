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
"""Base of the configurations whose models load checkpoints of a stock architecture."""

from typing import Any, ClassVar


class FromStockMixin:
    """A configuration that takes the checkpoints of `stock_type` for its own; goes before the stock class."""

    model_type: ClassVar[str]
    stock_type: ClassVar[str]

    def without_stock_type(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a configuration without the type of architecture that they name.

        Raises:
            ValueError: they are those of another architecture.
        """
        stored = values.pop("model_type", None)
        # A stock checkpoint's configuration names the stock type; what is built here is ours.
        if stored not in (None, self.model_type, self.stock_type):
            raise ValueError(
                f"`model_type` must be '{self.model_type}' or '{self.stock_type}' to load as {type(self).__name__}, "
                f"got '{stored}'. Use the class of that architecture."
            )
        return values

    @classmethod
    def get_config_dict(cls, *args, **kwargs):
        """As transformers'; that a stock checkpoint becomes a model of ours is what is meant, and no warning."""
        values, kwargs = super().get_config_dict(*args, **kwargs)
        if values.get("model_type") == cls.stock_type:
            values["model_type"] = cls.model_type
        return values, kwargs
