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
"""Configuration of the translation models with a Transformer's encoder and a recurrent decoder."""

from huggingface_hub.dataclasses import strict

from .configuration_attncal import AttnCalConfigMixin, AttnCalMarianConfig


@strict
class SSRUConfig(AttnCalMarianConfig):
    __doc__ = f"""Configuration of `SSRUModel` and `SSRUForConditionalGeneration`: every field of `MarianConfig`, and:

    Args:
        layer_norm_eps: of every layer norm.

    {AttnCalConfigMixin.__doc__}"""

    model_type = "ssru"
    stock_type = "ssru"  # transformers has nothing like it
    _auto_class = "AutoConfig"  # of a saved model: its code travels with it

    activation_function: str = "relu"
    layer_norm_eps: float | int = 1e-6

    def validate_layer_norm(self):
        """Part of the `@strict` validation of configurations."""
        if isinstance(self.layer_norm_eps, bool) or not 0 < self.layer_norm_eps <= 1:
            raise ValueError(f"`layer_norm_eps` must be > 0 and at most 1, got {self.layer_norm_eps}.")
