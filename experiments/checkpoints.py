"""Adapters on models that people use: what of their attention is parked, and what a head knows of links.

    python experiments/checkpoints.py text --data ROOT --models RUNS --encoder NAME
    python experiments/checkpoints.py enpt none leaky --seed 1 --data ROOT --models RUNS --encoder NAME

Adapters learn from the Europarl pairs of xlwa/en-pt/silver-train, of another domain than the annotated pairs of dev
and test, which are of Wikipedia. `text` links them by counts with an encoder, in RUNS/text.align, and says how right
that teacher is on dev and test, whose text it does not count. Of pten the sides change places. A model of RUNS, as
`attncal import` made it, gets an adapter ("none": it stays as it is; "guided" also has a NULL for words without a
partner), and is measured on dev (attention) and on dev and test (links). Thresholds of links, and which attention is
read, are chosen on dev, and nothing on a test.

"parked" is the share of attention on special tokens and punctuation, the mean over heads and steps. "faithful" is the
share of target words for which the source word with most weight is also the one without which the word is least
probable (occlusion), of `--measured` pairs. AER is of three readings: the head that Marian trained on links
("guided"), the one head and step with the lowest AER ("nearest"), and the mean of several as `attncal align select`
finds it ("mean"); each of the best source word of each target word, of all above a threshold, and of those of the mean
with an encoder ("beside"). Seconds are CPU seconds of the training. `FOLDER/PAIR/ADAPTER_seedN.json` is written anew.
"""

import argparse
import functools
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from firefox_models import FOLDERS, golds
from peft import get_peft_model
from transformers import DataCollatorForSeq2Seq

from hf_attncal.adapters import AttentionCalibrationConfig, set_null_mass
from hf_attncal.alignment import WordAligner, select_attention
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.alignment.quick import quick_aligner
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.gold import Gold
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
    "guided": {"calibration": None, "leaky": True, "layers": [1], "guided": True, "guided_layer": 1, "guided_head": 3}
    | {"guided_rank": 32, "guided_weight": 1.0},
}
TEXT = "xlwa/en-pt/silver-train"
LONGEST, BATCH, NULL_MASS = 40, 16, 0.02  # tokens of a side, pairs of a step, at first
RATES = {"guided": 5e-3}  # of AdamW
RATE = 1e-3  # of the others


def make_links(args: argparse.Namespace) -> None:
    """Write the links of the text, and how right the teacher is on pairs that it has not counted."""
    files = {f"{TEXT}.{side}": args.data / f"{TEXT}.{side}" for side in ("en", "pt")}
    pairs = list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in files.values()), strict=True))
    result, before = records.record({"pairs": len(pairs)}, files), time.process_time()
    teacher = quick_aligner(pairs, encoder=EncoderPrior.from_pretrained(args.encoder))
    links = [one.pharaoh() for one in teacher.align(pairs)]
    (args.models / "text.align").write_text("".join(f"{line}\n" for line in links), encoding="utf-8")
    result["cpu_seconds"] = time.process_time() - before
    result["aer"] = {
        split: asdict(score_aligner(teacher, gold, bootstrap=args.bootstrap))
        for split, gold in golds(args.data, "enpt").items()
    }
    write_json(result, args.output / "teacher.json")
    print({split: round(100 * score["aer"], 1) for split, score in result["aer"].items()}, flush=True)


def read_text(args: argparse.Namespace) -> tuple[list[str], list[str], list[frozenset]]:
    """Return sources, targets and links."""
    sides = [(args.data / f"{TEXT}.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "pt")]
    lines = (args.models / "text.align").read_text(encoding="utf-8").splitlines()
    return *sides[:: -1 if args.pair == "pten" else 1], parse_hypotheses(lines, reverse=args.pair == "pten")


def train(model, tokenizer, text: tuple, settings: dict, rate: float, steps: int, seed: int):
    """Return the adapted model, CPU seconds, and the losses of the last steps, by name."""
    torch.manual_seed(seed)
    dataset = Dataset.from_dict({"source": text[0], "target": text[1]})
    examples, _ = tokenize_pairs(dataset, tokenizer, LONGEST, links=text[2] if settings.get("guided") else None)
    examples = [{k: v for k, v in one.items() if k in ("input_ids", "labels", "links")} for one in examples]
    collator = LinkCollator(DataCollatorForSeq2Seq(tokenizer))
    adapted = get_peft_model(model, AttentionCalibrationConfig(**settings)).train()
    if settings.get("leaky"):
        set_null_mass(adapted, collator([dict(one) for one in examples[:BATCH]]), NULL_MASS)
    parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
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


def agreement(model, tokenizer, pairs, ways: dict[str, Seq2SeqAttention], bootstrap: int) -> dict:
    """Return how often the source word with most weight is the one that occlusion names, for each way of reading."""
    effects = word_scores(model, tokenizer, *map(list, zip(*pairs, strict=True)), "occlusion")
    found = {}
    for name, settings in ways.items():
        links = [dict((j, i) for i, j in one.links) for one in WordAligner(model, tokenizer, settings).align(pairs)]
        hits = [
            [links_of.get(j) == int(row.argmax()) for j, row in enumerate(effect)]
            for links_of, effect in zip(links, effects, strict=True)
        ]
        (mean,) = means(np.array([[sum(one), len(one)] for one in hits]), bootstrap=bootstrap, seed=1)
        found[name] = asdict(mean)
    return found


def parked_of(groups: np.ndarray) -> np.ndarray:
    """Add up what special tokens and punctuation get: (N, 3, 2) of `attention_of_groups` to (N, 2)."""
    return np.stack([groups[:, 1:, 0].sum(axis=1), groups[:, 0, 1]], axis=1)


def measure_attention(model, tokenizer, dev: Gold, bootstrap: int) -> dict:
    """Return where the attention of each layer goes, and how reliable a calibrated one is."""
    observed = observe(model, tokenizer, *map(list, zip(*dev.pairs, strict=True)))
    resampled = {"bootstrap": bootstrap, "seed": 1}
    groups = [observed.attention_of_groups(layer) for layer in range(model.config.decoder_layers)]
    parked, shares, reliable = {"all": asdict(means(parked_of(sum(groups)), **resampled)[0])}, {}, {}
    for layer, of_layer in enumerate(groups):
        found = dict(zip(("words", "punctuation", "special"), means(of_layer, **resampled), strict=True))
        if layer in observed.layers["null"]:
            (found["null"],) = means(observed.counts("null", layer), **resampled)
        shares[str(layer)] = {name: asdict(mean) for name, mean in found.items()}
        parked[str(layer)] = asdict(means(parked_of(of_layer), **resampled)[0])
        if layer in observed.calibrated:
            reliable[str(layer)] = asdict(means(observed.counts("reliability", layer), **resampled)[0])
    return {"parked": parked, "shares": shares, "reliability": reliable}


@functools.cache
def encoder_of(name: str) -> EncoderPrior:
    """Load the encoder, once."""
    return EncoderPrior.from_pretrained(name)


def measure_links(model, tokenizer, head: Seq2SeqAttention, gold: dict[str, Gold], args: argparse.Namespace) -> dict:
    """Return the AER of a head: of best words, of what is above a threshold, and of the mean with an encoder."""
    aligner = WordAligner(model, tokenizer, replace(head, threshold=None))
    aligners = {"best": aligner}
    threshold, _ = tune_threshold(aligner, gold["dev"])
    aligners["threshold"] = WordAligner(model, tokenizer, replace(head, threshold=threshold))
    if args.encoder:
        encoder = encoder_of(args.encoder)
        pairs = [pair for one in gold.values() for pair in one.pairs]
        encoder.remember([tuple(tuple(side.split()) for side in pair) for pair in pairs])
        threshold, _ = tune_threshold(WordAligner(model, tokenizer, head, encoder=encoder), gold["dev"])
        aligners["beside"] = WordAligner(model, tokenizer, replace(head, threshold=threshold), encoder=encoder)
    return {
        "head": head.to_dict(),
        "thresholds": {name: one.settings.threshold for name, one in aligners.items()},
        "aer": {
            split: {name: asdict(score_aligner(one, of, bootstrap=args.bootstrap)) for name, one in aligners.items()}
            for split, of in gold.items()
        },
    }


def measure_adapter(args: argparse.Namespace, adapter: str) -> None:
    """Train an adapter, measure the model with it, and write the result."""
    settings, gold = ADAPTERS[adapter], golds(args.data, args.pair)
    model, tokenizer = load_seq2seq(str(args.models / args.pair))
    config = {"pair": args.pair, "adapter": adapter, "settings": settings, "seed": args.seed}
    config["measured"] = args.measured
    files, trained = {}, {}
    if settings is not None:
        rate = RATES.get(adapter, RATE)
        config |= {"steps": args.steps, "batch": BATCH, "rate": rate, "longest": LONGEST, "null_mass": NULL_MASS}
        files = {f"{TEXT}.{side}": args.data / f"{TEXT}.{side}" for side in ("en", "pt")}
        files["text.align"] = args.models / "text.align"
    result = records.record(config, files)
    if settings is not None:
        text = read_text(args)
        model, seconds, losses = train(model, tokenizer, text, settings, rate, args.steps, args.seed)
        trained = {"cpu_seconds": seconds, "losses": losses, "pairs": len(text[0])}
    model.eval()
    ways = {f"layer {layer}": Seq2SeqAttention(layer, shift=False) for layer in range(model.config.decoder_layers)}
    ways["guided"] = Seq2SeqAttention(model.config.decoder_layers - 1, (0,), shift=False)
    result |= {"training": trained} | measure_attention(model, tokenizer, gold["dev"], args.bootstrap)
    if settings is None or settings.get("guided"):
        sides = map(list, zip(*gold["dev"].pairs, strict=True))
        ranked = [one for one, _ in select_attention(model, tokenizer, *sides, gold["dev"].links)]
        ways["nearest"] = next(one for one in ranked if one.beside is None and len(one.heads or ()) == 1)
        ways["mean"] = ranked[0]
        result["links"] = {
            name: measure_links(model, tokenizer, ways[name], gold, args) for name in ("guided", "nearest", "mean")
        }
    few = gold["dev"].pairs[: args.measured]
    result["faithful"] = agreement(model, tokenizer, few, ways, args.bootstrap)
    write_json(result, args.output / args.pair / f"{adapter}_seed{args.seed}.json")
    print(args.pair, adapter, args.seed, trained, flush=True)
    for measured in ("parked", "reliability", "faithful"):
        print(measured, {n: round(100 * p["value"], 1) for n, p in result[measured].items()})
    for name, found in result.get("links", {}).items():
        errors = {s: {n: round(100 * score["aer"], 1) for n, score in of.items()} for s, of in found["aer"].items()}
        print(name, found["head"], errors, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pair", choices=["text", *FOLDERS])
    parser.add_argument("adapters", nargs="*", default=[], metavar="ADAPTER", help=f"of {', '.join(ADAPTERS)}")
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS", help="folder of the imported models")
    parser.add_argument("--encoder", metavar="NAME", help="folder or Hub name of the encoder that helps with links")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measured", type=int, default=12, help="pairs of faithfulness")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=Path("results/checkpoints"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if args.pair == "text":
        make_links(args)
        return
    for adapter in args.adapters:
        measure_adapter(args, adapter)


if __name__ == "__main__":
    main()
