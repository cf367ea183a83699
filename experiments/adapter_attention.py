"""Alignment error rate of cross-attention before and after an adapter, on sentence pairs with gold links.

    python experiments/adapter_attention.py --data DIR --pair wpt03-enfr --model base=runs/wpt03 \
        --model gated=runs/gated --model lora=runs/lora --output results/adapters/wpt03/attention.json

A model is `NAME=FOLDER` of a model or an adapter. For each, layer, heads and step (Naive-Att or Shift-Att) are chosen
by the error rate on dev, for attention and, where it is calibrated, for contributions (Lu et al., eq. 6); once among
all sets of heads that are tried, and once among the averages of all heads of a layer, as the paper has it. Only what
was chosen is scored on test. Every target word is linked to one source word, in one direction.
"""

import argparse
from dataclasses import asdict
from pathlib import Path

import torch
from aligners import FILES

from hf_attncal.alignment import WordAligner, select_attention
from hf_attncal.alignment.seq2seq import READABLE_WEIGHTS
from hf_attncal.data.gold import Gold
from hf_attncal.files import write_json
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate
from hf_attncal.models.calibration import calibration_of

SPLITS = ("dev", "test")


def measure(model, tokenizer, gold: dict[str, Gold], bootstrap: int) -> dict[str, dict]:
    """For attention, and contributions where there are any: what dev chose, of all and of averages, and its scores."""
    rows = {}
    for weights in READABLE_WEIGHTS[: 1 if calibration_of(model) is None else 2]:
        sources, targets = map(list, zip(*gold["dev"].pairs, strict=True))
        ranked = select_attention(model, tokenizer, sources, targets, gold["dev"].links, weights=weights)
        averages = [entry for entry in ranked if entry[0].heads is None]
        for name, (settings, dev) in ((weights, ranked[0]), (f"{weights}, mean of heads", averages[0])):
            aligned = WordAligner(model, tokenizer, settings).align(gold["test"].pairs)
            links = [set(pair.links) for pair in aligned]
            test = alignment_error_rate(gold["test"].links, links, bootstrap=bootstrap)
            rows[name] = {"settings": settings.to_dict(), "dev": asdict(dev), "test": asdict(test)}
    return rows


def read_gold(folder: Path, pair: str) -> tuple[dict[str, Gold], dict[str, Path]]:
    """Pairs and links of dev and test, and their files by name."""
    files = FILES[pair]
    gold, read = {}, {}
    for split in SPLITS:
        names = [folder / pair / f"{split}.{files[side]}" for side in ("source", "target")]
        links = folder / pair / f"{split}.align"
        gold[split] = Gold.load(dict(zip(("source", "target"), map(str, names), strict=True)), links)
        read |= {path.name: path for path in (*names, links)}
    return gold, read


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each pair")
    parser.add_argument("--pair", choices=FILES, required=True)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER", dest="models")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the interval of AER")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    models = dict(value.partition("=")[::2] for value in args.models)
    if not all(models.values()):
        parser.error(f"--model must be NAME=FOLDER, got {args.models}.")
    gold, files = read_gold(args.data, args.pair)
    config = {"experiment": "adapter_attention", "pair": args.pair, "bootstrap": args.bootstrap}
    result = records.record(config, files) | {"models": {}}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, folder in models.items():
        model, tokenizer = load_seq2seq(folder)
        result["models"][name] = measure(model.to(device), tokenizer, gold, args.bootstrap)
    write_json(result, args.output)


if __name__ == "__main__":
    main()
