"""Alignment error rate of every method of attribution, on sentence pairs with gold links.

    python experiments/attribution_gold.py --data DIR --pair wpt03-enfr --model baseline=runs/wpt03_1 \
        --model gated=runs/wpt03_gated_1 --aligner runs/hmm_wpt03

Each target word is linked to its best source word, in one direction. Scored on test are, of each method, the mean over
layers and heads, and the layer, head and sign that have the lowest error on dev: see
`hf_attncal.report.attributions`. `_shifted` reads the step after the one that predicts a word. `--points` measures
on dev what integrated gradients come to with other numbers of points than `--steps`. Written is
results/analysis/gold_PAIR_NAME_seedN.json for each model.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from aligners import FILES, read_gold
from committed import RESULTS
from frozen import Frozen, add_models, read_models
from torch import Tensor

from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.links import largest_over_words
from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.report.attributions import (
    ScoredReading,
    WayOfReading,
    attribution_links,
    score_attributions,
    ways_of_reading,
)

PATH = "integrated_gradients"


def word_posteriors(aligner: WordAligner) -> Callable[[Iterable[str], Iterable[str]], list[Tensor]]:
    """Return a function for the method `posterior`: what an aligner says in the direction that predicts the target.

    Args:
        aligner: of any kind.

    Returns:
        A function of sources and targets: for each pair (target words, source words), the largest weight between
        their subwords; zeros for a pair with a side of no word.
    """

    @torch.no_grad()
    def weights(sources: Iterable[str], targets: Iterable[str]) -> list[Tensor]:
        pairs = [(source.split(), target.split()) for source, target in zip(sources, targets, strict=True)]
        found = [torch.zeros(len(target), len(source)) for source, target in pairs]
        for indices, of_batch in aligner.source.weights(pairs, batch_size=256, batch_tokens=4096):
            words = largest_over_words(of_batch.forward, of_batch.target_words, of_batch.source_words).cpu()
            for row, index in enumerate(indices):
                target, source = found[index].shape
                found[index] = words[row, :target, :source].clone()
        return found

    return weights


def plain(reading: ScoredReading) -> dict:
    """A reading as JSON, without its links."""
    difference = reading.minus_attention
    return {
        "options": {name: value for name, value in reading.options.items() if name != "weights"},
        "dev": asdict(reading.dev),
        "test": asdict(reading.test),
        "minus_attention": difference and {"aer": difference[0], "interval": difference[1]},
    }


def in_its_case(gold: dict[str, Gold], frozen: Frozen) -> dict[str, Gold]:
    """The pairs as the model was trained to read them."""
    sides = {split: map(frozen.in_its_case, zip(*of.pairs, strict=True)) for split, of in gold.items()}
    return {split: Gold(list(zip(*sides[split], strict=True)), of.links) for split, of in gold.items()}


def measure(model, tokenizer, gold: dict[str, Gold], aligner: WordAligner | None, args: argparse.Namespace) -> dict:
    """All that is measured of a model."""
    ways = ways_of_reading(model)
    if args.methods is not None:
        ways = {name: way for name, way in ways.items() if name.removesuffix("_shifted") in args.methods}
    if PATH in ways:
        ways[PATH] = WayOfReading(PATH, {"steps": args.steps})
    if aligner is not None:
        ways["posterior"] = WayOfReading("posterior", {"weights": word_posteriors(aligner)})
    seconds, started = {}, time.perf_counter()

    def finished(name, scored):
        nonlocal started
        seconds[name] = round(time.perf_counter() - started, 2)
        started = time.perf_counter()
        print(f"{name}: {seconds[name]} s", flush=True)

    reading = {"bootstrap": args.bootstrap, "batch_size": args.batch_size, "finished": finished}
    scored = score_attributions(model, tokenizer, gold["test"], gold["dev"], ways, **reading)
    methods = {
        name: {"method": ways[name].method, "shift": ways[name].shift, "mean": plain(of.mean)}
        | {"chosen": plain(of.chosen), "seconds": seconds[name]}
        for name, of in scored.items()
    }
    points = {}
    if PATH in ways:
        for steps in args.points:
            links = attribution_links(model, tokenizer, gold["dev"].pairs, WayOfReading(PATH, {"steps": steps}))
            points[steps] = asdict(alignment_error_rate(gold["dev"].links, links, check_indices=False))
    own = [name for name in methods if name != "posterior"]
    best = min(own, key=lambda name: methods[name]["chosen"]["dev"]["aer"])
    return {"methods": methods, "best_on_dev": best, "integrated_gradients_dev": points}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each pair")
    parser.add_argument("--pair", choices=FILES, required=True, help="whose gold links")
    add_models(parser)
    parser.add_argument("--aligner", type=Path, help="folder of a word aligner, for the method `posterior`")
    parser.add_argument("--methods", nargs="+", help="only these, each also `_shifted`; without it, all")
    parser.add_argument("--steps", type=int, default=16, help="points of integrated gradients")
    parser.add_argument("--points", type=int, nargs="*", default=[], help="numbers of points to compare on dev")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the intervals")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", type=Path, default=RESULTS / "analysis", help="folder of the results")
    args = parser.parse_args()
    try:
        models = read_models(args.models)
        gold, files = read_gold(args.data, args.pair)
        aligner = None if args.aligner is None else WordAligner.from_pretrained(args.aligner, device="cpu")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for frozen in models:
        model, tokenizer = frozen.load()
        found = measure(model, tokenizer, in_its_case(gold, frozen), aligner, args)
        config = {"experiment": "attribution_gold", "pair": args.pair, "aligner": aligner and args.aligner.name}
        config |= {"integrated_gradients_steps": args.steps, "bootstrap": args.bootstrap}
        result = records.record(config | frozen.config(model), files | frozen.files) | found
        write_json(result, args.output / f"gold_{args.pair}_{frozen.stem}.json")


if __name__ == "__main__":
    main()
