"""Count the cells of models of many languages and what is done with them: each is a test, and is it passed?

    python experiments/languages.py --output results/languages.json

A cell is a kind of model (NLLB, M2M100, mBART-50, mBART-25, Marian with codes, Marian with two vocabularies) and a job
that it goes through, as `tests/training/test_languages.py` tries them on tiny random models with the real tokenizers.
"""

import argparse
import re
from pathlib import Path

import pytest

from hf_attncal.files import write_json
from hf_attncal.metrics import records

TESTS = Path(__file__).parents[1] / "tests" / "training" / "test_languages.py"
_CELL = re.compile(r"test_cell_(\w+)\[([\w-]+)\]")


class Cells:
    """A plugin of pytest that keeps the outcome of each cell."""

    def __init__(self):
        self.passed: dict[str, dict[str, bool]] = {}

    def pytest_runtest_logreport(self, report):
        found = _CELL.search(report.nodeid)
        if found and (report.when == "call" or report.failed):
            *method, kind = re.split(r"(?<=^full)-|(?<=^attncal)-", found[2])
            name = "_".join([found[1], *method])
            self.passed.setdefault(kind, {})[name] = report.passed


def main(arguments: list[str] | None = None) -> None:
    """Run the tests, and write the results file.

    Raises:
        SystemExit: a cell is not passed.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="results file")
    options = parser.parse_args(arguments)
    results, cells = records.record({}), Cells()
    pytest.main(["-q", "-p", "no:cacheprovider", "-m", "slow or not slow", "-k", "cell", str(TESTS)], plugins=[cells])
    each = [passed for kind in cells.passed.values() for passed in kind.values()]
    results["passed"] = cells.passed
    results["cells"] = {"tried": len(each), "passed": sum(each)}
    write_json(results, options.output)
    if not all(each) or not each:
        raise SystemExit(f"{len(each) - sum(each)} of {len(each)} cells are not passed.")


if __name__ == "__main__":
    main()
