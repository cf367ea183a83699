"""`attncal data`: fetch or generate a corpus as the files that a configuration names."""

import argparse
import hashlib
import http.client
import os
import re
import sys
import urllib.request
from pathlib import Path

from hf_attncal.data.streams import check_folder
from hf_attncal.errors import CommandError, one_line

_TIMEOUT = 60  # seconds without a byte
_GENERATED = "stack-language"
_RECORD = "fetched.sha256"  # as `sha256sum` writes and checks it


def add_data(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `data`."""
    parser = commands.add_parser(
        "data",
        help="fetch parallel text (a published corpus, a dataset of the Hub), or generate the stack language",
        description="Fetch parallel text and write it as files, one sentence a line. A corpus that "
        "docs/experiments.md uses (multi30k, wpt03-enfr) becomes the files that its configurations name, as "
        "`--data FOLDER`; of a dataset of the Hub, two fields become the two files SPLIT.FIELD. The stack language "
        "(parentheses, and numbers that say how deep they stand) is generated: train.txt, dev.txt, test.txt.",
        epilog="examples:\n  attncal data multi30k --output data/multi30k\n"
        "  attncal data bentrevett/multi30k --fields en de --output data/captions\n"
        "  attncal data stack-language --output data/stack",
    )
    parser.add_argument(
        "name", metavar="NAME", help="multi30k, wpt03-enfr, stack-language, or the id of a dataset of the Hub"
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where the files go; none is overwritten")
    corpus = parser.add_argument_group("a corpus")
    corpus.add_argument(
        "--from",
        dest="fetched",
        metavar="FOLDER",
        help="has the published files, by the last part of their addresses; without it, they are fetched",
    )
    hub = parser.add_argument_group("a dataset of the Hub, which cannot be written without --fields")
    hub.add_argument("--fields", nargs=2, metavar="NAME", help="of source and target: translation.en translation.de")
    hub.add_argument("--config", metavar="NAME", help="of a dataset with several; without it, the only one")
    hub.add_argument("--split", default="train", metavar="NAME", help="which of its splits (default: %(default)s)")
    parser.set_defaults(run=_run_data)


def _run_data(options: argparse.Namespace) -> None:
    from hf_attncal.data.published import CORPORA, compressed
    from hf_attncal.files import write_bytes

    folder = Path(options.output)
    check_folder(options.output)
    if options.fetched is not None and not os.path.isdir(options.fetched):
        raise CommandError(f"--from {options.fetched} is not a folder. Name the folder with the published files.")
    if options.name == _GENERATED:
        files, left_out = _stack_language(options), 0
    else:
        files, left_out = (_corpus if options.name in CORPORA else _hub_dataset)(options)
    for name in files:
        if name != _RECORD and (folder / name).exists():
            raise CommandError(f"{folder / name} is there already. Give another --output, or remove the file.")
    for name, text in files.items():
        write_bytes(compressed(name, text), folder / name)
        lines = text.count(b"\n")
        print(f"{folder / name}: {lines:,} lines")
    if left_out:
        print(f"{left_out:,} pairs were left out: a side is empty or has a line break.")


def _corpus(options: argparse.Namespace) -> tuple[dict[str, bytes], int]:
    """Make the files of a published corpus; no pair is left out."""
    from hf_attncal.data.published import CORPORA, check_sha256

    name, folder = options.name, Path(options.output)
    if options.fields or options.config:
        raise CommandError(f"--fields and --config belong to a dataset of the Hub; {name} needs neither.")
    is_file = folder.exists() and not folder.is_dir()
    if is_file or any(file.name != _RECORD for file in folder.glob("*")):  # before hundreds of megabytes are fetched
        raise CommandError(f"--output {folder} is not an empty folder. Name an empty one, or a new one.")
    hashes: dict[str, str] = {}
    record = folder / _RECORD
    known = _recorded(record) | ({} if options.fetched is None else _recorded(Path(options.fetched) / _RECORD))

    def fetch(address: str) -> bytes:
        data = _fetch(address, options.fetched)
        file = address.rpartition("/")[2]
        hashes[file] = hashlib.sha256(data).hexdigest()
        if file in known:
            check_sha256(address, data, known[file])
        elif not CORPORA[name].pinned:
            print(
                f"{file}: SHA-256 {hashes[file]}, which could not be compared with a known one. It is written to "
                f"{record}; if that file is in --output (or --from) next time, a difference is an error.",
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
    return files, 0


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


def _stack_language(options: argparse.Namespace) -> dict[str, bytes]:
    """Generate the files of the stack language."""
    from hf_attncal.data.synthetic.stack_language import generate_stack_split

    if options.fields or options.config or options.fetched:
        raise CommandError(f"{_GENERATED} is generated: it needs neither --from nor --fields nor --config.")
    splits = generate_stack_split()._asdict()
    return {f"{name}.txt": "".join(f"{line}\n" for line in lines).encode() for name, lines in splits.items()}


def _fetch(address: str, folder: str | None) -> bytes:
    """Fetch an address, or read the file of its name in `folder`.

    Raises:
        CommandError: it cannot be fetched or read.
    """
    if folder is not None:
        path = Path(folder) / address.rpartition("/")[2]
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
            f"{address} cannot be fetched: {reason}. Fetch it another way, and name its folder with --from."
        ) from error


def _hub_dataset(options: argparse.Namespace) -> tuple[dict[str, bytes], int]:
    """Make the two files of a dataset of the Hub, and count the pairs that are left out."""
    from hf_attncal.data.published import CORPORA, hub_dataset

    name, known = options.name, ", ".join(CORPORA)
    if "/" not in name:
        raise CommandError(
            f"{name} is not one of {known}, {_GENERATED}; a dataset of the Hub has an id such as OWNER/NAME."
        )
    if not options.fields:
        raise CommandError(f"--fields is missing: which fields of {name} hold source and target?")
    if options.fetched:
        raise CommandError(f"--from belongs to {known}; for a local dataset, give its folder as NAME.")
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # it would log each of its five tries
    try:
        return hub_dataset(name, options.config, options.split, tuple(options.fields))
    except (ValueError, OSError) as error:  # `datasets` and the Hub's client raise only these
        raise CommandError(f"{name} cannot be loaded: {one_line(error)}") from error
