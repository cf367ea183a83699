"""Renormalised calibration in one softmax against the same step by step, both in one run.

    python benchmarks/calibrated_attention.py --threads 1
    python benchmarks/calibrated_attention.py --sizes 8,1,16 --batch 2 --layers 1 --new-tokens 4 --repeats 2
    python benchmarks/calibrated_attention.py --device cuda --bf16 --compile --sizes 32,128,128 32,128,512 32,128,1024

First the attention alone, on random queries, keys and values: the form that models use where no weights are asked for
(`product`: two products and a softmax; `kernel`: torch's own attention with log f as its mask), and what a calibration
that is not renormalised would cost by the kernel, with the mass of each row computed besides (`row factor`). `stock`
is what the kernel with log f takes beside the same without calibration, and `compiled` the step by step form as
`torch.compile` fuses it; on a GPU with the peak of its allocator. Then beam
search of a whole model as it is (`after`) and with cross-attentions that go step by step (`before`), which
`attn_implementation="eager"` keeps.
"""

import argparse
import copy

import common
import torch
from generation import translation
from rich.progress import track
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_attncal.models import functional

VARIANT = "gated-renormalized"
SIZES = ["1,1,32", "8,1,32", "64,1,32", "64,1,128", "16,32,32", "16,128,128", "4,512,512"]


def forms(args: argparse.Namespace, batch: int, target: int, source: int) -> dict[str, tuple]:
    """By name: the step by step computation, and the other one."""
    width = args.d_model // args.heads
    scaling = width**-0.5
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    shapes = [(target, width), (source, width), (source, width), (target, width), (source, width), (target, 1)]
    tensors = [torch.randn(batch, args.heads, *shape, device=args.device, dtype=dtype) for shape in shapes]
    query, key, value, mask_query, mask_key, gate = *tensors[:5], tensors[5].sigmoid()
    lengths = torch.randint(source // 2, source + 1, (batch, 1, 1, 1), device=args.device)
    real = torch.arange(source, device=args.device).expand(batch, 1, 1, -1) < lengths

    def factor() -> Tensor:
        return functional.gated_factor(functional.perturbation_mask(mask_query, mask_key, scaling), gate)

    def scores() -> Tensor:
        return functional.attention_scores(query, key, scaling, real)

    def by_kernel(log_factor: Tensor) -> Tensor:
        bias = log_factor.masked_fill_(~real, torch.finfo(dtype).min)
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling)

    def plain() -> Tensor:
        return torch.matmul(torch.softmax(scores(), dim=-1) * factor(), value)

    def renormalized() -> Tensor:
        attention = torch.softmax(scores(), dim=-1)
        return torch.matmul(functional.renormalized(attention * factor(), attention), value)

    def product() -> Tensor:
        return torch.matmul(torch.softmax(scores().add_(factor().log_()), dim=-1), value)

    def kernel() -> Tensor:
        return by_kernel(factor().log_())

    def row_factor() -> Tensor:
        plain_scores, log_factor = scores(), factor().log()
        mass = torch.logsumexp(plain_scores + log_factor, -1, True) - torch.logsumexp(plain_scores, -1, True)
        return by_kernel(log_factor) * mass.exp()

    def uncalibrated() -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=real, scale=scaling)

    pairs = {"product": (renormalized, product), "kernel": (renormalized, kernel), "row factor": (plain, row_factor)}
    if args.compile:
        pairs["compiled"] = renormalized, torch.compile(renormalized)
    for name, (before, after) in pairs.items():
        torch.testing.assert_close(before(), after(), rtol=0, atol=0.1 if args.bf16 else 1e-5, msg=name)
    return pairs | {"stock": (uncalibrated, kernel)}


def step_by_step(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the model whose cross-attentions go step by step; all else is as it was."""
    model = copy.deepcopy(model)
    config = copy.deepcopy(model.config)
    config._attn_implementation = "eager"
    for layer in model.model.decoder.layers:
        layer.encoder_attn.config = config
    return model


def measure(args: argparse.Namespace, before, after, calls: int = 1) -> dict:
    """Seconds of one call of each, and how many times faster `after` is."""

    def repeated(function):
        return lambda: [function() for _ in range(calls)]

    runs = {"before": before, "after": after}
    with torch.inference_mode():
        seconds = common.in_turn(args, repeated(before), repeated(after))
        old, new = ([s / calls for s in run] for run in seconds)
        memory = {f"{name}_peak_bytes": common.peak_allocated(args, run) for name, run in runs.items()}
    ratio = common.spread([o / n for o, n in zip(old, new, strict=True)])
    measured = {"before_seconds": common.spread(old), "after_seconds": common.spread(new), "speed_ratio": ratio}
    return measured | {name: size for name, size in memory.items() if size is not None}


def row(name: str, measured: dict) -> list[str]:
    seconds = (f"{measured[key]['median'] * 1e3:.3f}" for key in ("before_seconds", "after_seconds"))
    ratio = measured["speed_ratio"]
    return [name, *seconds, f"{ratio['median']:.2f}", f"{ratio['min']:.2f} - {ratio['max']:.2f}"]


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=32, repeats=20, variants=[VARIANT])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="batch,target,source of the attention alone")
    parser.add_argument("--compile", action="store_true", help="time what torch.compile makes of it, too")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=32)
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("calibrated_attention", args)
    result["attention"], rows = {}, []
    for size in track(args.sizes, description="sizes"):
        batch, target, source = map(int, size.split(","))
        calls = max(1, min(200, 2048 // (batch * target)))
        for name, (before, after) in forms(args, batch, target, source).items():
            measured = measure(args, before, after, calls)
            result["attention"].setdefault(size, {})[name] = measured
            rows.append(row(f"{name} {size}", measured))
    model = common.our_model(args, VARIANT)
    before, after = translation(args, step_by_step(model)), translation(args, model)
    result["generation"] = measure(args, before, after)
    rows.append(row(f"beam {args.beams}", result["generation"]))
    columns = ["batch, target, source", "before (ms)", "after (ms)", "speed ratio", "min - max"]
    common.show(f"One softmax against step by step, {args.device}", columns, rows)
    common.save(args, result)


if __name__ == "__main__":
    main()
