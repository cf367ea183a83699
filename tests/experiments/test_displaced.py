"""Which pairs have displaced gold links, and the scores with and without them (`experiments/displaced.py`)."""

import pytest

from hf_attncal.data.gold import Gold
from hf_attncal.data.pharaoh import GoldAlignment

PAIRS = [("eins , zwei .", "un , dus ."), ("drei 7", "7 trais"), ("vier", "quatter")]
LINKS = [{(0, 0), (1, 2), (2, 3)}, {(0, 1), (1, 0)}, {(0, 0)}]  # the comma of the first pair has slipped


@pytest.fixture
def displaced(experiment):
    return experiment("displaced")


@pytest.fixture
def gold() -> Gold:
    return Gold(PAIRS, [GoldAlignment(frozenset(links), frozenset(links)) for links in LINKS])


def test_pairs_are_told_by_text_and_gold(displaced, gold):
    assert displaced.parts(gold) == ({"all": [0, 1, 2], "displaced": [0], "others": [1, 2]}, 2)


def test_the_others_are_scored_alone(displaced, gold):
    right = [{(0, 0), (1, 1), (2, 2), (3, 3)}, {(0, 1), (1, 0)}, {(0, 0)}]
    systems = {"eflomal": ("union", [set(), {(0, 1)}, set()]), "eflomal_withheld": ("union", right)}
    systems["ours"] = "harmonic", right
    found = displaced.scores(gold, [1, 2], systems)
    assert found["ours"]["aer"] == 0
    assert found["eflomal"]["aer"] == pytest.approx(1 - 2 * 1 / (1 + 3))
    assert found["ours"]["against"]["eflomal"]["difference"] == pytest.approx(-0.5)
    assert found["ours"]["against"]["eflomal_withheld"]["difference"] == 0
    assert "against" not in found["eflomal"]
    assert "symm:harmonic" in found["ours"]["signature"]
    everything = displaced.scores(gold, [0, 1, 2], systems)
    assert everything["ours"]["aer"] == pytest.approx(1 - 2 * 4 / (7 + 6))
