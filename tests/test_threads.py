"""The number of threads, and how idle ones wait."""

import os
import subprocess
import sys

import pytest

from hf_attncal.__main__ import spin_briefly


@pytest.mark.parametrize(("given", "expected"), [({}, "10000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_a_wait_policy_of_the_user_stays(monkeypatch, given, expected):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    spin_briefly()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


def test_the_command_sets_the_policy_before_torch_is_imported():
    code = (
        "import os, sys, hf_attncal.__main__ as m, hf_attncal.commands as cli\n"
        "cli.main = lambda: print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)\n"
        "m.main()"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY",)}
    environment.pop("GOMP_SPINCOUNT", None)
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10000", "False"]
