"""The tables and headlines of models that learn links, and of a text that is read once, from made-up results."""

import pytest
from made_up import write

WAY = "converged/wpt03_large/way"


def ways(**models) -> dict:
    """Results of one_pass.py, from nats of each model after 100 and 200 pairs."""
    found = {}
    for stem, (early, late) in models.items():
        end = {"pairs": 200, "nats": late, "bleu": 10 * late, "signature": "B"}
        way = [{"step": 1, "pairs": 100, "nats": early}, {"step": 2, **end}]
        found[stem] = {"equal_steps": end, "equal_time": end | {"nats": early}, "way": way}
    cost = {stem.partition("_seed")[0]: {"median": 1.5} for stem in models}
    return {"step_cost": cost, "models": found}


def test_a_text_read_once_compares_each_model_with_the_baseline_of_its_seed(tables, results):
    models = {"baseline_seed1": (5.0, 3.0), "baseline_seed2": (6.0, 4.0)}
    ours = {"guided_seed1": (4.5, 2.75), "guided_seed2": (5.5, 3.0), "output_gate_seed1": (5.5, 3.5)}
    write(results, WAY, ways(**models, **ours))
    rows = {line.split(" |")[0]: line for line in tables.TABLES["one-pass"]().splitlines()}
    assert rows["| guided"].endswith("| -0.250, -1.000 | +1.500, +1.500 | -2.50, -10.00 | -2.50, -10.00 |")
    assert rows["| output_gate"].endswith("| +0.500 | +2.500 | +5.00 | +5.00 |")
    assert tables.TABLES["one-pass-way"]().splitlines() == [
        "| pairs read | baseline, nats | output_gate | guided |",
        "| --- | ---: | ---: | ---: |",
        "| 100 | 5.500 | +0.500 | -0.500 |",
        "| 200 | 3.500 | +0.500 | -0.625 |",
    ]
    figures = {figure["name"]: figure for figure in tables.collect()}
    gain = figures["guided/wpt03_large/test_nats_minus_baseline_equal_steps"]
    assert (gain["value"], gain["spread"]["extremes"], gain["seeds"]) == (-0.625, [-1.0, -0.25], [1, 2])
    gate = figures["calibration/wpt03_large/output_gate/test_bleu_minus_baseline_equal_steps"]
    assert (gate["value"], gate["seeds"]) == (5, [1])


@pytest.fixture
def scored():
    aer = {"aer": 0.2, "interval": [0.1, 0.3], "signature": "A"}
    above = {"threshold": 0.5, "dev": aer, "test": aer | {"aer": 0.15}}
    settings = {"layer": 1, "heads": [0], "shift": True}
    return {"settings": settings, "dev": aer, "test": aer, "above_threshold": above}


def test_heads_that_learn_links_from_the_first_step_have_no_model_before(tables, results, scored):
    gain = {"score": 20.0, "minus_baseline": 0.5, "p_value": 0.04}
    before = scored | {"bleu": 19.0, "signature": "B"}
    run = scored | {"kind": "guided", "seed": 1, "bleu": {"before": gain}}
    write(results, "aligner/guided_heads", {"config": {"pair": "x"}, "before": before, "runs": [run]})
    first = scored | {"kind": "guided", "seed": 1, "bleu": {"unguided": gain | {"score": 21.0}}}
    never = scored | {"kind": "unguided", "seed": 1, "bleu": {}}
    write(results, "aligner/guided_heads_read_once", {"config": {}, "before": None, "runs": [first, never]})
    errors = "20.0 (10.0 to 30.0) | 20.0 (10.0 to 30.0) | 15.0 (0.5)"
    place = "layer 2, heads 1, Shift-Att"
    assert tables.TABLES["guided-heads"]().splitlines()[2:6] == [
        f"| before | {errors} | 19.00 | - | - | {place} |",
        f"| trained with links, seed 1 | {errors} | 20.00 | +0.50 (p 0.04) | - | {place} |",
        f"| 200,000 pairs, never links, seed 1 | {errors} | - | - | - | {place} |",
        f"| 200,000 pairs, links from the first step, seed 1 | {errors} | 21.00 | - | +0.50 (p 0.04) | {place} |",
    ]
