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
"""Learned modules of a cross-attention: mask network, gate and NULL; and the count of steps.

Models and adapters have the same modules under the same names. `learned_parts` creates them and `init_part`
initialises them.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .functional import annealed_factor, annealing_gamma, fixed_factor, gated_factor, head_gate, perturbation_mask

logger = logging.get_logger(__name__)


def _constant(parameter: Tensor, constant: bool) -> Tensor:
    return parameter.detach() if constant else parameter


class MaskNetwork(nn.Module):
    """Mask perturbation model of one cross-attention (Lu et al., eq. 3); theta_m = {W^Q, W^K}.

    Args:
        embed_dim: d_model.
        num_heads: H.
        projection: input of the projections W. `"model"`: W is (d_model, d_model) and projects decoder states and
            encoder outputs. `"head"`: W is (H, d_k, d_k) and projects the queries and keys of each head.
    """

    def __init__(self, embed_dim: int, num_heads: int, projection: str):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.projection = projection
        shape = (embed_dim, embed_dim) if projection == "model" else (num_heads, self.head_dim, self.head_dim)
        self.query_weight = nn.Parameter(torch.empty(shape))  # W^Q
        self.key_weight = nn.Parameter(torch.empty(shape))  # W^K

    def init_parameters(self, std: float, constant: bool) -> None:
        """Initialise W^Q and W^K from a normal distribution; a `constant` mask has W^Q = 0."""
        init.normal_(self.query_weight, std=0.0 if constant else std)
        init.normal_(self.key_weight, std=std)

    def _project(self, states: Tensor, heads: Tensor, weight: Tensor) -> Tensor:
        # A matrix product, because `DetachedParameters` would detach `linear`. The transpose also matters:
        # autocast keeps low-precision copies of parameters, but not of views, and a copy made in the first pass,
        # without gradient, would disconnect the second pass from the parameter.
        if self.projection == "head":
            return torch.matmul(heads, weight.transpose(-1, -2).to(heads.dtype))
        return self._split_heads(torch.matmul(states, weight.transpose(-1, -2).to(states.dtype)))

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def project_keys(self, encoder_states: Tensor, key: Tensor, constant: bool = False) -> Tensor:
        """Return `K W^K`: encoder_states (B, S, d_model), key (B, H, S, d_k) -> (B, H, S, d_k).

        W^K is constant if `constant`.
        """
        return self._project(encoder_states, key, _constant(self.key_weight, constant))

    def project_queries(self, decoder_states: Tensor, query: Tensor, constant: bool = False) -> Tensor:
        """Return `q W^Q`: decoder_states (B, T, d_model), query (B, H, T, d_k) -> (B, H, T, d_k); see above."""
        return self._project(decoder_states, query, _constant(self.query_weight, constant))

    def forward(self, decoder_states: Tensor, query: Tensor, mask_key: Tensor, constant: bool = False) -> Tensor:
        """Return m: decoder_states (B, T, d_model), query (B, H, T, d_k), mask_key (B, H, S, d_k) -> (B, H, T, S).

        W^Q is constant if `constant`.
        """
        queries = self.project_queries(decoder_states, query, constant)
        return perturbation_mask(queries, mask_key, self.head_dim**-0.5)


class HeadGate(nn.Module):
    """Gate of eq. 12: `g = sigmoid(q W^g + b^g)`, one weight vector and one bias per head."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim))  # W^g
        self.bias = nn.Parameter(torch.empty(num_heads))  # b^g

    def init_parameters(self) -> None:
        """Initialise to g = 1/2 everywhere."""
        init.zeros_(self.weight)
        init.zeros_(self.bias)

    def forward(self, query: Tensor) -> Tensor:
        """Return g: query (B, H, T, d_k) -> (B, H, T, 1)."""
        return head_gate(query, self.weight, self.bias)


class OutputGate(HeadGate):
    """Factor `2 sigmoid(w_h q + b_h)` on the output of a head: 1 at first, so that the head is unchanged.

    It is the control for calibration, whose weights sum to more than 1: it scales a head's output but does not change
    its attention. It has the number of parameters of the gate of eq. 12, `H (d_k + 1)` in each layer.
    """

    def forward(self, query: Tensor, constant: bool = False) -> Tensor:
        """Return the factor, from 0 to 2: query (B, H, T, d_k) -> (B, H, T, 1); W and b are constant if `constant`."""
        return 2 * head_gate(query, _constant(self.weight, constant), _constant(self.bias, constant))


class NullToken(nn.Module):
    """NULL of leaky attention (Mask-Align, sec. 3.2): a key, a value and a score bias per head.

    Args:
        num_heads: H.
        head_dim: d_k.
        value: True for a learned value, (H, d_k). If False, `value` is None, and the caller handles NULL's value.
        bias: True for a learned bias on the score, (H,), which is not in the paper. If False, `bias` is None.
    """

    def __init__(self, num_heads: int, head_dim: int, *, value: bool = True, bias: bool = False):
        super().__init__()
        self.key = nn.Parameter(torch.empty(num_heads, head_dim))
        self.value = nn.Parameter(torch.empty(num_heads, head_dim)) if value else None
        self.bias = nn.Parameter(torch.empty(num_heads)) if bias else None

    def init_parameters(self, std: float, bias: float | None = None) -> None:
        """Initialise keys and values from a normal distribution, and the bias, if any, to `bias`."""
        init.normal_(self.key, std=std)
        if self.value is not None:
            init.normal_(self.value, std=std)
        if self.bias is not None and bias is not None:
            init.constant_(self.bias, bias)


class StepCount(nn.Module):
    """Number of optimiser steps that a model was trained for: s of Lu et al., eq. 11, and of other schedules.

    `counted` is True once a caller has set the step. Otherwise a schedule stays at its beginning in training.
    """

    annealing_step: Tensor

    def __init__(self):
        super().__init__()
        self.counted = False
        self.register_buffer("annealing_step", torch.zeros((), dtype=torch.long))

    def init_parameters(self) -> None:
        """Set s = 0."""
        init.zeros_(self.annealing_step)


class CountedStepsMixin(nn.Module):
    """Mixin for a model, or a part of one, with `StepCount`, which an `AnnealingCallback` sets."""

    def _step_counts(self) -> list[StepCount]:
        return [module for module in self.modules() if isinstance(module, StepCount)]

    def set_annealing_step(self, step: int) -> None:
        """Set the number of optimiser steps done (s of Lu et al., eq. 11). It is saved with the weights.

        Raises:
            ValueError: `step` is negative.
        """
        if step < 0:
            raise ValueError(f"`step` must be >= 0, got {step}.")
        for count in self._step_counts():
            count.annealing_step.fill_(step)
            count.counted = True

    @property
    def annealing_step(self) -> int | None:
        """Number of optimiser steps that the model was trained for; `None` without a schedule."""
        return next((int(count.annealing_step) for count in self._step_counts()), None)


def warn_uncounted(counts: Collection[StepCount], follower: str) -> None:
    """Log a warning if no caller has set any of `counts`; `follower` names the schedule that depends on them."""
    if counts and not any(count.counted for count in counts):
        logger.warning_once(
            f"{follower} depends on the optimiser steps, but nothing counts them, so it stays at its start. Use "
            "`AttnCalTrainer`, or pass `callbacks=[hf_attncal.AnnealingCallback()]` to the Trainer."
        )


def trains_mask(model: nn.Module) -> bool:
    """Return True if any mask network in `model` is trained, or if sharding hides its parameters."""
    networks = [module for module in model.modules() if isinstance(module, MaskNetwork)]
    parameters = [parameter for network in networks for parameter in network.parameters()]
    return bool(networks) and (not parameters or any(parameter.requires_grad for parameter in parameters))


def calibration_of(model: nn.Module) -> str | None:
    """Return the `calibration` of a model or of its active adapter."""
    return next((module.switches.calibration for module in _calibrated(model)), None)


def calibrated_layers(model: nn.Module) -> list[int]:
    """Return the numbers of the decoder layers with masks, from 0, of a model or its active adapter."""
    return [module.layer_idx for module in _calibrated(model)]


def _calibrated(model: nn.Module) -> Iterator[Any]:
    # By attribute, because a model loaded as remote code has another class.
    for module in model.modules():
        switches = getattr(module, "switches", None)
        if switches is not None and switches.calibration is not None:
            yield module


class Fusion(NamedTuple):
    """Fusion of plain and calibrated attention.

    Args:
        factor: function that returns the factor of the plain weights, (B, H, T, S), from the mask (B, H, T, S), the
            gate (B, H, T, 1) or None, and the cross-attention.
        parts: name in the cross-attention -> function of (num_heads, head_dim) that creates a further learned module.
    """

    factor: Callable[[Tensor, Any, Any], Tensor]
    parts: dict[str, Callable[[int, int], nn.Module]] = {}


def _annealed(mask: Tensor, gate: Tensor, attention: Any) -> Tensor:
    gamma = annealing_gamma(attention.annealing.annealing_step, attention.switches.annealing_steps)
    return annealed_factor(mask, gamma)


# One entry per value of `calibration`, which `configuration_attncal.py` validates.
FUSIONS = {
    "fixed": Fusion(lambda mask, gate, attention: fixed_factor(mask, attention.switches.calibration_weight)),
    "annealed": Fusion(_annealed, {"annealing": lambda num_heads, head_dim: StepCount()}),
    "gated": Fusion(lambda mask, gate, attention: gated_factor(mask, gate), {"gate": HeadGate}),
}


def learned_parts(switches, num_heads: int, head_dim: int) -> dict[str, nn.Module]:
    """Return the learned modules of a cross-attention, not yet initialised, by their names in it.

    Args:
        switches: configuration of a model or of an adapter.
        num_heads: H.
        head_dim: d_k.
    """
    parts: dict[str, nn.Module] = {}
    if switches.calibration is not None:
        parts["mask_network"] = MaskNetwork(num_heads * head_dim, num_heads, switches.mask_projection)
        parts |= {name: make(num_heads, head_dim) for name, make in FUSIONS[switches.calibration].parts.items()}
    if switches.output_gate:
        parts["output_gate"] = OutputGate(num_heads, head_dim)
    if switches.leaky and not switches.observe:  # an observer has a NULL of its own
        parts["null"] = NullToken(num_heads, head_dim, bias=switches.null_bias is not None)
    return parts


def init_part(part: nn.Module, switches, d_model: int, init_std: float) -> None:
    """Initialise a learned module; any other module is left unchanged.

    With `renormalize` the mask starts constant, so that the calibration is the identity.

    Args:
        part: module to initialise.
        switches: configuration; see `learned_parts`.
        d_model: d_model of the model.
        init_std: standard deviation of the model's initial weights.
    """
    if isinstance(part, MaskNetwork):
        part.init_parameters(init_std, constant=switches.renormalize)
    elif isinstance(part, NullToken):
        std = d_model**-0.5 if switches.null_key_std is None else switches.null_key_std
        part.init_parameters(std, switches.null_bias)
    elif initialise := getattr(part, "init_parameters", None):
        initialise()
