"""The site: every document is in its contents, it builds without a warning and names all that is public."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTENTS = set(re.findall(r"^[\w/]+$", (ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), re.MULTILINE))
KINDS = ("*.md", "docs/*.md", "docs/api/*.rst", "examples/*.md", "examples/*.ipynb")
DOCUMENTS = {path.relative_to(ROOT).with_suffix("").as_posix() for kind in KINDS for path in ROOT.glob(kind)}
PUBLIC = ("hf_attncal", *(f"hf_attncal.{room}" for room in ("adapters", "alignment", "analysis", "hub")))


def test_every_document_is_in_the_contents():
    assert DOCUMENTS - {"README"} == CONTENTS


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_names_all_that_is_public(tmp_path):
    for name in ("furo", "myst_nb", "sphinx"):
        pytest.importorskip(name, reason="the site has a workflow of its own")
    from sphinx.util.inventory import InventoryFile

    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", tmp_path / "read"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, ".", tmp_path / "site"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    names = InventoryFile.loads((tmp_path / "site" / "objects.inv").read_bytes(), uri="").data
    found = {name for kind, entries in names.items() if kind.startswith("py:") for name in entries}
    public = {f"{room}.{name}" for room in PUBLIC for name in import_module(room).__all__}
    public -= {"hf_attncal.__version__", "hf_attncal.WordAligner"}  # which is on the page of its room
    assert public - found == set()
    assert 'href="docs/api/alignment.html"' in (tmp_path / "site" / "README.html").read_text(encoding="utf-8")
