"""`attncal analyze`: the summary, the page and the files of a model, its probe, and what is refused."""

import copy
import json

import pytest
import torch
from helpers import FAMILIES
from seq2seq_helpers import PAIRS, bpe_tokenizer, randomized, sized, text_model

from hf_attncal.data.pharaoh import format_links
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.source_use import source_use
from hf_attncal.metrics.trust import verdict_of

SOURCES, TARGETS = ([" ".join(pair[side]) for pair in PAIRS] for side in (0, 1))
QUICK = ("--device", "cpu", "--methods", "attention", "contribution", "random", "--batch-size", "3")
FAITHFULNESS = ("--faithfulness", str(len(PAIRS)))


def text_of(lines) -> str:
    return "".join(f"{line}\n" for line in lines)


def saved(folder, model):
    for part in (model, copy.deepcopy(bpe_tokenizer())):
        part.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    *_, our_config, our_model = FAMILIES["marian"]
    torch.manual_seed(3)
    model = randomized(our_model(our_config(**sized(bpe_tokenizer()), calibration="gated")))
    return saved(tmp_path_factory.mktemp("gated"), model)


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("stock"), copy.deepcopy(text_model("marian", "stock")).float())


@pytest.fixture
def files(tmp_path):
    """Text with its links and tags, and a longer one for a probe."""
    lines = {
        "source": SOURCES,
        "target": TARGETS,
        "gold": [format_links(pair.links) for pair in PAIRS],
        "tags": [" ".join("N" if word[0].isupper() else "x" for word in target.split()) for target in TARGETS],
        "many.source": SOURCES * 150,
        "many.target": TARGETS * 150,
    }
    for name, of in lines.items():
        (tmp_path / name).write_text(text_of(of), encoding="utf-8")
    return tmp_path


def text(files, *names: str) -> list[str]:
    return [argument for name in names for argument in (f"--{name}", str(files / name))]


# ---- what is told ----


def test_summary_page_and_files(attncal, gated, files):
    page, folder = files / "report.html", files / "figures"
    arguments = [*text(files, "source", "target", "gold", "tags"), "--report", str(page), str(folder)]
    status, out, err = attncal("analyze", gated, *QUICK, *FAITHFULNESS, *arguments)
    assert (status, err) == (0, "")
    model, tokenizer = load_seq2seq(gated)
    verdict = verdict_of(source_use(model, tokenizer, SOURCES, TARGETS))
    assert " ".join(out.split()).startswith(f"- {verdict} ")
    assert verdict.level == "do not"
    assert "contributes most at" not in out  # a random model has a reliability, too
    assert f"Page: {page}" in out
    assert SOURCES[0] in page.read_text(encoding="utf-8")
    names = {file.name for file in folder.iterdir()}
    for chart in ("reliability_by_layer", "reliability_by_tag", "aer_by_tag", "aer_by_method", "comprehensiveness"):
        assert {f"{chart}.{kind}" for kind in ("png", "svg", "json", "csv")} <= names
    overview = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    record = overview["record"]
    assert overview["summary"][0] == record["verdict"]["text"] == str(verdict)
    assert f'<p class="lead" dir="auto">{verdict}</p>' in page.read_text(encoding="utf-8")
    assert record["config"]["targets"] == "reference"
    assert set(record["data_sha256"]) == {"source", "target", "gold", "tags"}


@pytest.mark.slow
def test_without_targets_the_model_writes_them(attncal, gated, files):
    status, out, _ = attncal("analyze", gated, *QUICK, *text(files, "source"))
    assert status == 0
    assert "after the words of its own translation" in " ".join(out.split())


def test_a_stock_model_gets_a_probe(attncal, stock, files, monkeypatch):
    monkeypatch.setattr("hf_attncal.report.analysis._TRAINING", {"disable_tqdm": True, "max_steps": 2})
    monkeypatch.setattr("hf_attncal.report.analysis._MAX_ANALYSED_PAIRS", 4)
    many = ["--source", str(files / "many.source"), "--target", str(files / "many.target")]
    methods = ["--device", "cpu", "--methods", "attention", "--batch-size", "3"]
    status, out, err = attncal("analyze", stock, *methods, *many, "-q")
    assert status == 0, err
    assert "loss" not in out + err
    told = " ".join(out.split())
    assert f"a probe trained on {len(SOURCES) * 150 - 4} sentence pairs" in told
    # Two steps teach a probe nothing, and it is not believed.
    assert "The masks of layers 0, 1 and 2 (counted from 0) are uninformative" in told


@pytest.mark.parametrize(
    ("change", "more", "problem"),
    [
        ({}, ["--methods", "contribution", "atention"], "got 'atention'"),
        ({"many.source": "the old house " * 40}, [], "line 2 has"),
        ({"many.target": "das alte Haus " * 40}, [], "line 2 has"),
        ({}, ["--probe-text", "many.source", "many.target"], "sources to analyse are also in the text of the probe"),
    ],
)
def test_errors_come_before_a_probe_is_trained(attncal, stock, files, monkeypatch, change, more, problem):
    monkeypatch.setattr("hf_attncal.training.adapter.train_adapter", lambda *_, **__: pytest.fail("trained"))
    for name, line in change.items():
        lines = (files / name).read_text(encoding="utf-8").splitlines()
        (files / name).write_text(text_of([lines[0], line, *lines[2:]]), encoding="utf-8")
    monkeypatch.chdir(files)
    status, out, err = attncal("analyze", stock, "--source", "many.source", "--target", "many.target", *more)
    assert (status, out) == (1, "")
    assert problem in err


@pytest.mark.parametrize(
    "methods", [["--methods", "attention", "random"], pytest.param([], marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_stock_model_without_a_probe(attncal, stock, files, methods):
    arguments = [*text(files, "source", "target"), "--no-probe", "--device", "cpu", *methods]
    status, out, _ = attncal("analyze", stock, *arguments)
    assert status == 0
    assert "The attention of a head has a mean entropy of" in " ".join(out.split())
    assert "was not measured: this model has no masks" in " ".join(out.split())


# ---- what is refused ----


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["MODEL", "--source", "source", "--probe-text", "source"], "--probe-text must be two texts"),
        (["MODEL", "--source", "source", "--no-probe", "--probe-text", "source", "target"], "--no-probe forbids one"),
        (["MODEL", "--source", "nowhere"], "There is no file"),
        (["MODEL", "--source", "source", "--report", "source"], "cannot be a folder"),
        (["MODEL", "--source", "source", "--gold", "gold"], "need the target text"),
        (["MODEL", "--source", "source", "--target", "many.target"], "must have the same number of lines"),
        (["MODEL", "--source", "source", "--target", "target", "--methods", "attentio"], "got 'attentio'"),
        (["MODEL", "--source", "source", "--faithfulness", "-1"], "--faithfulness must be a number of pairs"),
        (["MODEL", "--source", "source", "--target", "target", "--tags", "gold"], "`tags` must have "),
        (["MODEL", "--source", "many.source", "--target", "many.target", "--gold", "gold"], "lines of links for"),
    ],
)
def test_bad_input_is_one_line(attncal, gated, files, arguments, problem, monkeypatch):
    monkeypatch.chdir(files)
    named = [gated if argument == "MODEL" else argument for argument in arguments]
    status, out, err = attncal("analyze", *named)
    assert (status, out) == (1, "")
    assert problem in err
    assert err.count("\n") == 1


def test_a_probe_needs_separate_text(attncal, stock, files):
    status, _, err = attncal("analyze", stock, *QUICK, *text(files, "source", "target"))
    assert status == 1
    assert "too few to train a probe on most" in err
    status, _, err = attncal("analyze", stock, *QUICK, *text(files, "source", "target", "gold"))
    assert status == 1
    assert "has no masks, and a probe needs other text" in err


def test_a_line_that_is_too_long_is_named(attncal, gated, files):
    lines = [SOURCES[0], "the old house " * 40, *SOURCES[2:]]
    (files / "long").write_text(text_of(lines), encoding="utf-8")
    for target in (text(files, "target"), []):  # read, or written by the model
        status, out, err = attncal("analyze", gated, "--source", str(files / "long"), *target)
        assert (status, out) == (1, "")
        assert err.startswith("attncal: error: line 2 has ")
        assert "source tokens, the model takes at most 64. Split the line, or leave it out, in all files." in err


def test_a_model_that_cannot_have_a_probe_is_refused_at_once(attncal, files, tmp_path):
    *_, our_config, our_model = FAMILIES["marian"]
    leaky = saved(tmp_path / "leaky", our_model(our_config(**sized(bpe_tokenizer()), leaky=True)))
    status, _, err = attncal("analyze", leaky, *text(files, "source", "target"))
    assert status == 1
    assert "No probe: `model` must be a stock model" in err
    assert "--no-probe" in err
    assert err.count("\n") == 1
