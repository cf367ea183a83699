"""`attncal data`: files of published text, and one line where they cannot be had."""

import hashlib
import json

import pytest

from hf_attncal.cli import main
from hf_attncal.data import published
from hf_attncal.data.synthetic.stack_language import generate_split


@pytest.fixture
def attncal(capsys):
    """Run the command: arguments -> (status, standard output, standard error)."""

    def run(*arguments):
        status = main(["data", *map(str, arguments)])
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """The published files of Multi30k, with other text, in a folder."""
    folder = tmp_path / "fetched"
    folder.mkdir()
    expected = {}
    for name in published._MULTI30K_SHA256:
        text = f"a sentence of {name}\nanother\n".encode()
        expected[name] = hashlib.sha256(text).hexdigest()
        split, language = name.split(".")
        (folder / f"{split}.lc.norm.tok.{language}").write_bytes(text)
    monkeypatch.setattr(published, "_MULTI30K_SHA256", expected)
    return folder


def test_a_corpus_from_files_that_were_fetched_before(attncal, fetched, tmp_path):
    status, out, err = attncal("multi30k", "--from", fetched, "--output", tmp_path / "data")
    assert status == 0, err
    assert len(out.splitlines()) == len(list((tmp_path / "data").iterdir())) == 6
    assert out.splitlines()[0] == f"{tmp_path}/data/train.en.gz: 2 lines"
    assert "licence" in err

    status, _, err = attncal("multi30k", "--from", fetched, "--output", tmp_path / "data")
    assert (status, err.count("\n")) == (1, 1)
    assert "is no empty folder" in err


def test_a_corpus_that_cannot_be_fetched_leaves_nothing(attncal, fetched, tmp_path, monkeypatch):
    (fetched / "val.lc.norm.tok.de").unlink()
    status, _, err = attncal("multi30k", "--from", fetched, "--output", tmp_path / "data")
    assert status == 1
    assert "val.lc.norm.tok.de cannot be read: No such file" in err.splitlines()[-1]

    monkeypatch.setattr(published, "_MULTI30K", f"file://{tmp_path}/nowhere/")
    status, _, err = attncal("multi30k", "--output", tmp_path / "data")
    assert status == 1
    assert "train.lc.norm.tok.en cannot be fetched: " in err.splitlines()[-1]
    assert "--from" in err.splitlines()[-1]
    assert not (tmp_path / "data").exists()


def test_a_corpus_is_fetched_from_its_address(attncal, fetched, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "_MULTI30K", f"file://{fetched}/")
    status, _, err = attncal("multi30k", "--output", tmp_path / "data")
    assert status == 0, err
    assert err.count("fetching ") == 6


def test_a_dataset_of_the_hub(attncal, tmp_path):
    folder = tmp_path / "owner"
    folder.mkdir()
    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "", "de": "leer"}]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = (folder, "--fields", "en", "de", "--output", tmp_path / "data")
    status, out, err = attncal(*options)
    assert status == 0, err
    assert (tmp_path / "data" / "train.de").read_text() == "ein Hund\n"
    assert out.splitlines()[-1].startswith("1 pairs were left out")
    status, _, err = attncal(*options)
    assert status == 1
    assert f"{tmp_path}/data/train.en is there already" in err


def test_the_stack_language_is_generated(attncal, tmp_path):
    status, out, err = attncal("stack-language", "--output", tmp_path / "data")
    assert (status, err) == (0, "")
    sizes = {"train": 50_000, "dev": 5_000, "test": 5_000}
    assert out.splitlines() == [f"{tmp_path}/data/{name}.txt: {lines:,} lines" for name, lines in sizes.items()]
    files = {name: (tmp_path / "data" / f"{name}.txt").read_text().splitlines() for name in sizes}
    assert files == generate_split()._asdict()
    status, _, err = attncal("stack-language", "--output", tmp_path / "data")
    assert status == 1
    assert f"{tmp_path}/data/train.txt is there already" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi3k"], "multi3k is none of multi30k, wpt03-enfr, stack-language; "),
        (["stack-language", "--from", "."], "stack-language is generated: it needs neither --from nor --fields"),
        (["stack-language", "--fields", "en", "de"], "stack-language is generated"),
        (["stack-language", "--config", "x"], "stack-language is generated"),
        (["multi30k", "--fields", "en", "de"], "--fields and --config belong to a dataset of the Hub"),
        (["owner/name"], "--fields is missing: which fields of owner/name"),
        (["owner/name", "--fields", "en", "de", "--from", "."], "--from belongs to multi30k, wpt03-enfr"),
        (["owner/name", "--fields", "en", "de"], "owner/name cannot be had: "),
    ],
)
def test_what_cannot_be_had_is_one_line(attncal, tmp_path, arguments, message):
    status, _, err = attncal(*arguments, "--output", tmp_path / "data")
    assert (status, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "data").exists()
