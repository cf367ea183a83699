"""Every file that is installed beside the code has a row in docs/licences.md, and every credit stands in NOTICE."""

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from hf_attncal.alignment.encoder_prior import LEARNED_FILE
from hf_attncal.alignment.ready import READY, READY_FOLDER
from hf_attncal.checking.encoder_check import FILE as CHECK
from hf_attncal.layouts import CARD

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOTICE = " ".join((ROOT / "NOTICE").read_text(encoding="utf-8").split())
# What others may have asked of those who use what is learned from their text: to be named, and nothing else.
ALLOWED = {"CC BY 2.0 FR", "no known restriction", "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ours"}
OURS = {"Apache-2.0", "CC BY 2.0 FR"}


def shipped() -> set[str]:
    """Return the files beside the code, by their place in the package."""
    places = {"hf_attncal.model_cards": ROOT / "model_cards"}
    found = set()
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = places.get(package, ROOT / package.replace(".", "/"))
        inside = "/".join(package.split(".")[1:])
        for pattern in patterns:
            found |= {f"{inside}/{path.relative_to(folder)}".lstrip("/") for path in folder.glob(pattern)}
    return found


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return cells[2:]


def credits_of() -> dict[str, set[str]]:
    """Return whose text each learned file names."""
    with safe_open(LEARNED_FILE, "pt") as file:
        said = file.metadata()
    adapter = {said["changes"], *(text.partition(": ")[2] for name, text in said.items() if "-" in name)}
    check = {text.partition(" pairs: ")[2] for text in json.loads(CHECK.read_text(encoding="utf-8"))["text"].values()}
    return {LEARNED_FILE.name: adapter, CHECK.name: {re.sub(r"^text of .*?: ", "", credit) for credit in check}}


def test_every_file_has_one_row_and_every_row_a_file():
    patterns = [(row, re.findall(r"`([^`]+)`", row[0])) for row in rows()]
    for file in shipped():
        of_file = [row[0] for row, names in patterns if any(fnmatch(file, name) for name in names)]
        assert len(of_file) == 1, (file, of_file)
    unused = [name for _, names in patterns for name in names if not any(fnmatch(file, name) for file in shipped())]
    assert not unused


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].strip("`"))
def test_every_source_lets_anybody_use_it(row):
    sources = set(row[3].split(", "))
    assert sources <= ALLOWED
    assert row[4] in OURS
    assert sources == {"ours"} or row[4] != "ours"


@pytest.mark.parametrize("name", [LEARNED_FILE.name, CHECK.name])
def test_learned_files_and_the_notice_name_their_text(name):
    found = credits_of()[name]
    assert len(found) >= 3
    assert all(credit in NOTICE for credit in found), found
    (row,) = (row for row in rows() if name in row[0])
    assert all(any(licence in credit for licence in row[3].split(", ")) for credit in found)


@pytest.mark.parametrize("name", READY)
def test_an_aligner_that_comes_along_credits_its_text(name):
    card = (READY_FOLDER / name / CARD).read_text(encoding="utf-8")
    assert yaml.safe_load(card.split("---")[1])["license"] == "cc-by-2.0"
    (row,) = (row for row in rows() if f"/{name}/" in row[0])
    assert all(licence in card and licence in NOTICE for licence in row[3].split(", "))
    assert all(site in card and site in NOTICE for site in ("tatoeba.org", "manythings.org/anki"))


def test_the_notice_is_installed():
    assert set(PROJECT["project"]["license-files"]) == {"LICENSE", "NOTICE"}
