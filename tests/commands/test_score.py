"""`attncal score`, and the metric for `evaluate`."""

import argparse
import gzip
import io
import json
import random
import socket
import sys
from typing import get_args

import evaluate
import pytest
from sacrebleu.metrics import BLEU, CHRF

import hf_attncal.commands
from hf_attncal import __version__
from hf_attncal.commands.score import METRICS
from hf_attncal.data.pharaoh import parse_alignments
from hf_attncal.data.pharaoh import parse_hypotheses as parse
from hf_attncal.metrics.aer import AER, AER_METRIC, alignment_error_rate, paired_counts

GOLD = ["0-0 1-1 2p1", "0-0", "", "2-0 0p2 1?1"]
# |A| = 6, |S| = 4, |A & S| = 3, |A & P| = 4: AER 30.0, precision 66.7, recall 75.0, F1 70.6
FIRST = ["0-0 1-1 2-1", "1-1", "0-0", "2-0"]
# |A| = 4, |A & S| = |A & P| = 4: AER 0
SECOND = ["0-0 1-1", "0-0", "", "2-0"]
SOURCE = ["a b ,", "a b", "a", "a b c"]
TARGET = ["x y", "x y", "x", "x . z"]


@pytest.fixture
def score(monkeypatch, capfdbinary):
    """Run `attncal score` in this process: (arguments, standard input) -> (status, standard output, errors)."""

    def run(*arguments: object, stdin: bytes = b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = hf_attncal.commands.main(["score", *map(str, arguments)])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert "Traceback" not in err.decode()
        return status, out.decode(), err.decode()

    return run


@pytest.fixture
def write(tmp_path):
    """Write lines to a file and return its path."""

    def write_lines(name: str, lines: list[str]) -> str:
        path = tmp_path / name
        data = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write_lines


@pytest.fixture
def files(write):
    """Paths of a gold alignment, two hypotheses, and source and target text."""
    lines = {"gold": GOLD, "first": FIRST, "second": SECOND, "source": SOURCE, "target": TARGET}
    return argparse.Namespace(**{name: write(name, text) for name, text in lines.items()})


def twice(files, write) -> None:
    """Repeat each line, because eight pairs are enough for an interval."""
    for name, lines in {"gold": GOLD, "first": FIRST, "second": SECOND}.items():
        write(name, lines * 2)


def refused(result: tuple[int, str, str]) -> str:
    """The message of an error; nothing may have been written to standard output."""
    status, out, err = result
    assert (status, out) == (1, "")
    assert err.startswith("attncal: error: ")
    return err


# ---- output ----


def test_text_for_one_hypothesis(score, files):
    status, out, err = score(files.gold, files.first, "--bootstrap", "0")
    assert (status, err) == (0, "")
    heading, row, blank, corpus, signature = out.splitlines()
    assert heading.split() == ["hypothesis", "AER", "precision", "recall", "F1", "links"]
    assert row.split() == [files.first, "30.0", "66.7", "75.0", "70.6", "6"]
    assert len(heading) == len(row)
    assert blank == ""
    assert corpus == "4 sentence pairs, 4 sure links, 7 possible links (sure ones included). Rates in per cent."
    assert signature == f"AER|base:0|possible:used|unit:word|symm:unstated|n:4|version:{__version__}"


def test_text_for_several_hypotheses(score, files, write):
    twice(files, write)
    _, out, _ = score(files.gold, files.first, files.second, "--bootstrap", "200")
    heading, first, second, _, *notes = out.splitlines()
    assert heading.endswith("links  better than first      p")
    gold = parse_alignments(GOLD * 2)
    low, high = alignment_error_rate(gold, parse(FIRST * 2), bootstrap=200).interval
    counts = paired_counts(gold, parse(FIRST * 2), parse(SECOND * 2))
    better, p = AER.paired_bootstrap(*counts, 200, 0), AER.paired_p_value(*counts, 200, 0)
    assert 0 < better < 1
    assert first.split()[:5] == [files.first, "30.0", f"{100 * low:.1f}", "to", f"{100 * high:.1f}"]
    assert first.endswith(" 12")
    assert " 0.0     0.0 to 0.0 " in second
    assert second.split()[-3:] == ["8", f"{100 * better:.1f}", f"{p:.3f}"]
    assert "over 200 resamples" in notes[1]
    assert "lower than the first hypothesis's" in notes[2]
    assert "two-sided" in notes[3]
    assert notes[4].startswith("AER|")
    assert len(notes) == 5  # both have one signature


def test_too_few_pairs_have_no_interval_and_no_comparison(score, files):
    status, out, err = score(files.gold, files.first, files.second)
    assert (status, err) == (0, "")
    heading, *rows = out.splitlines()
    assert heading.split() == ["hypothesis", "AER", "precision", "recall", "F1", "links"]
    assert "No intervals or comparisons: needs at least 6 sentence pairs, got 4." in rows
    second = json.loads(score(files.gold, files.first, files.second, "--format", "json")[1])["scores"][1]
    assert second["interval"] is second["better_than_first"] is second["p_value"] is None


def test_json_is_not_rounded(score, files, write):
    twice(files, write)
    status, out, _ = score(files.gold, files.first, files.second, "--format", "json")
    assert status == 0
    result = json.loads(out)
    gold = parse_alignments(GOLD * 2)
    expected = alignment_error_rate(gold, parse(FIRST * 2), symmetrization="unstated", bootstrap=1000)
    first, second = result["scores"]
    assert first == {"hypothesis": files.first, "better_than_first": None, "p_value": None} | vars(expected) | {
        "interval": list(expected.interval)
    }
    assert (first["sure"], first["possible"], first["proposed"], first["sentences"]) == (8, 14, 12, 8)
    assert (second["hypothesis"], second["aer"]) == (files.second, 0)
    counts = paired_counts(gold, parse(FIRST * 2), parse(SECOND * 2))
    assert second["better_than_first"] == AER.paired_bootstrap(*counts, 1000, 0)
    assert second["p_value"] == AER.paired_p_value(*counts, 1000, 0)
    assert result["gold"] == files.gold
    assert result["bootstrap"] == {"resamples": 1000, "seed": 0, "confidence": 0.95}


def rates(result: tuple[int, str, str]) -> dict:
    """The only row of JSON output."""
    status, out, err = result
    assert (status, err) == (0, "")
    (row,) = json.loads(out)["scores"]
    return row


QUICK = ("--format", "json", "--bootstrap", "0")


def test_possible_links_may_be_ignored(score, files):
    row = rates(score(files.gold, files.first, "--ignore-possible", *QUICK))
    assert row["aer"] == pytest.approx(1 - (3 + 3) / (6 + 4))
    assert row["possible"] == row["sure"] == 4
    assert "|possible:ignored|" in row["signature"]


def test_punctuation_may_be_left_out(score, files):
    texts = ("--source", files.source, "--target", files.target)
    assert rates(score(files.gold, files.first, *texts, *QUICK))["aer"] == pytest.approx(0.3)
    row = rates(score(files.gold, files.first, *texts, "--without-punctuation", *QUICK))
    # 2p1 and the proposed 2-1 (",") of line 1 and 1?1 (".") of line 4 are gone.
    assert (row["proposed"], row["sure"], row["possible"], row["possible_hits"]) == (5, 4, 5, 3)
    assert row["aer"] == pytest.approx(1 - (3 + 3) / (5 + 4))
    assert "|punct:excluded|" in row["signature"]


def test_compressed_files_scores_and_standard_input(score, write):
    gold = write("gold.gz", GOLD)
    lines = [" ".join(f"{token}:0.25" for token in line.split()) for line in FIRST]
    assert rates(score(gold, write("scored.gz", lines), *QUICK))["aer"] == pytest.approx(0.3)
    row = rates(score(gold, "-", *QUICK, stdin="\n".join(lines).encode()))
    assert (row["hypothesis"], row["aer"]) == ("-", pytest.approx(0.3))


@pytest.mark.parametrize(("metric", "scorer"), [("bleu", BLEU()), ("chrf", CHRF())])
def test_translations_are_scored_as_by_sacrebleu(metric, scorer, write):
    lines = ["the old man saw a small dog", "she reads the book of the year", "we go home by the last train"]
    references = [lines * 3, lines[::-1] * 3]
    texts = [[line.replace("the ", "a ", number % 2) for number, line in enumerate(lines * 3)], lines * 3]
    options = {"metric": metric, "references": [references[1]], "bootstrap": 100}
    first, second = (table := hf_attncal.score(references[0], *texts, **options)).rows
    for row, lines in zip((first, second), texts, strict=True):
        assert row.score == pytest.approx(scorer.corpus_score(lines, references).score)
        assert row.signature == str(scorer.get_signature())
        assert row.interval[0] <= row.score <= row.interval[1]
    assert first.score < second.score == pytest.approx(100)
    assert second.better_than_first > 0.95
    assert second.p_value < 0.2  # three sorts of lines differ
    assert str(table).splitlines()[0].split()[:2] == ["hypothesis", {"bleu": "BLEU", "chrf": "chrF"}[metric]]


def test_each_metric_has_a_row_of_options():
    assert get_args(hf_attncal.score.__annotations__["metric"]) == tuple(METRICS)


# ---- which words indices mean ----


@pytest.fixture
def counted(write):
    """Paths of a corpus of 12 sentence pairs that counts from 0 and from 1."""
    generator = random.Random(0)
    links = [[(i, min(7, max(0, i + generator.choice([-2, -1, 0, 0, 0, 1])))) for i in range(8)] for _ in range(12)]
    return [
        write(f"from{base}", [" ".join(f"{i + base}-{j + base}" for i, j in pair) for pair in links])
        for base in (0, 1)
    ]


def base_of(result: tuple[int, str, str]) -> tuple[float, str, list[str]]:
    """AER, the base in the signature, and the warnings."""
    status, out, err = result
    assert status == 0, err
    (row,) = json.loads(out)["scores"]
    return row["aer"], row["signature"].split("|")[1], err.splitlines()


def test_the_base_is_detected_and_reported(score, counted):
    from0, from1 = counted
    told = f"attncal: warning: {from1} is read as counting words from 1: none of its links has an index 0."
    assert base_of(score(from0, from0, *QUICK)) == (0, "base:0", [])
    assert base_of(score(from1, from1, *QUICK)) == (0, "base:1(auto)", [told])
    assert base_of(score(from0, from1, *QUICK)) == (0, "base:gold=0,hyp=1(auto)", [told])
    assert base_of(score(from1, from0, *QUICK)) == (0, "base:gold=1(auto),hyp=0", [told])
    with open(from1, "rb") as file:
        aer, base, warnings = base_of(score(from0, "-", *QUICK, stdin=file.read()))
    assert (aer, base) == (0, "base:gold=0,hyp=1(auto)")
    assert warnings == [told.replace(from1, "standard input")]


def test_an_ambiguous_base_counts_from_0_with_a_warning(score, write):
    gold, short = write("gold", ["0-0 1-1", "0-1"]), write("short", ["1-1", ""])
    aer, base, warnings = base_of(score(gold, short, *QUICK))
    assert (aer, base) == (pytest.approx(1 - 2 / 4), "base:0")
    assert len(warnings) == 1
    assert f"warning: {short} has no index 0 and too few lines with links to detect" in warnings[0]
    nothing = write("nothing", ["", " ", ""])
    assert "is empty" in refused(score(write("three", ["0-0"] * 3), nothing))


def test_the_words_decide_the_base_of_few_lines(score, files, write):
    texts = ("--source", files.source, "--target", files.target)
    late = write("late", ["1-1 3-2", "1-1", "", ""])
    aer, base, warnings = base_of(score(files.gold, late, *texts, *QUICK))
    assert base == "base:gold=0,hyp=1(auto)"
    assert aer == base_of(score(files.gold, write("early", ["0-0 2-1", "0-0", "", ""]), *QUICK))[0]
    told = "is read as counting words from 1: counted from 0, some links are outside the sentences."
    assert warnings == [f"attncal: warning: {late} {told}"]
    assert base_of(score(late, files.second, *texts, *QUICK))[1] == "base:gold=1(auto),hyp=0"


def test_files_with_the_target_first_are_refused_where_that_can_be_seen(score, write, counted, files):
    with open(counted[0]) as file:
        lines = [line.split() for line in file]
    turned = write("turned", [" ".join("-".join(reversed(link.split("-"))) for link in line) for line in lines])
    for pair in ((counted[0], turned), (turned, counted[0])):
        status, out, err = score(*pair)
        exchanged = "exchanged between source and target: one of the two has the target index first." in err
        assert (status, out, exchanged) == (1, "", True)
    texts = ("--source", files.source, "--target", files.target)
    turned = write("turned", ["0-2", "0-0", "", ""])
    told = (
        f"All are inside with source and target exchanged. Exchange --source and --target, or the columns of {turned}"
    )
    assert told in refused(score(files.gold, turned, *texts))
    assert told in refused(score(turned, files.first, *texts))


# ---- errors ----


def test_unequal_numbers_of_lines(score, files, write):
    short = write("short", FIRST[:3])
    message = refused(score(files.gold, "-", stdin=b"0-0\n" * 5))
    assert f"{files.gold} has 4 lines and standard input has 5" in message
    message = refused(score(files.gold, files.first, "--source", short, "--target", files.target))
    assert f"{files.gold} has 4 lines and {short} has 3" in message


def test_links_outside_the_sentences(score, files, write):
    texts = ("--source", files.source, "--target", files.target)
    outside = write("outside", ["0-0", "0-0 1-2", "", ""])
    assert f"{outside}: line 2: link 1-2 lies outside a pair of 2 source and 2" in refused(
        score(files.gold, outside, *texts)
    )
    assert f"{outside}: line 2: link 1-2 lies outside" in refused(score(outside, files.first, *texts))
    assert score(files.gold, outside, "--bootstrap", "0")[0] == 0
    assert "All are inside with source and target exchanged" not in refused(score(files.gold, outside, *texts))


def test_options_that_need_each_other(score, files):
    assert "--source and --target belong together" in refused(score(files.gold, files.first, "--source", files.source))
    assert "HYPOTHESES must be one file or more" in refused(score(files.gold))
    for option in ("--stemmer", "--tokenize=words", "--references=x"):
        assert f"{option.split('=')[0]} is not for --metric aer" in refused(score(files.gold, files.first, option))
    for option in ("--ignore-possible", "--without-punctuation", "--source=x"):
        told = f"{option.split('=')[0]} is not for --metric rouge"
        assert told in refused(score(files.gold, files.first, "--metric=rouge", option))
    message = refused(score(files.gold, files.first, "--without-punctuation"))
    assert "needs the words: pass --source and --target" in message
    assert "read only once" in refused(score(files.gold, "-", "-"))


@pytest.mark.parametrize("arguments", [["--bootstrap", "x"], ["--metric", "ter"]])
def test_values_that_cannot_be_are_refused_at_once(arguments, score, capfdbinary):
    with pytest.raises(SystemExit) as raised:
        score("gold", "hypothesis", *arguments)
    assert raised.value.code == 2
    err = capfdbinary.readouterr().err.decode()
    assert err.startswith("attncal score: error: ")
    assert arguments[0] in err


def test_less_than_no_resample_is_refused(score, files):
    assert "--bootstrap must be from 0 to" in refused(score(files.gold, files.first, "--bootstrap=-1"))


# ---- evaluate ----


@pytest.fixture
def load_metric(tmp_path, monkeypatch):
    """`evaluate.load` of the metric, with its caches in a temporary folder and any use of the network an error."""

    def no_network(*arguments, **options):
        raise AssertionError(f"the network was asked for {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", False)
    yield lambda: evaluate.load(AER_METRIC, cache_dir=str(tmp_path / "cache"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "evaluate_modules"]:
        del sys.modules[name]


def test_the_metric_loads_from_its_folder_and_computes(load_metric):
    metric = load_metric()
    result = metric.compute(predictions=FIRST, references=GOLD, symmetrization="union", bootstrap=50)
    expected = alignment_error_rate(parse_alignments(GOLD), parse(FIRST), symmetrization="union", bootstrap=50)
    assert result == vars(expected)
    assert result["aer"] == pytest.approx(0.3)
    assert "|symm:union|n:4|" in result["signature"]
    # Line by line, as a loop over batches adds them, and what the options do.
    metric.add_batch(predictions=["1-1:0.5"], references=["0-0"])
    metric.add(prediction="2-1", reference="1p0")
    result = metric.compute(base=1, unit="subword", ignore_possible=True)
    assert (result["aer"], result["sentences"], result["possible"]) == (pytest.approx(1 - 2 / 3), 2, 1)
    assert "|base:gold=0,hyp=1|possible:ignored|unit:subword|" in result["signature"]
    result = metric.compute(predictions=["0-0"], references=["1-1"], reference_base=1)
    assert (result["aer"], result["interval"]) == (0, None)


def test_the_metric_names_what_it_cannot_read(load_metric):
    metric = load_metric()
    with pytest.raises(ValueError, match="`predictions`, line 2: '1p1' is a possible link"):
        metric.compute(predictions=["0-0", "1p1"], references=["0-0", "1-1"])
    with pytest.raises(ValueError, match="`references`, line 1: 'x' is not a link"):
        load_metric().compute(predictions=["0-0"], references=["x"])


def test_the_metric_names_the_package_to_install(load_metric, monkeypatch):
    monkeypatch.setitem(sys.modules, "hf_attncal.metrics", None)
    with pytest.raises(
        ImportError, match=r"computes with the package hf_attncal.*`pip install .` in a clone of hf_attncal"
    ):
        load_metric()


def test_gold_links_that_slipped_are_warned_of(score, write):
    gold = write("slipped", ["0-0 1-1 2-1 3-2"] * 5 + ["0-0 1-1 2-2 3-3"] * 5)
    text = ["--source", write("source", ["on 3 may ."] * 10), "--target", write("target", ["am 3 Mai ."] * 10)]
    status, _, errors = score(gold, gold, *text)
    assert status == 0
    assert f"warning: {gold}: 5 of the 10 sentence pairs" in errors
    status, _, errors = score(gold, gold)
    assert status == 0
    assert not errors  # without the words nobody can know
