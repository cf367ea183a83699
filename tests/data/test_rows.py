"""Lists of numbers in few arrays are what lists of lists are."""

import numpy as np
import pytest
from datasets import Dataset, Value

from hf_attncal.data import rows
from hf_attncal.data.corpora import List
from hf_attncal.data.rows import LinkRows, Rows

LISTS = [[3, 1], [], [4, 1, 5], [9], [2, 6, 5, 3], [], [5]]


@pytest.fixture(params=[2, 10_000], autouse=True)
def at_once(request, monkeypatch):
    monkeypatch.setattr(rows, "_ROWS_AT_ONCE", request.param)


def gathered(order) -> Rows:
    return Rows.gathered(((row, np.array(LISTS[row], dtype=np.int32)) for row in order), len(LISTS))


def lists(found: Rows) -> list[list[int]]:
    return [row.tolist() for row in found]


@pytest.mark.parametrize("order", [range(7), [6, 2, 4, 0, 3, 1, 5], [4, 2, 0, 6, 3]])
def test_rows_that_come_in_any_order(order):
    """Empty ones need not come."""
    found = gathered(order)
    assert lists(found) == LISTS
    assert found.values.dtype == np.int32


def test_nothing_comes():
    assert lists(Rows.gathered((), 3)) == [[], [], []]


def test_a_column_there_and_back():
    feature = List(Value("int32"))
    text = Dataset.from_dict({"n": range(7)}).add_column("rows", gathered(range(7)).column(), feature=feature)
    assert text["rows"][:] == LISTS
    assert text.features["rows"] == feature
    assert lists(Rows.of(text, "rows")) == LISTS
    assert lists(Rows.of(text.select([4, 1, 0]), "rows")) == [LISTS[4], LISTS[1], LISTS[0]]


def test_a_column_without_rows():
    assert Rows.gathered((), 0).column().to_pylist() == []


def test_some_values_and_their_places():
    found = gathered(range(7))
    kept = found.values % 2 == 1
    assert lists(found.where(kept)) == [[value for value in row if value % 2] for row in LISTS]
    places = [[place for place, value in enumerate(row) if value % 2] for row in LISTS]
    assert lists(Rows(found.within(), found.starts).where(kept)) == places


def test_some_rows():
    chosen = [6, 1, 4]
    assert lists(gathered(range(7)).selected(np.array(chosen))) == [LISTS[row] for row in chosen]


def test_links():
    links = [{(1, 0), (0, 2)}, frozenset(), {(3, 3)}]
    found = LinkRows.gathered(links, 3)
    assert list(found) == [sorted(of_pair) for of_pair in links]
    assert list(found.selected(np.array([2, 0]))) == [[(3, 3)], [(0, 2), (1, 0)]]
