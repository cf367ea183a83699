"""Alignment error rate of the states of encoders, and of the attention above them, chosen with gold and without.

    python experiments/encoder_states.py --data ROOT --pair wpt03-enfr --model NAME=FOLDER --output FILE

ROOT has a folder for each corpus, as for `robustness.py`. Of each checkpoint, on dev and on test:

- `attention`: the cross-attention of an encoder-decoder, its layer, heads and step chosen on dev gold;
- `gold`: the states of its encoder, layer and threshold chosen on dev gold;
- `agreement`: the same, chosen without gold on 500 pairs of the training text, evenly spread;
- `saved`: what its alignment.json says, where there is one about states.

`layers` is the lowest AER on dev of each layer, by any threshold; `tuned` says what the tuning of a checkpoint took,
where `attncal align tune` has made it.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from aligners import named_models
from robustness import CORPORA, read_data

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.encoder import EncoderStates
from hf_attncal.alignment.gold import score_aligner
from hf_attncal.alignment.selection import select_attention, select_states, select_states_by_agreement
from hf_attncal.alignment.sources import ReadingSettings
from hf_attncal.files import write_json
from hf_attncal.metrics import records

WAYS = ("attention", "gold", "agreement", "saved")


def measure(args: argparse.Namespace) -> dict:
    """Every checkpoint in every way; returns what the JSON file holds."""
    data = read_data(args)
    dev = data.gold["dev"]
    sides = list(zip(*dev.pairs, strict=True))
    raw = list(zip(*data.train, strict=True))
    systems = {}
    for name, folder in named_models(args.model).items():
        aligner = WordAligner.from_pretrained(folder, device="cpu")
        model, tokenizer, saved = aligner.model, aligner.tokenizer, ReadingSettings.load(folder)
        by_gold = select_states(model, tokenizer, *sides, dev.links)
        ways: dict[str, ReadingSettings] = {
            "gold": by_gold[0][0],
            "agreement": select_states_by_agreement(model, tokenizer, *raw)[0][0],
        }
        if model.config.is_encoder_decoder and not isinstance(saved, EncoderStates):
            ways["attention"] = select_attention(model, tokenizer, *sides, dev.links)[0][0]
        if isinstance(saved, EncoderStates):
            ways["saved"] = saved
        row = {"parameters": model.num_parameters(), "layers": {}, "ways": {}}
        for settings, score in reversed(by_gold):  # so that the lowest of a layer comes last
            row["layers"][str(settings.layer)] = score.aer
        for way in (way for way in WAYS if way in ways):
            scored = WordAligner(model, tokenizer, ways[way])
            row["ways"][way] = {"settings": ways[way].to_dict()} | {
                split: asdict(score_aligner(scored, gold, bootstrap=args.bootstrap))
                for split, gold in data.gold.items()
            }
            print(
                name, way, row["ways"][way]["settings"], *(row["ways"][way][s]["aer"] for s in data.gold), flush=True
            )
        if (results := Path(folder) / "results.json").is_file():
            trained = json.loads(results.read_text(encoding="utf-8"))
            if "after" in trained:
                row["tuned"] = {key: trained[key] for key in ("config", "steps", "wall_seconds", "before", "after")}
        systems[name] = row
    config = {"experiment": "encoder_states", "pair": args.pair, "bootstrap": args.bootstrap}
    return records.record(config, data.files, "cpu") | {"systems": systems}


def main(arguments: list[str] | None = None) -> dict:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="ROOT")
    paired = [name for name, corpus in CORPORA.items() if corpus.train and "dev" in corpus.splits]
    parser.add_argument("--pair", required=True, choices=paired)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    args.splits, args.train_pairs = ["dev", "test"], None
    try:
        result = measure(args)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    write_json(result, args.output)
    return result


if __name__ == "__main__":
    sys.exit(main() is None)
