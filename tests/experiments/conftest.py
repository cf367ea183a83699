"""The experiments as modules, the writer of the tables, and results of one's own for it."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def experiment():
    """Imports a file of experiments/ by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        yield importlib.import_module


@pytest.fixture(scope="module")
def tables(experiment):
    return experiment("tables")


@pytest.fixture
def results(tables, tmp_path, monkeypatch) -> Path:
    """An empty folder in the place of results/."""
    monkeypatch.setattr(tables.committed, "RESULTS", tmp_path)
    return tmp_path
