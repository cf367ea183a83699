"""examples/ray_alignment.py, with a stand-in for Ray that has one actor."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from aligner_helpers import TEXT, tiny_mask_align

from hf_attncal.alignment import WordAligner
from hf_attncal.data.tokenizer import train_bpe_tokenizer

EXAMPLE = Path(__file__).parents[1] / "examples" / "ray_alignment.py"


class Table:
    """A `Dataset` of Ray 2.60, as far as the example goes."""

    written: dict = {}

    def __init__(self, rows):
        self.rows = rows

    def map_batches(self, function, *, fn_constructor_args, fn_constructor_kwargs, batch_size, compute, num_cpus):
        assert (batch_size, compute, num_cpus) == (1024, 3, 1)
        columns = {name: [row[name] for row in self.rows] for name in self.rows[0]}
        done = function(*fn_constructor_args, **fn_constructor_kwargs)(columns)
        return Table([dict(zip(done, row, strict=True)) for row in zip(*done.values(), strict=True)])

    def write_parquet(self, name):
        self.written[name] = self.rows


@pytest.fixture
def example(monkeypatch):
    ray, data = ModuleType("ray"), ModuleType("ray.data")
    rows = [{"source": TEXT[0], "target": TEXT[1]}, {"source": TEXT[0], "target": ""}]
    ray.data, data.read_parquet, data.ActorPoolStrategy = data, lambda name: Table(rows), lambda size: size
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    spec = importlib.util.spec_from_file_location("ray_alignment", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_gets_a_column_of_links(example, tmp_path):
    tokenizer = train_bpe_tokenizer(list(TEXT), vocab_size=80)
    for part in (tiny_mask_align(tokenizer), tokenizer):
        part.save_pretrained(tmp_path)
    example.main([str(tmp_path), "pairs.parquet", "links", "--actors", "3"])
    expected = WordAligner.from_pretrained(tmp_path, device="cpu").align([(TEXT[0], TEXT[1]), (TEXT[0], "")])
    assert [row["links"] for row in Table.written["links"]] == [one.pharaoh() for one in expected]
    assert [row["target"] for row in Table.written["links"]] == [TEXT[1], ""]
