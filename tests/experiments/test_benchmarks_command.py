"""The benchmark of the command line: seconds of CPU, of the right process."""

import importlib
import json
import shlex
import sys
from pathlib import Path

import pytest

from hf_attncal.data.pharaoh import parse_alignments

ROOT = Path(__file__).resolve().parents[2]
# Uses CPU in a process of its own, and then waits without using any.
BUSY = """
import os, subprocess, sys, time
busy = "import time; start = time.process_time()\\nwhile time.process_time() < start + {seconds}: pass"
subprocess.run([sys.executable, "-S", "-c", busy], check=True)
time.sleep(0.3)
sys.exit({status})
"""


@pytest.fixture(scope="module")
def command():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("command")


def test_seconds_are_those_of_the_cpu_with_all_children(command):
    measured = [
        command.cpu_seconds([sys.executable, "-S", "-c", BUSY.format(seconds=seconds, status=0)])
        for seconds in (0.02, 0.52)
    ]
    assert 0.4 < measured[1] - measured[0] < 0.7


def test_half_of_the_links_are_gold_ones(command, tmp_path):
    gold, other = (parse_alignments(p.read_text().splitlines()) for p in command.write_links(tmp_path, 200, 1))
    assert [len(pair.sure) for pair in (*gold, *other)] == [command.WORDS] * 400
    same = sum(len(a.sure & b.sure) for a, b in zip(gold, other, strict=True)) / (200 * command.WORDS)
    assert same == pytest.approx(0.5 + 0.5 / command.WORDS, abs=0.03)


@pytest.mark.slow
def test_the_whole_run_of_two_installations(command, tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    other = tmp_path / "attncal.py"
    other.write_text(
        f"import sys\nopen({str(calls)!r}, 'a').write(sys.argv[1] + ' ')\nsys.exit(2 * ('align' in sys.argv))"
    )
    before = shlex.join([sys.executable, "-S", str(other)])
    options = ["--repeats", "1", "--warmup", "1", "--lines", "3", "--bootstrap", "2"]
    monkeypatch.setattr(sys, "argv", ["command", *options, "--before", before, "--output", str(tmp_path / "out.json")])
    command.main()
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["config"]["benchmark"] == "command"
    assert str(tmp_path) not in json.dumps(result)
    assert calls.read_text().split() == ["--help", "--version", "align", "score", "check"] * 2
    for measured in result["commands"].values():
        assert measured["cpu_seconds"]["median"] == measured["cpu_seconds_each"][0]
        assert measured["cpu_seconds_before"]["n"] == 1
