"""Damaged checkpoints and adapters are refused by name, or answered rightly; and what judges that can say no."""

import pytest
from damaged import Damage, Run, judged, run
from outcomes import bad

RIGHT = "0-0 1-1\n0-0\n"
DAMAGE = Damage("config.json: `d_model` 0", lambda folder: None, ("d_model", "config.json"))
REFUSED = "attncal: error: model cannot be loaded: `d_model` must be >= 1, got 0.\n"


@pytest.mark.parametrize(
    ("left", "result"),
    [
        (Run(0, RIGHT, ""), "survived"),
        (Run(1, "", REFUSED), "refused"),
        (Run(1, "0-0 1-1\n", REFUSED), "refused"),
        (Run(0, "0-0 1-0\n0-0\n", ""), "wrong"),
        (Run(0, "", ""), "wrong"),
        (Run(1, "0-0 1-0\n", REFUSED), "wrong"),
        (Run(0, RIGHT, "", ran=True), "run_unasked"),
        (Run(1, "", REFUSED, ran=True), "run_unasked"),
        (Run(1, "", "attncal: error: KeyError: 'x'.\n"), "traceback"),
        (Run(1, "", f"a warning\n{REFUSED}"), "traceback"),
        (Run(1, "", f"Traceback (most recent call last):\n{REFUSED}"), "traceback"),
        (Run(-11, "", ""), "traceback"),
        (Run(None, "", ""), "hung"),
    ],
)
def test_what_a_run_was(left, result):
    assert judged(DAMAGE, left, RIGHT)[0] == result


def test_what_no_reader_can_know_has_other_answers():
    damage = Damage(DAMAGE.case, DAMAGE.apply, DAMAGE.names, "the same weights make a model either way")
    assert judged(damage, Run(0, "0-0 1-0\n0-0\n", ""), RIGHT)[0] == "survived"
    assert judged(damage, Run(0, "0-0 1-0\n", ""), RIGHT)[0] == "wrong"


@pytest.mark.slow
def test_some_damaged_models(tmp_path):
    outcomes = run(tmp_path, full=False)
    assert len(outcomes) > 20
    assert bad(outcomes) == []
    assert {outcome.result for outcome in outcomes} == {"survived", "refused"}


@pytest.mark.slow
def test_every_damaged_model(tmp_path):
    outcomes = run(tmp_path, full=True)
    assert len(outcomes) >= 300
    assert bad(outcomes) == []
