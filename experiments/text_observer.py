"""An observer of translation models: its links, alone and with an encoder, what it costs, and the same translations.

    python experiments/text_observer.py enpt --data ROOT --models RUNS --encoder FOLDER --text FOLDER

RUNS/PAIR is the model. FOLDER of --text has text.en, text.pt and text.align: text in both languages with links of
`attncal align quick --encoder`. Models of Firefox (enpt, pten), from `attncal import`, had 1,002 pairs of
xlwa/en-pt/silver-train, and 5,600 English sentences of four corpora with translations of the model; ours of
wpt03-enfr, the first pairs of its training text. The threshold of the links is chosen on the annotated dev pairs of
the corpus, once alone and once with the encoder; test is scored once.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import firefox_models
import torch

from hf_attncal import adapt
from hf_attncal.adapters.observing import generate_observed, observing_generate
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.files import read_lines, write_json, write_text
from hf_attncal.metrics.records import record

BATCH, RUNS = 64, 3


def annotated(root: Path, pair: str) -> dict[str, Gold]:
    """Return the annotated pairs of dev and test."""
    if pair in firefox_models.FOLDERS:
        return firefox_models.golds(root, pair)
    return {x: Gold.read(*(root / f"{pair}/{x}.{kind}" for kind in ("en", "fr", "align"))) for x in ("dev", "test")}


def scores(aligner: WordAligner, golds: dict) -> dict:
    """Return the threshold that is best on dev, and the AER of both splits with it."""
    threshold, _ = tune_threshold(aligner, golds["dev"])
    aligner.choose(threshold=threshold)
    return {"threshold": threshold} | {
        name: asdict(score_aligner(aligner, gold, bootstrap=1000)) for name, gold in golds.items()
    }


def costs(stock: Any, model: Any, tokenizer: Any, lines: Sequence[str]) -> dict:
    """Return what observing adds to greedy search: while it generates, and with links as in `--alignments`."""
    ordered = sorted(lines, key=lambda line: len(tokenizer(line).input_ids))
    chunks = [ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH)]
    batches = [tokenizer(chunk, return_tensors="pt", padding=True) for chunk in chunks]
    options = {"num_beams": 1, "do_sample": False, "max_new_tokens": 100}
    seconds: dict[str, list[float]] = {"decoding": [], "observed": [], "translating": [], "linking": []}
    same, search = True, {"num_beams": 1, "batch_size": BATCH}
    for _ in range(RUNS):
        start = time.process_time()
        expected = [stock.generate(**batch, **options) for batch in batches]
        seconds["decoding"].append(time.process_time() - start)
        start = time.process_time()
        found = [generate_observed(model, **batch, **options)[0].sequences for batch in batches]
        seconds["observed"].append(time.process_time() - start)
        same &= all(map(torch.equal, found, expected))
        start = time.process_time()
        texts = translate_texts(stock, tokenizer, ordered, **search)
        seconds["translating"].append(time.process_time() - start)
        aligner = WordAligner(model, tokenizer)
        start = time.process_time()
        generate = observing_generate(model, aligner.source.observed)
        found_texts = translate_texts(model, tokenizer, ordered, generate=generate, **search)
        aligner.align(zip(ordered, found_texts, strict=True), batch_size=BATCH)
        seconds["linking"].append(time.process_time() - start)
        same &= found_texts == texts
    shares = {
        name: statistics.median(o / p - 1 for o, p in zip(seconds[more], seconds[plain], strict=True))
        for name, more, plain in (("share", "observed", "decoding"), ("share_of_links", "linking", "translating"))
    }
    return {"same_translations": same, "cost": {**seconds, **shares, "sentences": len(lines)}}


def learned_observer(pair: str, models: Path, text: Path, folder: Path) -> tuple[Any, Any, dict]:
    """Teach an observer of a model in `folder`; return the model, the tokenizer and the results."""
    source, target = pair[-4:-2], pair[-2:]
    links = text / "text.align"
    if pair == "pten":
        turned = (line.split() for line in read_lines(links))
        links = folder / "links"
        write_text("".join(" ".join("-".join(x.split("-")[::-1]) for x in y) + "\n" for y in turned), links)
    files = {"source": text / f"text.{source}", "target": text / f"text.{target}", "links": links}
    learned = adapt(models / pair, **files, output=folder / "run", observe=True).scores
    return *load_seq2seq(folder / "run"), learned


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", choices=(*firefox_models.FOLDERS, "wpt03-enfr"))
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS")
    parser.add_argument("--encoder", required=True, metavar="FOLDER")
    parser.add_argument("--text", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--lines", type=int, default=160, help="lines that are translated with and without")
    parser.add_argument("--output", type=Path, default=Path("results/observers"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for pair in args.pairs:
        golds = annotated(args.data, pair)
        with tempfile.TemporaryDirectory() as folder:
            model, tokenizer, learned = learned_observer(pair, args.models, args.text, Path(folder))
            stock, _ = load_seq2seq(args.models / pair)
            results = {"learned": {key: learned[key] for key in ("observer", "cpu_seconds", "steps", "adapter_bytes")}}
            results["alone"] = scores(WordAligner(model, tokenizer), golds)
            prior = EncoderPrior.from_pretrained(args.encoder)
            results["with_encoder"] = scores(WordAligner(model, tokenizer, encoder=prior), golds)
        lines = read_lines(args.text / f"text.{pair[-4:-2]}")
        results |= costs(stock, model, tokenizer, lines[: args.lines])
        name = f"firefox_{pair}" if pair in firefox_models.FOLDERS else pair
        write_json(record({"text": f"{len(lines):,} pairs"}, threads=1) | results, args.output / f"{name}.json")
        print(pair, {name: round(100 * results[name]["test"]["aer"], 2) for name in ("alone", "with_encoder")})


if __name__ == "__main__":
    main()
