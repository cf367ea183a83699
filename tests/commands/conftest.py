"""The command in the process of the test."""

import io
import sys

import pytest

from hf_attncal.commands import main


@pytest.fixture
def attncal(monkeypatch, capfdbinary):
    """Run the command in this process: (arguments, standard input) -> (status, standard output, standard error)."""

    def run(*arguments: str, text: str = "", raw: bytes | None = None):
        data = text.encode() if raw is None else raw
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main(list(arguments))
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run
