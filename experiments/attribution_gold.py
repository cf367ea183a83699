"""Alignment error rate of every method of attribution, on sentence pairs with gold links.

    python experiments/attribution_gold.py --data DIR --pair wpt03-enfr --model baseline=runs/wpt03_1 \
        --model gated=runs/wpt03_gated_1 --aligner runs/hmm_wpt03

Each target word is linked to its best source word, in one direction. Scored on test are, of each method, the mean over
layers and heads, and the layer and head that have the lowest error on dev. Written is
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
from hf_attncal.alignment.links import best_links, largest_over_words
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.inference.reading import decoder_size
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate, paired_interval
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.report.attribution import attribute, works_on

Links = list[frozenset[tuple[int, int]]]


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


def links_of(model, tokenizer, gold: Gold, method: str, batch_size: int, **options) -> Links:
    """The best source word of each target word of every pair."""
    links: Links = [frozenset()] * len(gold.pairs)
    texts = ([pair[side] for pair in gold.pairs] for side in (0, 1))
    for one in attribute(model, tokenizer, *texts, method, batch_size=batch_size, **options):
        links[one.index] = best_links(one.words())
    return links


def choices(model, method: str) -> list[dict]:
    """The layers and heads of a method to choose from; the mean over all is first."""
    if method not in ("attention", "contribution"):
        return [{}]
    layers, heads = decoder_size(model.config)
    read = calibrated_layers(model) if method == "contribution" else range(layers)
    return [{}, *({"layer": layer, **head} for layer in read for head in ({}, *({"head": n} for n in range(heads))))]


def in_its_case(gold: dict[str, Gold], frozen: Frozen) -> dict[str, Gold]:
    """The pairs as the model was trained to read them."""
    sides = {split: map(frozen.in_its_case, zip(*of.pairs, strict=True)) for split, of in gold.items()}
    return {split: Gold(list(zip(*sides[split], strict=True)), of.links) for split, of in gold.items()}


def measure(model, tokenizer, gold: dict[str, Gold], aligner: WordAligner | None, args: argparse.Namespace) -> dict:
    """All that is measured of a model."""
    resampled = {"bootstrap": args.bootstrap, "seed": 0}
    ways = {name: (name, {}) for name in works_on(model) if name != "posterior"}
    if calibrated_layers(model):
        ways["attention_uncalibrated"] = ("attention", {"calibrated": False})
    if args.methods is not None:
        ways = {name: way for name, way in ways.items() if name in args.methods}
    if aligner is not None:
        ways["posterior"] = ("posterior", {"weights": word_posteriors(aligner)})
    methods: dict[str, dict] = {}
    attention: dict[str, Links] = {}
    for name, (method, fixed) in ways.items():  # attention is the first
        started = time.perf_counter()
        on_dev = []
        for options in choices(model, method):
            links = links_of(model, tokenizer, gold["dev"], method, args.batch_size, **fixed, **options)
            on_dev.append((alignment_error_rate(gold["dev"].links, links, check_indices=False), options))
        readings = {"mean": on_dev[0], "chosen": min(on_dev, key=lambda scored: scored[0].aer)}
        methods[name] = {"method": method}
        for kind, (dev, options) in readings.items():
            links = links_of(model, tokenizer, gold["test"], method, args.batch_size, **fixed, **options)
            test = alignment_error_rate(gold["test"].links, links, check_indices=False, **resampled)
            difference = None
            if kind in attention:
                interval = paired_interval(gold["test"].links, attention[kind], links, **resampled)
                others = alignment_error_rate(gold["test"].links, attention[kind], check_indices=False)
                difference = {"aer": test.aer - others.aer, "interval": interval}
            elif name == "attention":
                attention[kind] = links
            stated = {key: value for key, value in (fixed | options).items() if key != "weights"}
            methods[name][kind] = {"options": stated, "dev": asdict(dev), "test": asdict(test)}
            methods[name][kind]["minus_attention"] = difference
        methods[name]["seconds"] = round(time.perf_counter() - started, 2)
        print(f"{name}: {methods[name]['seconds']} s", flush=True)
    own = [name for name in methods if name != "posterior"]
    return {"methods": methods, "best_on_dev": min(own, key=lambda name: methods[name]["chosen"]["dev"]["aer"])}


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
    parser.add_argument("--methods", nargs="+", help="only these; without it, all")
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
        config |= {"bootstrap": args.bootstrap}
        result = records.record(config | frozen.config(model), files | frozen.files) | found
        write_json(result, args.output / f"gold_{args.pair}_{frozen.stem}.json")


if __name__ == "__main__":
    main()
