"""What the default encoder has learned of word alignment: a small change of its weights, which comes with the package.

`W' = W + B A` of each linear map of the layers that are read (LoRA, Hu et al. 2022), in 8 bits.
`experiments/encoder_adapter.py` says what from: links that counts and the encoder itself gave to 31,928 pairs of
German, Japanese and French with English, of Tatoeba, the Tanaka corpus and Europarl. Their terms let anybody use them,
and the file's metadata names each with its licence. No link was drawn by a person.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

LEARNED_FILE = Path(__file__).with_name("encoder_adapter.safetensors")
_LAYER, _PROBE = "layer", "probe"
_ALIKE = 0.9  # cosine of the weights that tell the encoder, between it and what it was learned for; 4 bits have 0.99


def adapt_encoder(encoder, layer: int) -> bool:
    """Change the weights of an encoder in place, if it is the one that the file is for.

    Args:
        encoder: with all of its layers, in float32 and on the CPU.
        layer: which will be read.

    Returns:
        whether it was.
    """
    modules = dict(encoder.named_modules())
    with safe_open(LEARNED_FILE, "pt") as file:
        names, said = file.keys(), file.metadata()
        probe = modules.get(said[_PROBE])
        if int(said[_LAYER]) != layer or probe is None or not _alike(probe.weight, file.get_tensor(_PROBE).float()):
            return False
        for name in (name.removesuffix(".a") for name in names if name.endswith(".a")):
            a, b = (_exact(file, f"{name}.{half}") for half in "ab")
            weight = modules[name].weight
            weight.data.add_((b @ a).to(weight))
    return True


def halves(name: str, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Return what the file holds of a map: A (rank, inputs) and B (outputs, rank) in 8 bits, scaled by rank."""
    found: dict[str, Tensor] = {}
    for half, values, dim in (("a", a, 1), ("b", b, 0)):
        scale = values.abs().amax(dim=dim, keepdim=True).clamp(min=1e-12) / 127
        found |= {f"{name}.{half}": (values / scale).round().to(torch.int8), f"{name}.{half}.scale": scale.float()}
    return found


def _exact(file, name: str) -> Tensor:
    return file.get_tensor(name).float() * file.get_tensor(f"{name}.scale")


def _alike(weight: Tensor, probe: Tensor) -> bool:
    """Return whether the first row of a weight is the one that the file remembers."""
    row = weight[0].detach().float().cpu()
    return row.shape == probe.shape and float(F.cosine_similarity(row, probe, dim=0)) > _ALIKE
