"""A training run is killed (kill -9) at the system calls that change its folder, and goes on to the same weights."""

import kills
import pytest
from outcomes import bad


def test_a_run_that_is_killed_goes_on(tmp_path):
    outcomes = kills.run(tmp_path, full=False)
    assert len(outcomes) == len(kills.SAMPLE)
    assert bad(outcomes) == []


@pytest.mark.slow
@pytest.mark.parametrize("job", kills.JOBS)
def test_every_job_can_be_killed_at_the_chosen_system_calls(job, tmp_path):
    outcomes = kills.tried(tmp_path, job, *kills.CHOSEN)
    assert len(outcomes) == len(kills.CHOSEN)
    assert bad(outcomes) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "step"), [("translation", 1), ("aligner", 3), ("adapter", 3), ("average", 3)], ids=lambda value: str(value)
)
def test_a_run_that_is_killed_anywhere_goes_on(job, step, tmp_path):
    """At every event, or every third; "average" is a translation model that is the mean of two checkpoints."""
    outcomes = kills.tried(tmp_path, job, "every", str(step))
    assert len(outcomes) > 50
    assert bad(outcomes) == []


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_time_goes_on(tmp_path):
    outcomes = kills.tried(tmp_path, "translation", "seconds", str(kills.RANDOM_TIMES))
    assert len(outcomes) == kills.RANDOM_TIMES
    assert bad(outcomes) == []


def test_a_run_that_went_on_to_something_else_is_noticed(tmp_path, monkeypatch):
    """Of the three ways in which it may end, as `resumed` tells them apart."""
    whole = {"weights": 1}
    monkeypatch.setattr(kills, "result_of", lambda output: {"weights": 2})
    for status, result in ((0, "wrong"), (1, "lost"), (-14, "hung")):
        monkeypatch.setattr(kills, "forked", lambda function, status=status: status)
        assert kills.resumed(tmp_path, tmp_path, "translation", whole)[0] == result
    monkeypatch.setattr(kills, "forked", lambda function: 0)
    assert kills.resumed(tmp_path, tmp_path, "translation", {"weights": 2}) == ("survived", "")
