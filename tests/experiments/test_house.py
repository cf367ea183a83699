"""Lines of code, and the file of what the code costs to read."""

import json

import house
import pytest
import walks

from hf_attncal.command_table import COMMANDS


@pytest.mark.slow
def test_a_file_is_written_and_keeps_the_minutes_of_the_tests(tmp_path, monkeypatch):
    stops = [walks.Stop("hf_attncal/io/files.py", "sha256"), walks.Stop("hf_attncal/data/corpora.py", "read_parallel")]
    monkeypatch.setattr(walks, "WALKS", {"short": lambda folder: stops})
    path = tmp_path / "house.json"
    path.write_text(json.dumps({"tests": {"minutes": 7.5}}))
    house.main(["--output", str(path)])
    result = json.loads(path.read_text())
    assert result["tests"] == {"minutes": 7.5}
    assert result["walks"] == {"short": {"stops": 2, "files": 2}}
    assert result["lines_of_code"].keys() == {"hf_attncal", "tests", "experiments", "benchmarks"}
    assert min(result["lines_of_code"].values()) > 500
    assert result["reach"].keys() == COMMANDS.keys()
    assert 0 < result["reach"]["publish"]["lines"] < result["reach"]["analyze"]["lines"]
