"""Fetch a published corpus, or a dataset of the Hub, and write it as files of one sentence a line."""

import hashlib
import http.client
import re
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_attncal.io.errors import CommandError, one_line
from hf_attncal.io.files import write_bytes
from hf_attncal.io.gate import check_folder

from .published import CORPORA, Files, check_sha256, compressed, hub_dataset

_TIMEOUT = 60  # seconds without a byte
_RECORD = "fetched.sha256"  # as `sha256sum` writes and checks it


@dataclass(frozen=True)
class FetchedText:
    """What was written: files, each with its number of lines, and how many pairs were left out.

    Printed, it has a line for each file.
    """

    files: Mapping[Path, int]
    left_out: int = 0

    def __str__(self) -> str:
        told = [f"{path}: {lines:,} lines" for path, lines in self.files.items()]
        if self.left_out:
            told.append(f"{self.left_out:,} pairs were left out: a side is empty or has a line break.")
        return "\n".join(told)


def fetch_corpus(name: str, folder: Path, source: Path | None) -> FetchedText:
    """Write the files of a published corpus; what it fetches has the SHA-256 that is known, or that was recorded.

    Args:
        name: a name of `CORPORA`.
        folder: empty, or not there yet, but for the record of an earlier fetch.
        source: folder with the published files, by the last part of their addresses; None: they are fetched.

    Raises:
        CommandError: the folder is not empty, a file cannot be had, or it is not what it was.
    """
    is_file = folder.exists() and not folder.is_dir()
    if is_file or any(file.name != _RECORD for file in folder.glob("*")):  # before hundreds of megabytes are fetched
        raise CommandError(f"--output {folder} is not an empty folder. Name an empty one, or a new one.")
    hashes: dict[str, str] = {}
    record = folder / _RECORD
    known = _recorded(record) | ({} if source is None else _recorded(source / _RECORD))

    def fetch(address: str) -> bytes:
        data = _fetch(address, source)
        file = address.rpartition("/")[2]
        hashes[file] = hashlib.sha256(data).hexdigest()
        if file in known:
            check_sha256(address, data, known[file])
        elif not CORPORA[name].pinned:
            print(
                f"{file}: SHA-256 {hashes[file]}, which could not be compared with a known one. It is written to "
                f"{record}; if that file is in --output (or --source) next time, a difference is an error.",
                file=sys.stderr,
            )
        return data

    try:
        files = CORPORA[name].make(fetch)
    except ValueError as error:
        raise CommandError(one_line(error)) from error
    print(f"{name}: licence: {CORPORA[name].licence}", file=sys.stderr)
    if not CORPORA[name].pinned:
        files[_RECORD] = "".join(f"{digest}  {file}\n" for file, digest in (known | hashes).items()).encode()
    return _write(files, folder)


def fetch_hub_dataset(
    name: str, folder: Path, fields: Sequence[str], config: str | None = None, split: str = "train"
) -> FetchedText:
    """Write two fields of a dataset of the Hub, or of a local folder, as `SPLIT.FIELD`.

    Args:
        name, fields, config, split: as for `hub_dataset`.
        folder: where the two files go.

    Raises:
        CommandError: the dataset cannot be loaded, or a file is there already.
    """
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # it would log each of its five tries
    try:
        files, left_out = hub_dataset(name, config, split, tuple(fields))
    except (ValueError, OSError) as error:  # `datasets` and the Hub's client raise only these
        raise CommandError(f"{name} cannot be loaded: {one_line(error)}") from error
    return _write(files, folder, left_out)


def _write(files: Files, folder: Path, left_out: int = 0) -> FetchedText:
    check_folder(folder)
    for name in files:
        if name != _RECORD and (folder / name).exists():
            raise CommandError(f"{folder / name} is there already. Give another --output, or remove the file.")
    for name, text in files.items():
        write_bytes(compressed(name, text), folder / name)
    return FetchedText({folder / name: text.count(b"\n") for name, text in files.items()}, left_out)


def _recorded(path: Path) -> dict[str, str]:
    """Read the recorded SHA-256 of fetched files, by file name; {} if there is no record.

    Raises:
        CommandError: the record cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {error}.") from error
    rows = [re.fullmatch(r"([0-9a-f]{64})  (\S.*)", line) for line in lines]
    if not all(rows):
        raise CommandError(f"{path} is not in the format of `sha256sum`: see line {rows.index(None) + 1}.")
    return {row[2]: row[1] for row in rows}


def _fetch(address: str, folder: Path | None) -> bytes:
    """Fetch an address, or read the file of its name in `folder`.

    Raises:
        CommandError: it cannot be fetched or read.
    """
    if folder is not None:
        path = folder / address.rpartition("/")[2]
        try:
            return path.read_bytes()
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}. It is published at {address}") from error
    print(f"fetching {address}", file=sys.stderr)
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as response:
            if address.startswith("https:") and not response.url.startswith("https:"):
                raise OSError(f"it leads to {response.url}, which is not encrypted")
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise CommandError(
            f"{address} cannot be fetched: {reason}. Fetch it another way, and name its folder with --source."
        ) from error
