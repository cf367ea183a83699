"""`attncal check` on documents: two Markdown files and a PO file in, findings and exit statuses out."""

import json
from pathlib import Path

import pytest

import hf_attncal

AHEAD = "attncal: error: "


@pytest.fixture(scope="module")
def here(trained):
    from hf_attncal.commands import main

    clean = "--source", str(trained / "train.en"), "--target", str(trained / "train.de")
    assert (trained / "aligner" / "check.json").exists() or main(
        ["check", "learn", str(trained / "aligner"), *clean]
    ) == 0
    pairs = list(zip(*((trained / f"dev.{side}").read_text().splitlines()[:24] for side in ("en", "de")), strict=True))
    folder = trained / "documents"
    folder.mkdir(exist_ok=True)
    for side, language in enumerate(("en", "de")):
        blocks = [
            f"# {pairs[0][side]}",
            *(pair[side] for pair in pairs[1:12]),
            *(f"- {pair[side]}" for pair in pairs[12:]),
        ]
        (folder / f"book.{language}.md").write_text("\n\n".join(blocks) + "\n")
    (folder / "book.de.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nEin Satz .\n")
    lines = (folder / "book.de.md").read_text().split("\n\n")
    (folder / "short.de.md").write_text("\n\n".join([*lines[:5], *lines[6:]]))
    (folder / "back.de.md").write_text("\n\n".join(lines[::-1]))
    (folder / "wrong.de.md").write_text("\n\n".join(f"Xyz{n} qrs{n} tuv{n}" for n in range(24)))
    entries = "".join(
        f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in [*pairs[:9], (pairs[9][0], ""), ("use %s here", "nimm %d")]
    )  # the tenth is not translated yet
    (folder / "de.po").write_text(f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{entries}')
    return trained


@pytest.fixture(autouse=True)
def in_folder(here, monkeypatch):
    monkeypatch.chdir(here / "documents")


def missing(out):
    return [one for one in map(json.loads, out.splitlines()) if one["kind"] in ("missing", "added")]


def test_an_omitted_paragraph(attncal):
    status, out, err = attncal("check", "../aligner", "book.en.md", "book.de.md", "--format", "json")
    assert (status, err, missing(out)) == (0, "", [])
    status, out, err = attncal("check", "../aligner", "book.en.md", "short.de.md", "--format", "json")
    (one,) = missing(out)
    assert (status, one["kind"]) == (0, "missing")
    assert one["source"] == {"file": "book.en.md", "line": 11, "text": Path("book.en.md").read_text().split("\n\n")[5]}
    assert one["target"] == {"file": "short.de.md", "line": 11, "text": ""}
    assert one["reason"].startswith("left out: the whole paragraph “")


def test_exit_statuses_for_continuous_integration(attncal, here):
    def run(*options):
        return attncal("check", "../aligner", "book.en.md", *options)

    assert run("book.de.md", "--fail-above", "0.94")[0] == 0
    status, out, err = run("short.de.md", "--fail-above", "0.94")
    assert status == 1
    assert err.startswith(f"{AHEAD}1 finding above 0.94, the first at short.de.md:11: left out: the whole paragraph")
    assert len(out.splitlines()) >= 2
    for options, message in (
        (("none.de.md", "--fail-above", "0.94"), "There is no file none.de.md."),
        (("short.de.md", "--fail-above", "2"), "--fail-above must be from 0 to 1, got 2.0."),
        (("wrong.de.md", "--fail-above", "0.9"), "do not belong together"),
    ):
        status, out, err = run(*options)
        assert (status, out) == (2, "")
        assert err.startswith(AHEAD)
        assert message in err
    assert run("none.de.md")[0] == 1


def test_what_a_person_called_right_stays_so_when_lines_move(attncal, tmp_path):
    _, out, _ = attncal("check", "../aligner", "book.en.md", "short.de.md", "--format", "json")
    told = [line for line in out.splitlines() if json.loads(line)["kind"] == "missing"]
    dismissed = tmp_path / "right.jsonl"
    dismissed.write_text("# read by hand\n\n" + "\n".join(told) + "\n")
    moved = [tmp_path / name for name in ("a.en.md", "a.de.md")]
    for path, name in zip(moved, ("book.en.md", "short.de.md"), strict=True):
        path.write_text("\n\n\n" + Path(name).read_text())
    options = "--dismiss", str(dismissed), "--format", "json"
    status, out, _ = attncal("check", "../aligner", *map(str, moved), *options)
    assert (status, missing(out)) == (0, [])
    dismissed.write_text("something else\n")
    status, _, err = attncal("check", "../aligner", *map(str, moved), *options)
    assert (status, "line 1 of" in err, "has no id of a finding" in err) == (1, True, True)


def test_sarif(attncal):
    status, out, _ = attncal("check", "../aligner", "book.en.md", "short.de.md", "--format", "sarif")
    told = json.loads(out)
    assert (status, told["version"]) == (0, "2.1.0")
    (run,) = told["runs"]
    rules = run["tool"]["driver"]["rules"]
    (one,) = [result for result in run["results"] if result["ruleId"] == "missing"]
    assert rules[one["ruleIndex"]]["id"] == "missing"
    place = one["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "short.de.md"}, "region": {"startLine": 11}}
    assert one["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "book.en.md"
    assert set(one["partialFingerprints"]) == {"attncal/v1"}
    assert one["level"] == "error"
    # What GitHub documents as required, of the schema of SARIF 2.1.0.
    assert "$schema" in told
    for rule in rules:
        assert rule["id"]
        assert all(rule[name]["text"] for name in ("shortDescription", "fullDescription", "help"))
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["ruleId"]
        assert result["partialFingerprints"]
        assert 0 <= result["rank"] <= 100
        assert all(one["physicalLocation"]["region"]["startLine"] >= 1 for one in result["locations"])


def test_a_po_file_gets_notes(attncal, here, tmp_path):
    output = tmp_path / "noted.po"
    assert attncal("check", "../aligner", "de.po", "--format", "notes", "--output", str(output))[0] == 0
    written = output.read_text()
    notes = [line for line in written.split("\n") if line.startswith("# attncal ")]
    assert not any("left out: the whole entry" in note for note in notes)
    assert any("wrong placeholders: %s is missing, and %d is not in the source (0.97)" in note for note in notes)
    left = "".join(f"{line}\n" for line in written.split("\n")[:-1] if not line.startswith("# attncal "))
    assert left == Path("de.po").read_text()
    status, out, err = attncal("check", "../aligner", "book.en.md", "book.de.md", "--format", "notes")
    assert (status, out) == (1, "")
    assert "book.de.md is Markdown" in err


def test_a_summary_has_the_mean(attncal):
    status, out, _ = attncal("check", "../aligner", "book.en.md", "book.de.md", "--format", "summary")
    found = hf_attncal.check("../aligner", "book.en.md", "book.de.md")
    mean = sum(verdict.wrong for verdict in found.verdicts) / len(found.verdicts)
    assert (status, out.splitlines()[-1].split()[-2]) == (0, f"{100 * mean:.1f}")


@pytest.mark.parametrize("form", ["tsv", "html", "marked", "kept"])
def test_other_forms(attncal, form):
    status, out, err = attncal("check", "../aligner", "book.en.md", "short.de.md", "--format", form, "--worst", "3")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) >= 3


def test_from_python(here):
    found = hf_attncal.check(str(here / "aligner"), "book.en.md", "short.de.md", bootstrap=0)
    assert [one.kind for one in found.findings if one.kind in ("missing", "added")] == ["missing"]
    assert str(found).startswith("id\tprobability\tkind\t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("book.en.md",), "book.en.md is in one language: also name its translation."),
        (("de.po", "book.de.md"), "de.po has both languages (PO): name only this file."),
        (("book.en.md", "book.de.srt"), "name two documents in one format."),
    ],
)
def test_documents_that_do_not_go_together(attncal, options, message):
    status, out, err = attncal("check", "../aligner", *options)
    assert (status, out) == (1, "")
    assert message in err
