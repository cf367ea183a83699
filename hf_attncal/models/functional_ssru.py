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
"""The recurrence of the simpler simple recurrent unit (Kim et al. 2019, "From Research to Production and Back").

Shapes use B = batch, T = target steps, d = width.
"""

import torch
from torch import Tensor, nn

_LONGEST_EXPORTED = 4096  # steps


def ssru_states(forget: Tensor, candidate: Tensor, first: Tensor | None = None) -> Tensor:
    """Compute c_t = f_t * c_{t-1} + (1 - f_t) * x~_t for every step (Kim et al., sec. 3.1).

    By doubling: after n rounds every state has read the 2^n steps up to its own, so T steps need log2(T) rounds. All
    factors are in [0, 1] and nothing is divided by, so long targets are as exact as short ones.

    Args:
        forget: f, (B, T, d). candidate: x~ = W x, (B, T, d).
        first: c before the first step, (B, d); `None` for 0.

    Returns:
        c, (B, T, d).
    """
    decay, states = forget, (1 - forget) * candidate
    steps = states.shape[1]
    if first is not None:
        begun = torch.addcmul(states[:, :1], decay[:, :1], first.unsqueeze(1))
        states = torch.cat([begun, states[:, 1:]], dim=1)
    span = 1
    # A graph that is exported is for any number of steps; rounds beyond it add nothing.
    while span < (_LONGEST_EXPORTED if torch.compiler.is_exporting() else steps):
        states = torch.addcmul(states, decay, nn.functional.pad(states, (0, 0, span, 0))[:, :steps])
        decay = decay * nn.functional.pad(decay, (0, 0, span, 0))[:, :steps]
        span *= 2
    return states
