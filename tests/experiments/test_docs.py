"""What README and docs name exists: files, headings that links lead to, functions, commands of the Makefile."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").glob("*.md"))
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
    for link in links:
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.is_file(), f"{document.name}: {link}"
        assert not anchor or anchor in _anchors(target), f"{document.name}: {link}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_exist(document):
    """Those that are committed; results of runs that a command would write are named with `results/` and a path."""
    for name in PATH.findall(document.read_text(encoding="utf-8")):
        assert list(ROOT.glob(name)) or list(ROOT.glob(f"hf_attncal/{name}")), f"{document.name}: {name}"


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


def test_commands_of_the_makefile_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"`?make ([a-z-]+)`", document.read_text(encoding="utf-8")))
        assert named <= targets, document.name
