"""The commands that faults strike: tiny checkpoints and text for each, and how one is started as a user would."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warm import warm

from hf_attncal.io.files import sha256

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
TRAINING = ("tokens_per_batch=200", "bf16=false", "disable_tqdm=true", "use_cpu=true", "save_steps=1")
PAIRS = 120
STEPS = 6
LONGEST = 120  # seconds that a command may take
# `ulimit -f` in bytes: what is written past the limit fails as on a full disk (Python ignores SIGXFSZ).
LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))"
)
LIMITED += "; os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"


@dataclass(frozen=True)
class Place:
    """A folder with text, annotated links and two tiny checkpoints, and the commands that work with them."""

    folder: Path

    @property
    def pairs(self) -> Path:
        """Lines `source ||| target` for `align run`; their sources are in `train.en`."""
        return self.folder / "pairs"

    def align_run(self, *options: str) -> list[str]:
        columns = ["--threshold=0"]
        running = ["--device=cpu", "--batch-size=1"]
        return [*ATTNCAL, "align", "run", str(self.folder / "aligner"), *columns, *running, *options]

    def translate(self, *options: str) -> list[str]:
        limits = ["--device=cpu", "--batch-size=1", "--beams=1", "max_new_tokens=8"]
        return [*ATTNCAL, "translate", str(self.folder / "translator"), *limits, *options]

    def score(self, *options: str) -> list[str]:
        gold = str(self.folder / "train.align")
        return [*ATTNCAL, "score", gold, gold, *options]

    def align_train(self, output: Path, *options: str) -> list[str]:
        sizes = ["tokenizer.vocab_size=200", *(f"model.{key}={size}" for key, size in SIZES.items())]
        sizes += ["model.attention_heads=2", "model.ffn_dim=16", *(f"training.{setting}" for setting in TRAINING)]
        files = [*self._text(), "--output", str(output), f"training.max_steps={STEPS}"]
        return [*ATTNCAL, "align", "train", *files, *options, *sizes]

    def _text(self) -> list[str]:
        return ["--source", str(self.folder / "train.en"), "--target", str(self.folder / "train.de")]


ATTNCAL = [sys.executable, "-m", "hf_attncal"]


def prepare(folder: Path) -> Place:
    """Make the folder and all that the commands read."""
    import torch
    from english_german import generate_split
    from transformers import MarianConfig, MarianMTModel

    from hf_attncal.data.tokenizer import train_bpe_tokenizer
    from hf_attncal.models.configuration_mask_align import MaskAlignConfig
    from hf_attncal.models.modeling_mask_align import MaskAlignModel

    folder.mkdir(parents=True, exist_ok=True)
    pairs = generate_split(PAIRS, 1, 1, seed=5).train
    text = {
        "train.en": [" ".join(pair.source) for pair in pairs],
        "train.de": [" ".join(pair.target) for pair in pairs],
        "train.align": [" ".join(f"{i}-{j}" for i, j in sorted(pair.links)) for pair in pairs],
    }
    text["pairs"] = [
        f"{source} ||| {target}" for source, target in zip(text["train.en"], text["train.de"], strict=True)
    ]
    for name, lines in text.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    torch.manual_seed(1)
    tokenizer = train_bpe_tokenizer([*text["train.en"], *text["train.de"]], 200)
    tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    shape = {**SIZES, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    start = {"decoder_start_token_id": tokenizer.pad_token_id, "forced_eos_token_id": None}
    models = {
        "aligner": MaskAlignModel(
            MaskAlignConfig(**shape, attention_heads=2, ffn_dim=16, pad_token_id=tokenizer.pad_token_id)
        ),
        "translator": MarianMTModel(MarianConfig(**shape, **heads, **tokens, **start, init_std=1.0)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return Place(folder)


def start(command: list[str], *, limit: int | None = None, **streams) -> subprocess.Popen:
    """Start a command; with a limit, no file of it can grow beyond that many bytes."""
    command = warm(command)
    if limit is not None:
        command = [command[0], "-c", LIMITED, str(limit), *command[1:]]
    # Unbuffered, as in containers: a line that cannot be printed is an error at once.
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # a limit on files would leave half of one, which the next process reads
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.Popen(command, env=environment | {"PYTHONPATH": ":".join([str(ROOT), *sys.path])}, **streams)


def finish(command: list[str], *, limit: int | None = None, **streams) -> subprocess.CompletedProcess:
    """Run a command to its end; a status of None: it had to be killed after `LONGEST` seconds.

    Text of standard output and standard error is kept, where `streams` do not send it elsewhere.
    """
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    with start(command, limit=limit, text=True, **streams) as process:
        try:
            out, err = process.communicate(timeout=LONGEST)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            status = None
    return subprocess.CompletedProcess(command, status, out, err)


def said_by_python(err: str) -> bool:
    """Return True if standard error has a message of Python instead of our error."""
    return "Traceback (most recent call last)" in err or "Exception ignored" in err


def until(process: subprocess.Popen, ready: Callable[[], bool]) -> None:
    """Wait for a moment, or for the end of the process."""
    deadline = time.monotonic() + LONGEST
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def files(folder: Path | None, pattern: str = "*") -> dict[str, str]:
    """The SHA-256 of the files under a folder that have a name of that pattern, by their places in it."""
    found = [file for file in folder.rglob(pattern) if file.is_file()] if folder else []
    return {str(file.relative_to(folder)): sha256(file) for file in sorted(found)}


def weights(folder: Path) -> dict[str, str]:
    """The SHA-256 of all weights under a folder."""
    return files(folder, "*.safetensors")
