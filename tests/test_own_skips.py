"""In continuous integration no test of ours is skipped unseen."""

import os
import subprocess
import sys
from pathlib import Path

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
