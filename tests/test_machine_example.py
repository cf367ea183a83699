"""The aligner of examples/machine_alignment.py, with a stand-in for machine.py where that is not installed."""

import importlib.util
import sys
from abc import ABC
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from aligner_helpers import TEXT, tiny_mask_align

from hf_attncal.alignment import WordAligner
from hf_attncal.data.tokenizer import train_bpe_tokenizer

EXAMPLE = Path(__file__).parents[1] / "examples" / "machine_alignment.py"
PAIRS = [(TEXT[0].split(), TEXT[1].split()), (["house"], TEXT[1].split()), ([], ["Haus"])]


class StandIn:
    """A `WordAlignmentMatrix` of machine.py 1.9, as far as the example and the tests go."""

    @classmethod
    def from_word_pairs(cls, row_count, column_count, set_values):
        matrix = cls()
        matrix.row_count, matrix.column_count = row_count, column_count
        matrix._matrix = np.zeros((row_count, column_count), bool)
        for source, target in set_values:
            matrix._matrix[source, target] = True
        return matrix

    def __getitem__(self, place):
        return self._matrix[place]


@pytest.fixture
def example(monkeypatch):
    if importlib.util.find_spec("machine") is None:
        names = "machine", "machine.translation", "machine.translation.word_aligner"
        modules = {name: ModuleType(name) for name in (*names, "machine.translation.word_alignment_matrix")}
        modules["machine.translation.word_aligner"].WordAligner = ABC
        modules["machine.translation.word_alignment_matrix"].WordAlignmentMatrix = StandIn
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("machine_alignment", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_matrices_have_the_links_of_the_aligner(example, tmp_path):
    tokenizer = train_bpe_tokenizer(TEXT * 3, vocab_size=70)
    ours = WordAligner(tiny_mask_align(tokenizer, alignment_threshold=0.05), tokenizer)
    ours.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    aligner = example.AttnCalAligner(tmp_path, device="cpu")
    found, expected = aligner.align_batch(PAIRS), ours.align(PAIRS)
    assert any(alignment.links for alignment in expected)
    for (source, target), matrix, alignment in zip(PAIRS, found, expected, strict=True):
        assert (matrix.row_count, matrix.column_count) == (len(source), len(target))
        places = [(row, column) for row in range(len(source)) for column in range(len(target)) if matrix[row, column]]
        assert places == list(alignment.links)
    assert not aligner.align(["house"], []).column_count
