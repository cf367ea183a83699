"""Adapters on models that people use: what of their attention is parked, and what a head knows of links.

    python experiments/checkpoints.py text --data ROOT --models RUNS --encoder NAME
    python experiments/checkpoints.py enpt none leaky --seed 1 --data ROOT --models RUNS

`text` makes text of another domain than the tests: the first English sentences of 5 to 14 words of tatoeba-deen, as
enpt translates them, with links of counts and an encoder (`align_quick(..., encoder=...)`), in RUNS. Of pten the sides
change places. Then a model of RUNS, as `attncal import` made it, gets an adapter ("none": it stays as it is), and is
measured on annotated pairs of xlwa/en-pt: dev for attention, dev and test for links. Nothing is chosen on a test; a
threshold of links is chosen on dev.

"parked" is the share of attention on special tokens and punctuation, the mean over heads and steps. "faithful" is the
share of target words for which the source word with most weight is also the one without which the word is least
probable (occlusion), of `--measured` pairs; "guided" is the head that was trained on links. Seconds are CPU seconds of
the training. `FOLDER/PAIR/ADAPTER_seedN.json` is written anew.
"""

import argparse
import gzip
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from firefox_models import FOLDERS, golds, greedy
from peft import get_peft_model
from transformers import DataCollatorForSeq2Seq

from hf_attncal import align_quick
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.pharaoh import parse_hypotheses
from hf_attncal.files import write_json
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.metrics import records
from hf_attncal.metrics.means import means
from hf_attncal.report.attribution import word_scores
from hf_attncal.report.observations import observe

ADAPTERS = {
    "none": None,
    "leaky": {"calibration": None, "leaky": True},
    "gated": {"calibration": "gated"},
    "guided": {"calibration": None, "guided": True, "guided_rank": 32, "guided_shift": False, "guided_weight": 1.0},
    "guided_shift": {"calibration": None, "guided": True, "guided_rank": 32, "guided_weight": 1.0},
}
WORDS, BATCH, RATE = (5, 14), 16, 2e-3


def make_text(args: argparse.Namespace) -> None:
    """Write the text of another domain, its translations and their links."""
    path = args.data / "tatoeba-deen/train.en.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = dict.fromkeys(line.strip() for line in file if WORDS[0] <= len(line.split()) <= WORDS[1])
    english = list(lines)[: args.pairs]
    model, tokenizer = load_seq2seq(str(args.models / "enpt"))
    rows, _ = greedy(model.eval(), tokenizer, english, batch=64)
    portuguese = tokenizer.batch_decode(rows, skip_special_tokens=True)
    pairs = list(zip(english, portuguese, strict=True))
    encoder = EncoderPrior.from_pretrained(args.encoder) if args.encoder else None
    links = [" ".join(f"{i}-{j}" for i, j in sorted(one.links)) for one in align_quick(pairs, encoder=encoder)]
    for name, side in (("en", english), ("pt", portuguese), ("align", links)):
        (args.models / f"text.{name}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")


def read_text(folder: Path, pair: str) -> tuple[list[str], list[str], list[frozenset]]:
    """Return sources, targets and links."""
    sides = {
        name: (folder / f"text.{name}").read_text(encoding="utf-8").splitlines() for name in ("en", "pt", "align")
    }
    links = parse_hypotheses(sides["align"], reverse=pair == "pten")
    return sides[pair[:2]], sides[pair[2:]], links


def train(model, tokenizer, text: tuple, settings: dict, steps: int, seed: int):
    """Return the adapted model, CPU seconds, and the losses of the last steps, by name."""
    torch.manual_seed(seed)
    dataset = Dataset.from_dict({"source": text[0], "target": text[1]})
    examples, _ = tokenize_pairs(dataset, tokenizer, 60, links=text[2] if settings.get("guided") else None)
    examples = [{k: v for k, v in one.items() if k in ("input_ids", "labels", "links")} for one in examples]
    collator = LinkCollator(DataCollatorForSeq2Seq(tokenizer))
    adapted = get_peft_model(model, AttentionCalibrationConfig(**settings)).train()
    parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 20, (steps - n) / steps))
    chance, before, last = np.random.default_rng(seed), time.process_time(), []
    for step in range(steps):
        # Pairs of like length together: a window of the sorted text.
        few = sorted(chance.choice(len(examples), BATCH * 8, replace=False), key=lambda n: len(examples[n]["labels"]))
        first = int(chance.integers(8)) * BATCH
        output = adapted(**collator([dict(examples[int(n)]) for n in few[first : first + BATCH]]))
        output.loss.backward()
        if not step:
            print(
                {n: float(v.detach()) for n, v in output.items() if n.endswith("loss") and v is not None}, flush=True
            )
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step >= steps - 20:
            last.append({n: float(v.detach()) for n, v in output.items() if n.endswith("loss") and v is not None})
    means_of = {name: float(np.mean([one[name] for one in last])) for name in last[0]}
    return adapted.eval(), time.process_time() - before, means_of


def agreement(model, tokenizer, sources, targets, layers: int, heads: int, bootstrap: int) -> dict:
    """Return how often the source word with most weight is the one that occlusion names, for each way of reading."""
    effects = word_scores(model, tokenizer, sources, targets, "occlusion")
    ways = {f"layer {layer}": Seq2SeqAttention(layer, None, shift=False) for layer in range(layers)}
    ways["guided"] = Seq2SeqAttention(layers - 1, (0,), shift=False)
    found = {}
    for name, settings in ways.items():
        links = [
            dict((j, i) for i, j in one.links)
            for one in WordAligner(model, tokenizer, settings).align(list(zip(sources, targets, strict=True)))
        ]
        hits = [
            [links_of.get(j) == int(row.argmax()) for j, row in enumerate(effect)]
            for links_of, effect in zip(links, effects, strict=True)
        ]
        (mean,) = means(np.array([[sum(one), len(one)] for one in hits]), bootstrap=bootstrap, seed=1)
        found[name] = asdict(mean)
    return found


def measure(model, tokenizer, args: argparse.Namespace, shift: bool) -> dict:
    """Return what the attention of a model is, on annotated pairs."""
    gold = golds(args.data, args.pair)
    sources, targets = map(list, zip(*gold["dev"].pairs, strict=True))
    model.eval()
    observed = observe(model, tokenizer, sources, targets)
    layers, heads = model.config.decoder_layers, model.config.decoder_attention_heads
    parked, shares, reliable = {}, {}, {}
    resampled = {"bootstrap": args.bootstrap, "seed": 1}
    for layer in range(layers):
        groups = observed.attention_of_groups(layer)
        words, punctuation, special = means(groups, **resampled)
        shares[str(layer)] = {"words": asdict(words), "punctuation": asdict(punctuation), "special": asdict(special)}
        both = np.stack([groups[:, 1:, 0].sum(axis=1), groups[:, 0, 1]], axis=1)
        parked[str(layer)] = asdict(means(both, **resampled)[0])
        if observed.layers["null"]:
            shares[str(layer)]["null"] = asdict(means(observed.counts("null", layer), **resampled)[0])
        if layer in observed.calibrated:
            reliable[str(layer)] = asdict(means(observed.counts("reliability", layer), **resampled)[0])
    head = WordAligner(model, tokenizer, Seq2SeqAttention(layers - 1, (0,), shift=shift))
    threshold, _ = tune_threshold(head, gold["dev"])
    tuned = WordAligner(model, tokenizer, replace(head.settings, threshold=threshold))
    few = slice(0, args.measured)
    everywhere = sum(observed.attention_of_groups(layer) for layer in range(layers))
    both = np.stack([everywhere[:, 1:, 0].sum(axis=1), everywhere[:, 0, 1]], axis=1)
    parked["all"] = asdict(means(both, **resampled)[0])
    return {
        "parked": parked,
        "shares": shares,
        "reliability": reliable,
        "aer": {
            split: {
                "best": asdict(score_aligner(head, one, bootstrap=args.bootstrap)),
                "threshold": asdict(score_aligner(tuned, one, bootstrap=args.bootstrap)),
            }
            for split, one in gold.items()
        },
        "threshold": threshold,
        "faithful": agreement(model, tokenizer, sources[few], targets[few], layers, heads, args.bootstrap),
    }


def measure_adapter(args: argparse.Namespace, adapter: str) -> None:
    """Train an adapter, measure the model with it, and write the result."""
    settings = ADAPTERS[adapter]
    model, tokenizer = load_seq2seq(str(args.models / args.pair))
    files = (
        {} if settings is None else {f"text.{name}": args.models / f"text.{name}" for name in ("en", "pt", "align")}
    )
    config = {"pair": args.pair, "adapter": adapter, "settings": settings, "seed": args.seed}
    config |= {"measured": args.measured} | (
        {} if settings is None else {"steps": args.steps, "batch": BATCH, "rate": RATE}
    )
    result, trained = records.record(config, files), {}
    if settings is not None:
        if settings.get("guided"):
            settings = settings | {"guided_layer": model.config.decoder_layers - 1}
        text = read_text(args.models, args.pair)
        model, seconds, losses = train(model, tokenizer, text, settings, args.steps, args.seed)
        trained = {"cpu_seconds": seconds, "losses": losses, "pairs": len(text[0])}
    result |= {"training": trained} | measure(
        model, tokenizer, args, bool(settings and settings.get("guided") and settings.get("guided_shift", True))
    )
    write_json(result, args.output / args.pair / f"{adapter}_seed{args.seed}.json")
    print(
        args.pair,
        adapter,
        trained,
        {n: round(100 * p["value"], 1) for n, p in result["parked"].items()},
        flush=True,
    )
    for split, one in result["aer"].items():
        print(split, {name: round(100 * score["aer"], 1) for name, score in one.items()}, result["threshold"])
    print({n: round(100 * p["value"], 1) for n, p in result["faithful"].items()}, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=["text", *FOLDERS])
    parser.add_argument("adapters", nargs="*", default=[], metavar="ADAPTER", help=f"of {', '.join(ADAPTERS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS", help="folder of the imported models")
    parser.add_argument("--encoder", metavar="NAME", help="folder or Hub name of the encoder that helps with links")
    parser.add_argument("--pairs", type=int, default=1000, help="of the text that is made")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measured", type=int, default=12, help="pairs of faithfulness")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("results/checkpoints"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if args.pair == "text":
        make_text(args)
        return
    for adapter in args.adapters:
        measure_adapter(args, adapter)


if __name__ == "__main__":
    main()
