"""Is `--minutes` kept, by each kind of training?

    python experiments/minutes.py --text DIR --output results/minutes.json --minutes 3
    python experiments/minutes.py ... --busy 2 --only tune

DIR has train.en and train.de. Every kind is trained by its command in a process of its own, from the first line of
Python to the last, with so much text that it never ends before its time. `used` are the minutes of the clock, `load`
is the machine's load average at the end, with what else ran there; `busy` processes that only loop were started
beside it. Rows are added to the file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from hf_attncal.files import write_json
from hf_attncal.metrics import records

ENDLESS = ["training.max_steps=1000000", "training.tokens_per_batch=400"]
TINY = [*ENDLESS, "tokenizer.vocab_size=1000", "model.d_model=32", "model.encoder_layers=1"]
NETWORK = [*TINY, "model.decoder_layers=1", "model.ffn_dim=64", "jump_pairs=100", "data.held_out_pairs=50"]
SCORED = ["evaluation.num_beams=2", "data.held_out_pairs=50"]
MARIAN = [*TINY, *SCORED, "model.decoder_layers=1", "model.encoder_ffn_dim=64", "model.decoder_ffn_dim=64"]
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
    parser.add_argument("--only", action="append", choices=KINDS)
    parser.add_argument("--lines", type=int, default=29_000, help="pairs of the text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for side in ("en", "de"):
            with (options.text / f"train.{side}").open() as lines:
                (place / f"train.{side}").write_text("".join(islice(lines, options.lines)))
        for kind in options.only or KINDS:
            row = {"kind": kind} | kept(kind, place, options.minutes, options.busy)
            print(row, flush=True)
            rows = json.loads(options.output.read_text())["kept"] if options.output.exists() else []
            write_json(records.record({"lines": options.lines}) | {"kept": [*rows, row]}, options.output)


def kept(kind: str, place: Path, minutes: float, busy: int) -> dict[str, float | int]:
    """Train for some minutes beside `busy` loops; return what was asked for and what was used."""
    output = place / f"{kind}-{time.monotonic_ns()}"
    names = {"ENCODER": encoder, "MODEL": model}
    words = [str(names[word](place)) if word in names else word for word in KINDS[kind]]
    text = ["--source", place / "train.en"]
    text += [] if kind == "language" else ["--target", place / "train.de"]
    with beside(busy):
        began = time.monotonic()
        run([*words, *text, "--output", output, "--minutes", minutes])
        used = (time.monotonic() - began) / 60
    results = json.loads((output / "results.json").read_text())
    plan = json.loads((output / "run.json").read_text())["plan"] or {}
    told = {"asked": minutes, "used": round(used, 2), "busy": busy, "load": round(os.getloadavg()[0], 1)}
    return told | {"steps": results["steps"], "planned_steps": plan.get("steps")}


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
    command = [sys.executable, "-m", "hf_attncal.commands", *map(str, words)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def encoder(place: Path) -> Path:
    """Make a small encoder that has learned nothing, with a vocabulary of the text."""
    from transformers import BertConfig, BertModel

    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    folder = place / "encoder"
    if not folder.exists():
        lines = [line for side in ("en", "de") for line in (place / f"train.{side}").read_text().splitlines()]
        tokenizer = train_bpe_tokenizer(lines, 4000)
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **sizes)
        BertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def model(place: Path) -> Path:
    """Train a small translation model for a few steps."""
    folder = place / "model"
    if not folder.exists():
        text = ["--source", place / "train.en", "--target", place / "train.de"]
        few = [*MARIAN, "training.max_steps=20", "training.warmup_steps=2", "data.held_out_pairs=10"]
        run(["train", *text, "--output", folder, *few])
    return folder


if __name__ == "__main__":
    main()
