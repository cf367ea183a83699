"""Time and memory of a training step (forward, backward, optimiser) against the stock model.

    python benchmarks/training.py                      # every variant, base-size Marian
    python benchmarks/training.py --variants gated --bf16 --threads 2
    python benchmarks/training.py --d-model 64 --layers 2 --ffn 128 --vocab 500 --batch 4 --length 16 --repeats 2

A joint calibrated step runs the decoder and the output layer a second time, without weight gradients: its floor is
about 1.5 stock steps. Peak memory is everything that training takes: parameters, gradients, the optimiser's state and
activations. On a GPU it is the allocator's peak; on a CPU the growth of a fresh process' resident set.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

import common
import torch
from rich.progress import track
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import PreTrainedModel
from transformers.trainer_pt_utils import LabelSmoother

TIME_LIMITS = {"fixed": 1.7, "annealed": 1.7, "gated": 1.7, "gated-head": 1.7, "leaky": 1.05, "guided": 1.05}
MEMORY_LIMIT = 1.6
PHASES = ("forward", "backward", "optimizer")


def training_step(args: argparse.Namespace, model: PreTrainedModel) -> Callable[[], None]:
    """A function that makes one training step on one fixed batch."""
    inputs = common.batch(args)
    if getattr(model.config, "guided", False):  # each token is linked to the one at its place
        links = torch.eye(args.length, args.source_length or args.length, device=args.device)
        inputs["links"] = links.expand(args.batch, -1, -1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, betas=(0.9, 0.98))
    labels, smoother = inputs["labels"], None
    if args.label_smoothing > 0:
        if hasattr(model.config, "label_smoothing"):
            model.config.label_smoothing = args.label_smoothing
        else:  # as the Trainer smooths a stock model: the labels do not reach the model, which then has no loss
            smoother = LabelSmoother(epsilon=args.label_smoothing)
            inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(inputs.pop("labels"))
    model.train()

    def step() -> None:
        with record_function("forward"), common.autocast(args):
            outputs = model(**inputs)
            loss = outputs.loss if smoother is None else smoother(outputs, labels)
        del outputs
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def build(args: argparse.Namespace, variant: str) -> PreTrainedModel:
    """The model called `variant`: "stock" or one of ours."""
    return common.stock_model(args) if variant == "stock" else common.our_model(args, variant)


def peak_memory(args: argparse.Namespace, variant: str) -> int:
    """Bytes that training `variant` for three steps takes at its peak, measured alone."""
    if torch.device(args.device).type == "cuda":
        common.release(args)
        return common.peak_allocated(args, lambda: three_steps(args, variant))
    # A fresh process, whose allocator returns every freed tensor to the system: the resident set is what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, *sys.argv[1:], "--measure-memory-of", variant]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"measuring the memory of {variant} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def resident_growth(args: argparse.Namespace, variant: str) -> int:
    """Bytes by which the peak resident set of this process grows while `variant` is built and trained."""
    matrix = torch.ones(256, 256, requires_grad=True)
    (matrix @ matrix).sum().backward()  # what the libraries allocate once is not the model's
    before = common.peak_resident()
    three_steps(args, variant)
    return common.peak_resident() - before


def three_steps(args: argparse.Namespace, variant: str) -> None:
    """Build a variant, and make the steps whose memory is measured."""
    step = training_step(args, build(args, variant))
    for _ in range(3):
        step()


def breakdown(args: argparse.Namespace, step: Callable[[], None], steps: int = 3) -> dict[str, dict[str, float]]:
    """Milliseconds a step: of each phase, and of each operator by itself (on the device where it runs)."""
    cuda = torch.device(args.device).type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
    step()
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            step()
        common.synchronize(args)
    phases, operators = dict.fromkeys(PHASES, 0.0), {}
    for event in profiler.key_averages():
        if event.key in PHASES:
            if event.device_type == DeviceType.CPU:
                total = max(event.device_time_total, event.cpu_time_total) if cuda else event.cpu_time_total
                phases[event.key] = total / 1000 / steps
        else:
            own = event.self_device_time_total if cuda else event.self_cpu_time_total
            operators[event.key] = operators.get(event.key, 0.0) + own / 1000 / steps
    return {"phases": phases, "operators": operators}


def extra_time(stock: dict[str, float], ours: dict[str, float], top: int = 15) -> list[dict]:
    """The operators that take longer in ours than in the stock model, most extra time first."""
    names = stock.keys() | ours.keys()
    rows = [
        {
            "operator": name,
            "stock_ms": round(stock.get(name, 0.0), 3),
            "ours_ms": round(ours.get(name, 0.0), 3),
            "extra_ms": round(ours.get(name, 0.0) - stock.get(name, 0.0), 3),
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: -row["extra_ms"])[:top]


def measure(args: argparse.Namespace, variant: str, stock_step: Callable[[], None]) -> dict:
    """Time of one variant, against the stock model and by phase and operator."""
    ours_step = training_step(args, build(args, variant))
    stock_seconds, ours_seconds = common.in_turn(args, stock_step, ours_step)
    measured = {
        "stock_seconds": stock_seconds,
        "seconds": ours_seconds,
        "time_ratio": common.spread([o / s for o, s in zip(ours_seconds, stock_seconds, strict=True)]),
    }
    if args.no_profile:
        return measured
    stock_profile, ours_profile = breakdown(args, stock_step), breakdown(args, ours_step)
    return measured | {
        "phases_ms": {"stock": stock_profile["phases"], "ours": ours_profile["phases"]},
        "extra_time": extra_time(stock_profile["operators"], ours_profile["operators"]),
    }


def report(args: argparse.Namespace, variants: dict[str, dict]) -> None:
    """Print the ratios, then where the extra time of each variant goes."""
    rows = []
    for name, result in variants.items():
        ratio, memory = result["time_ratio"], result.get("memory_ratio")
        rows.append(
            [
                name,
                f"{ratio['median']:.3f}",
                f"{ratio['min']:.3f} - {ratio['max']:.3f}",
                common.verdict(ratio["median"], TIME_LIMITS.get(name)),
                "not run" if memory is None else f"{memory:.3f}",
                "-" if memory is None else common.verdict(memory, MEMORY_LIMIT),
            ]
        )
    title = f"Training step against stock {args.family}, {args.batch} x {args.length} tokens, {args.device}"
    common.show(title, ["variant", "time ratio", "min - max", "limit", "memory ratio", "limit"], rows)
    rows = []
    for name, result in variants.items() if not args.no_profile else ():
        phases = result["phases_ms"]
        cost = [f"{phases['stock'][p]:.0f} -> {phases['ours'][p]:.0f}" for p in PHASES]
        most = ", ".join(f"{r['operator']} +{r['extra_ms']:.1f}" for r in result["extra_time"][:3])
        rows.append([name, *cost, most])
    if rows:
        common.show("Where the time goes (ms, under the profiler)", ["variant", *PHASES, "most extra time"], rows)


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=32, repeats=10)
    parser.add_argument("--label-smoothing", type=float, default=0.0, help="of both models")
    parser.add_argument("--no-memory", action="store_true", help="leave the peak memory out")
    parser.add_argument("--no-profile", action="store_true", help="leave out where the time goes")
    parser.add_argument("--measure-memory-of", choices=["stock", *common.VARIANTS], help=argparse.SUPPRESS)
    args = parser.parse_args()
    common.set_up(args)
    if args.measure_memory_of:
        print(json.dumps(resident_growth(args, args.measure_memory_of)))
        return
    result = common.record("training", args)
    memory = {}
    if not args.no_memory:  # first, while this process holds no model
        memory = {name: peak_memory(args, name) for name in track(["stock", *args.variants], description="memory")}
    stock_step = training_step(args, build(args, "stock"))
    result["variants"] = {}
    for name in track(args.variants, description="time"):
        result["variants"][name] = measure(args, name, stock_step)
        if memory:
            result["variants"][name] |= {
                "stock_peak_memory_bytes": memory["stock"],
                "peak_memory_bytes": memory[name],
                "memory_ratio": memory[name] / memory["stock"],
            }
        common.release(args)
    report(args, result["variants"])
    common.save(args, result)


if __name__ == "__main__":
    main()
