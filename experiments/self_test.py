"""The self-test of the analysis: which methods, and which measures of faithfulness, recover what was planted.

    python experiments/self_test.py --seed 1
    python experiments/self_test.py --stack single=runs/stack_single1 --stack soft=runs/stack_soft1

Trains a small translator and an aligner that counts on synthetic pairs (minutes on one core) and writes
results/analysis/self_test_seedN.json. With `--stack`, language models of the stack language that are trained already
(`configs/language/`) are judged in its place, by dependencies that are exact: see `hf_attncal.self_test`. Written is
results/analysis/self_test_stack_NAME_seedN.json for each.
"""

import argparse
import time
from dataclasses import asdict
from tempfile import TemporaryDirectory

from committed import RESULTS, markdown, percent_with_interval, ratio
from frozen import Frozen, read_models
from transformers import AutoModelForCausalLM, AutoTokenizer

import hf_attncal
from hf_attncal.data.synthetic.stack_language import generate_stack_split
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.self_test import MEASURED, SENTENCES, STEPS, judge_stack, run_self_test, stack_scores


def tables(result: dict) -> str:
    """Methods by accuracy, best first, and what the measures of faithfulness can tell."""
    rows = [
        [name, *(percent_with_interval(of["accuracy"], of["intervals"]["accuracy"]) for of in kinds.values())]
        for name, kinds in sorted(
            result["methods"].items(), key=lambda item: item[1]["links"]["accuracy"], reverse=True
        )
    ]
    first = next(iter(result["methods"].values()))
    for label, name in (("(a word drawn at random)", "by_chance"), ("(always one place)", "one_place")):
        rows.append([label, *(percent_with_interval(of[name], None) for of in first.values())])
    text = markdown(["accuracy, %", *first], rows)
    measured = [
        [f"{operator}: {name}", "yes" if of["usable"] else "NO", ratio(of["above_random"]), ratio(of["tau"])]
        for operator, by_measure in result["metrics"].items()
        for name, of in by_measure.items()
    ]
    return f"{text}\n{markdown(['measure', 'usable', 'truth - random', 'tau with accuracy'], measured)}"


def judged_stack(frozen: Frozen, count: int, bootstrap: int) -> dict:
    """Method -> how far it recovers the dependencies of the first sequences of test."""
    hf_attncal.register()
    model = AutoModelForCausalLM.from_pretrained(frozen.folder, dtype="float32").eval()
    sequences = generate_stack_split().test[:count]
    scores = stack_scores(model, AutoTokenizer.from_pretrained(frozen.folder), sequences)
    return {name: asdict(score) for name, score in judge_stack(sequences, scores, bootstrap).items()}


def stack_language(models: list[Frozen], count: int, bootstrap: int) -> str:
    """Write the results of each model; a table of them."""
    rows = []
    for frozen in models:
        methods = judged_stack(frozen, count, bootstrap)
        config = {"experiment": "self_test", "part": "stack_language", "sequences": count, "bootstrap": bootstrap}
        config |= {"setting": frozen.name, "training": {"seed": frozen.seed}}
        result = records.record(config, frozen.files) | {"methods": methods}
        write_json(result, RESULTS / "analysis" / f"self_test_stack_{frozen.stem}.json")
        for name, of in methods.items():
            shown = (
                percent_with_interval(of[key], of["intervals"][key]) for key in ("precision", "auc", "pooled_auc")
            )
            rows.append([f"{frozen.stem}, {name}", *shown])
    return markdown(["%", "precision", "AUC of a symbol", "AUC of a sequence"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the model and of its training")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--measured", type=int, default=MEASURED, help="test pairs that faithfulness is measured on")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument(
        "--output", help="folder for text and model, taken where they are there; without it they are not kept"
    )
    help = "folder of a language model of the stack language; once for each seed of each setting"
    parser.add_argument("--stack", action="append", metavar="NAME=FOLDER", help=help)
    parser.add_argument("--sequences", type=int, default=100, help="of the stack language that are judged")
    args = parser.parse_args(arguments)
    if args.stack:
        try:
            models = read_models(args.stack)
        except ValueError as error:
            parser.error(str(error))
        print(stack_language(models, args.sequences, args.bootstrap), end="")
        return
    started = time.monotonic()
    options = {"steps": args.steps, "seed": args.seed, "measured": args.measured, "bootstrap": args.bootstrap}
    with TemporaryDirectory() as temporary:
        found = run_self_test(args.output or f"{temporary}/self_test", **options)
    training = found.pop("training")
    config = {"experiment": "self_test", "sentences": SENTENCES, **options, "training": training["config"]}
    result = records.record(config)
    result |= {"training": {name: training[name] for name in ("steps", "wall_seconds", "parameters", "test")}, **found}
    result["wall_seconds"] = round(time.monotonic() - started, 1)
    write_json(result, RESULTS / "analysis" / f"self_test_seed{args.seed}.json")
    print(tables(result), end="")


if __name__ == "__main__":
    main()
