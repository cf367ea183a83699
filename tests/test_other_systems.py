"""The package works without the modules that only Unix has."""

import subprocess
import sys

import pytest

COMMANDS = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
import pkgutil
import hf_attncal.commands
for module in pkgutil.walk_packages(hf_attncal.commands.__path__, "hf_attncal.commands."):
    __import__(module.name)
text, links, output = sys.argv[1:]
print(hf_attncal.commands.main(["-v", "align", "lexicon", "--source", text, "--target", text, "--links", links,
                           "--output", output]))
hf_attncal.commands.main(["--help"])
"""
# The libraries ask which system it is, and import what it has.
EVERYTHING = """
import builtins, pkgutil
def import_on_windows(name, globals=None, *rest, **options):
    if name in ("fcntl", "resource", "termios", "pwd", "grp") and globals["__name__"].startswith("hf_attncal"):
        raise ImportError(name)
    return original(name, globals, *rest, **options)
original, builtins.__import__ = builtins.__import__, import_on_windows
import hf_attncal
for module in pkgutil.walk_packages(hf_attncal.__path__, "hf_attncal."):
    if module.name not in {"hf_attncal.commands.__main__"}:
        __import__(module.name)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_commands_need_no_module_of_unix(tmp_path):
    (tmp_path / "text").write_text("a house\n")
    (tmp_path / "links").write_text("0-0 1-1\n")
    done = run(COMMANDS, tmp_path / "text", tmp_path / "links", tmp_path / "lexicon")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0\nUsage: attncal ")
    assert "attncal: done in " in done.stderr
    assert "memory" not in done.stderr.rpartition("attncal: done in ")[2]
    assert "house\thouse" in (tmp_path / "lexicon").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"text", "links", "lexicon"}


@pytest.mark.slow
def test_no_file_of_the_package_needs_a_module_of_unix():
    done = run(EVERYTHING)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
