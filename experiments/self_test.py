"""The self-test of the analysis: which methods, and which measures of faithfulness, recover what was planted.

    python experiments/self_test.py --seed 1

Trains a small translator on synthetic pairs (minutes on one core) and writes results/analysis/self_test_seedN.json:
see `hf_attncal.self_test`.
"""

import argparse
import time
from tempfile import TemporaryDirectory

from committed import RESULTS, markdown, percent_with_interval, ratio

from hf_attncal.metrics import records
from hf_attncal.self_test import MEASURED, SENTENCES, STEPS, run_self_test


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the model and of its training")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--measured", type=int, default=MEASURED, help="test pairs that faithfulness is measured on")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument(
        "--output", help="folder for text and model, taken where they are there; without it they are not kept"
    )
    args = parser.parse_args(arguments)
    started = time.monotonic()
    options = {"steps": args.steps, "seed": args.seed, "measured": args.measured, "bootstrap": args.bootstrap}
    with TemporaryDirectory() as temporary:
        found = run_self_test(args.output or f"{temporary}/self_test", **options)
    training = found.pop("training")
    config = {"experiment": "self_test", "sentences": SENTENCES, **options, "training": training["config"]}
    result = records.record(config)
    result |= {"training": {name: training[name] for name in ("steps", "wall_seconds", "parameters", "test")}, **found}
    result["wall_seconds"] = round(time.monotonic() - started, 1)
    records.write(result, RESULTS / "analysis" / f"self_test_seed{args.seed}.json")
    print(tables(result), end="")


if __name__ == "__main__":
    main()
