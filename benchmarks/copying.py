"""What copying costs: training steps and generation of a model with `copy` against the same model without.

    python benchmarks/copying.py --threads 1
    python benchmarks/copying.py --family bart --variants default --d-model 64 --layers 2 --repeats 3

A step is forward, backward and Adam. Of words that only the source has there are `--slots`; one source token in eight
is such a word. Every hypothesis has the same length: the end of a sentence is forbidden until the last step. Beside
the time on the clock stands that of the processor, which a busy machine changes less.

What copying adds to a step of a search over R sentences of S tokens with N beams each, V words and E slots:

- Normalisation of the logits, which a beam search does again over what it gets: R N V exponentials, and passes over
  R N (V + E) numbers, read and written, where the output layer has 2 R N V d operations.
- The gate: 2 R N (2 d + S) operations. Once for each source 4 R S d, which all steps share.
- The mixture: passes over R N S numbers, where the layer that is copied by has 4 R N S d operations.
- Many small kernels in place of the layer's one. Where a sentence is alone, their start is what counts, so for short
  sources they are fewer (`CopyMechanism.search`), and beams attend as steps of their source, which they share.
- In training the weights of that layer, which a kernel would not form, are kept: 4 B T S bytes and those of softmax.
"""

import argparse
import time
from collections.abc import Callable

import common
import numpy as np
import torch
from rich.progress import track
from transformers import PreTrainedModel

from hf_attncal import LuongConfig, LuongForConditionalGeneration
from hf_attncal.families import backbones

UNKNOWN = 3
# What is other than the options say, and the switches of both models.
VARIANTS = {
    "default": ({}, {}),
    "subwords": ({"slots": 0}, {}),
    "greedy": ({"beams": 1}, {}),
    "one-sentence": ({"batch": 1, "beams": 1}, {}),
    "batch-64": ({"batch": 64}, {}),
    "vocabulary-32000": ({"vocab": 32000}, {}),
    "source-200": ({"length": 200}, {}),
    "gated": ({}, {"calibration": "gated"}),
}
LIMITS = {"training_step": 1.10, "generation": 0.92}


def build(args: argparse.Namespace, switches: dict, copies: bool) -> PreTrainedModel:
    """A model with these switches, from the seed."""
    settings = dict(switches)
    if copies:
        settings |= {"copy": True, "max_copied_tokens": args.slots, "unk_token_id": UNKNOWN if args.slots else None}
    torch.manual_seed(args.seed)
    if args.family == LuongConfig.model_type:
        sizes = {"vocab_size": args.vocab, "d_model": args.d_model, "dropout": 0.1, "bidirectional": True}
        layers = {"encoder_layers": args.layers, "decoder_layers": args.layers, "directions": "project"}
        model = LuongForConditionalGeneration(LuongConfig(**sizes, **layers, **settings))
    else:
        family = backbones()[args.family]
        model = family.model_class(family.config_class(**common.sizes(args), **settings))
    return model.to(args.device)


def inputs_of(args: argparse.Namespace, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The batch of every benchmark, and slots in place of source tokens where the model has some."""
    batch = common.batch(args)
    slots = model.config.max_copied_tokens
    if slots:
        unknown = batch["input_ids"][:, ::8]  # a view
        unknown.fill_(UNKNOWN)
        extended = batch["input_ids"].clone()
        extended[:, ::8] = args.vocab + torch.arange(unknown.shape[1], device=extended.device) % slots
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


def clocks() -> np.ndarray:
    """Seconds: by the clock, and of the processor."""
    return np.array((time.perf_counter(), time.process_time()))


def compare(args: argparse.Namespace, switches: dict) -> dict:
    """Training steps and searches with and without copying, by name."""
    models = [build(args, switches, copies) for copies in (False, True)]
    found = {}
    for what, run in (("training_step", training), ("generation", generation)):
        plain, copying = common.in_turn(args, *(run(args, model) for model in models), clocks)
        ratios = [c / p if what == "training_step" else p / c for p, c in zip(plain, copying, strict=True)]
        quantity = "time_ratio" if what == "training_step" else "speed_ratio"
        found[what] = {
            "plain_seconds": [wall for wall, _ in plain],
            "seconds": [wall for wall, _ in copying],
            quantity: common.spread([wall for wall, _ in ratios]),
            f"cpu_{quantity}": common.spread([cpu for _, cpu in ratios]),
        }
    return found


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=30, repeats=11, variants=VARIANTS)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--slots", type=int, default=50)
    parser.set_defaults(d_model=256, layers=3, heads=4, ffn=1024, vocab=5000)
    families = next(action for action in parser._actions if action.dest == "family")
    families.choices = (*backbones(), LuongConfig.model_type)
    args = parser.parse_args()
    common.set_up(args)
    result = common.record("copying", args, shapes={name: VARIANTS[name][0] for name in args.variants})
    variants, rows = {}, []
    for name in track(args.variants, description="variants"):
        shape, switches = VARIANTS[name]
        variants[name] = compare(argparse.Namespace(**vars(args) | shape), switches)
        for (what, measured), at_most in zip(variants[name].items(), (True, False), strict=True):
            for quantity in [key for key in measured if key.endswith("ratio")]:
                ratio = measured[quantity]
                kept = common.verdict(ratio["median"], LIMITS[what] if not switches else None, at_most)
                shown = f"{ratio['median']:.3f}", f"{ratio['min']:.3f} - {ratio['max']:.3f}"
                rows.append([f"{name}, {what.replace('_', ' ')}", quantity.replace("_", " "), *shown, kept])
        common.release(args)
    common.show(f"Copying, {args.family}, {args.device}", ["", "", "median", "min - max", "limit"], rows)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
