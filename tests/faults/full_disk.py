"""A disk that is full, for every command that writes: what it says, what it keeps, and that it goes on with room.

A limit on the size of files stands for the disk: every write past so many bytes fails, at the same place each time
and without a disk that is really full. (The system then says "File too large" in place of "No space left".) Standard
output is also /dev/full.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import commands
from outcomes import Outcome, Result

# The last is what Python makes of a disk that is full before it looks for a place for temporary files.
SAID = ("No space left on device", "File too large", "No usable temporary directory")
FULL = Path("/dev/full")
OLD = "as it was before\n"
# Bytes that a file of a training can have: from none to nearly those of the largest, the state of the optimiser.
LIMITS = (0, 10, 5_000, 20_000, 60_000)
Judged = tuple[Result, str]


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Every command that writes; or a few of them, that take seconds."""
    place = commands.prepare(folder / "place")
    cases = list(_cases(place, folder) if full else _sample(place, folder))
    return [Outcome(kind, case, *judged()) for kind, case, judged in cases]


def _sample(place: commands.Place, folder: Path) -> Iterator[tuple[str, str, Callable[[], Judged]]]:
    yield "full standard output", "score", partial(_standard_output, place.score())
    yield "full disk", "score > FILE", partial(_redirected, place.score(), folder / "score", 100)
    yield "full disk", "align select", partial(_selected, place, folder / "selected")
    yield "full disk", "align train, 5,000 bytes a file", partial(_trained, place.align_train, folder / "run", 5_000)


def _cases(place: commands.Place, folder: Path) -> Iterator[tuple[str, str, Callable[[], Judged]]]:
    yield from list(_sample(place, folder))[:3]
    select = place.align_select(folder / "selected")
    yield "full standard output", "align select", partial(_standard_output, select)
    yield "full standard output", "align train", partial(_standard_output, place.align_train(folder / "unread"))
    for name, command, file in (
        ("align run", place.align_run(), place.pairs),
        ("translate", place.translate(), place.folder / "train.en"),
        ("summarize", place.summarize(), place.folder / "train.en"),
    ):
        yield "full standard output", name, partial(_standard_output, command, file)
        yield "full disk", f"{name} > FILE", partial(_redirected, command, folder / name, 1000, file)
    for limit in (10, 3000):
        yield "full disk", f"align run --output, {limit:,} bytes", partial(_aligned, place, folder / f"{limit}", limit)
    for limit in (10, 30_000):
        yield "full disk", f"demo, {limit:,} bytes a file", partial(_demo, folder / f"demo_{limit}", limit)
    for name, train in (("align train", place.align_train), ("train.py", place.train_translation)):
        whole = commands.finish(train(folder / name))
        assert whole.returncode == 0, whole.stderr
        for limit in LIMITS:
            output = folder / f"{name}_{limit}"
            yield (
                "full disk",
                f"{name}, {limit:,} bytes a file",
                partial(_trained, train, output, limit, folder / name),
            )
        again = partial(_trained, train, folder / f"{name}_again", 20_000, folder / name, checkpoint=2)
        yield "full disk", f"{name}, 20,000 bytes a file after checkpoint-2", again


def judge(done: subprocess.CompletedProcess, named: object) -> Judged:
    """What a command made of a disk that is full.

    Args:
        done: the process; its status is None if it had to be killed.
        named: what its error must name.
    """
    if done.returncode is None:
        return "hung", f"no end in {commands.LONGEST} s"
    if done.returncode == 0:
        return "wrong", "all is well, it says"
    *_, last = done.stderr.splitlines() or [""]
    told = "error: " in last and any(said in last for said in SAID)
    if commands.said_by_python(done.stderr) or not told or (str(named) not in last and SAID[-1] not in last):
        return "traceback", done.stderr[-1000:]
    return "refused", ""


def half_written(folder: Path) -> list[str]:
    """Weights and JSON under a folder that cannot be read."""
    from safetensors import SafetensorError, safe_open

    found = []
    for file in sorted(folder.rglob("*")):
        try:
            if file.suffix == ".safetensors":
                safe_open(file, "pt")
            elif file.name in ("results.json", "run.json", "trainer_state.json", "alignment.json"):
                json.loads(file.read_text(encoding="utf-8"))
        except (SafetensorError, ValueError):
            found.append(str(file.relative_to(folder)))
    return found


# ---- a case of each kind of command ----


def _standard_output(command: list[str], file: Path | None = None) -> Judged:
    with open(file or "/dev/null", "rb") as lines, FULL.open("wb") as full:
        return judge(commands.finish(command, stdin=lines, stdout=full), "standard output")


def _redirected(command: list[str], output: Path, limit: int, file: Path | None = None) -> Judged:
    """The output is a file of the shell; what is in it is the beginning of the whole."""
    with open(file or "/dev/null", "rb") as lines:
        whole = commands.finish(command, stdin=lines).stdout
    with open(file or "/dev/null", "rb") as lines, output.open("wb") as target:
        result = judge(commands.finish(command, limit=limit, stdin=lines, stdout=target), "standard output")
    written = output.read_text(encoding="utf-8")
    return result if whole.startswith(written) else ("lost", f"another beginning: {written[-200:]!r}")


def _selected(place: commands.Place, folder: Path) -> Judged:
    folder.mkdir(exist_ok=True)
    settings = folder / "alignment.json"
    settings.write_text(OLD, encoding="utf-8")
    result = judge(commands.finish(place.align_select(folder), limit=10), settings)
    if settings.read_text(encoding="utf-8") != OLD or list(folder.iterdir()) != [settings]:
        return "lost", f"{[file.name for file in folder.iterdir()]}: {settings.read_text(encoding='utf-8')!r}"
    return result


def _aligned(place: commands.Place, folder: Path, limit: int) -> Judged:
    """An output that was there stays; lines that were aligned are whole; with room all is well."""
    folder.mkdir()
    output, before = folder / "links", folder / "links.partial"
    output.write_text(OLD, encoding="utf-8")
    command = [*place.align_run(), "--source", str(place.pairs), "--output", str(output)]
    result, detail = judge(commands.finish(command, limit=limit), output)
    if result != "refused":
        return result, detail
    if output.read_text(encoding="utf-8") != OLD:
        return "lost", "the output of before"
    written = before.read_text(encoding="utf-8") if before.exists() else ""
    again = commands.finish(command)
    whole = output.read_text(encoding="utf-8")
    if not whole.startswith(written) or (written and not written.endswith("\n")):
        return "lost", f"no whole lines, or others than when there is room: {written[-200:]!r}"
    return ("survived", "") if again.returncode == 0 else ("lost", again.stderr[-1000:])


_SHORT_DEMO = """
import sys
import hf_attncal
from hf_attncal.commands import exit_status
job = lambda: hf_attncal.demo(output=sys.argv[1], steps=1)
sys.exit(exit_status(job, "attncal", lambda: False))
"""


def _demo(folder: Path, limit: int) -> Judged:
    command = [sys.executable, "-c", _SHORT_DEMO, str(folder)]
    result = judge(commands.finish(command, limit=limit), folder)
    return ("lost", f"half written: {half_written(folder)}") if half_written(folder) else result


def _trained(
    train: Callable[..., list[str]], output: Path, limit: int, whole: Path | None = None, checkpoint: int = 0
) -> Judged:
    """A training that runs into the limit and goes on without.

    Args:
        train: gives the command for an output folder and options.
        output: of this run.
        limit: bytes that a file can have.
        whole: folder of a run that nobody disturbed; without it, that the run goes on is not tried.
        checkpoint: the limit begins when this is there: the run is killed, and goes on with it.
    """
    if checkpoint:
        with commands.start(train(output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            commands.until(process, (output / f"checkpoint-{checkpoint}").exists)
            process.send_signal(signal.SIGKILL)
    newest = max(output.glob("checkpoint-*"), default=None)
    before = commands.files(newest)
    result, detail = judge(commands.finish(train(output, "--resume"), limit=limit), output)
    if result != "refused" or whole is None:
        return result, detail
    if half_written(output) or commands.files(newest) != before:
        return "lost", f"half written: {half_written(output)}, or {newest} is not as it was"
    again = commands.finish(train(output, "--resume"))
    if again.returncode != 0:
        return "lost", f"--resume ended with {again.returncode}: {again.stderr[-1000:]}"
    same = commands.weights(output) == commands.weights(whole)
    return ("survived", "") if same else ("wrong", "--resume went on to other weights")
