"""The site: every document is in its contents, it builds without a warning and names all that is public."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[1]
CONTENTS = set(re.findall(r"^[\w/]+$", (ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), re.MULTILINE))
KINDS = ("*.md", "docs/*.md", "docs/api/*.rst", "examples/*.md", "examples/*.ipynb")
DOCUMENTS = {path.relative_to(ROOT).with_suffix("").as_posix() for kind in KINDS for path in ROOT.glob(kind)}
PUBLIC = ("hf_attncal", *(f"hf_attncal.{room}" for room in ("adapters", "alignment", "checking", "hub")))


def test_every_document_is_in_the_contents():
    assert DOCUMENTS - {"README"} == CONTENTS


def documented(page: Path) -> set[str]:
    """Return the full names of what a page of the API documents: modules, classes, functions, constants."""
    names, module = set(), ""
    for kind, name in re.findall(r"^\.\. (\w+):: (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        if kind == "currentmodule":
            module = name
        elif kind.startswith("auto"):
            names.add(name if kind == "automodule" else f"{module}.{name}")
    return names


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("*.rst")), ids=lambda path: path.stem)
def test_documented_names_exist(page):
    for name in documented(page):
        resolve_name(name)


def test_all_that_is_public_is_documented():
    found = set().union(*map(documented, (ROOT / "docs" / "api").glob("*.rst")))
    public = {f"{room}.{name}" for room in PUBLIC for name in import_module(room).__all__}
    # On the page of their room.
    elsewhere = {re.sub(r"hf_attncal\.(alignment|inference\.running)\.", "hf_attncal.", name) for name in found}
    assert public - found - elsewhere == {"hf_attncal.__version__"}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    for name in ("furo", "myst_nb", "sphinx"):
        pytest.importorskip(name, reason="the site has a workflow of its own")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", tmp_path / "read"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, ".", tmp_path / "site"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 'href="docs/api/alignment.html"' in (tmp_path / "site" / "README.html").read_text(encoding="utf-8")
