"""`attncal score --metric rouge`: the scores of files equal the scores of `metrics.rouge` on their lines."""

import io
import json
import sys

import pytest

import hf_attncal.commands
from hf_attncal.metrics.rouge import ROUGE, ROUGE_MEASURES, rouge, rouge_counts

REFERENCE = ["oil prices rise # pct", "the bank cuts rates again", "gold falls"] * 2
SECOND = ["oil rises", "rates cut by bank", ""] * 2
HYPOTHESIS = ["oil prices rise by # pct", "rates cut by the bank", ""] * 2
BETTER = ["oil rise # pct", "the bank cuts rates again . and gold", "gold"] * 2


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run it in a folder with files: (arguments, standard input) -> (status, output, errors)."""
    for name, lines in {
        "ref": REFERENCE,
        "second": SECOND,
        "hyp": HYPOTHESIS,
        "better": BETTER,
        "few": ["gold falls"],
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def rouge_command(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = hf_attncal.commands.main(["score", "--metric=rouge", *arguments])
        return status, *capsys.readouterr()

    return rouge_command


def test_text(run):
    status, out, err = run("ref", "hyp", "--bootstrap", "0", "--tokenize", "none")
    assert (status, err) == (0, "")
    heading, *rows, blank, signature = out.splitlines()
    assert heading.split() == ["hypothesis", "measure", "F1"]
    score = rouge(HYPOTHESIS, REFERENCE, "none")
    labels = ("ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum")
    expected = [
        ["hyp", label, f"{getattr(score, name):.2f}"] for label, name in zip(labels, ROUGE_MEASURES, strict=True)
    ]
    assert [row.split() for row in rows] == expected
    assert (blank, signature) == ("", score.signature)


def test_text_of_several(run):
    _, out, _ = run("ref", "hyp", "better", "--bootstrap", "100")
    heading, *rows = out.splitlines()
    assert heading.endswith("better than first      p")
    score = rouge(BETTER, REFERENCE, bootstrap=100)
    low, high = score.intervals["rouge1"]
    first, second = (rouge_counts(lines, REFERENCE)["rouge1"] for lines in (HYPOTHESIS, BETTER))
    better, p = ROUGE.paired_bootstrap(first, second, 100, 0), ROUGE.paired_p_value(first, second, 100, 0)
    told = f"better ROUGE-1 {score.rouge1:.2f} {low:.2f} to {high:.2f} {100 * better:.1f} {p:.3f}"
    assert " ".join(rows[4].split()) == told
    assert len(rows[0].split()) == 6
    assert "over 100 resamples" in rows[9]


def test_japanese_is_scored_by_words_or_gets_a_warning(run, tmp_path):
    (tmp_path / "ja").write_text("猫が寝た\n" * 6, encoding="utf-8")
    _, out, err = run("ja", "ja", "ja")
    assert err.startswith("attncal: warning: ")
    assert err.count("--tokenize words") == 1
    _, out, err = run("ja", "ja", "--tokenize", "words")
    assert err == ""
    assert out.splitlines()[1].split()[:3] == ["ja", "ROUGE-1", "100.00"]
    assert "|tok:words|" in out


def test_too_few_lines_have_no_interval(run):
    status, out, err = run("few", "few", "few")
    assert (status, err) == (0, "")
    heading, *rows = out.splitlines()
    assert heading.split() == ["hypothesis", "measure", "F1"]
    assert rows[4].split() == ["few", "ROUGE-1", "100.00"]
    assert "No intervals or comparisons: needs at least 6 summaries, got 1." in rows
    row = json.loads(run("few", "few", "few", "--format", "json")[1])["scores"][1]
    assert row["intervals"] is row["p_value"]["rouge1"] is None


def test_json_is_not_rounded(run):
    status, out, _ = run("ref", "hyp", "better", "--format", "json", "--stemmer", "--bootstrap", "50")
    assert status == 0
    found = json.loads(out)
    assert found["references"] == ["ref"]
    assert found["bootstrap"] == {"resamples": 50, "seed": 0, "confidence": 0.95}
    assert found["scores"][0]["p_value"]["rouge2"] is None
    for row, name, lines in zip(found["scores"], ("hyp", "better"), (HYPOTHESIS, BETTER), strict=True):
        score = rouge(lines, REFERENCE, stemmer=True, bootstrap=50)
        assert row.pop("hypothesis") == name
        better, p_value = row.pop("better_than_first"), row.pop("p_value")
        assert row == json.loads(json.dumps(vars(score)))
    assert 0 <= better["rouge2"] <= 1
    assert 0 < p_value["rouge2"] <= 1


def test_several_references(run):
    (row,) = json.loads(run("ref", "hyp", "--references", "second", "--bootstrap", "0", "--format", "json")[1])[
        "scores"
    ]
    score = rouge(HYPOTHESIS, list(zip(REFERENCE, SECOND, strict=True)))
    assert (row["rouge1"], row["signature"]) == (score.rouge1, score.signature)
    assert row["rouge1"] > rouge(HYPOTHESIS, REFERENCE).rouge1
    assert "|refs:3|" in run("ref", "hyp", "--references", "second", "better")[1]


def test_a_reference_without_text_is_reported(run):
    status, out, err = run("second", "hyp")
    assert status == 0
    assert out
    assert err == (
        "attncal: warning: second: 2 of 6 lines are empty, the first is line 3. Every summary scores 0 there.\n"
    )
    assert run("second", "hyp", "--references", "ref")[2] == ""
