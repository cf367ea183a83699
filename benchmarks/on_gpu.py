"""The benchmarks of a GPU in one process and a limited time, each with sizes that fill the card.

    python benchmarks/on_gpu.py --seconds 300 --output results
    python benchmarks/on_gpu.py --first generation_cuda training_cuda --seconds 120 --output results

Each writes FOLDER/benchmark_NAME.json when it is done, so that a cut loses the last one alone; none begins when
`--seconds` are over, and what fails leaves its traceback and the time to the next. Nothing else may run on the card,
nor on the processor, as steps of these sizes wait for the thread that launches them.
"""

import argparse
import runpy
import sys
import time
import traceback
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent
_LONG = "32,128,128 32,128,512 32,128,1024"
# What was not measured yet comes first.
RUNS = {
    "calibrated_attention_cuda_bf16": f"calibrated_attention --bf16 --compile --sizes {_LONG} --repeats 3",
    "generation_cuda_bf16": "generation --bf16 --repeats 3 --variants baseline gated gated-renormalized leaky",
    "training_cuda_bf16_512": (
        "training --bf16 --no-profile --batch 32 --length 128 --source-length 512 --repeats 3 "
        "--variants gated gated-renormalized"
    ),
    "training_cuda_bf16_1024": (
        "training --bf16 --no-profile --batch 32 --length 128 --source-length 1024 --repeats 3 "
        "--variants gated gated-renormalized"
    ),
    "aligning_cuda_bf16": (
        "aligning --dtype bfloat16 --sizes small base --pairs 2048 --batch-size 1024 --batch-tokens 65536 --rounds 3"
    ),
    "training_cuda_bf16_2048": "training --bf16 --no-profile --batch 2048 --repeats 3 --variants gated leaky",
    "adapters_cuda_bf16": "adapters --bf16 --batch 256 --repeats 2 --variants gated gated-rank-16",
    "training_cuda": "training --no-profile --batch 256 --repeats 3 --variants baseline gated leaky guided",
    "generation_cuda": "generation --repeats 3 --variants gated gated-renormalized",
    "calibrated_attention_cuda": f"calibrated_attention --sizes {_LONG} --repeats 3",
    "training_cuda_bf16": "training --bf16 --no-profile --batch 256 --repeats 5",
}


def main(arguments: list[str] | None = None) -> dict[str, bool]:
    """Run the benchmarks in their order; return which of those that began have ended well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="after which none begins")
    parser.add_argument("--first", nargs="+", choices=RUNS, default=[], metavar="NAME", help="go before the others")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    began, ended = time.monotonic(), {}
    for name in dict.fromkeys([*args.first, *RUNS]):
        if time.monotonic() - began > args.seconds:
            print(f"{name}: no time")
            continue
        script, *options = RUNS[name].split()
        written = args.output / f"benchmark_{name}.json"
        sys.argv = [
            f"benchmarks/{script}.py",
            "--device",
            "cuda",
            "--threads",
            "1",
            *options,
            "--output",
            str(written),
        ]
        try:
            runpy.run_path(str(BENCHMARKS / f"{script}.py"), run_name="__main__")
            ended[name] = True
        except (Exception, SystemExit):
            traceback.print_exc()
            ended[name] = False
        print(f"{name}: {'done' if ended[name] else 'failed'}, {time.monotonic() - began:.0f} s", flush=True)
    return ended


if __name__ == "__main__":
    main()
