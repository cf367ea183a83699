"""What recurrent models with attention come to beside Marian: by length, while they learn, and as word aligners.

    python experiments/recurrent_models.py multi30k --data DIR/multi30k --model luong_global=runs/global1 \
        --model baseline=runs/marian1 ... --pictures docs/images
    python experiments/recurrent_models.py aer --data DIR --pair wpt03-enfr --model luong=runs/wpt03
    python experiments/recurrent_models.py copies --data DIR/reuters-headlines --model seass_uam=runs/uam1

A model is the folder of a finished training, given once for each seed. Written are results/recurrent/multi30k.json, of
all models, and results/recurrent/aer/ and results/recurrent/copies/, a file for each.

- `multi30k`: perplexity of dev while the model learns, as the training has logged it (the exponential of the loss,
  label smoothing included), and without smoothing of the model that came of it; BLEU of the test translations that the
  training has left, by the words of the source, in groups of about as many sentences. Pictures show means over seeds.
- `aer`: a model as an aligner, by its attention, and by the module of UAM where it has one. Layer, heads and step
  (that which predicts the word, or the one after, which reads it) are chosen by the error rate on dev, and then the
  rule: the best source word, or all above a threshold; of the module also without the source words that a `<null>`
  step has more of than any target word has. Each is scored on all links, and on those between words that are spelled
  differently, which are no copies.
- `copies`: how often a word of a headline that stands exactly once in the text is aligned with it there, each with its
  best source word: by the attention of the step that predicts it, of the one after, and by the module of UAM. Of the
  reference headlines, which the model is made to write, and of those that it wrote itself after its training.
"""

import argparse
import io
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from adapter_attention import measure as chosen_attention
from adapter_attention import read_gold
from aligners import FILES
from cells import labels_of
from committed import RESULTS
from copy_accuracy import COPIES, copy_accuracy, copy_counts
from frozen import HYPOTHESES, Frozen, add_models, read_models
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from hf_attncal.alignment import Seq2SeqAttention, WordAligner, select_attention
from hf_attncal.alignment.gold import THRESHOLDS
from hf_attncal.data.corpora import load_parallel, tokenize_pairs
from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment, Link
from hf_attncal.drawing.plots import lines
from hf_attncal.files import read_pairs, write_bytes, write_json
from hf_attncal.inference.reading import decoder_size
from hf_attncal.inference.word_attention import source_rows
from hf_attncal.metrics import records
from hf_attncal.metrics.aer import alignment_error_rate, paired_interval
from hf_attncal.metrics.bleu import bleu
from hf_attncal.metrics.perplexity import perplexity

DEV = ("val.en", "val.de")
TEST = ("test_2016_flickr.en", "test_2016_flickr.de")
HEADLINES = ("test.src", "test.tgt")
GROUPS = 6  # of sentences by length
UNFED = "_unfed"  # how the name of a model without input feeding ends


# ---- translation ----


def length_groups(lengths: Sequence[int], number: int) -> list[tuple[int, int]]:
    """(first, last) lengths of at most `number` groups of about as many sentences; equal lengths stay together."""
    ends = np.quantile(lengths, np.linspace(0, 1, number + 1)[1:], method="higher")
    ends = sorted(set(ends.tolist()))
    return [(before + 1, end) for before, end in zip([min(lengths) - 1, *ends], ends, strict=False)]


def bleu_by_length(hypotheses: list[str], sources: list[str], references: list[str], tokenize: str) -> list[dict]:
    """BLEU of each group of sentences."""
    lengths = [len(source.split()) for source in sources]
    found = []
    for first, last in length_groups(lengths, GROUPS):
        rows = [row for row, length in enumerate(lengths) if first <= length <= last]
        score = bleu([hypotheses[row] for row in rows], [references[row] for row in rows], tokenize)
        mean = statistics.fmean(lengths[row] for row in rows)
        found.append({"from": first, "to": last, "sentences": len(rows), "words": mean, "bleu": score.score})
    return found


@torch.inference_mode()
def dev_perplexity(frozen: Frozen, data: Path, batch_size: int = 32) -> dict:
    """Perplexity of subwords on dev given the source and the target before them, without label smoothing."""
    model, tokenizer = frozen.load()
    pairs = load_parallel(dict(zip(("source", "target"), (str(data / name) for name in DEV), strict=True)))
    text, _ = tokenize_pairs(pairs, tokenizer, model.config.max_position_embeddings)
    unknown = sum(labels.count(tokenizer.unk_token_id) for labels in text["labels"])
    collate = DataCollatorForSeq2Seq(tokenizer, model)
    counts = []
    for batch in DataLoader(text.select_columns(["input_ids", "labels"]), batch_size, collate_fn=collate):
        logits = model(**batch).logits
        nats = cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none").sum(dim=1)
        counts.append(torch.stack([nats, (batch["labels"] != -100).sum(dim=1)], dim=1).double())
    return asdict(perplexity(torch.cat(counts).numpy(), unit="bpe", end=True, unknown=unknown))


def translation(args: argparse.Namespace) -> None:
    """Write results and pictures of all models."""
    sources, references = read_pairs(*(args.data / name for name in TEST))
    models, variants = read_models(args.models), {}
    for frozen in models:
        run = json.loads((frozen.folder / "results.json").read_text(encoding="utf-8"))
        smoothing = run["config"]["model"].get("label_smoothing", 0)
        hypotheses = frozen.hypotheses(sources, args.data / TEST[0])
        found = {
            "seed": frozen.seed,
            "test_bleu": run["test"]["bleu"],
            "label_smoothing": smoothing,
            "curve": [
                {"step": entry["step"], "perplexity": float(np.exp(entry["eval_loss"]))}
                for entry in run["log_history"]
                if "eval_loss" in entry
            ],
            "by_length": bleu_by_length(hypotheses, sources, references, run["config"]["evaluation"]["bleu_tokenize"]),
            "dev": dev_perplexity(frozen, args.data),
        }
        variants.setdefault(frozen.name, []).append(found)
    files = {name: args.data / name for name in (*DEV, *TEST)}
    for frozen in models:
        files |= frozen.files | {f"{frozen.stem}/{HYPOTHESES}": frozen.folder / HYPOTHESES}
    result = records.record({"experiment": "recurrent", "part": "multi30k", "groups": GROUPS}, files)
    write_json(result | {"variants": variants}, args.output / "multi30k.json")
    if args.pictures is not None:
        draw(variants, args.pictures)


def draw(variants: dict[str, list[dict]], folder: Path) -> None:
    """The two pictures: perplexity over steps and BLEU over words, means over seeds."""
    known, curves, lengths = labels_of("recurrent-lengths", "setting"), {}, {}
    labels = {name: known[name] for name in known if name in variants}
    labels |= {name: name for name in variants if name not in known}
    for name, label in labels.items():
        of_steps = [{point["step"]: point["perplexity"] for point in run["curve"]} for run in variants[name]]
        steps = sorted(set.intersection(*map(set, of_steps)))
        curves[label] = [(step, statistics.fmean(run[step] for run in of_steps)) for step in steps]
        groups = zip(*(run["by_length"] for run in variants[name]), strict=True)
        lengths[label] = [(runs[0]["words"], statistics.fmean(run["bleu"] for run in runs)) for runs in groups]
    dashed = [label for name, label in labels.items() if name.endswith(UNFED) and name.removesuffix(UNFED) in labels]
    pictures = {
        "recurrent_perplexity": lines(
            curves, "optimiser steps", "perplexity of dev, label smoothing included", dashed, logarithmic=True
        ),
        "recurrent_lengths": lines(lengths, "words of the source", "BLEU, test", dashed),
    }
    for name, figure in pictures.items():
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=150)
        write_bytes(image.getvalue(), folder / f"{name}.png")


# ---- gold links ----


Linked = list[set[Link]]  # the links of each pair


def links_of(aligner: WordAligner, gold: Gold, threshold: float | None) -> Linked:
    """Those of the best source word of each target word, or of all above a threshold."""
    return [set(pair.links) for pair in aligner.align(gold.pairs, threshold=threshold)]


def links_beside_nulls(model, tokenizer, gold: Gold, threshold: float | None) -> Linked:
    """As the module links them, but no source word of which a `<null>` step has more than any target word has."""
    found, rows = [], source_rows(model, tokenizer, *zip(*gold.pairs, strict=True))
    for (_, target), pair in zip(gold.pairs, rows, strict=True):
        words = len(target.split())
        weights, nulls = pair.weights[:words], pair.weights[words:]
        linked = weights == weights.amax(dim=1, keepdim=True) if threshold is None else weights > threshold
        if len(nulls):
            linked &= weights.amax(dim=0) >= nulls.amax(dim=0)
        found.append({(i, j) for j, i in linked.nonzero().tolist()})
    return found


def of_other_words(gold: Gold, links: Linked) -> tuple[list[GoldAlignment], Linked]:
    """The gold links and those of `links` whose two words are spelled differently."""

    def keep(pair: tuple[str, str], linked: Iterable[Link]) -> set[Link]:
        source, target = (side.split() for side in pair)
        return {(i, j) for i, j in linked if source[i] != target[j]}

    known = [
        GoldAlignment(frozenset(keep(pair, one.sure)), frozenset(keep(pair, one.possible)))
        for pair, one in zip(gold.pairs, gold.links, strict=True)
    ]
    return known, [keep(pair, linked) for pair, linked in zip(gold.pairs, links, strict=True)]


def score_links(gold: Gold, links: Linked, bootstrap: int = 0) -> tuple[dict, dict]:
    """Scores on all links, and on those of words that are spelled differently."""
    options = {"symmetrization": "forward", "bootstrap": bootstrap, "check_indices": False}
    both = (gold.links, links), of_other_words(gold, links)
    return tuple(asdict(alignment_error_rate(*scored, **options)) for scored in both)


def chosen_rule(
    linked: Callable[[Gold, float | None], Linked],
    settings: Seq2SeqAttention,
    gold: dict[str, Gold],
    bootstrap: int,
    thresholds: Sequence[float | None] = (None, *THRESHOLDS),
) -> tuple[dict, Linked]:
    """The threshold that is best on dev, None for the best source word alone, and its scores; the links of test."""
    dev = {tau: score_links(gold["dev"], linked(gold["dev"], tau)) for tau in thresholds}
    tau = min(dev, key=lambda tau: dev[tau][0]["aer"])
    links = linked(gold["test"], tau)
    test = score_links(gold["test"], links, bootstrap)
    found = {"settings": settings.to_dict(), "threshold": tau, "dev": dev[tau][0], "test": test[0]}
    return found | {"other_words": {"dev": dev[tau][1], "test": test[1]}}, links


def rules_of(model, tokenizer, settings: Seq2SeqAttention, gold: dict[str, Gold], bootstrap: int) -> dict:
    """By the name of each rule what `chosen_rule` gives."""

    def linked(texts: Gold, threshold: float | None) -> Linked:
        return links_of(aligner, texts, threshold)

    def beside_nulls(texts: Gold, threshold: float | None) -> Linked:
        return links_beside_nulls(model, tokenizer, texts, threshold)

    aligner, name = WordAligner(model, tokenizer, settings), settings.weights
    others = linked, settings, gold, bootstrap
    rules = {name: chosen_rule(*others, thresholds=(None,)), f"{name}, threshold": chosen_rule(*others)}
    if name == "uam" and not settings.shift:
        rules["uam, threshold, nulls"] = chosen_rule(beside_nulls, settings, gold, bootstrap)
    return rules


def uam_minus_attention(gold: Gold, uam: Linked, attention: Linked, bootstrap: int) -> dict:
    """How much higher the error rate of the module is, with its interval: of all links, and of other words'."""
    found = {}
    for name, select in (("all", lambda gold, links: (gold.links, links)), ("other_words", of_other_words)):
        known, first = select(gold, attention)
        second = select(gold, uam)[1]
        rates = [alignment_error_rate(known, links, check_indices=False).aer for links in (first, second)]
        interval = paired_interval(known, first, second, bootstrap=bootstrap) if bootstrap else None
        found[name] = {"aer": rates[1] - rates[0], "interval": interval}
    return found


def gold_links(args: argparse.Namespace) -> None:
    """Write the error rates of each model."""
    gold, files = read_gold(args.data, args.pair)
    for frozen in read_models(args.models):
        model, tokenizer = frozen.load()
        measured = chosen_attention(model, tokenizer, gold, args.bootstrap)
        settings = Seq2SeqAttention.from_dict(measured["attention"]["settings"])
        if measured["attention, mean of heads"]["settings"] == settings.to_dict():  # as with one head
            del measured["attention, mean of heads"]
        rules = rules_of(model, tokenizer, settings, gold, args.bootstrap)
        if getattr(model.config, "uam", False):
            texts = map(list, zip(*gold["dev"].pairs, strict=True))
            best = select_attention(model, tokenizer, *texts, gold["dev"].links, weights="uam")[0][0]
            rules |= rules_of(model, tokenizer, best, gold, args.bootstrap)
        measured |= {name: found for name, (found, _) in rules.items()}
        config = {"experiment": "recurrent", "part": "aer", "pair": args.pair, "bootstrap": args.bootstrap}
        steps = json.loads((frozen.folder / "results.json").read_text(encoding="utf-8"))["steps"]
        head = records.record(config | frozen.config(model), files | frozen.files)
        result = head | {"steps": steps, "attention": measured}
        if "uam" in rules:
            compared = (rules[f"{name}, threshold"][1] for name in ("uam", "attention"))
            result["uam_minus_attention"] = uam_minus_attention(gold["test"], *compared, args.bootstrap)
        write_json(result, args.output / "aer" / f"{args.pair}_{frozen.stem}.json")


# ---- copies ----


def aligners_of(model, tokenizer) -> dict[str, WordAligner]:
    """What is compared: the attention of two steps, where there is any, and the module where the model has one."""
    found = {}
    if getattr(model.config, "attention_window", "global") is not None:
        default = Seq2SeqAttention.default(decoder_size(model.config)[0])
        for name, shift in (("attention", False), ("attention_after", True)):
            found[name] = WordAligner(model, tokenizer, replace(default, shift=shift))
    if getattr(model.config, "uam", False):
        found["uam"] = WordAligner(model, tokenizer)
    return found


def copies(args: argparse.Namespace) -> None:
    """Write the accuracy on copies of each model."""
    files = {name: args.data / name for name in HEADLINES}
    sources, references = read_pairs(*files.values())
    config = {"experiment": "recurrent", "part": "copies", "data": args.data.name, "bootstrap": args.bootstrap}
    for frozen in read_models(args.models):
        targets = {"reference": references, "generated": frozen.hypotheses(sources, files[HEADLINES[0]])}
        model, tokenizer = frozen.load()
        aligners = aligners_of(model, tokenizer)
        measured = {}
        for text, headlines in targets.items():
            pairs = list(zip(sources, headlines, strict=True))
            measured[text] = accuracies(aligners, pairs, args.bootstrap)
        head = records.record(config | frozen.config(model), files | frozen.files)
        write_json(head | {"alignment": measured}, args.output / "copies" / f"{frozen.stem}.json")


def accuracies(aligners: dict[str, WordAligner], pairs: list[tuple[str, str]], bootstrap: int) -> dict[str, dict]:
    """The score of each, and how much better the module does than attention, with the interval of that."""
    links = {name: [found.links for found in aligner.align(pairs)] for name, aligner in aligners.items()}
    scores = {name: asdict(copy_accuracy(pairs, found, bootstrap=bootstrap)) for name, found in links.items()}
    if {"attention", "uam"} <= links.keys():
        counts = (copy_counts(pairs, links[name]) for name in ("attention", "uam"))
        interval = COPIES.paired_interval(*counts, bootstrap, 0) if bootstrap else None
        difference = scores["uam"]["accuracy"] - scores["attention"]["accuracy"]
        scores["uam_minus_attention"] = {"accuracy": difference, "interval": interval}
    return scores


# ---- the command ----


def make_parser() -> argparse.ArgumentParser:
    """The options of the three parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parts = parser.add_subparsers(required=True, metavar="PART")
    for name, run, data in (
        ("multi30k", translation, "folder of Multi30k"),
        ("aer", gold_links, "folder with a folder for each pair"),
        ("copies", copies, "folder of the headlines"),
    ):
        part = parts.add_parser(name, allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        part.add_argument("--data", type=Path, required=True, help=data)
        add_models(part)
        part.add_argument("--output", type=Path, default=RESULTS / "recurrent", help="folder of the results")
        if name == "multi30k":
            part.add_argument("--pictures", type=Path, help="folder for the two pictures; without it, none")
        else:
            part.add_argument("--bootstrap", type=int, default=1000, help="resamples for the intervals")
        if name == "aer":
            part.add_argument("--pair", choices=FILES, default="wpt03-enfr", help="whose gold links")
        part.set_defaults(run=run)
    return parser


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    try:
        args.run(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
