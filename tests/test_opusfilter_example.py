"""The filter of examples/opusfilter_alignment.py, with a stand-in for OpusFilter where that is not installed.

The stand-in has what OpusFilter 3.3 calls: `FilterABC.decisions` and the name of the direction of a score.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import hf_attncal
from hf_attncal.checking import checker as check

EXAMPLE = Path(__file__).parents[1] / "examples" / "opusfilter_alignment.py"
# A pair is as good as the share of its words that begin with the same letter.
PAIRS = [("a b", "a b"), ("a b", "a x"), ("", ""), ("a b", "x y"), ("c d", "c d")]


class StandIn:
    def __init__(self, name=None, workdir="", **kwargs):
        assert not kwargs
        self.name, self.workdir = name, workdir

    def decisions(self, pairs):
        for score in self.score(pairs):
            yield self.accept(score)


class Aligner:
    batches: list[int] = []

    @classmethod
    def from_pretrained(cls, name):
        assert name == "folder"
        return cls()

    def align(self, pairs):
        self.batches.append(len(pairs))
        shares = [[a[0] == b[0] for a, b in zip(s.split(), t.split(), strict=True)] for s, t in pairs]
        return [SimpleNamespace(score=sum(share) / len(share) if share else None) for share in shares]


class Checker:
    @classmethod
    def from_pretrained(cls, name):
        assert name == "folder"
        return cls()

    def check(self, pairs):
        return [SimpleNamespace(wrong=1 - (found.score or 0)) for found in Aligner().align(pairs)]


@pytest.fixture
def example(monkeypatch):
    if importlib.util.find_spec("opusfilter") is None:
        module = ModuleType("opusfilter")
        module.FilterABC, module.CLEAN_HIGH = StandIn, "clean_high"
        monkeypatch.setitem(sys.modules, "opusfilter", module)
    monkeypatch.setattr(hf_attncal, "WordAligner", Aligner)
    monkeypatch.setattr(check, "Checker", Checker)
    monkeypatch.setattr(Aligner, "batches", [])
    spec = importlib.util.spec_from_file_location("opusfilter_alignment", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["AlignmentFilter", "CheckFilter"])
def test_scores_decisions_and_pairs(example, name):
    filter_of = getattr(example, name)
    made = filter_of("folder", threshold=0.4, batch_size=2, name="x", workdir="y")
    assert list(made.score(iter(PAIRS))) == [1, 0.5, 0, 0, 1]
    assert Aligner.batches == [2, 2, 1]
    assert list(made.decisions(PAIRS)) == [True, True, False, False, True]
    assert list(made.filter(iter(PAIRS))) == [PAIRS[0], PAIRS[1], PAIRS[4]]
    assert made.score_direction == "clean_high"
    for threshold, kept in ((made.accept_threshold, 5), (made.reject_threshold, 0)):
        assert len(list(filter_of("folder", threshold=threshold).filter(PAIRS))) == kept


def test_it_is_short():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 65
