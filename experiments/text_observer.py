"""An observer of Firefox's models: its links, alone and with an encoder, what it costs, and the same translations.

    python experiments/text_observer.py enpt --data ROOT --models RUNS --encoder FOLDER --text FOLDER

RUNS/PAIR is what `attncal import` made of the model. FOLDER of --text has text.en, text.pt and text.align: text in
both languages (here 1,002 pairs of xlwa/en-pt/silver-train, and 5,600 English sentences of four corpora with
translations of the model) with links of `attncal align quick --encoder`. The threshold of the links is chosen on the
annotated dev pairs of xlwa/en-pt, once alone and once with the encoder; test is scored once.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import firefox_models
import torch

from hf_attncal import adapt
from hf_attncal.alignment import WordAligner
from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.reading import readings_of_pairs
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.files import read_lines, write_json, write_text
from hf_attncal.metrics.records import record

BATCH = 64


def scores(aligner: WordAligner, golds: dict) -> dict:
    """Return the threshold that is best on dev, and the AER of both splits with it."""
    threshold, _ = tune_threshold(aligner, golds["dev"])
    aligner.choose(threshold=threshold)
    return {"threshold": threshold} | {
        name: asdict(score_aligner(aligner, gold, bootstrap=1000)) for name, gold in golds.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", choices=firefox_models.FOLDERS)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    parser.add_argument("--models", type=Path, required=True, metavar="RUNS")
    parser.add_argument("--encoder", required=True, metavar="FOLDER")
    parser.add_argument("--text", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--lines", type=int, default=512, help="lines that are translated with and without")
    parser.add_argument("--output", type=Path, default=Path("results/observers"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for pair in args.pairs:
        source, target = pair[:2], pair[2:]
        golds = firefox_models.golds(args.data, pair)
        with tempfile.TemporaryDirectory() as folder:
            links = args.text / "text.align"
            if pair == "pten":
                links = Path(folder) / "links"
                turned = (line.split() for line in read_lines(args.text / "text.align"))
                write_text("".join(" ".join("-".join(x.split("-")[::-1]) for x in y) + "\n" for y in turned), links)
            files = {"source": args.text / f"text.{source}", "target": args.text / f"text.{target}", "links": links}
            learned = adapt(args.models / pair, **files, output=Path(folder) / "run", observe=True).scores
            model, tokenizer = load_seq2seq(Path(folder) / "run")
            stock, _ = load_seq2seq(args.models / pair)
            results = {"learned": {key: learned[key] for key in ("observer", "cpu_seconds", "steps", "adapter_bytes")}}
            results["alone"] = scores(WordAligner(model, tokenizer), golds)
            prior = EncoderPrior.from_pretrained(args.encoder)
            results["with_encoder"] = scores(WordAligner(model, tokenizer, encoder=prior), golds)
        lines = read_lines(args.data / f"xlwa/en-pt/silver-train.{source}")[: args.lines]
        start = time.process_time()
        expected = translate_texts(stock, tokenizer, lines, batch_size=BATCH, num_beams=1)
        decoding = time.process_time() - start
        results["same_translations"] = (
            translate_texts(model, tokenizer, lines, batch_size=BATCH, num_beams=1) == expected
        )
        seconds = []
        for _ in range(3):
            start = time.process_time()
            for _ in readings_of_pairs(
                model, tokenizer, lines, expected, batch_size=BATCH, attentions=False, observed=True
            ):
                pass
            seconds.append(time.process_time() - start)
        results["cost"] = {"decoding": decoding, "observing": statistics.median(seconds), "sentences": len(lines)}
        results["cost"]["share"] = results["cost"]["observing"] / decoding
        write_json(record({"text": "6,602 pairs"}, threads=1) | results, args.output / f"firefox_{pair}.json")
        print(pair, {name: round(100 * results[name]["test"]["aer"], 2) for name in ("alone", "with_encoder")})


if __name__ == "__main__":
    main()
