"""`--shard i/n`: one part of a corpus, for job arrays that run in any order, at once, and again after a kill.

Parts are ranges of lines that follow each other and begin where a window begins (`read_windows`), so that the same
lines are in the same batches as in one run: rounding depends on them. What the job is (inputs, settings, model) is
written once; a part of other inputs or settings is refused.
"""

import codecs
import hashlib
import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

from hf_attncal.io.errors import CommandError
from hf_attncal.io.gate import check_file
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import STANDARD, check_readable, open_file, output_lines

_PLACE = "{}"  # of the number of the part in a pattern
_MOST_PARTS = 99_999
_PIECE = 1 << 20


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1, of `total`."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse `i/n`.

        Raises:
            CommandError: that is no part of a whole.
        """
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if not match or not 1 <= int(match[1]) <= int(match[2]) <= _MOST_PARTS:
            raise CommandError(
                f"--shard must be i/n, part i of n, with i from 1 to n and n up to {_MOST_PARTS}, got {text[:30]}."
            )
        return cls(int(match[1]), int(match[2]))

    def lines(self, lines: int, window: int) -> range:
        """Return the range of lines of the part, from 0: whole windows, but for the last."""
        windows = -(-lines // window)
        first, last = (windows * number // self.total for number in (self.number - 1, self.number))
        return range(min(first * window, lines), min(last * window, lines))


@dataclass
class Part:
    """A part that is to be made.

    Args:
        path: path of its file. manifest: path of the line about it, which is written last.
        lines: which, from 0.
        about: what the line says of it before it is made.
    """

    path: str
    manifest: str
    lines: range
    about: dict[str, Any]
    began: float = field(default_factory=time.monotonic)
    written: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def open(self, path: str) -> Iterator["_Lines"]:
        """Open one input at the first line of the part."""
        with open_file(path, "rb") as file:
            deque(islice(file, self.lines.start), maxlen=0)
            yield _Lines(file, len(self.lines))

    def add(self, alignments: Sequence) -> None:
        """Take note of the alignments of lines that were written."""
        self.written["lines"] += len(alignments)
        self.written["links"] += sum(len(alignment.links) for alignment in alignments)

    @contextmanager
    def output(self) -> Iterator[BinaryIO]:
        """Open the file of the part (see `output_lines`), and describe it in its manifest when it is complete."""
        with suppress(FileNotFoundError):
            os.unlink(self.manifest)
        with output_lines(self.path) as file:
            yield file
        with open_file(self.path, "rb") as file:
            text = hashlib.file_digest(file, "sha256")
        self.about |= {name: self.written[name] for name in ("lines", "links")}
        self.about |= {"seconds": round(time.monotonic() - self.began, 3)}
        self.about |= {"bytes": os.path.getsize(self.path), "sha256": text.hexdigest()}
        _write(self.manifest, self.about)


def part_of(
    shard: str,
    output: str,
    inputs: Sequence[str],
    window: int,
    identity: Mapping[str, str | None],
    options: Mapping[str, Any],
) -> Part | None:
    """Return the part to make, or None if it is complete already.

    Args:
        shard: which, `i/n`.
        output: a folder, or the name of a file with `{}` in it.
        inputs: files with as many lines.
        window: lines that are worked on together.
        identity: the version `hf_attncal` and the `model`, and what else is known of it.
        options: all others that the output depends on.

    Raises:
        CommandError: inputs that cannot be read, have not as many lines, or have changed; other settings.
    """
    part = Shard.parse(shard)
    settings = {**identity, **{f"--{name.replace('_', '-')}": value for name, value in options.items()}}
    job = _job(_named(output, f"of-{part.total:05}") + ".json", part, inputs, window, settings)
    path = _named(output, f"{part.number:05}-of-{part.total:05}")
    manifest = f"{path}.json"
    check_file(path)
    lines = part.lines(job["lines"], window)
    about = {"part": part.number, "of": part.total, "file": os.path.basename(path), "first_line": lines.start + 1}
    # The same for all parts of a job: settings and texts, not where the files lie.
    same = {"settings": job["settings"], "inputs": [file["sha256"] for file in job["inputs"]]}
    about |= {"job": hashlib.sha256(json.dumps(same).encode()).hexdigest()}
    about |= {name: identity[name] for name in ("hf_attncal", "model")}
    with suppress(OSError, ValueError, KeyError):
        with open(manifest, encoding="utf-8") as file:
            before = json.load(file)
        if before["job"] == about["job"] and before["bytes"] == os.path.getsize(path):
            LOG.warning("%s is complete, and skipped", path)
            return None
    return Part(path, manifest, lines, about)


def check_alone(output: Any) -> None:
    """Raise CommandError if this is one of several processes, each of which would write every line to `output`."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    if processes > 1 and output is not None:
        raise CommandError(f"{processes} processes cannot write one output. Give each its own part with --shard.")


def check_parts(shard: str, output: str | None, inputs: Sequence[str], format: str, adapt: bool) -> None:
    """Refuse what --shard cannot be used with, before anything is read; makes the folder of the parts.

    Args:
        shard: which part, `i/n`.
        output: a folder, or the name of a file with `{}` in it.
        inputs: files that are read.
        format: value of --format.
        adapt: the aligner learns from the text.

    Raises:
        CommandError: it cannot be used; the message says why.
        ModuleNotFoundError: parts are to be .zst files, without the extra.
    """
    from hf_attncal.io.encoding import suffix_of

    Shard.parse(shard)
    if adapt:
        raise CommandError(
            "--adapt learns from line to line, so parts of --shard would not be what one run writes. Adapt once "
            "(--save-adapted FOLDER), and align the parts with FOLDER."
        )
    if format == "html":
        raise CommandError("--shard cannot write one page. Use another --format.")
    check_readable(*inputs)
    if output in (None, STANDARD):
        raise CommandError(
            "--shard needs --output: a folder, or the name of a file with {} for the number of the part."
        )
    if not inputs or not all(map(os.path.isfile, inputs)):
        raise CommandError("--shard needs files to read (--source and --target): the parts of a pipe cannot be told.")
    if _PLACE not in output and os.path.lexists(output) and not os.path.isdir(output):
        raise CommandError(
            f"--output {output} is a file: with --shard it is a folder, or a file name with {{}} for the number."
        )
    if _PLACE in os.path.dirname(output):
        raise CommandError(f"--output {output} has {{}} in the name of a folder: it must be in that of the file.")
    suffix_of(output)
    folder = os.path.dirname(output) or "." if _PLACE in output else output
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output: {folder} cannot be made a folder: {error.strerror}.") from error


def _named(output: str, what: str) -> str:
    return output.replace(_PLACE, what) if _PLACE in output else os.path.join(output, f"{what}.links")


# ---- the job ----


def _job(path: str, shard: Shard, inputs: Sequence[str], window: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of the job, which the first part has written, and which must be the same for all."""
    known = _read(path)
    settings = json.loads(json.dumps({**settings, "window": window}))
    if known is not None:
        for name in known["settings"] | settings:
            was, now = known["settings"].get(name), settings.get(name)
            if was != now:
                raise CommandError(
                    f"{path}: other parts were made with {name} {was}, this one has {now}. Give the same, or another "
                    "--output."
                )
    recorded = known["inputs"] if known else [None] * len(inputs)
    if len(recorded) != len(inputs):
        raise CommandError("other parts were made of one file of pairs, or of two files: give the same.")
    files = [_input(name, before) for name, before in zip(inputs, recorded, strict=True)]
    for name, before, file in zip(inputs, recorded, files, strict=True):
        if before is not None and before["sha256"] != file["sha256"]:
            raise CommandError(
                f"{name} is not what other parts were made of: its SHA-256 is {file['sha256'][:16]}..., that in "
                f"{path} is {before['sha256'][:16]}.... Put the file back, or give another --output."
            )
        if file["lines"] != files[0]["lines"]:
            raise CommandError(
                f"{inputs[0]} has {files[0]['lines']} lines and {name} has {file['lines']}, they must have the same "
                "number."
            )
    job = {"lines": files[0]["lines"], "settings": settings, "inputs": files}
    if known is None and not _write(path, job, new=True):
        return _job(path, shard, inputs, window, settings)  # another part was faster
    return job


def _input(path: str, known: dict[str, Any] | None) -> dict[str, Any]:
    """Count the lines of a file and hash its text, unless both are known and the file has not changed."""
    from hf_attncal.io.encoding import DamagedFile

    try:
        now = os.stat(path)
        state = {"path": os.path.realpath(path), "bytes": now.st_size, "modified": now.st_mtime_ns}
        if known is not None and all(known[name] == value for name, value in state.items()):
            return known
        LOG.info("counting the lines of %s", path)
        text = hashlib.sha256()
        newlines, last = 0, b""
        with open_file(path, "rb") as file:
            while piece := file.read(_PIECE):
                text.update(piece)
                newlines += piece.count(b"\n")
                last = piece
    except (OSError, DamagedFile) as error:
        raise CommandError(f"{path} cannot be read: {error}. It is damaged, or not what its name says.") from error
    lines = newlines + (last[-1:] not in (b"", b"\n") and (newlines, last) != (0, codecs.BOM_UTF8))
    return {**state, "lines": lines, "sha256": text.hexdigest()}


# ---- files ----


class _Lines:
    """The first lines of an open file, for `read_windows`."""

    def __init__(self, file: BinaryIO, lines: int):
        self._file, self._left = file, lines

    def readline(self, most: int) -> bytes:
        if not self._left:
            return b""
        data = self._file.readline(most)
        self._left -= data.endswith(b"\n")
        return data


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            job = json.load(file)
        if not isinstance(job, dict) or not {"lines", "settings", "inputs"} <= job.keys():
            raise ValueError("it is not what a part has written")
        return job
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {error}. Remove it, or give another --output.") from error


def _write(path: str, values: Mapping[str, Any], new: bool = False) -> bool:
    """Write a line of JSON, whole or not at all; with `new`, only where there is no such file (else False)."""
    from hf_attncal.io.files import whole_file

    try:
        with whole_file(path, new=new) as partial:
            partial.write_text(json.dumps(values) + "\n", encoding="utf-8")
    except FileExistsError:
        return False
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}.") from error
    return True
