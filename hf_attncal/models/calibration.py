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
"""Modules of a cross-attention beside its projections: mask network, gates, NULL; and the count of steps.

Models and adapters are made of the same parts under the same names: `learned_parts` says which, and `init_part` what
they hold before they learn.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .functional import (
    annealed_factor,
    annealing_gamma,
    fixed_factor,
    gated_factor,
    head_gate,
    perturbation_mask,
)

logger = logging.get_logger(__name__)


class MaskNetwork(nn.Module):
    """The mask perturbation model of one cross-attention (Lu et al., eq. 3); theta_m = {W^Q, W^K}.

    Args:
        embed_dim: d_model. num_heads: H.
        projection: `"model"`: W is (d_model, d_model) and projects decoder states and encoder outputs; `"head"`: W is
            (H, d_k, d_k) and projects the queries and keys of each head.
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
        """Normal W^Q and W^K with standard deviation `std`; a `constant` mask has W^Q = 0."""
        init.normal_(self.query_weight, std=0.0 if constant else std)
        init.normal_(self.key_weight, std=std)

    def _project(self, states: Tensor, heads: Tensor, weight: Tensor) -> Tensor:
        # A matrix product and not `linear`, which `DetachedParameters` would detach. The transpose matters too:
        # autocast keeps low-precision copies of parameters, but not of views, and a copy made in the first pass,
        # without gradient, would cut the second pass off from the parameter.
        if self.projection == "head":
            return torch.matmul(heads, weight.transpose(-1, -2).to(heads.dtype))
        return self._split_heads(torch.matmul(states, weight.transpose(-1, -2).to(states.dtype)))

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], self.num_heads, self.head_dim).transpose(1, 2)

    def project_keys(self, encoder_states: Tensor, key: Tensor) -> Tensor:
        """`K W^K`: encoder_states (B, S, d_model), key (B, H, S, d_k) -> (B, H, S, d_k)."""
        return self._project(encoder_states, key, self.key_weight)

    def project_queries(self, decoder_states: Tensor, query: Tensor) -> Tensor:
        """`q W^Q`: decoder_states (B, T, d_model), query (B, H, T, d_k) -> (B, H, T, d_k)."""
        return self._project(decoder_states, query, self.query_weight)

    def forward(self, decoder_states: Tensor, query: Tensor, mask_key: Tensor) -> Tensor:
        """m: decoder_states (B, T, d_model), query (B, H, T, d_k), mask_key (B, H, S, d_k) -> (B, H, T, S)."""
        return perturbation_mask(self.project_queries(decoder_states, query), mask_key, self.head_dim**-0.5)


class HeadGate(nn.Module):
    """The gate of eq. 12: `g = sigmoid(q W^g + b^g)`, one weight vector and one bias for each head."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim))  # W^g
        self.bias = nn.Parameter(torch.empty(num_heads))  # b^g

    def init_parameters(self) -> None:
        """g = 1/2 everywhere."""
        init.zeros_(self.weight)
        init.zeros_(self.bias)

    def forward(self, query: Tensor) -> Tensor:
        """query (B, H, T, d_k) -> g (B, H, T, 1)."""
        return head_gate(query, self.weight, self.bias)


class OutputGate(HeadGate):
    """The factor `2 sigmoid(w_h q + b_h)` on what a head reads: 1 at first, so that the head is as without it.

    It is the control of calibration, whose weights sum to more than 1: it changes how much of a head is used, and
    never where the head looks. It has as many parameters as the gate of eq. 12, `H (d_k + 1)` in each layer.
    """

    def forward(self, query: Tensor, constant: bool = False) -> Tensor:
        """query (B, H, T, d_k) -> (B, H, T, 1), from 0 to 2; `constant`: W and b get no gradient."""
        weight, bias = (self.weight.detach(), self.bias.detach()) if constant else (self.weight, self.bias)
        return 2 * head_gate(query, weight, bias)


class LowRankMaskNetwork(MaskNetwork):
    """A mask network whose two (d_model, d_model) matrices are products of a (d_model, r) and an (r, d_model) one."""

    def __init__(self, embed_dim: int, num_heads: int, rank: int):
        nn.Module.__init__(self)  # the full matrices of the parent are what is not wanted
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.projection = "model"
        self.rank = rank
        self.query_down = nn.Parameter(torch.empty(rank, embed_dim))
        self.query_up = nn.Parameter(torch.empty(embed_dim, rank))
        self.key_down = nn.Parameter(torch.empty(rank, embed_dim))
        self.key_up = nn.Parameter(torch.empty(embed_dim, rank))

    def init_parameters(self, std: float, constant: bool) -> None:
        """As with full matrices: the products have this standard deviation, and W^Q starts at 0 likewise."""
        width = self.query_down.shape[1]
        up_std = std * (width / self.rank) ** 0.5
        for down in (self.query_down, self.key_down):
            init.normal_(down, std=width**-0.5)
        init.normal_(self.query_up, std=0.0 if constant else up_std)
        init.normal_(self.key_up, std=up_std)

    @property
    def query_weight(self) -> Tensor:  # type: ignore[override]  # a parameter of the parent's
        """W^Q, (d_model, d_model)."""
        return self.query_up @ self.query_down

    @property
    def key_weight(self) -> Tensor:  # type: ignore[override]
        """W^K, (d_model, d_model)."""
        return self.key_up @ self.key_down

    def project_keys(self, encoder_states: Tensor, key: Tensor) -> Tensor:
        return self._project_twice(encoder_states, self.key_down, self.key_up)

    def project_queries(self, decoder_states: Tensor, query: Tensor) -> Tensor:
        return self._project_twice(decoder_states, self.query_down, self.query_up)

    def _project_twice(self, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
        # Transposed views, for the reason given in `MaskNetwork._project`.
        for weight in (down, up):
            states = torch.matmul(states, weight.transpose(-1, -2).to(states.dtype))
        return self._split_heads(states)


class NullToken(nn.Module):
    """NULL of leaky attention (Mask-Align, sec. 3.2): for each head a key, (H, d_k), a value and a bias on its score.

    Args:
        num_heads: H. head_dim: d_k.
        value: with a value, (H, d_k); without, `value` is None: what is read from NULL is the caller's.
        bias: with a bias on the score, (H,), which is not in the paper; without, `bias` is None.
    """

    def __init__(self, num_heads: int, head_dim: int, *, value: bool = True, bias: bool = False):
        super().__init__()
        self.key = nn.Parameter(torch.empty(num_heads, head_dim))
        self.value = nn.Parameter(torch.empty(num_heads, head_dim)) if value else None
        self.bias = nn.Parameter(torch.empty(num_heads)) if bias else None

    def init_parameters(self, std: float, bias: float | None = None) -> None:
        """Normal keys and values with standard deviation `std`; `bias` is ignored where there is none."""
        init.normal_(self.key, std=std)
        if self.value is not None:
            init.normal_(self.value, std=std)
        if self.bias is not None and bias is not None:
            init.constant_(self.bias, bias)


class StepCount(nn.Module):
    """The optimiser steps that a model was trained for: s of Lu et al., eq. 11, and what other schedules follow.

    `counted` says whether anything has set it: training without leaves a schedule at its beginning.
    """

    annealing_step: Tensor

    def __init__(self):
        super().__init__()
        self.counted = False
        self.register_buffer("annealing_step", torch.zeros((), dtype=torch.long))

    def init_parameters(self) -> None:
        """s = 0."""
        init.zeros_(self.annealing_step)


def set_steps(counts: Iterable[StepCount], step: int) -> None:
    """Set s of all `counts`.

    Raises:
        ValueError: `step` is negative.
    """
    if step < 0:
        raise ValueError(f"`step` must be >= 0, got {step}.")
    for count in counts:
        count.annealing_step.fill_(step)
        count.counted = True


class CountedStepsMixin(nn.Module):
    """A model that may have a `StepCount`, which an `AnnealingCallback` sets; goes before transformers' classes."""

    def _step_counts(self) -> list[StepCount]:
        return [module for module in self.modules() if isinstance(module, StepCount)]

    def set_annealing_step(self, step: int) -> None:
        """Set the number of optimiser steps done (s of Lu et al., eq. 11). It is saved with the weights.

        Raises:
            ValueError: `step` is negative.
        """
        set_steps(self._step_counts(), step)

    @property
    def annealing_step(self) -> int | None:
        """The optimiser steps that the model was trained for; `None` where nothing follows them."""
        return next((int(count.annealing_step) for count in self._step_counts()), None)


def warn_uncounted(counts: Collection[StepCount], follower: str) -> None:
    """Say in training that nothing has set any of `counts`, if there are some; `follower` is what follows them."""
    if counts and not any(count.counted for count in counts):
        logger.warning_once(
            f"{follower} follows the optimiser steps, and nothing counts them: it stays as it is. Use "
            "`AttnCalTrainer`, or pass `callbacks=[hf_attncal.AnnealingCallback()]` to the Trainer."
        )


def trains_mask(model: nn.Module) -> bool:
    """Return whether any mask network in `model` is trained; True where sharding hides its parameters."""
    networks = [module for module in model.modules() if isinstance(module, MaskNetwork)]
    parameters = [parameter for network in networks for parameter in network.parameters()]
    return bool(networks) and (not parameters or any(parameter.requires_grad for parameter in parameters))


def calibration_of(model: nn.Module) -> str | None:
    """Return how the cross-attention of a model is calibrated, by its configuration or by an active adapter."""
    return next((module.switches.calibration for module in _calibrated(model)), None)


def calibrated_layers(model: nn.Module) -> list[int]:
    """Numbers of the decoder layers with masks, from 0: all of a model, those that an active adapter has."""
    return [module.layer_idx for module in _calibrated(model)]


def _calibrated(model: nn.Module) -> Iterator[Any]:
    # By attribute and not by class: a model loaded as remote code has a class of its own.
    for module in model.modules():
        switches = getattr(module, "switches", None)
        if switches is not None and switches.calibration is not None:
            yield module


class Fusion(NamedTuple):
    """How a kind of calibration fuses plain and calibrated attention.

    Args:
        factor: function of the mask (B, H, T, S), the gate (B, H, T, 1) or None, and the cross-attention, that returns
            the factor of the plain weights, (B, H, T, S).
        parts: what it learns beside the mask network, as functions of (num_heads, head_dim), by their names in the
            cross-attention.
    """

    factor: Callable[[Tensor, Any, Any], Tensor]
    parts: dict[str, Callable[[int, int], nn.Module]] = {}


def _annealed(mask: Tensor, gate: Tensor, attention: Any) -> Tensor:
    gamma = annealing_gamma(attention.annealing.annealing_step, attention.switches.annealing_steps)
    return annealed_factor(mask, gamma)


# Every value of `calibration`: `configuration_attncal.py` validates the names.
FUSIONS = {
    "fixed": Fusion(lambda mask, gate, attention: fixed_factor(mask, attention.switches.calibration_weight)),
    "annealed": Fusion(_annealed, {"annealing": lambda num_heads, head_dim: StepCount()}),
    "gated": Fusion(lambda mask, gate, attention: gated_factor(mask, gate), {"gate": HeadGate}),
}


def learned_parts(switches, num_heads: int, head_dim: int, mask_rank: int | None = None) -> dict[str, nn.Module]:
    """Return the parts that a cross-attention with these switches learns, uninitialised, by their names in it.

    Args:
        switches: a configuration of a model or of an adapter. num_heads: H. head_dim: d_k.
        mask_rank: r of a low-rank mask network; `None` for full matrices.
    """
    parts: dict[str, nn.Module] = {}
    if switches.calibration is not None:
        width = num_heads * head_dim
        if mask_rank is None:
            parts["mask_network"] = MaskNetwork(width, num_heads, switches.mask_projection)
        else:
            parts["mask_network"] = LowRankMaskNetwork(width, num_heads, mask_rank)
        parts |= {name: make(num_heads, head_dim) for name, make in FUSIONS[switches.calibration].parts.items()}
    if switches.output_gate:
        parts["output_gate"] = OutputGate(num_heads, head_dim)
    if switches.leaky:
        parts["null"] = NullToken(num_heads, head_dim, bias=switches.null_bias is not None)
    return parts


def init_part(part: nn.Module, switches, d_model: int, init_std: float) -> None:
    """Give a learned part the values that it starts with; any other module is left alone.

    With `renormalize` the mask starts constant, so that the calibration is the identity.

    Args:
        part: a module. switches: as for `learned_parts`. d_model, init_std: of the model.
    """
    if isinstance(part, MaskNetwork):
        part.init_parameters(init_std, constant=switches.renormalize)
    elif isinstance(part, NullToken):
        std = d_model**-0.5 if switches.null_key_std is None else switches.null_key_std
        part.init_parameters(std, switches.null_bias)
    elif isinstance(part, (HeadGate, StepCount)):
        part.init_parameters()
