"""Size and speed of attention-calibration adapters on a frozen model: bytes, beam search, training step.

    python benchmarks/adapters.py                      # at the shape of opus-mt models
    python benchmarks/adapters.py --variants gated gated-head --threads 2 --batch 16
    python benchmarks/adapters.py --d-model 64 --layers 2 --ffn 128 --vocab 500 --batch 4 --length 16 --repeats 2

Three measurements in one run. Bytes of `adapter_model.safetensors`, in float32 and in bfloat16. Tokens per second of
beam search of the adapted model against the bare base model; every hypothesis has the same length. Seconds of a
training step with the base frozen, against a LoRA on all projections of the decoder's attentions (rank 16 by default)
and against the step of the base model with all of its weights trained; with labels for a loss without smoothing.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import common
import torch
from generation import translation
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from rich.progress import track
from transformers import PreTrainedModel

from hf_attncal.adapters import AttentionCalibrationConfig, save_adapter

VARIANTS = {
    "fixed": {"calibration": "fixed"},
    "annealed": {"calibration": "annealed"},
    "gated": {"calibration": "gated"},
    "gated-head": {"calibration": "gated", "mask_projection": "head"},
    "leaky": {"calibration": None, "leaky": True},
    "gated-leaky": {"calibration": "gated", "leaky": True},
}
# Megabytes (10^6 bytes) at the opus-mt shape.
FULL_MB = {"float32": 13.0, "bfloat16": 7.0}
SPEED = 0.9


def adapted(args: argparse.Namespace, name: str) -> PeftModel:
    """The stock model with the adapter of this name; its parameters are random, so that nothing is a special case."""
    model = get_peft_model(common.stock_model(args), AttentionCalibrationConfig(**VARIANTS[name]))
    model.set_annealing_step(10_000)
    generator = torch.Generator().manual_seed(args.seed)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if ".attncal_" in parameter_name:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def with_lora(args: argparse.Namespace) -> PeftModel:
    """The stock model with a LoRA on the queries, keys, values and outputs of the decoder's attentions."""
    config = LoraConfig(
        r=args.lora_rank,
        target_modules=r".*decoder\.layers\.\d+\.(self_attn|encoder_attn)\.(q|k|v|out)_proj",
        task_type=TaskType.SEQ_2_SEQ_LM,
    )
    return get_peft_model(common.stock_model(args), config)


def megabytes(model: PeftModel) -> dict[str, float]:
    """Size of the file with the adapter's weights, by precision."""
    sizes = {}
    for dtype in (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as folder:
            save_adapter(model, folder, dtype=dtype)
            sizes[str(dtype).removeprefix("torch.")] = (
                Path(folder) / "adapter_model.safetensors"
            ).stat().st_size / 1e6
    return sizes


def step_of(args: argparse.Namespace, model: PreTrainedModel | PeftModel) -> Callable[[], None]:
    """A function that makes one training step of what is trainable, on one fixed batch."""
    inputs = common.batch(args)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-5, betas=(0.9, 0.98))
    model.train()

    def step() -> None:
        common.learn(args, model, inputs, optimizer)

    return step


def trained(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def measure(args: argparse.Namespace, name: str) -> dict:
    """All numbers of one variant; each pair of models is built, timed in turn and released."""
    model = adapted(args, name)
    result = {"parameters": trained(model), "megabytes": megabytes(model)}

    tokens = args.batch * args.new_tokens
    base_run, run = translation(args, common.stock_model(args)), translation(args, model)
    base_seconds, seconds = common.in_turn(args, base_run, run)
    result["tokens_per_second"] = {
        "base": [tokens / s for s in base_seconds],
        "adapter": [tokens / s for s in seconds],
    }
    result["speed_ratio"] = common.spread([b / s for b, s in zip(base_seconds, seconds, strict=True)])
    del model, base_run, run
    common.release(args)

    step = step_of(args, adapted(args, name))
    lora = with_lora(args)
    for other, make in (("lora", lambda: lora), ("full", lambda: common.stock_model(args))):
        other_seconds, own_seconds = common.in_turn(args, step_of(args, make()), step)
        ratios = [own / other for own, other in zip(own_seconds, other_seconds, strict=True)]
        result[f"step_ratio_to_{other}"] = common.spread(ratios)
        result[f"step_seconds_against_{other}"] = {other: other_seconds, "adapter": own_seconds}
    result["lora_parameters"] = trained(lora)
    return result


def size_limits(args: argparse.Namespace) -> tuple[float, float] | None:
    """Limits for float32 and bfloat16; they are stated for one shape only."""
    if (args.d_model, args.layers) != (512, 6):
        return None
    return FULL_MB["float32"], FULL_MB["bfloat16"]


def report(args: argparse.Namespace, variants: dict[str, dict]) -> None:
    rows = []
    for name, result in variants.items():
        limits = size_limits(args) or (None, None)
        sizes = result["megabytes"]
        ratio = result["speed_ratio"]
        rows.append(
            [
                name,
                f"{result['parameters']:,}",
                *(
                    f"{sizes[dtype]:.2f} ({common.verdict(sizes[dtype], limit)})"
                    for dtype, limit in zip(("float32", "bfloat16"), limits, strict=True)
                ),
                f"{ratio['median']:.3f}",
                f"{ratio['min']:.3f} - {ratio['max']:.3f}",
                common.verdict(ratio["median"], SPEED, at_most=False),
                f"{result['step_ratio_to_lora']['median']:.3f}",
                f"{result['step_ratio_to_full']['median']:.3f}",
            ]
        )
    columns = ["adapter", "parameters", "MB float32", "MB bfloat16", "speed ratio", "min - max", "limit"]
    title = f"Adapters on {args.family}, {args.batch} x {args.length} tokens, beam {args.beams}, {args.device}"
    common.show(title, [*columns, "step / LoRA step", "step / full step"], rows)


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=32, repeats=10, variants=VARIANTS)
    parser.set_defaults(vocab=58101)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--lora-rank", type=int, default=16)
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("adapters", args)
    result["variants"] = {}
    for name in track(args.variants, description="adapters"):
        result["variants"][name] = measure(args, name)
        common.release(args)
    report(args, result["variants"])
    common.save(args, result)


if __name__ == "__main__":
    main()
