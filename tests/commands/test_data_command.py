"""`attncal data`: files of published text, and one line where they cannot be had."""

import hashlib
import io
import json
import urllib.request

import pytest

import hf_attncal
from hf_attncal.commands import main
from hf_attncal.data import published


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
    status, out, err = attncal("multi30k", "--source", fetched, "--output", tmp_path / "data")
    assert status == 0, err
    assert len(out.splitlines()) == len(list((tmp_path / "data").iterdir())) == 6
    assert out.splitlines()[0] == f"{tmp_path}/data/train.en.gz: 2 lines"
    assert "licence" in err

    status, _, err = attncal("multi30k", "--source", fetched, "--output", tmp_path / "data")
    assert (status, err.count("\n")) == (1, 1)
    assert "is not an empty folder" in err


def test_a_corpus_that_cannot_be_fetched_leaves_nothing(attncal, fetched, tmp_path, monkeypatch):
    (fetched / "val.lc.norm.tok.de").unlink()
    status, _, err = attncal("multi30k", "--source", fetched, "--output", tmp_path / "data")
    assert status == 1
    assert "val.lc.norm.tok.de cannot be read: No such file" in err.splitlines()[-1]

    monkeypatch.setattr(published, "_MULTI30K", f"file://{tmp_path}/nowhere/")
    status, _, err = attncal("multi30k", "--output", tmp_path / "data")
    assert status == 1
    assert "train.lc.norm.tok.en cannot be fetched: " in err.splitlines()[-1]
    assert "--source" in err.splitlines()[-1]
    assert not (tmp_path / "data").exists()


def test_a_corpus_is_fetched_from_its_address(attncal, fetched, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "_MULTI30K", f"file://{fetched}/")
    status, _, err = attncal("multi30k", "--output", tmp_path / "data")
    assert status == 0, err
    assert err.count("fetching ") == 6


# ---- what was fetched is what was fetched before ----


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A corpus of two files whose SHA-256 nobody has published, and their folder."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"{name}\n")

    def make(fetch):
        return {name: fetch(f"https://example.org/toy/{name}") for name in ("a.txt", "b.txt")}

    monkeypatch.setitem(published.CORPORA, "toy", published.PublishedCorpus(make, "none"))
    return folder


def hash_of(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("kept", ["output", "source"])
def test_a_hash_that_nobody_knows_is_told_recorded_and_compared_the_next_time(attncal, toy, tmp_path, kept):
    status, _, err = attncal("toy", "--source", toy, "--output", tmp_path / "first")
    assert status == 0
    hashes = {name: hash_of(toy / name) for name in ("a.txt", "b.txt")}
    for name, digest in hashes.items():
        assert f"{name}: SHA-256 {digest}, which could not be compared with a known one." in err
    record = (tmp_path / "first" / "fetched.sha256").read_text()
    assert record == "".join(f"{digest}  {name}\n" for name, digest in hashes.items())

    again = tmp_path / "again"
    again.mkdir()
    ((again if kept == "output" else toy) / "fetched.sha256").write_text(record)
    status, _, err = attncal("toy", "--source", toy, "--output", again)
    assert (status, err) == (0, "toy: licence: none\n")
    assert (again / "fetched.sha256").read_text() == record
    for path in again.glob("*.txt"):
        path.unlink()
    (toy / "b.txt").write_text("other\n")
    status, _, err = attncal("toy", "--source", toy, "--output", again)
    assert (status, err.count("\n")) == (1, 1)
    told = f"its SHA-256 is {hash_of(toy / 'b.txt')}, not {hashes['b.txt']}."
    assert f"https://example.org/toy/b.txt has changed: {told}" in err
    assert [path.name for path in again.iterdir()] == ["fetched.sha256"]


def test_a_record_of_one_file_is_completed_and_one_that_is_none_refused(attncal, toy, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "fetched.sha256").write_text(f"{hash_of(toy / 'a.txt')}  a.txt\n")
    status, _, err = attncal("toy", "--source", toy, "--output", folder)
    assert (status, err.count("could not be compared")) == (0, 1)
    assert len((folder / "fetched.sha256").read_text().splitlines()) == 2
    (toy / "fetched.sha256").write_text("no hash\n")
    status, _, err = attncal("toy", "--source", toy, "--output", tmp_path / "new")
    assert status == 1
    assert f"{toy}/fetched.sha256 is not in the format of `sha256sum`: see line 1." in err
    assert not (tmp_path / "new").exists()


def test_an_address_that_leads_to_one_that_is_not_encrypted_is_refused(attncal, toy, tmp_path, monkeypatch):
    class Response(io.BytesIO):
        url = "http://example.org/toy/a.txt"

    monkeypatch.setattr(urllib.request, "urlopen", lambda address, timeout: Response(b"a\n"))
    status, _, err = attncal("toy", "--output", tmp_path / "data")
    assert status == 1
    assert "a.txt cannot be fetched: it leads to http://example.org/toy/a.txt, which is not encrypted." in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("name", ["_MULTI30K", "_WPT03"])
def test_corpora_are_fetched_by_https(name):
    assert getattr(published, name).startswith("https://")


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


def test_the_function_is_the_command_and_the_old_option_is_understood(attncal, fetched, tmp_path):
    found = hf_attncal.fetch_data("multi30k", output=tmp_path / "python", source=fetched)
    status, out, err = attncal("multi30k", "--source", fetched, "--output", tmp_path / "command")
    assert status == 0, err
    assert out == f"{found}\n".replace(f"{tmp_path}/python", f"{tmp_path}/command")
    assert set(found.files) == set((tmp_path / "python").iterdir())
    assert (set(found.files.values()), found.left_out) == ({2}, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multi3k"], "multi3k is not one of multi30k, wpt03-enfr; "),
        (["stack-language"], "`python experiments/stack_sequences.py` writes it."),
        (["multi30k", "--fields", "en", "de"], "--fields and --config belong to a dataset of the Hub"),
        (["owner/name"], "--fields is missing: which fields of owner/name"),
        (["owner/name", "--fields", "en", "de", "--source", "."], "--source belongs to multi30k, wpt03-enfr"),
        (["owner/name", "--fields", "en", "de"], "owner/name cannot be loaded: "),
    ],
)
def test_what_cannot_be_had_is_one_line(attncal, tmp_path, arguments, message):
    status, _, err = attncal(*arguments, "--output", tmp_path / "data")
    assert (status, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "data").exists()
