"""Count the families and types of numbers for which an observer leaves every output as it is, to the bit.

python experiments/observer_cells.py
"""

from pathlib import Path

import pytest

from hf_attncal.io.files import write_json
from hf_attncal.metrics.records import record

TESTS = Path(__file__).parents[1] / "tests" / "adapters" / "test_observers.py"


class Counter:
    """Plugin of pytest that counts cells by their outcome."""

    def __init__(self) -> None:
        self.outcomes = {"passed": 0, "failed": 0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.when == "call":
            self.outcomes[report.outcome] += 1


def main() -> None:
    counter = Counter()
    pytest.main(["-q", "-p", "no:cacheprovider", f"{TESTS}::test_outputs_are_equal_to_the_bit"], plugins=[counter])
    write_json(record({"tests": TESTS.name}, threads=1) | counter.outcomes, Path("results/observers/cells.json"))


if __name__ == "__main__":
    main()
