"""What would cost out of proportion is refused by its name, or costs in proportion; and a lapse would be seen."""

import pytest
from costs import LINES, SIZES, run
from outcomes import bad, table


@pytest.mark.slow
def test_costs_are_known_before_a_start(tmp_path):
    outcomes = run(tmp_path, full=False, seed=1)
    assert not bad(outcomes), bad(outcomes)
    assert {row["kind"]: row["tried"] for row in table(outcomes)} == {SIZES: 12, LINES: 3}


@pytest.mark.slow
def test_many_costs(tmp_path):
    outcomes = run(tmp_path, full=True)
    assert not bad(outcomes), bad(outcomes)
