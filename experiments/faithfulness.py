"""Does taking away the words that a method names hurt a trained model? All methods, operators and measures.

    python experiments/faithfulness.py --data DIR/multi30k --model gated=runs/gated1 --model gated=runs/gated2

Of each model the first `--pairs` of the test text are measured twice: given the references, and given what the model
itself wrote after its training. Other words for `replace` are drawn from the training text. Verdicts are those of
`--method` against each other method, where the model has it. Written is
results/analysis/faithfulness_CORPUS_NAME_seedN.json for each model.
"""

import argparse
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from committed import RESULTS
from frozen import HYPOTHESES, Frozen, add_models, read_models

from hf_attncal.io.files import read_lines, read_pairs, write_json
from hf_attncal.metrics import records
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.report.attribution import word_scores, works_on
from hf_attncal.report.judged_faithfulness import AREAS, JudgedFaithfulness, judge_faithfulness

# Corpus -> its test and training text under --data.
FILES = {
    "multi30k": (("test_2016_flickr.en", "test_2016_flickr.de"), "train.en.gz"),
    "wpt03-enfr": (("mt-test.en.gz", "mt-test.fr.gz"), "train.100k.en.gz"),
    "dermit-derm": (("mt-test.de", "mt-test.rm"), "train.de.gz"),
}


def scores_of(model, tokenizer, sources: list[str], targets: list[str]) -> tuple[dict, dict[str, float]]:
    """Scores between words by every method that works on the model, and the seconds that each took."""
    ways = {name: (name, {}) for name in works_on(model) if name != "posterior"}
    if calibrated_layers(model):
        ways["attention_uncalibrated"] = ("attention", {"calibrated": False})
        ways["contribution@top"] = ("contribution", {"layer": calibrated_layers(model)[-1]})
    ways["attention@top"] = ("attention", {"layer": -1})
    scores, seconds = {}, {}
    for label, (method, options) in ways.items():
        started = time.perf_counter()
        scores[label] = word_scores(model, tokenizer, sources, targets, method, **options)
        seconds[label] = round(time.perf_counter() - started, 2)
    return scores, seconds


def as_plain_data(judged: JudgedFaithfulness, method: str) -> dict:
    """All scores, and the verdicts on a method, for JSON."""
    verdicts = {
        measure: {other: asdict(verdict) for other, verdict in judged.verdicts(method, measure).items()}
        for measure in judged.measures
    }
    return {
        "signature": judged.signature,
        "methods": judged.table(),
        "unbeaten": {measure: judged.unbeaten(measure) for measure in AREAS},
        "verdicts": verdicts,
    }


def measure(model, tokenizer, texts: dict[str, tuple[list[str], list[str]]], counts, args: argparse.Namespace) -> dict:
    """All that is measured of a model, by the kind of its targets."""
    found = {}
    for kind, (sources, targets) in texts.items():
        scores, seconds = scores_of(model, tokenizer, sources, targets)
        started = time.perf_counter()
        options = {"kind": kind, "frequencies": counts}
        options |= {"bootstrap": args.bootstrap, "batch_size": args.batch_size}
        judged = judge_faithfulness(model, tokenizer, sources, targets, scores, **options)
        seconds["(faithfulness of all)"] = round(time.perf_counter() - started, 2)
        method = args.method if args.method in scores else "attention"
        found[kind] = {"method": method, **as_plain_data(judged, method), "seconds": seconds}
        print(f"{kind}, seconds: {seconds}", flush=True)
    return found


def texts_of(frozen: Frozen, args: argparse.Namespace) -> dict[str, tuple[list[str], list[str]]]:
    """The kind of the targets -> sources and targets, in the case that the model was trained on."""
    names, _ = FILES[args.corpus]
    sources, references = read_pairs(*(args.data / name for name in names))
    written = frozen.hypotheses(sources, args.data / names[0])
    few = (frozen.in_its_case(lines[: args.pairs]) for lines in (sources, references, written))
    sources, references, written = few
    return {"reference": (sources, references), "output": (sources, written)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--corpus", choices=FILES, default="multi30k", help="which one it is")
    add_models(parser)
    parser.add_argument("--method", default="contribution", help="whose verdicts are told; attention without it")
    parser.add_argument("--pairs", type=int, default=100, help="of the test text that are measured")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the intervals")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--output", type=Path, default=RESULTS / "analysis", help="folder of the results")
    args = parser.parse_args()
    names, train = FILES[args.corpus]
    files = {name: args.data / name for name in (*names, train)}
    try:
        models = read_models(args.models)
        texts = {frozen.stem: texts_of(frozen, args) for frozen in models}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    for frozen in models:
        print(f"\n{frozen.stem}")
        counts = Counter(word for line in frozen.in_its_case(read_lines(files[train])) for word in line.split())
        model, tokenizer = frozen.load()
        measured = measure(model, tokenizer, texts[frozen.stem], counts, args)
        config = {
            "experiment": "faithfulness",
            "corpus": args.corpus,
            "pairs": args.pairs,
            "bootstrap": args.bootstrap,
        }
        model_files = frozen.files | {f"{frozen.stem}/{HYPOTHESES}": frozen.folder / HYPOTHESES}
        head = records.record(config | frozen.config(model), files | model_files)
        write_json(head | measured, args.output / f"faithfulness_{args.corpus}_{frozen.stem}.json")


if __name__ == "__main__":
    main()
