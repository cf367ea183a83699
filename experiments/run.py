"""Make the results of a table again: runs the commands of experiments/index.yaml, and writes the tables anew.

    python experiments/run.py --list
    python experiments/run.py multi30k --data DIR                       # DIR has a folder for each corpus
    python experiments/run.py multi30k --data DIR --only variant=gated seed=1
    python experiments/run.py converged-multi30k --data DIR --dry-run   # prints the commands

A name is that of an entry, or of a table that it fills. Trained models go to `--runs`; a command whose results file is
there already is run again, so keep what you compare with. The first command that fails ends the run.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
INDEX = Path(__file__).with_name("index.yaml")


def read_index() -> dict[str, dict[str, Any]]:
    """Return the entries of experiments/index.yaml by their names."""
    return yaml.safe_load(INDEX.read_text(encoding="utf-8"))


def entry_of(name: str) -> dict[str, Any]:
    """Return the entry of that name, or the one that fills the table of that name.

    Raises:
        ValueError: there is none.
    """
    index = read_index()
    for title, entry in index.items():
        if name == title or name in entry["tables"]:
            return entry
    raise ValueError(f"`{name}` is no entry of experiments/index.yaml. Those are: {', '.join(index)}.")


def commands_of(
    entry: dict[str, Any], places: dict[str, str], only: dict[str, str] | None = None
) -> Iterator[list[str]]:
    """Yield the commands of an entry in the order in which they run, each as a list of words.

    Args:
        entry: of the index.
        places: what stands for `data`, `runs` and other placeholders. An option without a place is left out.
        only: of a key of `each`, the one value that is wanted.
    """
    values = {key: list(map(str, each)) for key, each in entry.get("each", {}).items()}
    for key, value in (only or {}).items():
        if value not in values.get(key, ()):
            raise ValueError(f"`{key}={value}` must be one of {values.get(key)}.")
        values[key] = [value]
    for chosen in product(*values.values()):
        for line in entry["run"]:
            yield _filled(line, places | dict(zip(values, chosen, strict=True)))
    for line in entry.get("then", ()):
        yield _filled(line, places)


def _filled(line: str, places: dict[str, str]) -> list[str]:
    words = [re.sub(r"\{(\w+)\}", lambda match: places.get(match[1], match[0]), word) for word in shlex.split(line)]
    without = {index for index, word in enumerate(words) if re.fullmatch(r"\{\w+\}", word)}
    words = [word for index, word in enumerate(words) if index not in without and index + 1 not in without]
    return [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", "hf_attncal", *words[1:]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="an entry of the index, or a table")
    parser.add_argument("--list", action="store_true", help="print the entries and the tables that they fill")
    parser.add_argument("--data", help="folder with a folder for each corpus")
    parser.add_argument("--runs", default="runs", help="folder for trained models")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY=VALUE", help="one value of a key of `each`")
    parser.add_argument("--eflomal", help="the command of eflomal; without it, that row stays as it is")
    parser.add_argument("--fast-align", dest="fast_align", help="the command of fast_align, likewise")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    options = parser.parse_args(arguments)
    if options.list or options.name is None:
        for title, entry in read_index().items():
            print(f"{title}: {', '.join(entry['tables'])}")
        return
    try:
        entry = entry_of(options.name)
        if "at" in entry:
            raise ValueError(f"the scripts of `{options.name}` are in history: check out commit {entry['at']} first.")
        if entry["data"] and options.data is None:
            raise ValueError(f"--data must name the folder that has {', '.join(entry['data'])}.")
        places = {key: value for key, value in vars(options).items() if key in _PLACES and value}
        # The commands run in the root of the clone.
        places |= {key: str(Path(value).resolve()) for key, value in places.items() if key in ("data", "runs")}
        commands = list(commands_of(entry, places, dict(item.split("=", 1) for item in options.only)))
    except ValueError as error:
        parser.error(str(error))
    for command in commands:
        print(shlex.join(command), flush=True)
        if not options.dry_run:
            subprocess.run(command, cwd=ROOT, check=True)
    if not options.dry_run:
        subprocess.run([sys.executable, "experiments/tables.py"], cwd=ROOT, check=True)


_PLACES = ("data", "runs", "eflomal", "fast_align")

if __name__ == "__main__":
    main()
