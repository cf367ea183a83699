"""What copying costs: training steps and beam search of a model with `copy` against the same model without.

    python benchmarks/copying.py --threads 1
    python benchmarks/copying.py --family bart --variants copy --batch 8 --d-model 64 --layers 2 --repeats 3

A step is forward, backward and Adam. Of words that only the source has there are `--slots`; one source token in eight
is such a word. Every hypothesis has the same length: the end of a sentence is forbidden until the last step.
"""

import argparse
from collections.abc import Callable

import common
import torch
from rich.progress import track
from transformers import PreTrainedModel

from hf_attncal import LuongConfig, LuongForConditionalGeneration
from hf_attncal.families import BACKBONES

VARIANTS = {
    "copy": ({}, {"copy": True}),
    "copy-slots": ({}, {"copy": True, "max_copied_tokens": 1, "unk_token_id": 3}),
    "gated-copy": ({"calibration": "gated"}, {"calibration": "gated", "copy": True}),
}
LIMITS = {"copy": (1.10, 0.92), "copy-slots": (1.10, 0.92)}


def build(args: argparse.Namespace, settings: dict) -> PreTrainedModel:
    """A model of these settings, from the seed."""
    if settings.get("max_copied_tokens"):
        settings = settings | {"max_copied_tokens": args.slots}
    torch.manual_seed(args.seed)
    if args.family == "luong":
        sizes = {"vocab_size": args.vocab, "d_model": args.d_model, "dropout": 0.1, "bidirectional": True}
        layers = {"encoder_layers": args.layers, "decoder_layers": args.layers, "directions": "project"}
        model = LuongForConditionalGeneration(LuongConfig(**sizes, **layers, **settings))
    else:
        family = BACKBONES[args.family]
        model = family.model_class(family.config_class(**common.sizes(args), **settings))
    return model.to(args.device)


def inputs_of(args: argparse.Namespace, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The batch of every benchmark, and slots in place of source tokens where the model has some."""
    batch = common.batch(args)
    slots = model.config.max_copied_tokens
    if slots:
        extended = batch["input_ids"].clone()
        places = torch.arange(extended[:, ::8].shape[1], device=extended.device) % slots
        extended[:, ::8] = args.vocab + places
        batch["extended_input_ids"] = extended
    return batch


def training(args: argparse.Namespace, model: PreTrainedModel) -> Callable[[], None]:
    """A function that does one step."""
    batch, optimizer = inputs_of(args, model), torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        model.train()
        common.learn(args, model, batch, optimizer)

    return step


def generation(args: argparse.Namespace, model: PreTrainedModel) -> Callable[[], None]:
    """A function that searches for one fixed batch."""
    inputs = inputs_of(args, model)
    del inputs["labels"]
    length = {"min_new_tokens": args.new_tokens, "max_new_tokens": args.new_tokens}

    def search() -> None:
        model.eval()
        with common.autocast(args):
            tokens = model.generate(**inputs, num_beams=args.beams, do_sample=False, **length)
        if tokens.shape != (args.batch, 1 + args.new_tokens):
            raise RuntimeError(f"expected {args.batch} hypotheses of {1 + args.new_tokens} tokens, got {tokens.shape}")

    return search


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=32, length=64, repeats=8, variants=VARIANTS)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=24)
    parser.add_argument("--slots", type=int, default=32)
    parser.set_defaults(d_model=256, layers=3, heads=4, ffn=1024, vocab=16000)
    families = next(action for action in parser._actions if action.dest == "family")
    families.choices = (*BACKBONES, "luong")
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("copying", args)
    variants, rows = {}, []
    for name in track(args.variants, description="variants"):
        without, with_copies = (build(args, settings) for settings in VARIANTS[name])
        timed = {
            what: (run(args, without), run(args, with_copies))
            for what, run in (("training_step", training), ("generation", generation))
        }
        limits = LIMITS.get(name, (None, None))
        variants[name] = {}
        for (what, runs), limit in zip(timed.items(), limits, strict=True):
            plain, copying = common.in_turn(args, *runs)
            pairs = list(zip(plain, copying, strict=True))
            step = what == "training_step"
            ratio = common.spread([c / p if step else p / c for p, c in pairs])
            quantity = "time_ratio" if step else "speed_ratio"
            variants[name][what] = {"plain_seconds": plain, "seconds": copying, quantity: ratio}
            kept = common.verdict(ratio["median"], limit, at_most=step)
            shown = f"{ratio['median']:.3f}", f"{ratio['min']:.3f} - {ratio['max']:.3f}"
            rows.append([f"{name}, {what.replace('_', ' ')}", quantity.replace("_", " "), *shown, kept])
        del without, with_copies, timed
        common.release(args)
    common.show(f"Copying, {args.family}, {args.device}", ["", "", "median", "min - max", "limit"], rows)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
