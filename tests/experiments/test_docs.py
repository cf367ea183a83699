"""Names in README and docs exist: files, linked headings, functions, imports, commands and options."""

import ast
import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

from hf_attncal.command_table import JOBS
from hf_attncal.commands.app import call_of
from hf_attncal.training.sections import read_settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]
# Paths in our folders that a text may name; with `*` for several.
PATH = re.compile(r"\b(?:benchmarks|configs|docs|experiments|hf_attncal|results|training|tests)/[\w./*-]*[\w*]\.\w+\b")


@cache
def _anchors(path: Path) -> set[str]:
    """The headings of a document as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text)
    for link in (link for link in links if not link.startswith(("http://", "https://"))):  # there is no network
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.is_file(), f"{document.name}: {link}"
        assert not anchor or anchor in _anchors(target), f"{document.name}: {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_exist(document):
    """Only committed files; results that a command would write also have a path with `results/`."""
    for name in PATH.findall(document.read_text(encoding="utf-8")):
        # From the root, from the package, or, in a link, from the document.
        places = (ROOT, ROOT / "hf_attncal", document.parent)
        assert any(list(place.glob(name)) for place in places), f"{document.name}: {name}"


def test_every_function_of_an_equation_exists():
    """Names in the tables of papers.md: in `hf_attncal.models`, or with their whole path."""
    names = set()
    for line in (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and "|---" not in line:
            cell = line.rstrip(" |").rpartition("|")[2]
            names |= set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", cell))
    assert len(names) > 25
    for name in names:
        module, _, member = name.rpartition(".")
        full = module if module.startswith("hf_attncal") else f"hf_attncal.models.{module}"
        if not hasattr(importlib.import_module(full), member):
            importlib.import_module(f"{full}.{member}")


def test_every_step_of_a_walk_exists():
    """`file.py: function`, several functions with commas, methods as `Class.method`."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = re.findall(r"`([\w/]+\.py): ([\w.]+)`", text)
    assert len(steps) >= 14
    for file, name in steps:
        path = ROOT / "hf_attncal" / file
        path = path if path.is_file() else ROOT / file
        scope = ast.parse(path.read_text(encoding="utf-8")).body
        for part in name.split("."):
            found = [node for node in scope if getattr(node, "name", None) == part]
            assert found, f"{file} has no {name}"
            scope = found[0].body


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_imports_of_examples_exist(document):
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert not [alias.name for alias in node.names if not hasattr(module, alias.name)], document.name


def test_options_of_examples_exist():
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS).replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"(?:^|\| )attncal ([^|<>#\n]+)", blocks, re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        call_of(shlex.split(command))


def test_training_commands_have_settings_that_exist():
    found = 0
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"training/train\.py (--config [^#\n`]+)", text):
            words = shlex.split(command)
            settings = [word for word in words if re.match(r"\w+\.[\w.]+=", word)]
            values = read_settings(ROOT / words[1], settings)
            resolve_name(JOBS[values["job"]]).settings.make(values)
            found += 1
    assert found >= 6


def test_commands_of_the_makefile_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"`?make ([a-z-]+)`", document.read_text(encoding="utf-8")))
        assert named <= targets, document.name
