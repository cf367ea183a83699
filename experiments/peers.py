"""Other aligners, which are commands that are found in PATH or named: eflomal and fast_align.

They learn from the text that they align.
"""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hf_attncal.alignment.links import SYMMETRIZATIONS, symmetrize_links
from hf_attncal.data.pharaoh import parse_hypotheses

Link = tuple[int, int]
Pair = tuple[list[str], list[str]]

# What merges links; the harmonic mean needs weights.
MERGES = tuple(name for name in SYMMETRIZATIONS if name != "harmonic")
# What fast_align's `atools -c` calls them; the two directions need no tool.
ATOOLS = {
    "intersection": "intersect",
    "union": "union",
    "grow-diag": "grow-diag",
    "grow-diag-final": "grow-diag-final",
    "grow-diag-final-and": "grow-diag-final-and",
}
PEERS = {"eflomal": "eflomal-align", "fast_align": "fast_align"}


@dataclass(frozen=True)
class PeerRun:
    """Links of two directions that a command wrote, source index first.

    Args:
        command: that was run, without the names of files.
        forward: file with one source word for each target word; a line for each pair that has words on both sides.
        backward: the same with one target word for each source word.
        real: for every pair that was to be aligned whether it has words on both sides.
        seconds: that both directions took.
        atools: command that merges them, or None for `symmetrize_links`.
    """

    command: str
    forward: Path
    backward: Path
    real: list[bool]
    seconds: float
    atools: str | None = None

    def links(self, method: str, begin: int, end: int) -> Iterator[frozenset[Link]]:
        """Merged links of the pairs from `begin` to `end`; none where a side is empty."""
        first, last = sum(self.real[:begin]), sum(self.real[:end])
        if self.atools and method in ATOOLS:
            merged = _read_links(self._merged(method), first, last)
        else:
            directions = (_read_links(path, first, last) for path in (self.forward, self.backward))
            merged = (frozenset(symmetrize_links(*both, method)) for both in zip(*directions, strict=True))
        for real in self.real[begin:end]:
            yield next(merged) if real else frozenset()

    def _merged(self, method: str) -> Path:
        path = self.forward.with_name(f"merged.{method}")
        if not path.exists():
            command = [self.atools, "-i", str(self.forward), "-j", str(self.backward), "-c", ATOOLS[method]]
            _run(command, stdout=path)
            _check_lines(path, sum(self.real))
        return path


def run_eflomal(command: str, pairs: Iterable[Pair], folder: Path) -> PeerRun:
    """Align `pairs` with eflomal, files in `folder`. It samples without a seed: runs differ a little."""
    sides, links = (folder / "source", folder / "target"), (folder / "forward", folder / "backward")
    real: list[bool] = []
    with sides[0].open("w", encoding="utf-8") as sources, sides[1].open("w", encoding="utf-8") as targets:
        for source, target in _with_words(pairs, real):
            sources.write(" ".join(source) + "\n")
            targets.write(" ".join(target) + "\n")
    options = dict(zip(("-s", "-t", "-f", "-r"), sides + links, strict=True))
    start = time.perf_counter()
    _run([command, *(str(part) for option in options.items() for part in option)])
    seconds = time.perf_counter() - start
    return _checked(PeerRun(" ".join(["eflomal-align", *options]), *links, real, seconds))


def run_fast_align(command: str, pairs: Iterable[Pair], folder: Path, atools: str | None = None) -> PeerRun:
    """Align `pairs` with fast_align and the options that its authors recommend, one direction after the other."""
    text, forward, backward = (folder / name for name in ("text", "forward", "backward"))
    real: list[bool] = []
    with text.open("w", encoding="utf-8") as file:
        for pair in _with_words(pairs, real):
            # A word that looks like the separator is given as another one.
            file.write(" ||| ".join(" ".join(side).replace("|||", "//") for side in pair) + "\n")
    start = time.perf_counter()
    _run([command, "-i", str(text), "-d", "-o", "-v"], stdout=forward)
    _run([command, "-i", str(text), "-d", "-o", "-v", "-r"], stdout=backward)
    seconds = time.perf_counter() - start
    return _checked(PeerRun("fast_align -d -o -v [-r]", forward, backward, real, seconds, atools))


def _with_words(pairs: Iterable[Pair], real: list[bool]) -> Iterator[Pair]:
    """The pairs with words on both sides; `real` gets an entry for every pair."""
    for pair in pairs:
        real.append(all(pair))
        if real[-1]:
            yield pair


def _run(command: list[str], stdout: Path | None = None) -> None:
    """Run a command, its output in a file.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    name = Path(command[0]).name
    # A command that is installed in a folder of its own finds its companions there.
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])}
    with open(stdout or os.devnull, "wb") as output:
        run = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, env=environment, check=False)
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip().splitlines()[-5:]
        raise RuntimeError(f"`{name}` failed with status {run.returncode}:\n" + "\n".join(said))


def _checked(run: PeerRun) -> PeerRun:
    for path in (run.forward, run.backward):
        _check_lines(path, sum(run.real))
    return run


def _check_lines(path: Path, expected: int) -> None:
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    if lines != expected:
        raise RuntimeError(f"{path.name} links: {lines} lines for {expected} sentence pairs.")


def _read_links(path: Path, begin: int, end: int) -> Iterator[frozenset[Link]]:
    with path.open(encoding="utf-8") as file:
        for line in islice(file, begin, end):
            yield parse_hypotheses([line])[0]
