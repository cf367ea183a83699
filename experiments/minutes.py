"""Is `--minutes` kept by each kind of training, and does it take the memory that its dry run says?

    python experiments/minutes.py --text DIR --output results/minutes.json --minutes 3
    python experiments/minutes.py ... --busy 2 --only tune
    python experiments/minutes.py ... --memory 40

DIR has train.en and train.de. Every kind is trained by its command in a process of its own, from the first line of
Python to the last, with so much text that it never ends before its time. `used` are the minutes of the clock, `load`
is the machine's load average at the end, with what else ran there; `busy` processes that only loop were started
beside it. For memory, each kind has its ordinary sizes: `said_gb` is of its dry run, `used_gb` the most that a process
had which trained so many steps and scored. Rows are added to the file.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from hf_attncal.files import write_json
from hf_attncal.metrics import records

ENDLESS = ["training.max_steps=1000000", "training.tokens_per_batch=400"]
TINY = [*ENDLESS, "tokenizer.vocab_size=1000", "model.d_model=32", "model.encoder_layers=1"]
NETWORK = [*TINY, "model.decoder_layers=1", "model.ffn_dim=64", "jump_pairs=100", "data.held_out_pairs=50"]
SCORED = ["evaluation.num_beams=2", "data.held_out_pairs=50"]
MARIAN = [*TINY, *SCORED, "model.decoder_layers=1", "model.encoder_ffn_dim=64", "model.decoder_ffn_dim=64"]
# With the sizes that a user gets by default.
ORDINARY = {
    "network": ["align", "train", "--config", "small"],
    "network base": ["align", "train", "--config", "base"],
    "counts": ["align", "train", "--config", "hmm"],
    "tune": ["align", "tune", "LARGER_ENCODER"],
    "translation": ["train", "data.held_out_pairs=50"],
    "guided": ["train", "--model", "marian+guided", "data.held_out_pairs=50"],
    "recurrent": ["train", "--model", "luong", "data.held_out_pairs=50"],
    "language": ["train", "--model", "discrete-1", "data.held_out_lines=50"],
    "adapt": ["adapt", "LARGER_MODEL", "data.held_out_pairs=50"],
}
KINDS = {
    "network": ["align", "train", *NETWORK],
    "counts": ["align", "train", "--config", "hmm", "counts.with_jumps=1000"],
    "tune": ["align", "tune", "ENCODER", *ENDLESS, "data.held_out_pairs=50"],
    "translation": ["train", *MARIAN],
    "guided": ["train", "--model", "marian+guided", *MARIAN],
    "recurrent": ["train", "--model", "luong", *TINY, *SCORED, "model.decoder_layers=1"],
    "language": ["train", "--model", "discrete-1", *TINY[:-1], "data.held_out_lines=50"],
    "adapt": ["adapt", "MODEL", *ENDLESS, *SCORED],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--only", action="append", choices=KINDS | ORDINARY)
    parser.add_argument("--memory", type=int, metavar="STEPS", help="measure memory, in a run of so many steps")
    parser.add_argument("--lines", type=int, default=29_000, help="pairs of the text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for side in ("en", "de"):
            with (options.text / f"train.{side}").open() as lines:
                (place / f"train.{side}").write_text("".join(islice(lines, options.lines)))
        for kind in options.only or (ORDINARY if options.memory else KINDS):
            if options.memory:
                row = memory(kind, place, options.memory) | {"lines": options.lines, "text": options.text.name}
            else:
                row = kept(kind, place, options.minutes, options.busy)
            row = {"kind": kind, **row, "commit": records.commit()}
            print(row, flush=True)
            rows = {name: [] for name in ("kept", "memory")}
            if options.output.exists():
                rows |= {name: json.loads(options.output.read_text())[name] for name in rows}
            rows["memory" if options.memory else "kept"].append(row)
            write_json(records.record({"lines": options.lines}) | rows, options.output)


def kept(kind: str, place: Path, minutes: float, busy: int) -> dict[str, float | int]:
    """Train for some minutes beside `busy` loops; return what was asked for and what was used."""
    output = place / f"{kind}-{time.monotonic_ns()}"
    with beside(busy):
        began = time.monotonic()
        run([*command(KINDS, kind, place), "--output", output, "--minutes", minutes])
        used = (time.monotonic() - began) / 60
    results = json.loads((output / "results.json").read_text())
    plan = json.loads((output / "run.json").read_text())["plan"] or {}
    told = {"asked": minutes, "used": round(used, 2), "busy": busy, "load": round(os.getloadavg()[0], 1)}
    return told | {"steps": results["steps"], "planned_steps": plan.get("steps")}


def memory(kind: str, place: Path, steps: int) -> dict[str, float | int]:
    """Compare the memory of a dry run with that of a short run of the same sizes."""
    output, words = place / f"memory-{time.monotonic_ns()}", command(ORDINARY, kind, place)
    told, dry = measured([*words, "--output", output, "--dry-run"])
    said = float(re.search(r"^Memory: about ([\d.]+) GB", told, re.MULTILINE)[1])
    if kind != "counts":
        words += [f"training.max_steps={steps}", f"training.logging_steps={steps}"]
        words += ["training.agreement_warmup_steps=1"] if kind.startswith("network") else []
        words += ["training.warmup_steps=1"]
    _, used = measured([*words, "--output", output])
    seconds = round(dry.ru_utime + dry.ru_stime, 1)
    peak = round(used.ru_maxrss * 1024 / 1e9, 2)
    return {"steps": steps, "used_gb": peak, "said_gb": said, "said_in_cpu_seconds": seconds}


def measured(words: list) -> tuple[str, resource.struct_rusage]:
    """Run a command of attncal; return what it printed and what it used."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, "-m", "hf_attncal.commands", *map(str, words)], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{words} ended with {process.returncode}")
        out.seek(0)
        return out.read(), used


def command(kinds: dict[str, list[str]], kind: str, place: Path) -> list:
    """Return the command of a kind, with its text and what it begins with."""
    names = {"ENCODER": encoder, "MODEL": model}
    names |= {"LARGER_ENCODER": partial(encoder, hidden_size=384), "LARGER_MODEL": partial(model, sizes=())}
    words = [names[word](place) if word in names else word for word in kinds[kind]]
    return [*words, "--source", place / "train.en", *([] if kind == "language" else ["--target", place / "train.de"])]


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """Keep so many processors busy."""
    with ExitStack() as stack:
        for _ in range(busy):
            loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


def run(words: list) -> None:
    """Run a command of attncal."""
    subprocess.run([sys.executable, "-m", "hf_attncal.commands", *map(str, words)], check=True, stdout=sys.stderr)


def encoder(place: Path, hidden_size: int = 64) -> Path:
    """Make a small encoder that has learned nothing, with a vocabulary of the text."""
    from transformers import BertConfig, BertModel

    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    folder = place / f"encoder-{hidden_size}"
    if not folder.exists():
        lines = [line for side in ("en", "de") for line in (place / f"train.{side}").read_text().splitlines()]
        tokenizer = train_bpe_tokenizer(lines, 4000)
        sizes = {"hidden_size": hidden_size, "num_hidden_layers": 4, "num_attention_heads": 2}
        sizes["intermediate_size"] = 4 * hidden_size
        config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **sizes)
        BertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def model(place: Path, sizes: Sequence[str] = MARIAN) -> Path:
    """Train a small translation model for a few steps."""
    folder = place / f"model-{len(sizes)}"
    if not folder.exists():
        text = ["--source", place / "train.en", "--target", place / "train.de"]
        few = [*sizes, "training.max_steps=4", "training.warmup_steps=2", "data.held_out_pairs=10"]
        run(["train", *text, "--output", folder, *few])
    return folder


if __name__ == "__main__":
    main()
