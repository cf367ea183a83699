"""The step of examples/opuspocus_alignment.py, with a stand-in for OpusPocus where that is not installed.

The stand-in has what OpusPocus 0.1 calls: the registry, the folders of a step, and the names of corpora.
"""

import gzip
import importlib.util
import subprocess
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from attrs import define, field

from hf_attncal.commands import main
from hf_attncal.commands.align import align

EXAMPLE = Path(__file__).parents[1] / "examples" / "opuspocus_alignment.py"
REGISTERED = {}


@define(kw_only=True)
class StandIn:
    folder: Path = field()
    prev_corpus_step: object = field(default=None)
    languages = ("en", "de")
    dataset_list = ("news", "web.1")

    dataset_filename_list = tuple(f"{name}.{language}.gz" for name in dataset_list for language in ("en", "de"))
    input_dir = property(lambda self: self.prev_corpus_step.output_dir)
    output_dir = property(lambda self: self.folder / "output")
    tmp_dir = property(lambda self: self.folder / "temp")
    categories_path = property(lambda self: self.output_dir / "categories.json")

    def main_task_postprocess(self):
        assert all(path.exists() for path in self.get_command_targets())
        assert all((self.output_dir / name).exists() for name in self.dataset_filename_list)


def register(name):
    def add(step):
        assert issubclass(step, StandIn)
        return REGISTERED.setdefault(name, step)

    return add


@pytest.fixture
def step(monkeypatch, tmp_path):
    steps, corpus_step = ModuleType("opuspocus.pipeline_steps"), ModuleType("opuspocus.pipeline_steps.corpus_step")
    steps.register_step, corpus_step.CorpusStep = register, StandIn
    for module in (ModuleType("opuspocus"), steps, corpus_step):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("opuspocus_alignment", EXAMPLE)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    before = tmp_path / "clean"
    for folder in (before, tmp_path / "links" / "output", tmp_path / "links" / "temp"):
        folder.mkdir(parents=True)
    (before / "categories.json").write_text("{}", encoding="utf-8")
    for name in StandIn(folder=before).dataset_filename_list:
        (before / name).write_bytes(gzip.compress(b"a b\nc\n"))
    previous = SimpleNamespace(output_dir=before, categories_path=before / "categories.json")
    made = REGISTERED["align_words"]
    return made(folder=tmp_path / "links", prev_corpus_step=previous, aligner="folder", parts=2)


def test_each_part_is_a_task_and_links_are_next_to_the_corpora(step, monkeypatch):
    """The command is one that the parser takes, with the paths that it is to read and write."""
    commands = []

    def run(command, check):
        arguments = [str(part) for part in command[1:]]
        assert main(arguments) == 0
        assert check

    @wraps(align)
    def written(model, source, target, output, shard, **_):
        commands.append((Path(source).name, Path(target).name, shard))
        number = int(shard.partition("/")[0])
        Path(output.format(f"{number:05}-of-00002")).write_bytes(gzip.compress(f"{number}\n".encode()))

    monkeypatch.setattr("hf_attncal.commands.align.align", written)
    monkeypatch.setattr(subprocess, "run", run)
    step.register_categories()
    targets = step.get_command_targets()
    for target in targets:
        step.command(target)
        assert target.exists()
    assert [(source, target) for source, target, _ in commands] == [
        (f"{name}.en.gz", f"{name}.de.gz") for name in ("news", "web.1") for _ in range(2)
    ]
    step.main_task_postprocess()
    assert gzip.decompress((step.output_dir / "web.1.en-de.gz").read_bytes()) == b"1\n2\n"
    assert gzip.decompress((step.output_dir / "news.de.gz").read_bytes()) == b"a b\nc\n"
    assert step.categories_path.exists()


def test_it_is_short():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 65
