"""Training runs that are killed (kill -9) at the system calls that change their folder, or at any time, and go on.

A run that went on must leave the same weights, losses and files as one that nobody touched. Run as a script, this file
is the process that forks the runs: what takes seconds is imported once.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from outcomes import Outcome
from warm import preload, warm

JOBS = ("translation", "aligner", "adapter")
SENTENCES = {"a dog .": "ein hund .", "a cat runs .": "ein kater läuft .", "a big dog sleeps .": "ein großer hund ."}
SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
TRAINING = {"max_steps": 3, "save_steps": 1, "logging_steps": 1, "bf16": False, "disable_tqdm": True, "use_cpu": True}
TRAINING |= {"tokens_per_batch": 64, "learning_rate": 1e-2, "save_total_limit": 1}
# From the first checkpoint of a run to its end, in the order in which they happen; {} begins the names of an adapter.
CHOSEN = (
    "write unfinished/checkpoint-1/{}model.safetensors",
    "os.rename unfinished/checkpoint-1",
    "os.mkdir unfinished/checkpoint-2",
    "open unfinished/checkpoint-2/{}config.json",
    "write unfinished/checkpoint-2/{}model.safetensors",
    "write unfinished/checkpoint-2/optimizer.pt",
    "write unfinished/checkpoint-2/scheduler.pt",
    "write unfinished/checkpoint-2/rng_state.pth",
    "open unfinished/checkpoint-2/trainer_state.json",
    "open unfinished/checkpoint-2/clock.json",
    "os.rename unfinished/checkpoint-2",
    "os.rename checkpoint-1",
    "os.remove optimizer.pt",
    "os.rmdir unfinished/checkpoint-2.old",
    "write unfinished/filled/{}model.safetensors",
    "os.rename unfinished/filled/{}model.safetensors",
    "os.rename unfinished/filled/results.json",
    "os.rename unfinished/filled/run.json",
)
SAMPLE = (CHOSEN[4], CHOSEN[10], CHOSEN[11], CHOSEN[15])
RANDOM_TIMES = 12
LONGEST_RUN = 120  # seconds


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Each job killed at every chosen system call, and one at random times; or one job at a few."""
    if not full:
        return tried(folder, "translation", *SAMPLE)
    outcomes = [outcome for job in JOBS for outcome in tried(folder / job, job, *CHOSEN)]
    return outcomes + tried(folder / "times", "translation", "seconds", str(RANDOM_TIMES))


def tried(folder: Path, job: str, *chosen: str) -> list[Outcome]:
    """One outcome for each of the chosen points, from a process that does nothing else.

    Args:
        folder: made, and worked in.
        job: "translation", "aligner", "adapter", or "average": translation by the mean of two checkpoints.
        chosen: names of events; "every" and n: each n-th; "seconds" and n: n random times.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)}
    folder.mkdir(parents=True, exist_ok=True)
    command = warm([sys.executable, __file__, str(folder), job, *chosen])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the runs of {job} could not be tried: {done.stderr[-4000:]}")
    return [Outcome(**outcome) for outcome in json.loads((folder / "report.json").read_text(encoding="utf-8"))]


# ---- the process that forks ----


def prepare(folder: Path, job: str) -> None:
    """Text and, for an adapter, a model."""
    source, target = ("\n".join(side) + "\n" for side in (list(SENTENCES) * 8, list(SENTENCES.values()) * 8))
    (folder / "text.en").write_text(source, encoding="utf-8")
    (folder / "text.de").write_text(target, encoding="utf-8")
    if job == "adapter":
        from transformers import MarianConfig, MarianMTModel

        from hf_attncal.data.tokenizer import train_bpe_tokenizer

        tokenizer = train_bpe_tokenizer([*SENTENCES, *SENTENCES.values()], 60)
        tokens = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        tokens |= {"forced_eos_token_id": tokenizer.eos_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
        config = MarianConfig(**SIZES, **HEADS, **tokens, vocab_size=len(tokenizer), max_position_embeddings=32)
        MarianMTModel(config).save_pretrained(folder / "base")
        tokenizer.save_pretrained(folder / "base")


def train(folder: Path, output: Path, job: str, resume: bool):
    """A run of a few steps."""
    from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
    from hf_attncal.training.adapter import AdapterConfig, train_adapter
    from hf_attncal.training.translation import TranslationConfig, train_translation

    text = {"source": "text.en", "target": "text.de"}
    values = {"data": {"root": str(folder), "train": text}, "training": {**TRAINING, "output_dir": str(output)}}
    if job == "aligner":
        sizes = {**SIZES, "attention_heads": 2, "ffn_dim": 16}
        values |= {"model": sizes, "tokenizer": {"vocab_size": 60}}
        values["training"]["eval_strategy"] = "no"
        return AlignerJob.train(AlignerConfig.make(values), resume)
    values["data"]["test"] = text
    values["evaluation"] = {"num_beams": 1, "max_new_tokens": 3, "bleu_tokenize": "none"}
    if job == "adapter":
        values |= {"model": {"checkpoint": str(folder / "base")}, "adapter": {"calibration": "gated"}}
        return train_adapter(AdapterConfig.make(values), resume)
    values |= {"tokenizer": {"vocab_size": 60}, "average_last": 2 if job == "average" else 1}
    values["training"]["save_total_limit"] = values["average_last"]
    values["model"] = {**SIZES, **HEADS, "max_position_embeddings": 32, "calibration": "gated"}
    return train_translation(TranslationConfig.make(values), resume=resume)


class Events:
    """Counts what changes the folder of a run, and kills the process at one of them.

    A file that is opened to be written is emptied first, one that a library of another language writes is half
    written, as the file system would have it in the middle of a save.
    """

    def __init__(self, output: Path, at: int | None = None):
        self.output, self.at, self.seen = str(output), at, []

    def start(self) -> None:
        import safetensors.torch
        import torch

        sys.addaudithook(self.audit)
        torch.save = self.wrapped(torch.save, lambda state, file, *rest, **options: file)
        safetensors.torch.serialize_file = self.wrapped(
            safetensors.torch.serialize_file, lambda tensors, file, *rest, **options: file
        )

    def wrapped(self, write, file_of):
        def writes(*args, **options):
            path = file_of(*args, **options)
            if str(path).startswith(self.output):
                self.add("write", str(path), b"half of a file")
            return write(*args, **options)

        return writes

    def audit(self, event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, str) and path.startswith(self.output) and flags & (os.O_WRONLY | os.O_RDWR):
                self.add("open", path, b"")
        elif event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod"):
            path, inside = str(args[0]), event in ("os.remove", "os.rmdir") and args[1] != -1
            if inside or path.startswith(self.output):
                self.add(event, path)

    def add(self, what: str, path: str, content: bytes | None = None) -> None:
        self.seen.append(f"{what} {path.removeprefix(self.output).lstrip('/')}")
        if len(self.seen) - 1 == self.at:
            if content is not None:
                self.at = None
                with open(path, "wb") as file:
                    file.write(content)
            os.kill(os.getpid(), signal.SIGKILL)


def forked(function) -> int:
    """The status of a child that calls the function; negative if a signal ended it, as SIGALRM does one that hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(LONGEST_RUN)
        try:
            function()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def result_of(output: Path) -> dict:
    """What two runs are compared by: the bytes of all weights, the losses, and whether something is left over."""
    from hf_attncal.io.files import sha256

    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    log = [{key: entry[key] for key in ("loss", "grad_norm") if key in entry} for entry in results["log_history"]]
    weights = sorted(output.rglob("*.safetensors"))
    return {
        "weights": {str(file.relative_to(output)): sha256(file) for file in weights},
        "modes": sorted({file.stat().st_mode & 0o777 for file in weights}),
        "log": [entry for entry in log if entry],
        "steps": results["steps"],
        "test": results.get("test"),
        "files": sorted(file.name for file in output.iterdir()),
    }


def drive(folder: Path, job: str, chosen: list[str]) -> list[Outcome]:
    """The whole run, then one for every point: killed there, and resumed."""

    prepare(folder, job)
    output = folder / "run"

    def counted():
        events = Events(output)
        events.start()
        train(folder, output, job, resume=False)
        (folder / "events.json").write_text(json.dumps(events.seen), encoding="utf-8")

    assert forked(counted) == 0
    events = json.loads((folder / "events.json").read_text(encoding="utf-8"))
    whole = result_of(output)
    assert whole["modes"] == [0o644]
    assert not {"unfinished", "run.lock"} & set(whole["files"])

    def killed(at: int):
        Events(output, at).start()
        train(folder, output, job, resume=False)

    match chosen:
        case ["seconds", times]:
            first = 1000 * int(os.environ.get("ATTNCAL_FAULTS_SEED", "0"))
            points = [random.Random(first + n).uniform(0, 2) for n in range(int(times))]
        case ["every", step]:
            points = list(range(0, len(events), int(step)))
        case _:
            prefix = "adapter_" if job == "adapter" else ""
            points = [last(events, name.format(prefix)) for name in chosen]
    outcomes = []
    for point in points:
        shutil.rmtree(output)
        if isinstance(point, float):
            killed_after(point, lambda: train(folder, output, job, resume=False))
            kind, case = "kill -9 at a random time", f"{job}: after {point:.3f} s"
        else:
            status = forked(lambda point=point: killed(point))
            assert status == -signal.SIGKILL, f"{events[point]} did not happen again: {status}"
            kind, case = "kill -9 at a system call", f"{job}: {events[point]}"
        outcomes.append(Outcome(kind, case, *resumed(folder, output, job, whole)))
    return outcomes


def last(events: list[str], name: str) -> int:
    """The number of the last event of that name."""
    return len(events) - 1 - events[::-1].index(name)


def resumed(folder: Path, output: Path, job: str, whole: dict) -> tuple[str, str]:
    """What became of a run that was killed and goes on: a result and its detail."""
    status = forked(lambda: train(folder, output, job, resume=True))
    if status == -signal.SIGALRM:
        return "hung", f"--resume did not end in {LONGEST_RUN} s"
    if status != 0:
        return "lost", f"--resume ended with {status}"
    different = [key for key, value in result_of(output).items() if value != whole[key]]
    return ("wrong", f"other than in the whole run: {different}") if different else ("survived", "")


def killed_after(seconds: float, function) -> None:
    """Call the function in a child that is killed after a time."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    os.umask(0o022)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    preload()
    place, wanted, *points = sys.argv[1:]
    report = [asdict(outcome) for outcome in drive(Path(place), wanted, points)]
    (Path(place) / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
