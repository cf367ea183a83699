"""The package as it is installed: every room is in the wheel, with all templates and the presets."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEMPLATES = {path.name for path in (ROOT / "model_cards").iterdir()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_pyproject_names_every_room():
    """The list is by hand, as no search finds the templates' folder, which lies elsewhere."""
    rooms = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "hf_attncal").rglob("*.py")}
    assert PYPROJECT["tool"]["setuptools"]["packages"] == sorted(rooms | {"hf_attncal.model_cards"})


def test_the_citation_is_of_this_package_and_version():
    citation, project = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8")), PYPROJECT["project"]
    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    assert citation["license"] == project["license"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, as a build leaves its traces beside the sources."""
    pytest.importorskip("setuptools", minversion="77")
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("hf_attncal", "model_cards"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", wheels, source]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = wheels.iterdir()
    return path


def test_the_wheel_holds_the_code_the_presets_and_the_templates(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for kind in ("*.py", "*.jinja", "presets/*/*.yaml") for path in (ROOT / "hf_attncal").rglob(kind)]
    code = {path.relative_to(ROOT).as_posix() for path in files}
    assert names == code | {f"hf_attncal/model_cards/{name}" for name in TEMPLATES}


def test_an_installed_package_finds_its_templates(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    (tmp_path / "config.json").write_text('{"model_type": "mask_align"}')
    code = """
import hf_attncal
from hf_attncal.hub import write_model_card
print(hf_attncal.__file__)
write_model_card(".", model_name="m", summary="s", training_data="t", example="a ||| b")
from hf_attncal.analysis.pictures import page_head
assert page_head("m").startswith("<!DOCTYPE html>")
"""
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(str(tmp_path / "installed"))
    assert "Mask-Align" in (tmp_path / "README.md").read_text(encoding="utf-8")
