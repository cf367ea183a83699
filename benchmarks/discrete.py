"""The Discrete Transformer against itself with soft attention, by length, and its training against stock Marian.

    python benchmarks/discrete.py --threads 1
    python benchmarks/discrete.py --d-model 64 --layers 2 --ffn 128 --vocab 500 --lengths 16 32 --batch 2 --repeats 2

Both have the same weights, and the soft one is stock Marian with torch's own kernel (SDPA). For every length: the
encoder on sentences of that length; a step of the decoder with as many tokens behind it and as many in the source; and
the attention alone in both cases, on random queries, keys and values. In a step hard attention reads every key but one
value, half of what soft attention reads: at best it takes half the time, once that is more than the processor's cache.
"""

import argparse
from collections.abc import Callable

import common
import torch
from rich.progress import track
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForConditionalGeneration
from hf_attncal.models.functional import attention_scores
from hf_attncal.models.functional_discrete import chosen_positions, gathered_values
from training import training_step

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
STREAMS = {"single": {"streams": 1}, "two": {"streams": 2}}
PARTS = ("encoder", "step", "attention", "attention_step")


def model(args: argparse.Namespace, **settings) -> DiscreteTransformerForConditionalGeneration:
    """A model of these settings, from the seed."""
    torch.manual_seed(args.seed)
    sizes = common.sizes(args) | {"max_position_embeddings": 2 * max(args.lengths)}
    return DiscreteTransformerForConditionalGeneration(DiscreteTransformerConfig(**sizes, **settings)).to(args.device)


def encoding(args: argparse.Namespace, model, length: int) -> Callable[[], None]:
    """A function that encodes a batch of sentences."""
    ids = torch.randint(3, args.vocab, (args.batch, length), device=args.device)
    encoder = model.get_encoder()

    @torch.inference_mode()
    def run() -> None:
        encoder(ids)

    return run


def stepping(args: argparse.Namespace, model, length: int) -> Callable[[], None]:
    """A function that computes one step of the decoder after `length` others, again and again the same one."""
    source = torch.randint(3, args.vocab, (args.batch, length), device=args.device)
    target = torch.randint(3, args.vocab, (args.batch, length + 1), device=args.device)
    with torch.inference_mode():
        encoded = model.get_encoder()(source)
        cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
        model(encoder_outputs=encoded, decoder_input_ids=target[:, :-1], past_key_values=cache, use_cache=True)

    @torch.inference_mode()
    def run() -> None:
        model(encoder_outputs=encoded, decoder_input_ids=target[:, -1:], past_key_values=cache, use_cache=True)
        cache.self_attention_cache.crop(-1)

    return run


def attention(
    args: argparse.Namespace, queries: int, length: int
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Soft and hard attention alone."""
    width = args.d_model // args.heads
    shape = args.batch, args.heads
    query = torch.randn(*shape, queries, width, device=args.device)
    key, value = (torch.randn(*shape, length, width, device=args.device) for _ in range(2))

    @torch.inference_mode()
    def soft() -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value)

    @torch.inference_mode()
    def hard() -> Tensor:
        return gathered_values(value, chosen_positions(attention_scores(query, key, width**-0.5)), nulls=False)

    return soft, hard


def ratio(args: argparse.Namespace, soft: Callable[[], object], hard: Callable[[], object]) -> dict:
    """How many times as fast `hard` is as `soft`, and the seconds of both."""
    soft_seconds, hard_seconds = common.in_turn(args, soft, hard)
    return {
        "soft_seconds": common.spread(soft_seconds),
        "hard_seconds": common.spread(hard_seconds),
        "speed_ratio": common.spread([s / h for s, h in zip(soft_seconds, hard_seconds, strict=True)]),
    }


def training(args: argparse.Namespace, name: str) -> dict:
    """A training step of ours over one of stock Marian's, with a penalty on receptive fields and without."""
    args.label_smoothing = 0.0
    stock = training_step(args, common.stock_model(args))
    found = {}
    for key, penalty in (("time_ratio", 0.0), ("time_ratio_with_penalty", 0.1)):
        ours = training_step(args, model(args, receptive_field_penalty=penalty, **STREAMS[name]))
        stock_seconds, ours_seconds = common.in_turn(args, stock, ours)
        found[key] = common.spread([o / s for o, s in zip(ours_seconds, stock_seconds, strict=True)])
    return found


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=8, length=32, repeats=15, variants=STREAMS)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="tokens of each side")
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("discrete", args)
    soft = model(args, hard_attention=False).eval()
    variants, rows = {}, []
    for name in args.variants:
        hard = model(args, **STREAMS[name]).eval()
        hard.load_state_dict(soft.state_dict(), strict=False)
        by_length = {}
        for length in track(args.lengths, description=name):
            found = {
                "encoder": ratio(args, encoding(args, soft, length), encoding(args, hard, length)),
                "step": ratio(args, stepping(args, soft, length), stepping(args, hard, length)),
            }
            if name == "single":
                found["attention"] = ratio(args, *attention(args, length, length))
                found["attention_step"] = ratio(args, *attention(args, 1, length))
            by_length[str(length)] = found
            medians = [f"{found[part]['speed_ratio']['median']:.2f}" if part in found else "-" for part in PARTS]
            rows.append([f"{name}, {length}", *medians])
        variants[name] = {"inference": by_length, "training_step": training(args, name)}
        del hard
        common.release(args)
    common.show(f"Times as fast as soft attention, batch {args.batch}, {args.device}", ["length", *PARTS], rows)
    steps = [
        [name, *(f"{ratio['median']:.2f}" for ratio in found["training_step"].values())]
        for name, found in variants.items()
    ]
    columns = ["variant", "time", "with penalty"]
    common.show(f"Training step over stock Marian's, {args.length} tokens a side", columns, steps)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
