"""What the benchmarks share: options, the models, the timing in turn, tables on the terminal and JSON files.

A ratio is measured by running the stock model and ours alternately in one process (A B, B A, A B, ...) and dividing
the two times of each pair: whatever slows the machine down for a while slows both. Reported are the median of the
ratios and their extremes.
"""

import argparse
import gc
import random
import re
import resource
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel

from hf_attncal.families import backbones, default_of
from hf_attncal.io.files import write_json
from hf_attncal.metrics import records

RESULTS = Path(__file__).resolve().parent.parent / "results"

# The stock model is always there, as the other side of every ratio.
VARIANTS = {
    "baseline": {},
    "fixed": {"calibration": "fixed"},
    "annealed": {"calibration": "annealed"},
    "gated": {"calibration": "gated"},
    "gated-head": {"calibration": "gated", "mask_projection": "head"},
    "gated-trained": {"calibration": "gated", "mask_inputs": "trained"},
    "gated-renormalized": {"calibration": "gated", "renormalize": True},
    "leaky": {"leaky": True},
    "gumbel": {"gumbel": True},
    "guided": {"guided": True},
}


def cpu_seconds(command: list[str], status: int = 0) -> float:
    """User and system time of a command.

    Raises:
        RuntimeError: it ended with another status than `status`.
    """

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != status:
        raise RuntimeError(f"`{shlex.join(command)}` ended with {run.returncode}, not {status}:\n{run.stderr}")
    return used() - before


def parser(
    description: str, batch: int, length: int, repeats: int, variants: Collection[str] = tuple(VARIANTS)
) -> argparse.ArgumentParser:
    """The options of every benchmark; the defaults of the sizes are those of the paper's base model."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    options.add_argument("--variants", nargs="+", choices=variants, default=list(variants), metavar="NAME")
    options.add_argument("--family", choices=backbones(), default=default_of("translation").name)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    options.add_argument("--batch", type=int, default=batch, help="sentences")
    options.add_argument("--length", type=int, default=length, help="tokens of each sentence, both sides")
    options.add_argument("--source-length", type=int, help="tokens of a source; without it, --length")
    options.add_argument("--repeats", type=int, default=repeats, help="timed pairs a variant")
    options.add_argument("--warmup", type=int, default=2, help="pairs before those")
    options.add_argument("--bf16", action="store_true", help="bfloat16: autocast in training, weights in generation")
    options.add_argument("--d-model", type=int, default=512)
    options.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder")
    options.add_argument("--heads", type=int, default=8)
    options.add_argument("--ffn", type=int, default=2048)
    options.add_argument("--vocab", type=int, default=32000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path, help="JSON file; by default results/, named for benchmark and device")
    return options


def set_up(args: argparse.Namespace) -> None:
    """Threads, seeds, and matrix products without TF32, so that every variant computes in the precision it says."""
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision("highest")
    random.seed(args.seed)
    torch.manual_seed(args.seed)


def sizes(args: argparse.Namespace) -> dict:
    """Configuration of the backbone."""
    return {
        "vocab_size": args.vocab,
        "d_model": args.d_model,
        "encoder_layers": args.layers,
        "decoder_layers": args.layers,
        "encoder_attention_heads": args.heads,
        "decoder_attention_heads": args.heads,
        "encoder_ffn_dim": args.ffn,
        "decoder_ffn_dim": args.ffn,
        "max_position_embeddings": max(256, 2 * args.length, args.source_length or 0),
        "activation_function": "relu",
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "forced_eos_token_id": None,
        "decoder_start_token_id": 2,
    }


def stock_model(args: argparse.Namespace) -> PreTrainedModel:
    """The stock model, randomly initialised from the seed."""
    stock = backbones()[args.family].stock
    torch.manual_seed(args.seed)
    with torch.device(args.device):
        return stock.model_class(stock.config_class(**sizes(args))).to(args.device)


def our_model(args: argparse.Namespace, variant: str) -> PreTrainedModel:
    """Our model of this variant; the parameters that it shares with the stock model have the stock model's values."""
    family = backbones()[args.family]
    with torch.device(args.device):
        model = family.model_class(family.config_class(**sizes(args), **VARIANTS[variant])).to(args.device)
    model.load_state_dict(stock_model(args).state_dict(), strict=False)
    return model


def learn(args: argparse.Namespace, model, inputs: dict[str, torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    """One training step."""
    with autocast(args):
        loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def batch(args: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Random sentences without special tokens. One in four is a quarter shorter, so that padding is there."""
    generator = torch.Generator().manual_seed(args.seed)
    sides = []
    for length in (args.source_length or args.length, args.length):
        tokens = torch.randint(3, args.vocab, (args.batch, length), generator=generator)
        mask = torch.ones(args.batch, length, dtype=torch.long)
        mask[::4, length - length // 4 :] = 0
        sides.append((tokens, mask))
    (source, mask), (labels, labelled) = sides
    tensors = {
        "input_ids": source.masked_fill(mask == 0, 1),
        "attention_mask": mask,
        "labels": labels.masked_fill(labelled == 0, -100),
    }
    return {name: tensor.to(args.device) for name, tensor in tensors.items()}


def autocast(args: argparse.Namespace) -> AbstractContextManager:
    """bfloat16 autocast if asked for."""
    return torch.autocast(torch.device(args.device).type, torch.bfloat16) if args.bf16 else nullcontext()


def synchronize(args: argparse.Namespace) -> None:
    """Wait for the device, so that a clock read next means something."""
    if torch.device(args.device).type == "cuda":
        torch.cuda.synchronize()


def in_turn(
    args: argparse.Namespace,
    stock: Callable[[], object],
    ours: Callable[[], object],
    clock: Callable[[], Any] = time.perf_counter,
) -> tuple[list, list]:
    """Seconds of every timed run of `stock` and of `ours`, run alternately with the order changed in each pair.

    Args:
        clock: what is read before and after; an array of several clocks for seconds of each.
    """
    seconds = {stock: [], ours: []}
    for pair in range(args.warmup + args.repeats):
        for run in (stock, ours) if pair % 2 == 0 else (ours, stock):
            synchronize(args)
            start = clock()
            run()
            synchronize(args)
            if pair >= args.warmup:
                seconds[run].append(clock() - start)
    return seconds[stock], seconds[ours]


def spread(values: list[float]) -> dict[str, float]:
    """Median and extremes."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def peak_allocated(args: argparse.Namespace, run: Callable[[], object]) -> int | None:
    """Bytes that the allocator of a GPU has at its peak in a run, beyond those before it; None on a CPU."""
    if torch.device(args.device).type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def release(args: argparse.Namespace) -> None:
    """Give the memory of deleted models back before the next one is built."""
    gc.collect()
    if torch.device(args.device).type == "cuda":
        torch.cuda.empty_cache()


def peak_resident() -> int:
    """Bytes that this process has had resident at its peak."""
    status = Path("/proc/self/status")
    if status.exists():  # `getrusage` would begin with the peak of the process that started this one
        return int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def record(benchmark: str, args: argparse.Namespace, **settings: Any) -> dict[str, Any]:
    """The head of a results file, made before anything is timed: options, software, hardware, the machine's load."""
    options = {name: value for name, value in vars(args).items() if name not in ("output", "measure_memory_of")}
    return records.record({"benchmark": benchmark, **options, **settings}, device=options.get("device"))


def save(args: argparse.Namespace, result: dict) -> None:
    """Write `result` to `--output` or to `results/benchmark_<name>_<device>[_bf16].json`."""
    config = result["config"]
    device = torch.device(config.get("device", "cpu")).type
    name = f"benchmark_{config['benchmark']}_{device}{'_bf16' if config.get('bf16') else ''}.json"
    path = args.output or RESULTS / name
    write_json(result, path)
    print(f"written: {path}")


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table whose first column is a name and whose others are numbers."""
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:  # a file or a pipe is as wide as the table
        console.width = 200
    console.print(table)


def verdict(value: float, limit: float | None, at_most: bool = True) -> str:
    """A limit and whether `value` keeps it, for the last column of a table."""
    if limit is None:
        return "-"
    kept = value <= limit if at_most else value >= limit
    return f"{'<=' if at_most else '>='} {limit:g}: {'yes' if kept else '[bold red]no[/]'}"
