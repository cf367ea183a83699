"""The aligners that come with the package load as they were made, align and check both ways, and stay as they are."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import hf_attncal
from hf_attncal.alignment.ready import READY, READY_FOLDER, mirrored, ready_languages, ready_or_named
from hf_attncal.alignment.statistical import plain_aligner
from hf_attncal.checking import Checker
from hf_attncal.checking.checker import saved_check
from hf_attncal.commands.demo import PAGE
from hf_attncal.io.errors import CommandError
from hf_attncal.io.files import sha256
from hf_attncal.io.messages import LOG

ROOT = Path(__file__).parents[2]
MADE = json.loads((ROOT / "results" / "ready" / "aligners.json").read_text(encoding="utf-8"))["aligners"]


@pytest.fixture(scope="module", params=READY)
def checker(request):
    folder = ready_or_named(request.param)
    return Checker(plain_aligner(folder), saved_check(folder))


@pytest.mark.parametrize("name", READY)
def test_the_files_are_those_that_were_scored(name):
    files = {path.name: sha256(path) for path in Path(ready_or_named(name)).iterdir()}
    assert files == MADE[name]["sha256"]
    assert READY[name].credit in (READY_FOLDER / name / "README.md").read_text(encoding="utf-8")


def test_each_finds_an_omitted_clause(checker, monkeypatch, request):
    said = []
    monkeypatch.setattr(LOG, "warning", lambda *told: said.append(told))
    mirrored = request.node.callspec.params["checker"] == "ende"
    whole = "Gestern habe ich das Buch gelesen.", "Yesterday I read the book."
    added = "Gestern habe ich das Buch gelesen.", "Yesterday I read the book, and I have sold my old car."
    if mirrored:  # what is made up one way is left out the other way
        whole, added = whole[::-1], added[::-1]
    fine, wrong = checker.check([whole, added])
    assert fine.flagged == ()
    assert {"omission" if mirrored else "addition"} <= set(wrong.flagged)
    marked = wrong.marked()[0 if mirrored else 1]
    assert "sold my old car" in marked.partition("[-" if mirrored else "{+")[2]
    assert said == []  # no seal of an earlier version


@pytest.mark.parametrize(("name", "meant"), [("den", "deen"), ("de-en", "deen"), ("ENDE", "ende"), ("frit", None)])
def test_the_nearest_ready_aligner_is_suggested(name, meant, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as raised:
        hf_attncal.align(name, ["das Haus"], ["the house"])
    assert str(raised.value).partition("Did you mean ")[2] == (f"{meant}?" if meant else "")


@pytest.mark.parametrize("name", READY)
def test_a_name_loads_the_aligner_in_python(name):
    source, target = PAGE[0] if name == "deen" else PAGE[0][::-1]
    (found,) = hf_attncal.align(name, [source], [target])
    linked = {(found.source[i], found.target[j]) for i, j in found.links}
    expected = {("Buch", "book"), ("Schwester", "sister."), ("alte", "old"), ("Gestern", "Yesterday")}
    assert expected <= (linked if name == "deen" else {pair[::-1] for pair in linked})


def test_the_demo_page_gets_the_published_verdicts():
    verdicts = hf_attncal.check("deen", [source for source, _ in PAGE], [target for _, target in PAGE])
    assert [bool(verdict.flagged) for verdict in verdicts] == [False, True, True, True]
    assert verdicts[1].flagged[0] == "omission"
    assert "wrong number" in verdicts[2].names


def test_a_folder_of_that_name_is_preferred(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deen").mkdir()  # of texts, say
    assert ready_or_named("deen") == str(READY_FOLDER / "deen")
    (tmp_path / "deen" / "config.json").write_text("{}")
    assert ready_or_named("deen") == "deen"
    assert ready_or_named("other") == "other"


@pytest.mark.parametrize("name", READY)
def test_nothing_is_written_into_the_package(name, tmp_path):
    for side in ("a", "b"):
        (tmp_path / side).write_text("ein Haus ist alt\n" * 60)
    with pytest.raises(CommandError, match="belongs to the package and is read-only"):
        hf_attncal.check_learn(name, source=tmp_path / "a", target=tmp_path / "b")


def test_temporary_aligners_are_removed_when_the_program_ends():
    code = "from hf_attncal.alignment.ready import ready_or_named\nprint(ready_or_named('ende'))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip().endswith("ende")
    assert not Path(process.stdout.strip()).parent.exists()


def test_exchanged_twice_the_tables_are_as_they_were():
    tables = load_file(READY_FOLDER / "deen" / "model.safetensors")
    once = mirrored(tables, 16_000)
    twice = mirrored(once, 16_000)
    assert all(np.array_equal(table, twice[name]) for name, table in tables.items())
    assert np.array_equal(once["source_counts"], tables["target_counts"])
    place = 1000
    source, target = divmod(int(tables["pairs"][place]), 16_000)
    assert once["counts"][once["pairs"].searchsorted(target * 16_000 + source)] == tables["counts"][place]


def test_only_the_folders_of_the_package_have_known_languages(tmp_path):
    assert ready_languages(str(ready_or_named("deen"))) == ("de", "en")
    assert ready_languages(str(ready_or_named("ende"))) == ("en", "de")
    assert ready_languages(str(tmp_path / "deen")) is None  # Danish and English of a user, for example
    assert ready_languages("") is None


def test_a_broken_rule_and_an_omission_are_two_findings_that_agree_with_their_probabilities():
    deen = Checker.from_pretrained("deen")
    source = "Der Zug fährt um acht Uhr ab, aber wir müssen vorher noch Fahrkarten für 87 Euro kaufen."
    (verdict,) = deen.check([(source, "The train leaves at eight o'clock with 78 euros.")])
    (rule,) = verdict.rules
    assert rule.kind == "wrong number"
    assert verdict.changed >= rule.probability > 0.9
    assert verdict.wrong >= rule.probability
    assert "changed" in verdict.flagged
    kinds = [finding.kind for finding in verdict.findings]
    assert kinds[0] == "wrong number"
    assert "changed" not in kinds
