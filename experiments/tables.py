"""Write results/headlines.json and the tables of README.md and docs/ from results/*.json.

    python experiments/tables.py            # rewrite them
    python experiments/tables.py --check    # exit with 1 if one is out of date

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`, each in one document only. tables.yaml says
what is in it, and `cells.py` fills it. A result that is not there reads "not run".
"""

import argparse
import re
import sys
from functools import partial

import committed
from cells import read_tables, table
from committed import ROOT, read
from headlines import collect

from hf_attncal.io.files import write_json

DOCUMENTS = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
TABLES = {name: partial(table, settings) for name, settings in read_tables().items()}


def fill(text: str) -> str:
    """`text` with every table in it written anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{TABLES[block['name']]()}{block[3]}", text)


def main() -> int:
    """Rewrite or check headlines and documents; the number of those out of date is the exit status of a check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = []
    figures = collect()
    if figures != read("headlines"):
        stale.append("results/headlines.json")
        if not check:
            write_json(figures, committed.RESULTS / "headlines.json")
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        filled = fill(text)
        if filled != text:
            stale.append(name)
            if not check:
                path.write_text(filled, encoding="utf-8")
    print(f"{'out of date' if check else 'rewritten'}: {', '.join(stale) or 'none'}")
    return len(stale) if check else 0


if __name__ == "__main__":
    sys.exit(main())
