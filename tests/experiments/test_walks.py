"""The count of the functions that a run enters: on a walk whose stops are known, and on that of a training."""

import pytest
import walks

from hf_attncal import files
from hf_attncal.data import corpora


def test_a_stop_counts_once_and_what_stands_higher_is_a_climb(tmp_path):
    for side in ("source", "target"):
        (tmp_path / side).write_text("a\nb\n")

    def run():
        for _ in range(2):
            files.sha256(tmp_path / "source")
            corpora.read_parallel(tmp_path / "source", tmp_path / "target")

    stops = walks.walk(run)
    names = [(stop.file, stop.function) for stop in stops]
    beginning = [
        ("hf_attncal/files.py", "sha256"),
        ("hf_attncal/data/corpora.py", "read_parallel"),
        ("hf_attncal/files.py", "read_pairs"),
        ("hf_attncal/files.py", "is_file"),
        ("hf_attncal/files.py", "read_lines"),
    ]
    assert names[:5] == beginning
    assert len(set(names)) == len(names)
    assert walks.climbs(stops) == [1, 8]  # the corpora above the files, and text above what is compressed


def test_a_walk_ends_where_it_is_told_to(tmp_path):
    (tmp_path / "text").write_text("a\n")
    until = lambda frame: frame.f_code is files.read_lines.__code__  # noqa: E731
    stops = walks.walk(lambda: corpora.read_parallel(tmp_path / "text", tmp_path / "text"), until)
    assert [stop.function for stop in stops] == ["read_parallel", "read_pairs", "is_file"]


@pytest.mark.slow
def test_the_walk_of_a_training(tmp_path):
    stops = walks.walk_training(tmp_path)
    assert stops[0] == ("training/train.py", "main")
    assert ("hf_attncal/training/job.py", "Job.train") in stops
    assert not (tmp_path / "model" / "results.json").exists()  # it ended before the training
    assert len(walks.climbs(stops)) < len(stops)
