"""Estimate hours and memory of a training on GPUs that nobody has run: a Marian of base size, as the paper trains it.

    python benchmarks/estimate.py

By default WMT14 English-German as the paper: 150,000 steps of 8 batches of 8,192 tokens. Measured are the steps of
`benchmarks/training.py` on one CPU thread, which give that thread's hours, and the times of a step of each variant to
the stock model's. What a GPU reaches of its peak in training is an *assumption* (`--utilisation`), and that variants
cost as much there as on a CPU another, so the hours on GPUs are good to a factor of two. Memory is arithmetic:
weights, gradients and Adam's two moments in float32, and what the backward pass needs, in bfloat16 as Korthikanti et
al. (2022, eq. 1) count it, and logits in float32.
"""

import argparse
import json
import statistics

from common import RESULTS, VARIANTS
from transformers import PreTrainedModel

from hf_attncal.families import default_of
from hf_attncal.files import write_json
from hf_attncal.metrics import records

TERAFLOPS = {"V100": 125, "A100": 312, "H100": 989}  # peak of dense half precision, as NVIDIA states them
GIB = 2**30
PER_WEIGHT = 4 + 4 + 8  # bytes: the weight, its gradient, Adam's two moments


def build(args: argparse.Namespace, variant: str) -> PreTrainedModel:
    """The model of a variant."""
    sides = {"encoder": args.layers, "decoder": args.layers}
    config = default_of("translation").config_class(
        vocab_size=args.vocab,
        decoder_vocab_size=args.vocab,
        d_model=args.d_model,
        pad_token_id=0,
        eos_token_id=1,
        forced_eos_token_id=1,
        decoder_start_token_id=0,
        **{f"{side}_layers": layers for side, layers in sides.items()},
        **{f"{side}_attention_heads": args.heads for side in sides},
        **{f"{side}_ffn_dim": args.ffn for side in sides},
        **VARIANTS[variant],
    )
    return default_of("translation").model_class(config)


def flops_of_a_token(args: argparse.Namespace, parameters: int) -> float:
    """Floating point operations of a training step for a target token and its source token (Kaplan et al. 2020).

    Six for each weight of a product (two forward, four backward): those of all layers, and the output layer; and
    twelve times width and length for scores and weighted sums of each of three attentions.
    """
    layers = parameters - args.vocab * args.d_model
    attention = 12 * args.d_model * args.length * 3 * args.layers
    return 6 * (layers + args.vocab * args.d_model) + attention


def activation_bytes(args: argparse.Namespace) -> int:
    """What a batch keeps for the backward pass, on one GPU: activations of the layers, and logits."""
    layer = 34 * args.d_model + 5 * args.heads * args.length  # bytes a token, with self-attention
    cross = 11 * args.d_model + 5 * args.heads * args.length
    logits = 3 * 4 * args.vocab  # they, log-probabilities, gradient
    return args.tokens * (args.layers * (2 * layer + cross) + logits)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--steps", type=int, default=150_000)
    options.add_argument("--tokens", type=int, default=8192, help="target tokens of a batch, on each GPU")
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--length", type=int, default=32, help="tokens of a sentence, on each side")
    options.add_argument("--utilisation", type=float, default=0.15, help="share of a GPU's peak: an assumption")
    for name, size in (("d-model", 512), ("layers", 6), ("heads", 8), ("ffn", 2048), ("vocab", 32000)):
        options.add_argument(f"--{name}", type=int, default=size)
    options.add_argument("--output", default=RESULTS / "estimate_wmt14.json")
    args = options.parse_args()

    measured = json.loads((RESULTS / "benchmark_training_cpu.json").read_text(encoding="utf-8"))
    batch_tokens = measured["config"]["batch"] * measured["config"]["length"]
    measured = measured["variants"]
    config = {name: value for name, value in vars(args).items() if name != "output"}
    results = records.record(config | {"assumed": ["utilisation"]}) | {"variants": {}}
    for variant in ("baseline", "fixed", "annealed", "gated", "leaky"):
        parameters = build(args, variant).num_parameters()
        times = measured[variant]["time_ratio"]["median"]
        seconds = statistics.median(measured[variant]["seconds"])
        flops = flops_of_a_token(args, parameters) * args.steps * args.tokens * args.gpus * times
        hours = {
            name: flops / (teraflops * 1e12 * args.utilisation * args.gpus) / 3600
            for name, teraflops in TERAFLOPS.items()
        }
        memory = {
            "weights_gradients_adam_gib": PER_WEIGHT * parameters / GIB,
            "the_same_sharded_gib": PER_WEIGHT * parameters / args.gpus / GIB,
            "activations_gib": activation_bytes(args) * measured[variant]["memory_ratio"] / GIB,
        }
        results["variants"][variant] = {
            "parameters": parameters,
            "times_stock": times,
            "cpu_thread_hours": args.steps * args.tokens * args.gpus * seconds / batch_tokens / 3600,
            "exaflops": flops / 1e18,
            "hours": hours,
            "memory": memory,
        }
        print(
            f"{variant:9} {parameters / 1e6:.0f} million parameters; hours on {args.gpus} GPUs: "
            + ", ".join(f"{name} {value:.1f}" for name, value in hours.items())
            + f"; GiB a GPU: {memory['weights_gradients_adam_gib']:.1f} (sharded "
            f"{memory['the_same_sharded_gib']:.1f}) and {memory['activations_gib']:.1f} of activations"
        )
    write_json(results, args.output)


if __name__ == "__main__":
    main()
