"""What a head of a translation model aligns, and the BLEU of the model, before and after it learned links.

    python experiments/guided_heads.py --data DIR --pair wpt03-enfr --before runs/wpt03 \
        --after guided=runs/guided_1 --after unguided=runs/unguided_1 --after adapter=runs/guided_adapter_1 \
        --output results/aligner/guided_heads.json

A run is `KIND=FOLDER` of `training/train.py`, all on the same test text, whose translations they have left. Without
`--before`, the runs began with random weights. A run of kind `unguided` is the training of `guided` without links:
each BLEU is compared with that of the model before, that of `guided` with `unguided` of the same seed, too (paired
bootstrap).

AER is that of attention, one source word for each target word: of the head that has learned links; of other models, of
the layer, heads and step with the lowest error on dev. Besides, all links above the weight with the lowest error on
dev.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from aligners import FILES, read_gold
from committed import markdown
from paired_bleu import paired_bleu

from hf_attncal.alignment import WordAligner, select_attention
from hf_attncal.alignment.gold import score_aligner, tune_threshold
from hf_attncal.alignment.seq2seq import Seq2SeqSource
from hf_attncal.data.linked_pairs import Gold
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.io.files import read_lines, write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import bleu
from hf_attncal.training.folder import RESULTS

# The translations of test that the two jobs leave.
TRANSLATIONS = ("test.trained.hypotheses.txt", "test.hypotheses.txt")
GUIDED, UNGUIDED = "guided", "unguided"
SECTIONS = ("model", "adapter", "training")
STARTS = {"init_from", "checkpoint"}  # names of folders


def aligned(folder: Path, gold: dict[str, Gold], bootstrap: int) -> dict:
    """Which attention of a model is read, and its AER on dev and test; and that of all links above a weight."""
    model, tokenizer = load_seq2seq(folder)
    settings, dev = Seq2SeqSource.saved_settings(folder), gold["dev"]
    if settings is None:
        settings = select_attention(model, tokenizer, *map(list, zip(*dev.pairs, strict=True)), dev.links)[0][0]
    settings = replace(settings, threshold=None)
    aligner = WordAligner(model, tokenizer, settings)
    threshold, _ = tune_threshold(aligner, dev)

    def scores(tau: float | None) -> dict:
        return {split: asdict(score_aligner(aligner, of, tau, bootstrap=bootstrap)) for split, of in gold.items()}

    above = {"threshold": threshold, **scores(threshold)}
    return {"settings": settings.to_dict(), **scores(None), "above_threshold": above}


def translations(folder: Path) -> list[str] | None:
    """What the run made of the test text; None where it made nothing."""
    found = (folder / name for name in TRANSLATIONS if (folder / name).is_file())
    file = next(found, None)
    return None if file is None else list(read_lines(file))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder for each pair")
    parser.add_argument("--pair", choices=FILES, required=True)
    parser.add_argument("--references", type=Path, help="of the test text; without it, those that the runs name")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="the model that all began with")
    parser.add_argument("--after", action="append", required=True, metavar="KIND=FOLDER")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for intervals")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    runs = [(kind, Path(folder)) for kind, _, folder in (value.partition("=") for value in args.after)]
    gold, files = read_gold(args.data, args.pair)
    stored = {folder: json.loads((folder / RESULTS).read_text(encoding="utf-8")) for _, folder in runs}
    evaluation = next(iter(stored.values()))["config"]
    path = args.references or args.data / args.pair / evaluation["data"]["test"]["target"]
    references, tokenize = list(read_lines(path)), evaluation["evaluation"]["bleu_tokenize"]
    before = args.before and translations(args.before)
    files[path.name] = path
    config = {"experiment": "guided_heads", "pair": args.pair, "bootstrap": args.bootstrap}
    result = records.record(config, files) | {"before": None, "runs": []}
    if args.before:
        score = bleu(before, references, tokenize)
        result["before"] = aligned(args.before, gold, args.bootstrap) | {"bleu": score.score}
        result["before"]["signature"] = score.signature
    unguided = {stored[folder]["config"]["training"]["seed"]: folder for kind, folder in runs if kind == UNGUIDED}
    for kind, folder in runs:
        run, found = stored[folder], translations(folder)
        seed = run["config"]["training"]["seed"]
        compared = {"before": before} if before else {}
        if kind == GUIDED and seed in unguided:
            compared[UNGUIDED] = translations(unguided[seed])
        row = {"kind": kind, "seed": seed, "config": {name: run["config"].get(name) for name in SECTIONS}}
        for key in STARTS & row["config"]["model"].keys():
            row["config"]["model"][key] = Path(row["config"]["model"][key]).name
        row |= {name: run[name] for name in ("steps", "wall_seconds", "trained_parameters")}
        row |= aligned(folder, gold, args.bootstrap)
        row["bleu"] = found and {
            name: asdict(paired_bleu(found, other, references, tokenize, args.bootstrap))
            for name, other in compared.items()
        }
        result["runs"].append(row)
        print(kind, seed, f"AER {100 * row['test']['aer']:.1f}", row["bleu"], flush=True)
    scored = ({"before": result["before"]} if args.before else {}) | {
        f"{row['kind']}, seed {row['seed']}": row for row in result["runs"]
    }
    cells = [[name, *(f"{100 * row[split]['aer']:.1f}" for split in gold)] for name, row in scored.items()]
    print(markdown(["model", *gold], cells))
    write_json(result, args.output)


if __name__ == "__main__":
    main()
