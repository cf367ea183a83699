"""Signals, and readers that leave, at different moments of the commands that write lines, and of a training.

What was written is whole lines, and the beginning of what the command writes when nobody disturbs it; the exit status
says what ended it; what is left over does not keep the same command from doing its work the next time.
"""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import commands
from outcomes import Outcome, Result

REPEATED = 20  # times that the lines are given: a command is never done when it is struck
READER_LEFT = "the reader leaves"
STATUS = {"SIGINT": 130, "SIGTERM": -signal.SIGTERM, "SIGHUP": -signal.SIGHUP, READER_LEFT: 141}


class Moment(NamedTuple):
    """When a command is struck: after so many seconds, lines that were read, bytes in its file, or checkpoints."""

    number: float
    unit: str

    def __str__(self) -> str:
        return f"{self.number:g} {self.unit}"


# (command, what it is struck by, when); bytes are those of FILE.partial.
STRUCK = (
    ("align run", "SIGINT", Moment(1, "lines")),
    ("align run", "SIGINT", Moment(200, "lines")),
    ("align run", "SIGTERM", Moment(100, "lines")),
    ("align run", "SIGHUP", Moment(50, "lines")),
    ("align run", READER_LEFT, Moment(150, "lines")),
    ("align run --output", "SIGINT", Moment(10_000, "bytes")),
    ("align run --output", "SIGTERM", Moment(40_000, "bytes")),
    ("translate", "SIGINT", Moment(80, "lines")),
    ("translate", "SIGTERM", Moment(20, "lines")),
    ("translate", READER_LEFT, Moment(10, "lines")),
    ("score", "SIGINT", Moment(1, "seconds")),
    ("score", "SIGTERM", Moment(0.5, "seconds")),
    ("score", READER_LEFT, Moment(0, "seconds")),
    ("align train", "SIGINT", Moment(0, "checkpoints")),
    ("align train", "SIGINT", Moment(3, "checkpoints")),
    ("align train", "SIGTERM", Moment(2, "checkpoints")),
    ("align train", "SIGHUP", Moment(1, "checkpoints")),
    ("align train", READER_LEFT, Moment(0, "seconds")),
    ("summarize", "SIGINT", Moment(80, "lines")),
    ("summarize", "SIGTERM", Moment(20, "lines")),
    ("summarize", READER_LEFT, Moment(10, "lines")),
)
SAMPLE = (STRUCK[1], STRUCK[10], STRUCK[12])


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Every delivery of `STRUCK`, or those of `SAMPLE`."""
    # What is started by `nohup` or with `&` ignores these, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    place = commands.prepare(folder)
    strike = {"align run --output": _output, "align train": _training}
    whole: dict[str, Any] = {}
    outcomes = []
    for number, (command, by, moment) in enumerate(STRUCK if full else SAMPLE):
        if command not in whole:
            whole[command] = _undisturbed(place, command)
        judged = strike.get(command, _lines)(place, command, by, moment, whole[command], folder / str(number))
        kind = "a reader that leaves" if by == READER_LEFT else "SIGINT, SIGTERM or SIGHUP"
        outcomes.append(Outcome(kind, f"{command}: {by} after {moment}", *judged))
    return outcomes


def judge(err: str, status: int | None, by: str, written: bytes, whole: bytes, read: int = 0) -> tuple[Result, str]:
    """What became of a command that writes lines.

    Args:
        err: its standard error.
        status: its exit status; None if it had to be killed.
        by: what it was struck by.
        written: all that came from it.
        whole: what comes when nobody disturbs it.
        read: bytes that had come before it was struck.
    """
    if status is None:
        return "hung", f"no end in {commands.LONGEST} s"
    if commands.said_by_python(err):
        return "traceback", err[-1000:]
    if status == 0:
        return ("survived", "") if written == whole else ("wrong", repr(written[-200:]))
    if status != STATUS[by]:
        return "lost", f"exit status {status}, not {STATUS[by]}: {err[-1000:]}"
    if not whole.startswith(written) or len(written) < read or (written and not written.endswith(b"\n")):
        return "lost", f"what was written is not the beginning of the whole in lines: {written[-200:]!r}"
    return "refused", ""


# ---- commands that write lines ----


def _command(place: commands.Place, command: str) -> tuple[list[str], Path | None]:
    """A command that writes to standard output, and the file that it reads from standard input."""
    match command:
        case "align run":
            return place.align_run(), place.pairs
        case "translate":
            return place.translate(), place.folder / "train.en"
        case "summarize":
            return place.summarize(), place.folder / "train.en"
    return place.score("--bootstrap=100000"), None


def _repeated(place: commands.Place, file: Path) -> Path:
    """The same lines many times."""
    repeated = place.folder / f"{file.name}.repeated"
    repeated.write_bytes(file.read_bytes() * REPEATED)
    return repeated


def _undisturbed(place: commands.Place, command: str) -> Any:
    """What the command writes, or a training leaves."""
    if command == "align train":
        done = commands.finish(place.align_train(place.folder / "whole"))
        assert done.returncode == 0, done.stderr
        return _left(place.folder / "whole")
    arguments, file = _command(place, command.removesuffix(" --output"))
    if file is None:
        done = commands.finish(arguments)
    else:
        with file.open("rb") as lines:
            done = commands.finish(arguments, stdin=lines)
    assert done.returncode == 0, done.stderr
    return done.stdout.encode() * (1 if file is None else REPEATED)


def _lines(
    place: commands.Place, command: str, by: str, moment: Moment, whole: bytes, folder: Path
) -> tuple[Result, str]:
    """Strike a command that writes lines to a pipe."""
    arguments, file = _command(place, command)
    with (
        open((file and _repeated(place, file)) or "/dev/null", "rb") as lines,
        commands.start(arguments, bufsize=0, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        if moment.unit == "lines":
            read = b"".join(process.stdout.readline() for _ in range(int(moment.number)))
        else:
            read = b""
            time.sleep(moment.number)
        rest, err, status = _struck(process, by)
    return judge(err, status, by, read + rest, whole, len(read))


def _output(
    place: commands.Place, command: str, by: str, moment: Moment, whole: bytes, folder: Path
) -> tuple[Result, str]:
    """Strike `align run --output`, look into what it leaves, and run it again."""
    folder.mkdir()
    output, partial = folder / "links", folder / "links.partial"
    arguments = [*place.align_run(), "--source", str(_repeated(place, place.pairs)), "--output", str(output)]
    with commands.start(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        commands.until(process, lambda: partial.is_file() and partial.stat().st_size >= moment.number)
        _, err, status = _struck(process, by)
    written = next((file.read_bytes() for file in (output, partial) if file.exists()), b"")
    result, detail = judge(err, status, by, written, whole)
    if result != "refused":
        return result, detail
    if output.exists():
        return "lost", f"exit status {status}, and {output.name} has the name of a file that is complete"
    again = commands.finish(arguments)
    if again.returncode != 0 or output.read_bytes() != whole:
        return "lost", f"the next run ended with {again.returncode}: {again.stderr[-1000:]}"
    return "survived", ""


# ---- training ----


def _left(output: Path) -> dict[str, Any]:
    """What two runs are compared by."""
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    losses = [entry["loss"] for entry in results["log_history"] if "loss" in entry]
    return {"weights": commands.weights(output), "losses": losses, "files": sorted(p.name for p in output.iterdir())}


def _training(
    place: commands.Place, command: str, by: str, moment: Moment, whole: dict, output: Path
) -> tuple[Result, str]:
    """Strike a training, and let it go on."""
    arguments = place.align_train(output)
    with commands.start(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        if by != READER_LEFT:
            name = f"checkpoint-{moment.number:g}" if moment.number else "run.json"
            commands.until(process, (output / name).exists)
        _, err, status = _struck(process, by)
    result, detail = judge(err, status, by, b"", b"")
    if result not in ("survived", "refused"):
        return result, detail
    again = commands.finish(place.align_train(output, "--resume"))
    if commands.said_by_python(again.stderr):
        return "traceback", again.stderr[-1000:]
    if again.returncode != 0:
        return "lost", f"--resume ended with {again.returncode}: {again.stderr[-1000:]}"
    different = [key for key, value in _left(output).items() if value != whole[key]]
    return ("wrong", f"other than in the whole run: {different}") if different else ("survived", "")


def _struck(process: subprocess.Popen, by: str) -> tuple[bytes, str, int | None]:
    """What still comes from a process that is struck, its standard error, its status: None if it has to be killed."""
    if by == READER_LEFT:
        process.stdout.close()
    else:
        process.send_signal(signal.Signals[by])
    try:
        out, err = process.communicate(timeout=commands.LONGEST)
        status = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        status = None
    return out or b"", err.decode(), status
