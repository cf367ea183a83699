"""`attncal show`: the page is written, then opened, and what cannot be is refused."""

import copy
import io

import pytest
from report_helpers import pairs_of
from seq2seq_helpers import bpe_tokenizer, text_model

import hf_attncal
from hf_attncal.io.errors import CommandError

SENTENCES = ["the old house", "the young woman sees a dog"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in (text_model("marian", "ours"), copy.deepcopy(bpe_tokenizer())):
        part.save_pretrained("model")
    return "model"


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    return addresses


def sources(page):
    return [known["source"] for known, _ in pairs_of(page.read_text())]


def test_sentences_are_arguments_files_or_the_input(attncal, model, opened, tmp_path, monkeypatch):
    page = tmp_path / "show.html"
    status, out, _ = attncal("show", model, *SENTENCES, "--beams", "2")
    assert (status, sources(page)) == (0, SENTENCES)
    assert out.startswith("- Attention not evaluated")
    assert out.endswith("Page: show.html\n")
    assert opened == [page.as_uri()]
    (tmp_path / "source").write_text("\n".join(f"{line}\tdas Haus" for line in SENTENCES))
    assert attncal("show", model, "--source", "source", "--output", str(page))[0] == 0
    assert [known["target"] for known, _ in pairs_of(page.read_text())] == ["das Haus"] * 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the house\n")))
    report = hf_attncal.show(model, output="other.html")
    assert report.written == {"Page": "other.html"}
    assert sources(tmp_path / "other.html") == ["the house"]
    assert len(opened) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"source": ["a"], "sentences": ["b"]},
        {"sentences": ["a"], "beams": 0},
        {"sentences": [" "]},
        {"sentences": ["a"], "aligner": "./nowhere"},
    ],
)
def test_impossible_options_are_refused(model, opened, tmp_path, asked):
    with pytest.raises(CommandError):
        hf_attncal.show(model, *asked.pop("sentences", ()), **asked)
    assert not opened
    assert not (tmp_path / "show.html").exists()
