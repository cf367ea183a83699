"""`attncal check`: files in, verdicts out."""

import json
import os
import re
import subprocess

import pytest

_SCORES = ("wrong", "omission", "addition", "repeats", "unrelated", "changed")


@pytest.fixture
def here(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def test_what_must_be_learned_first(attncal, here):
    (here / "aligner" / "check.json").unlink(missing_ok=True)
    status, out, err = attncal("check", "aligner", "--source", "dev.en", "--target", "dev.de")
    assert (status, out) == (1, "")
    assert "attncal check learn aligner" in err
    status, out, err = attncal("check", "learn", "aligner", "--source", "train.en", "--target", "train.de")
    assert (status, out, err) == (0, "wrote aligner/check.json, learned from 800 pairs\n", "")


@pytest.fixture
def ready(attncal, here):
    if not (here / "aligner" / "check.json").exists():
        assert attncal("check", "learn", "aligner", "--source", "train.en", "--target", "train.de")[0] == 0
    sources = (here / "dev.en").read_text().splitlines()
    targets = (here / "dev.de").read_text().splitlines()
    targets[4] = ""
    targets[9] = targets[10]
    (here / "bad.de").write_text("".join(f"{target}\n" for target in targets))
    return sources, targets


def run(attncal, *options):
    return run_on(attncal, "bad.de", *options)


def run_on(attncal, target, *options):
    status, out, err = attncal("check", "aligner", "--source", "dev.en", "--target", target, *options)
    assert (status, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize("form", ["tsv", "summary"])
def test_exchanged_files_are_named_once(form, attncal, ready):
    status, _, err = attncal("check", "aligner", "dev.de", "dev.en", "--format", form)
    assert (status, err.count("source and target are probably exchanged")) == (0, 1)


def test_a_line_for_each_line(attncal, ready):
    head, *lines = run(attncal)
    assert head.split("\t") == ["line", *_SCORES, "flagged", "names", "source", "target"]
    assert [line.split("\t")[0] for line in lines] == [str(number) for number in range(1, 61)]
    assert lines[4].split("\t")[7:] == ["omission", "empty target", ready[0][4], ""]
    found = [json.loads(line) for line in run(attncal, "--format", "json")]
    for line, values in zip(lines, found, strict=True):
        assert [float(score) for score in line.split("\t")[1:7]] == pytest.approx(
            [values[name] for name in _SCORES], abs=2e-4
        )
        assert (values["source"], values["target"]) == (ready[0][values["line"] - 1], ready[1][values["line"] - 1])


def test_marked_text_and_a_page(attncal, ready, here):
    for line, source, target in zip(run(attncal, "--format", "marked"), *ready, strict=True):
        texts = [re.sub(r"\[-|-\]|\{\+|\+\}", "", text) for text in line.split("\t")]
        assert texts == [source, target]
    page = run(attncal, "--format", "html")
    assert page[0] == "<!DOCTYPE html>"
    assert page[-1] == "</html>"
    assert sum(line.startswith("<article") for line in page) == 60
    flagged = sum(line.split("\t")[7] != "-" for line in run(attncal)[1:])
    assert sum(line.startswith('<article class="') for line in page) == flagged
    assert f"<legend>{flagged} of 60 lines have a finding.</legend>" in "\n".join(page)
    marks = [part for line in page for part in re.findall("<(?:ins|del) [^>]*>", line)]
    assert marks
    assert all(re.fullmatch('<(ins|del) tabindex="0" data-why="[^"]+ %">', mark) for mark in marks)
    assert run(attncal, "--format", "html", "--output", "page.html") == []
    assert (here / "page.html").read_text().splitlines() == page


def test_a_page_shows_text_as_it_is(attncal, ready, here):
    (here / "one.en").write_text("<b>the</b> & dog\n")
    (here / "one.de").write_text("<script>alert(1)</script>\n")
    _, out, _ = attncal("check", "aligner", "--source", "one.en", "--target", "one.de", "--format", "html")
    assert "<script>" not in out
    assert "&lt;script&gt;" in re.sub("</?(ins|del)[^>]*>", "", out)


def test_the_summary(attncal, ready):
    lines = run(attncal, "--format", "summary", "--bootstrap", "20")
    flagged = sum(line.split("\t")[7] != "-" for line in run(attncal)[1:])
    assert re.search(rf"lines flagged +{100 * flagged / 60:.2f} \(", lines[1])
    assert lines[-1].startswith("Check|aligner:hmm_align|learned:800 pairs, seed 0|")


def test_one_target_for_many_sources_is_seen_but_in_a_pipe(attncal, ready, here):
    (here / "bad.de").write_text("Der alte Mann sieht den großen Hund .\n" * 60)
    assert re.search(r"one target for \d\d sources", run(attncal)[1])
    os.mkfifo("pipe")
    with subprocess.Popen(["sh", "-c", "cat bad.de > pipe"]):
        lines = run_on(attncal, "pipe")
    assert len(lines) == 61
    assert not any("sources" in line for line in lines)


def test_two_systems_are_compared(attncal, ready):
    def compared(other):
        pair = ("--source", "dev.en", "--target", "bad.de", "--other", other)
        status, out, err = attncal("check", "compare", "aligner", *pair)
        assert (status, err) == (0, "")
        return out.splitlines()

    lines = compared("dev.de")
    assert lines[0].split() == ["per", "cent", "target", "compared", "with", "difference", "p"]
    (flagged,) = [line for line in lines if line.startswith("lines flagged ")]
    ours, theirs = (run(attncal, "--format", "summary"), run_on(attncal, "dev.de", "--format", "summary"))
    for summary in (ours, theirs):
        (alone,) = [line for line in summary if line.startswith("lines flagged ")]
        assert alone.removeprefix("lines flagged").strip() in flagged
    assert "+3.33 (" in flagged  # two of sixty lines were spoilt
    assert "target: bad.de; compared with: dev.de" in lines
    same = compared("bad.de")
    assert all(line.endswith(" 1.000") for line in same[1:8])


def test_the_alarm_is_given(attncal, ready):
    def flagged(alarm):
        return [line for line in run(attncal, "--alarm", alarm)[1:] if line.split("\t")[7] != "-"]

    every, strict = flagged("0.0001"), flagged("0.9")
    assert 0 < len(strict) < len(every)
    assert all(float(line.split("\t")[1]) > 0.5 for line in strict)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("aligner --source dev.en --target dev.de --alarm 2", "--alarm must be from 0 to 1"),
        ("aligner --source dev.en", "--target must be given"),
        ("aligner", "--source must be given"),
        ("learn aligner --source dev.en dev.en --target dev.de", "2 files"),
        ("aligner --source dev.en --target dev.de --output dev.de", "would overwrite"),
        ("compare aligner --source dev.en --target dev.de --other dev.de --bootstrap 0", "--bootstrap must be from 1"),
    ],
)
def test_what_cannot_be_done_is_said(attncal, here, options, told):
    status, out, err = attncal("check", *options.split())
    assert (status, out) == (1, "")
    assert told in err
