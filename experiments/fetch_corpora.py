"""Fetch the corpora that `configs/` use, and write them as files of one sentence per line.

    python experiments/fetch_corpora.py multi30k --output data/multi30k
    python experiments/fetch_corpora.py wpt03-enfr --output data/wpt03-enfr --source FOLDER_WITH_THE_ARCHIVES

docs/experiments/corpora.md gives the origin and licence of each corpus.
"""

import argparse
import gzip
import hashlib
import io
import random
import re
import tarfile
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hf_attncal.io.files import READ_ERRORS, write_bytes

Fetch = Callable[[str], bytes]  # returns the bytes of a file, given its address
Files = dict[str, bytes]  # name -> text in UTF-8, not compressed even if the name ends in .gz
Pair = tuple[str, str]

_MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/tok/"
)
_MULTI30K_SHA256 = {
    "train.en": "4f7b25e9bbfc6be6ef66ea2cedd35e2c11c6fa1831979a054fba52e8d5b27c9d",
    "train.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "val.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "val.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "test_2016_flickr.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "test_2016_flickr.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
}
_WPT03 = "https://web.eecs.umich.edu/~mihalcea/wpt/data/English-French."
# For each archive: our split, its file of links, the sentences we take, and their numbers of pairs, sure and possible
# links.
_WPT03_GOLD = {
    "trial": ("dev", "trial/trial.wa", slice(None), (37, 338, 1446)),
    "test": ("test", "answers/test.wa.nonullalign", slice(None, None, 2), (224, 1963, 7201)),
}
_WPT03_TRAINING = 1_130_104  # pairs in the archive
_WPT03_HELD_OUT = 20_000  # pairs at least, in whole sitting days, that the two translation splits are taken from
_WPT03_TRANSLATION = 2_000  # pairs in each translation split
_WPT03_SMALL = 100_000  # pairs in train.100k


def check_sha256(address: str, data: bytes, expected: str) -> None:
    """Raise ValueError if fetched data do not have the expected SHA-256."""
    if (actual := hashlib.sha256(data).hexdigest()) != expected:
        raise ValueError(f"{address} has changed: its SHA-256 is {actual}, not {expected}.")


def compressed(name: str, text: bytes) -> bytes:
    """Compress text as the suffix of `name` says; the same text gives the same bytes."""
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


# ---- corpora ----


def multi30k(fetch: Fetch) -> Files:
    """Make Multi30k English-German, lower-cased and tokenised by its authors: `train`, `val`, `test_2016_flickr`.

    Raises:
        ValueError: a fetched file is not the text of our results.
    """
    files = {}
    for name, expected in _MULTI30K_SHA256.items():
        split, language = name.split(".")
        address = f"{_MULTI30K}{split}.lc.norm.tok.{language}"
        files[f"{name}.gz" if split == "train" else name] = text = fetch(address)
        check_sha256(address, text, expected)
    return files


def wpt03_enfr(fetch: Fetch) -> Files:
    """Make the Hansards of WPT03, English-French: annotated `dev` and `test`, training text, two translation splits.

    Raises:
        ValueError: an archive lacks a file, has other numbers of pairs or links, or links that do not fit the words.
    """
    files: Files = {}
    for archive, (split, links, taken, expected) in _WPT03_GOLD.items():
        members = _members(fetch(f"{_WPT03}{archive}.tar.gz"))
        sides = [_lines(_member(members, f"{archive}/{archive}.{side}")) for side in "ef"]
        gold = _pharaoh(_member(members, links), sides)[taken]
        counts = (len(gold), *("".join(gold).count(mark) for mark in "-p"))
        if counts != expected:
            raise ValueError(f"{links} gives {counts} pairs, sure and possible links, not {expected}.")
        files |= _parallel(split, zip(*(side[taken] for side in sides), strict=True)) | {f"{split}.align": _text(gold)}
    return files | _hansards(_members(fetch(f"{_WPT03}training.tar.gz")))


CORPORA = {"multi30k": multi30k, "wpt03-enfr": wpt03_enfr}


# ---- WPT03 ----


def _hansards(members: Files) -> Files:
    """Make training text and translation splits: no pair twice, no sitting day in both, the same choice every time."""
    names = sorted(name.removesuffix(".e") for name in members if re.search(r"/training/[^/]+\.e$", name))
    days = [list(zip(*(_lines(_member(members, f"{name}.{side}")) for side in "ef"), strict=True)) for name in names]
    if (total := sum(map(len, days))) != _WPT03_TRAINING:
        raise ValueError(f"English-French.training.tar.gz has {total} sentence pairs, not {_WPT03_TRAINING}.")
    choice = random.Random(13)
    choice.shuffle(days)
    held_out: list[Pair] = []
    while len(held_out) < _WPT03_HELD_OUT:
        held_out += days.pop()
    train = list(dict.fromkeys(pair for day in days for pair in day if _fits(pair, 1, 100)))
    choice.shuffle(train)
    seen = {line for pair in train for line in pair}
    fresh = [pair for pair in dict.fromkeys(held_out) if _fits(pair, 5, 50) and seen.isdisjoint(pair)]
    size, small = _WPT03_TRANSLATION, _WPT03_SMALL
    return {
        **_parallel("train.100k", train[:small], ".gz"),
        **_parallel("train.rest", train[small:], ".gz"),
        **_parallel("mt-valid", fresh[:size], ".gz"),
        **_parallel("mt-test", fresh[size : 2 * size], ".gz"),
    }


def _fits(pair: Pair, least: int, most: int) -> bool:
    """Return whether both sides have from `least` to `most` words, and neither nine times more than the other."""
    shorter, longer = sorted(len(side.split()) for side in pair)
    return least <= shorter and longer <= min(most, 9 * shorter)


def _members(archive: bytes) -> Files:
    """Return the files of a .tar.gz; it is read to its end, where its checksum is.

    Raises:
        ValueError: the data are not a whole .tar.gz.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as data:
            with tarfile.open(fileobj=data, mode="r|") as tar:
                files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
            while data.read(1 << 20):
                pass
        return files
    except (tarfile.TarError, *READ_ERRORS) as error:
        raise ValueError(f"The fetched file is not a whole .tar.gz ({error}).") from error


def _member(members: Files, name: str) -> bytes:
    """Return a file of an archive by the end of its path."""
    matches = [data for path, data in members.items() if path == name or path.endswith(f"/{name}")]
    if len(matches) != 1:
        raise ValueError(f"The archive has {len(matches)} files {name}, it must have one.")
    return matches[0]


def _lines(text: bytes) -> list[str]:
    """Read sentences in Latin-1, with or without tags `<s snum=0001> ... </s>`; one space between words."""
    lines = text.decode("latin-1").removesuffix("\n").split("\n")
    return [" ".join(re.sub(r"^<s[^>]*>|</s>\s*$", "", line).split()) for line in lines]


def _pharaoh(links: bytes, sides: Sequence[Sequence[str]]) -> list[str]:
    """Turn lines `sentence source target S|P`, counted from 1, into links `i-j` and `ipj`, counted from 0."""
    lengths = [[len(line.split()) for line in side] for side in sides]
    pairs: list[set] = [set() for _ in lengths[0]]
    for number, line in enumerate(links.decode("latin-1").splitlines(), start=1):
        sentence, i, j, kind = line.split()
        n, i, j = int(sentence) - 1, int(i) - 1, int(j) - 1
        if not (kind in "SP" and 0 <= n < len(pairs) and 0 <= i < lengths[0][n] and 0 <= j < lengths[1][n]):
            raise ValueError(f"Line {number} of the published links, `{line}`, does not fit the sentences.")
        pairs[n].add((i, j, "-" if kind == "S" else "p"))
    return [" ".join(f"{i}{mark}{j}" for i, j, mark in sorted(pair)) for pair in pairs]


def _parallel(split: str, pairs: Iterable[Pair], suffix: str = "") -> Files:
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    return {f"{split}.{language}{suffix}": _text(side) for language, side in zip(("en", "fr"), sides, strict=True)}


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def fetch(address: str, source: Path | None = None) -> bytes:
    """Fetch an address, or read the file of its name in the folder `source`."""
    if source is not None:
        return (source / address.rpartition("/")[2]).read_bytes()
    with urllib.request.urlopen(address, timeout=60) as response:
        return response.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--output", required=True, type=Path, help="empty folder, or a new one")
    parser.add_argument("--source", type=Path, help="folder with the published files; without it, they are fetched")
    args = parser.parse_args()
    if args.output.exists() and any(args.output.iterdir()):
        parser.error(f"--output {args.output} is not an empty folder")
    for name, text in CORPORA[args.corpus](lambda address: fetch(address, args.source)).items():
        write_bytes(compressed(name, text), args.output / name)
        print(args.output / name)


if __name__ == "__main__":
    main()
