"""In continuous integration no test of ours is skipped unseen, and no usual test takes too long."""

import os
import subprocess
import sys
from pathlib import Path

import cpu_costs
from warm import warm

TESTS = """
import pytest

def test_skipped():
    pytest.skip("no such package")

def test_known():
    pytest.skip("kilobytes are those of Linux")

@pytest.mark.xfail
def test_expected():
    raise AssertionError
"""


def test_a_skip_is_a_failure_where_ci_is_set(tmp_path):
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_two.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    command = warm([sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-rA", tmp_path])
    folder = str(Path(__file__).parent)
    environment = {**os.environ, "CI": "true", "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    arguments = [*command, "--continue-on-collection-errors"]
    done = subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1]
    for count in ("1 skipped", "1 xfailed", "1 failed", "1 error"):
        assert count in last, done.stdout + done.stderr
    assert done.stdout.count("may not be skipped if `CI` is set") >= 2


def test_a_usual_test_may_not_cost_more_than_its_share(monkeypatch):
    monkeypatch.setattr(cpu_costs, "WHOLE_RUN", 50)
    seconds = {"one": 4.0, "two": 2.9, **{f"test {number}": 2.0 for number in range(48)}}
    assert cpu_costs.too_slow(seconds, "not slow") == ["one"]
    assert cpu_costs.too_slow(seconds, "") == []
    del seconds["test 0"]
    assert cpu_costs.too_slow(seconds, "not slow") == []
