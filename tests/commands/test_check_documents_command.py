"""`attncal check` on documents: two Markdown files and a PO file in, findings and exit statuses out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import hf_attncal
from hf_attncal.checking.documents.findings import SegmentSide, document_findings
from hf_attncal.checking.documents.segments import Segment
from hf_attncal.checking.rules import RULE_NAMES
from hf_attncal.checking.verdicts import FINDING_KINDS, VERDICTS, Finding, FlaggedSpan, PairVerdict
from hf_attncal.io.errors import CommandError

AHEAD = "attncal: error: "
WRONG = (
    ("open the 3 old books now .", "öffne jetzt die 5 alten Bücher ."),
    ("save the new file now .", "speichere jetzt jetzt die neue Datei ."),
)


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
        f'msgid "{a}"\nmsgstr "{b}"\n\n'
        for a, b in [*pairs[:9], (pairs[9][0], ""), ("use %s here", "nimm %d"), *WRONG]
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
    text = Path("book.en.md").read_text().split("\n\n")[5]
    assert one["source"] == {"file": "book.en.md", "line": 11, "text": text, "span": [0, len(text)]}
    assert one["target"] == {"file": "short.de.md", "line": 11, "text": ""}
    assert one["reason"].startswith("the whole paragraph “")
    assert one["reason"].endswith("” is not in the translation")


def test_exit_statuses_for_continuous_integration(attncal, here):
    def run(*options):
        return attncal("check", "../aligner", "book.en.md", *options)

    assert run("book.de.md", "--fail-above", "0.94")[0] == 0
    status, out, err = run("short.de.md", "--fail-above", "0.94")
    assert status == 1
    assert err.startswith(f"{AHEAD}1 finding above 0.94, the first at short.de.md:11: missing: the whole paragraph")
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
    _, out, _ = attncal("check", "../aligner", *map(str, moved))
    assert "Findings: " in out
    dismissed.write_text(out)
    assert attncal("check", "../aligner", *map(str, moved), *options)[1] == ""
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
    assert {"id": "wrong-number", "name": "WrongNumber"}.items() <= rules[
        list(FINDING_KINDS).index("wrong number")
    ].items()
    assert f"(id {one['partialFingerprints']['attncal/v1']})" in one["message"]["text"]
    assert one["properties"]["source"]["text"]
    for rule in rules:
        assert re.fullmatch("[a-z-]+", rule["id"])
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
    assert not any("the whole entry" in note for note in notes)
    assert any("wrong placeholders: %s is missing, and %d is not in the source (0.85)" in note for note in notes)
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


def ids_of(out):
    """Return the ids of findings in an output, in order, each once; the page and SARIF state them more than once."""
    return list(dict.fromkeys(re.findall(r"\b[0-9a-f]{12}\b", out)))


@pytest.mark.parametrize(
    "options", [(), ("--worst", "2"), ("--dismiss", "right.txt")], ids=lambda words: "".join(words[:1])
)
@pytest.mark.parametrize("documents", [("de.po",), ("book.en.md", "short.de.md")], ids=["po", "markdown"])
def test_every_format_has_the_same_findings(attncal, documents, options):
    Path("right.txt").write_text("# read by hand\n")
    command = ("check", "../aligner", *documents)
    every = attncal(*command, "--format", "json")[1].splitlines()
    text = attncal(*command)[1]
    assert ids_of(text) == [json.loads(line)["id"] for line in every]
    Path("right.txt").write_text("".join(text.splitlines(keepends=True)[:3]))  # the first finding, with its texts
    outputs = {}
    for form in ("json", "tsv", "marked", "html", "sarif", "notes"):
        if form != "notes" or documents == ("de.po",):
            status, outputs[form], err = attncal(*command, "--format", form, *options)
            assert status == 0
            assert err.count("\n") == (documents == ("de.po",))  # an entry that is not translated
    told = [json.loads(line)["id"] for line in outputs["json"].splitlines()]
    assert (
        len(set(told))
        == len(told)
        == {"--worst": min(2, len(every)), "--dismiss": len(every) - 1}.get("".join(options[:1]), len(every))
    )
    assert {form: sorted(ids_of(out)) for form, out in outputs.items()} == dict.fromkeys(outputs, sorted(told))
    assert [line.split("\t")[0] for line in outputs["tsv"].splitlines()[1:]] == told
    assert re.findall("^[0-9a-f]{12}(?=  )", outputs["marked"], re.MULTILINE) == told
    assert [
        one["partialFingerprints"]["attncal/v1"] for one in json.loads(outputs["sarif"])["runs"][0]["results"]
    ] == told
    summary = attncal(*command, "--format", "summary", *options)[1]
    assert re.search(rf"^findings +{len(told)}$", summary, re.MULTILINE)
    assert "on ordinary text" in summary
    probabilities = [json.loads(line)["probability"] for line in outputs["json"].splitlines()]
    assert attncal(*command, "--fail-above", str(max(probabilities, default=1) - 1e-3), *options)[0] == bool(told)
    assert attncal(*command, "--fail-above", "1", *options)[0] == 0


def test_kept_segments_are_those_without_a_finding(attncal):
    kept = attncal("check", "../aligner", "de.po", "--format", "kept")[1].splitlines()
    page = attncal("check", "../aligner", "de.po", "--format", "html")[1]
    flagged = page.count('<article class="')
    assert f"<legend>{flagged} of 12 segments have a finding.</legend>" in page
    assert "<title>de.po</title>" in page
    assert "on ordinary text" in page
    assert page.count("<article>") == len(kept) == 12 - flagged
    assert not any("%s" in line for line in kept)  # the placeholders are wrong
    status, _, err = attncal("check", "../aligner", "de.po", "--format", "kept", "--worst", "2")
    assert (status, "--worst chooses findings" in err) == (1, True)


def test_texts_of_both_sides_are_shown(attncal):
    (head, *rows) = (
        line.split("\t") for line in attncal("check", "../aligner", "de.po", "--format", "tsv")[1].splitlines()
    )
    assert head[-2:] == ["source_text", "target_text"]
    (row,) = [row for row in rows if row[2] == "wrong placeholders"]
    assert row[-2:] == ["use %s here", "nimm %d"]
    text = attncal("check", "../aligner", "de.po")[1]
    line = f"{row[0]}  {row[4]}  85 %  wrong placeholders: %s is missing, and %d is not in the source"
    assert f"{line}\n    use %s here\n    nimm %d\n" in text
    assert re.search(
        r"wrong number: “3” .*\n    open the \[-3-\] old books now \.\n    öffne jetzt die {\+5\+} alt", text
    )
    text = attncal("check", "../aligner", "book.en.md", "short.de.md")[1]
    assert re.search(
        r"^[0-9a-f]{12}  book.en.md:11 → short.de.md:11  95 %  missing: .*\n    \[-.*-\]\n    -\n", text, re.MULTILINE
    )


def test_from_python(here):
    found = hf_attncal.check(str(here / "aligner"), "book.en.md", "short.de.md", bootstrap=0)
    assert [one.kind for one in found if one.kind in ("missing", "added")] == ["missing"]
    assert len(found) == len(found.findings)
    assert str(found).startswith(f"{found.findings[0].id}  book.en.md:")
    with pytest.raises(CommandError, match=r"1 finding above 0.94") as error:
        hf_attncal.check(str(here / "aligner"), "book.en.md", "short.de.md", fail_above=0.94)
    assert error.value.findings == tuple(one for one in found if one.probability > 0.94)


def test_findings_of_one_segment_have_ids_of_their_own():
    def spans(*characters):
        return tuple(FlaggedSpan((0, 1), one, "why", 0.9) for one in characters)

    rules = (
        Finding("wrong number", spans((5, 6)), (), "“8”", 0.97),
        Finding("doubled word", (), spans((0, 7)), "twice", 0.9),
    )
    scores = dict.fromkeys(VERDICTS, 0.1) | {"omission": 0.8}
    verdict = PairVerdict("open 8 files", "auf auf", 0.97, **scores, source_words=(), target_words=(),
                          omission_spans=spans((5, 6), (7, 12)), addition_spans=spans((0, 7)),
                          names=("identical sides", "wrong number", "doubled word"),
                          flagged=("omission", "changed"), rules=rules)  # fmt: skip
    sides = (
        SegmentSide("a.po", (Segment("open 8 files", "entry", 3),)),
        SegmentSide("a.po", (Segment("auf auf", "entry", 3),)),
    )
    found = list(document_findings(verdict, *sides, 0))
    assert [(one.kind, one.probability) for one in found] == [
        ("wrong number", 0.97),
        ("doubled word", 0.9),
        ("omission", 0.8),
    ]
    two_paragraphs = SegmentSide("a.po", (Segment("auf auf", "entry", 3, raw="auf\n\nauf"),))
    assert [one.kind for one in document_findings(verdict, sides[0], two_paragraphs, 0)] == [
        "wrong number",
        "omission",
    ]
    one_paragraph = SegmentSide("a.po", (Segment("auf auf", "entry", 3, raw="auf\n auf"),))
    assert len(list(document_findings(verdict, sides[0], one_paragraph, 0))) == 3
    assert found[2].reason == "“files”: why"
    assert len({one.id for one in found}) == 3
    assert {one.kind for one in found} <= set(FINDING_KINDS)


def test_a_finding_in_joined_segments_is_where_its_words_begin():
    side = SegmentSide(
        "a.srt", tuple(Segment(text, "cue", line) for text, line in (("One two", 1), ("three", 5), ("four", 9)))
    )
    for begin, line in ((0, 1), (6, 1), (8, 5), (14, 9)):
        place = replace(side, spans=(FlaggedSpan((0, 1), (begin, begin + 2)),))
        assert (place.line, place.text) == (line, "One two three four")
    assert side.line == 1


def test_every_rule_has_a_description():
    assert {*RULE_NAMES, "missing", "added", *VERDICTS} <= set(FINDING_KINDS)
    assert len(set(FINDING_KINDS.values())) == len(FINDING_KINDS)


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


def test_an_aligner_of_other_languages_than_the_file_is_refused(attncal, tmp_path):
    entry = 'msgid "The file was not found."\nmsgstr "Le fichier est introuvable."\n'
    head = 'msgid ""\nmsgstr "Language: {}\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
    for language, status, message in (("fr", 1, "in fr, and the aligner is for de"), ("de", 0, "")):
        path = tmp_path / f"messages.{language}.po"
        path.write_text(head.format(language) + entry)
        result = attncal("check", "ende", str(path))
        assert result[0] == status
        assert message in result[2]
    assert "--encoder auto" in attncal("check", "ende", str(tmp_path / "messages.fr.po"))[2]
