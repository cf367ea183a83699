"""Adapters on models that people use: what of their attention is parked, and what a head knows of links.

    python experiments/checkpoints.py text --data ROOT --models RUNS --encoder NAME
    python experiments/checkpoints.py enpt none leaky --seed 1 --data ROOT --models RUNS --encoder NAME

The text is of other domains than the annotated pairs of dev and test, which are of Wikipedia: the Europarl pairs of
xlwa/en-pt/silver-train, and English sentences (the silver text of other pairs, WMT) that enpt has translated itself,
from which only a guided adapter learns. `text` makes it in RUNS, links it by counts with an encoder, and says how
right that teacher is on dev and test, whose text it does not count. Of pten the sides change places. A model of RUNS,
as `attncal import` made it, gets an adapter ("none": it stays as it is; "guided" also has a NULL for words without a
partner, and teaches the head that is nearest to the links), which lies in RUNS then, and is measured on dev
(attention) and on dev and test (links, BLEU). Thresholds of links, and which attention is read, are chosen on dev,
and nothing on a test.

"parked" is the share of attention on special tokens and punctuation, the mean over heads and steps. "faithful" is the
share of target words for which the source word with most weight is also the one without which the word is least
probable (occlusion), of `--measured` pairs. AER is of three readings: the head that Marian trained on links
("guided"), the one head and step with the lowest AER ("nearest"), and the mean of several as `attncal align select`
finds it ("mean"); of a guided adapter the head that has learned ("learned"), and its mean with Marian's ("both");
each of the best source word of each target word, of all above a threshold, and of those of the mean with an encoder
("beside"). Seconds are CPU seconds of the training. `FOLDER/PAIR/ADAPTER_seedN.json` is written anew.
"""

import argparse
import functools
import gzip
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from firefox_models import FOLDERS, golds, greedy
from peft import PeftModel, get_peft_model
from transformers import DataCollatorForSeq2Seq

from hf_attncal.adapters import AttentionCalibrationConfig, set_null_mass
from hf_attncal.alignment import WordAligner, select_attention
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.alignment.guided_head import nearest_head
from hf_attncal.alignment.quick import quick_aligner
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.data.collators import LinkCollator
from hf_attncal.data.corpora import tokenize_pairs
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import parse_hypotheses
from hf_attncal.files import write_json
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import bleu
from hf_attncal.metrics.means import means
from hf_attncal.report.attribution import word_scores
from hf_attncal.report.observations import observe

ADAPTERS = {
    "none": None,
    "leaky": {"calibration": None, "leaky": True},
    "gated": {"calibration": "gated"},
    # Which layer and head is found in the text.
    "guided": {"calibration": None, "leaky": True, "guided": True, "guided_rank": 32, "guided_weight": 1.0},
}
TEXT, REAL = "xlwa/en-pt/silver-train", 1002  # and its pairs
SENTENCES, MOST_WORDS = 3000, 25  # of what the model translates; of a side
LONGEST, NULL_MASS = 60, 0.02  # tokens of a side; at first
FEW = 128  # pairs that choose a head; a quarter of them sets NULL
RATES = {"guided": 5e-3}  # of AdamW
RATE = 1e-3  # of the others


def other_english(root: Path, apart: set[str]) -> list[str]:
    """Return English sentences of other domains: some of the silver text of xlwa's other pairs, and of WMT's mixture.

    Args:
        root: folder of the corpora. apart: sentences to leave out.
    """
    lines = [
        line
        for path in sorted(root.glob("xlwa/en-*/silver-train.en"))
        if path.parent.name != "en-pt"
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    with gzip.open(root / "wmtmix-deen/train.en.gz", "rt", encoding="utf-8") as file:
        mixture = [line.strip() for line in file if "@-@" not in line]
    lines += mixture[::4]
    lines = [line for line in dict.fromkeys(lines) if 4 <= len(line.split()) <= MOST_WORDS and line not in apart]
    return [lines[n] for n in sorted(np.random.default_rng(1).choice(len(lines), SENTENCES, replace=False))]


def make_links(args: argparse.Namespace) -> None:
    """Write the text and its links, and how right the teacher is on pairs that it has not counted."""
    sides = {side: args.data / f"{TEXT}.{side}" for side in ("en", "pt")}
    real = list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in sides.values()), strict=True))
    gold = golds(args.data, "enpt")
    apart = {source for one in gold.values() for source, _ in one.pairs} | {source for source, _ in real}
    english = other_english(args.data, apart)
    model, tokenizer = load_seq2seq(str(args.models / "enpt"))
    tokens, seconds = greedy(model.eval(), tokenizer, english, batch=64)
    written = zip(english, tokenizer.batch_decode(tokens, skip_special_tokens=True), strict=True)
    pairs = real + [pair for pair in written if pair[1].strip()]
    config = {"pairs": len(pairs), "of_these_translated": len(pairs) - len(real)}
    result = records.record(config, {f"{TEXT}.{side}": path for side, path in sides.items()})
    before = time.process_time()
    encoder = EncoderPrior.from_pretrained(args.encoder)
    teacher = quick_aligner(pairs, encoder=encoder)
    links = [one.pharaoh() for one in teacher.align(pairs)]
    for name, lines in zip(("text.en", "text.pt", "text.align"), (*zip(*pairs, strict=True), links), strict=True):
        (args.models / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    result["cpu_seconds"] = {"translating": seconds, "linking": time.process_time() - before}
    result["aer"] = {split: asdict(score_aligner(teacher, of, bootstrap=args.bootstrap)) for split, of in gold.items()}
    write_json(result, args.output / "teacher.json")
    print({split: round(100 * score["aer"], 1) for split, score in result["aer"].items()}, flush=True)


def read_text(args: argparse.Namespace, guided: bool) -> tuple[list[str], list[str], list[frozenset]]:
    """Return sources, targets and links; only a guided adapter reads what the model has written, too."""
    names = ("text.en", "text.pt", "text.align")
    most = None if guided else REAL
    *sides, lines = [(args.models / name).read_text(encoding="utf-8").splitlines()[:most] for name in names]
    return *sides[:: -1 if args.pair == "pten" else 1], parse_hypotheses(lines, reverse=args.pair == "pten")


def train(model, tokenizer, text: tuple, settings: dict, args: argparse.Namespace, rate: float) -> tuple:
    """Return the adapted model, and what is told of its training: seconds, losses of the last steps, the head."""
    torch.manual_seed(args.seed)
    dataset = Dataset.from_dict({"source": text[0], "target": text[1]})
    examples, _ = tokenize_pairs(dataset, tokenizer, LONGEST, links=text[2] if settings.get("guided") else None)
    examples = [{k: v for k, v in one.items() if k in ("input_ids", "labels", "links")} for one in examples]
    plain, told = LinkCollator(DataCollatorForSeq2Seq(tokenizer)), {"pairs": len(examples)}

    def collator(rows: Iterable[int]) -> dict[str, torch.Tensor]:
        return {name: tensor.to(args.device) for name, tensor in plain([dict(examples[n]) for n in rows]).items()}

    model.to(args.device)
    if settings.get("guided"):
        nearest, share = nearest_head(model, (plain([dict(one) for one in examples[:FEW]]),))
        settings = settings | {"layers": [nearest.layer], "guided_layer": nearest.layer}
        settings |= {"guided_head": nearest.heads[0], "guided_shift": nearest.shift}
        told |= {"head": nearest.to_dict(), "agreement": share}
    adapted = get_peft_model(model, AttentionCalibrationConfig(**settings)).train()
    if settings.get("leaky"):
        set_null_mass(adapted, collator(range(FEW // 4)), NULL_MASS)
    parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 20, (args.steps - n) / args.steps))
    chance, losses = np.random.default_rng(args.seed), []
    before, began = time.process_time(), time.perf_counter()
    for step in range(args.steps):
        # Pairs of like length together: a window of the sorted text.
        few = chance.choice(len(examples), args.batch * 8, replace=False)
        few = sorted(map(int, few), key=lambda n: len(examples[n]["labels"]))
        first = int(chance.integers(8)) * args.batch
        output = adapted(**collator(few[first : first + args.batch]))
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append({n: v.detach() for n, v in output.items() if n.endswith("loss") and v is not None})
        if not step % 100:
            print(step, {name: round(float(loss), 3) for name, loss in losses[-1].items()}, flush=True)
    told |= {"cpu_seconds": time.process_time() - before, "seconds": time.perf_counter() - began}
    for name, few in (("first", losses[:20]), ("losses", losses[-20:])):
        told[name] = {kind: float(np.mean([float(one[kind]) for one in few])) for kind in few[0]}
    return adapted.eval().cpu(), told


def adapt(args: argparse.Namespace, adapter: str, folder: Path) -> None:
    """Train an adapter of the model, save it, and beside it how it was trained."""
    model, tokenizer = load_seq2seq(str(args.models / args.pair))
    settings, rate = ADAPTERS[adapter], RATES.get(adapter, RATE)
    config = {"pair": args.pair, "adapter": adapter, "settings": settings, "seed": args.seed, "steps": args.steps}
    config |= {"batch": args.batch, "rate": rate, "longest": LONGEST, "null_mass": NULL_MASS, "device": args.device}
    files = {name: args.models / name for name in ("text.en", "text.pt", "text.align")}
    result = records.record(config, files, args.device)
    adapted, told = train(model, tokenizer, read_text(args, bool(settings.get("guided"))), settings, args, rate)
    adapted.save_pretrained(folder)
    write_json(result | {"training": told}, folder / "training.json")
    print(args.pair, adapter, args.seed, told, flush=True)


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


def translated(model, tokenizer, gold: Gold) -> float:
    """Return BLEU of the pairs, as they stand, of greedy translations."""
    sources, targets = map(list, zip(*gold.pairs, strict=True))
    tokens, _ = greedy(model, tokenizer, sources, batch=32)
    return bleu(tokenizer.batch_decode(tokens, skip_special_tokens=True), targets, "none").score


def measure_adapter(args: argparse.Namespace, adapter: str) -> None:
    """Train an adapter unless it lies there, measure the model with it, and write the result."""
    gold, folder = golds(args.data, args.pair), args.models / f"{args.pair}_{adapter}_seed{args.seed}"
    if ADAPTERS[adapter] is not None and not folder.is_dir():
        adapt(args, adapter, folder)
    if args.train_only:
        return
    model, tokenizer = load_seq2seq(str(args.models / args.pair))
    config, trained = {"pair": args.pair, "adapter": adapter, "settings": None, "seed": args.seed}, {}
    if ADAPTERS[adapter] is not None:
        trained = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        config, trained = trained.pop("config"), trained
        model = PeftModel.from_pretrained(model, folder)
    result = records.record(config | {"measured": args.measured})
    model.eval()
    ways = {f"layer {layer}": Seq2SeqAttention(layer, shift=False) for layer in range(model.config.decoder_layers)}
    ways["guided"] = Seq2SeqAttention(model.config.decoder_layers - 1, (0,), shift=False)
    result |= {"trained": trained, "training": trained.get("training", {})}
    result |= measure_attention(model, tokenizer, gold["dev"], args.bootstrap)
    result["bleu"] = {split: translated(model, tokenizer, of) for split, of in gold.items()}
    guided = bool((ADAPTERS[adapter] or {}).get("guided"))
    if guided:
        ways["learned"] = Seq2SeqAttention(**trained["training"]["head"])
        ways["both"] = replace(ways["learned"], beside=ways["guided"])
    else:
        sides = map(list, zip(*gold["dev"].pairs, strict=True))
        ranked = [one for one, _ in select_attention(model, tokenizer, *sides, gold["dev"].links)]
        ways["nearest"] = next(one for one in ranked if one.beside is None and len(one.heads or ()) == 1)
        if ADAPTERS[adapter] is None:
            ways["mean"] = ranked[0]
    if guided or ADAPTERS[adapter] is None:
        read = [name for name in ways if not name.startswith("layer")]
        result["links"] = {name: measure_links(model, tokenizer, ways[name], gold, args) for name in read}
    few = gold["dev"].pairs[: args.measured]
    result["faithful"] = agreement(model, tokenizer, few, ways, args.bootstrap)
    write_json(result, args.output / args.pair / f"{adapter}_seed{args.seed}.json")
    for measured in ("parked", "reliability", "faithful"):
        print(measured, {n: round(100 * p["value"], 1) for n, p in result[measured].items()})
    print("BLEU", result["bleu"])
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
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16, help="pairs of a step")
    parser.add_argument("--device", default="cpu", help="of the training")
    parser.add_argument("--train-only", action="store_true")
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
