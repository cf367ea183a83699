"""Tokens per second of beam search against the stock model.

    python benchmarks/generation.py                    # every variant, base-size Marian, beam 4
    python benchmarks/generation.py --variants gated --threads 2 --batch 32 --new-tokens 32
    python benchmarks/generation.py --d-model 64 --layers 2 --ffn 128 --vocab 500 --batch 4 --length 16 --repeats 2

Every hypothesis has the same length: the end of a sentence is forbidden until the last step, so that no run is faster
because its random weights happen to end early. A calibrated model adds one projection of the target state to each
step and one of the source to each sentence: at best 0.96 of the stock model's tokens per second.
"""

import argparse
from collections.abc import Callable

import common
import torch
from rich.progress import track
from transformers import GenerationConfig, PreTrainedModel

LIMITS = {"fixed": 0.9, "annealed": 0.9, "gated": 0.9, "gated-head": 0.9, "gated-renormalized": 0.9}


def translation(args: argparse.Namespace, model: PreTrainedModel) -> Callable[[], None]:
    """A function that translates one fixed batch."""
    model.eval()
    if args.bf16:
        model.to(torch.bfloat16)
    inputs = common.batch(args)
    del inputs["labels"]
    generation = GenerationConfig(
        num_beams=args.beams,
        do_sample=False,
        min_new_tokens=args.new_tokens,
        max_new_tokens=args.new_tokens,
        length_penalty=0.6,
        pad_token_id=model.config.pad_token_id,
        eos_token_id=model.config.eos_token_id,
        decoder_start_token_id=model.config.decoder_start_token_id,
    )

    def translate() -> None:
        tokens = model.generate(**inputs, generation_config=generation)
        if tokens.shape != (args.batch, 1 + args.new_tokens):
            raise RuntimeError(f"expected {args.batch} hypotheses of {1 + args.new_tokens} tokens, got {tokens.shape}")

    return translate


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=32, length=32, repeats=10)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=32)
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("generation", args)
    tokens = args.batch * args.new_tokens
    stock = translation(args, common.stock_model(args))
    variants, rows = {}, []
    for name in track(args.variants, description="variants"):
        ours = translation(args, common.our_model(args, name))
        stock_seconds, ours_seconds = common.in_turn(args, stock, ours)
        variants[name] = {
            "stock_tokens_per_second": [tokens / s for s in stock_seconds],
            "tokens_per_second": [tokens / s for s in ours_seconds],
            "speed_ratio": common.spread([s / o for s, o in zip(stock_seconds, ours_seconds, strict=True)]),
        }
        ratio = variants[name]["speed_ratio"]
        speeds = [common.spread(variants[name][key])["median"] for key in list(variants[name])[:2]]
        rows.append(
            [
                name,
                *(f"{speed:.0f}" for speed in speeds),
                f"{ratio['median']:.3f}",
                f"{ratio['min']:.3f} - {ratio['max']:.3f}",
                common.verdict(ratio["median"], LIMITS.get(name), at_most=False),
            ]
        )
        del ours
        common.release(args)
    title = f"Beam {args.beams} against stock {args.family}, {args.batch} sentences, {args.device}"
    columns = ["variant", "stock tokens/s", "tokens/s", "speed ratio", "min - max", "limit"]
    common.show(title, columns, rows)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
