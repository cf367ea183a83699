"""Published corpora as files: made from archives of generated text in the form of the real ones, and checked."""

import gzip
import hashlib
import io
import json
import lzma
import re
import sys
import tarfile
from pathlib import Path

import pytest

from hf_attncal.data.synthetic.english_german import generate_pairs

ROOT = Path(__file__).parents[2]
PAIRS = [pair for pair in generate_pairs(400, seed=3) if len(pair.source) > 4 and len(pair.target) > 4]
GOLD, TRAINING = PAIRS[:6], PAIRS[6:]


def archive(files: dict[str, str]) -> bytes:
    """A .tar.gz as those of WPT03: one folder around all, Latin-1."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            data = text.encode("latin-1")
            member = tarfile.TarInfo(f"English-French/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def tagged(side: str) -> str:
    lines = (f"<s snum={n:04}> {' '.join(getattr(pair, side))}  </s>" for n, pair in enumerate(GOLD, start=1))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def fetch_corpora(experiment):
    return experiment("fetch_corpora")


@pytest.fixture
def wpt03(fetch_corpora, monkeypatch):
    """The three archives, by address, and the numbers of pairs and links in them; the second link is possible."""
    links, kinds = [], {"S": 0, "P": 0}
    for n, pair in enumerate(GOLD, start=1):
        for number, (i, j) in enumerate(reversed(sorted(pair.links))):
            kind = "P" if number == 1 else "S"
            links.append(f"{n:04} {i + 1} {j + 1} {kind}\n")
            kinds[kind] += n % 2
    text = {"e": tagged("source"), "f": tagged("target")}
    training = {}
    for day in range(8):
        pairs = TRAINING[day * 40 : day * 40 + 40] + TRAINING[:2]  # what every day begins with is there once
        for side, name in (("source", "e"), ("target", "f")):
            lines = [" ".join(getattr(pair, side)) for pair in pairs]
            training[f"training/hansard.36.1.house.debates.{day:03}.{name}"] = "\n".join(lines) + "\n"
    archives = {
        "trial": archive({f"trial/trial.{side}": text[side] for side in "ef"} | {"trial/trial.wa": "".join(links)}),
        "test": archive(
            {f"test/test.{side}": text[side] for side in "ef"} | {"answers/test.wa.nonullalign": "".join(links)}
        ),
        "training": archive(training),
    }
    counts = {"S": sum(line.endswith("S\n") for line in links), "P": sum(line.endswith("P\n") for line in links)}
    (dev, test) = fetch_corpora._WPT03_GOLD.values()
    monkeypatch.setattr(
        fetch_corpora,
        "_WPT03_GOLD",
        {
            "trial": (*dev[:3], (len(GOLD), counts["S"], counts["P"])),
            "test": (*test[:3], (len(GOLD) // 2, kinds["S"], kinds["P"])),
        },
    )
    monkeypatch.setattr(fetch_corpora, "_WPT03_TRAINING", sum(text.count("\n") for text in training.values()) // 2)
    monkeypatch.setattr(fetch_corpora, "_WPT03_HELD_OUT", 60)
    monkeypatch.setattr(fetch_corpora, "_WPT03_TRANSLATION", 30)
    monkeypatch.setattr(fetch_corpora, "_WPT03_SMALL", 100)
    return {f"{fetch_corpora._WPT03}{name}.tar.gz": data for name, data in archives.items()}


def test_multi30k_is_the_text_that_was_measured_or_refused(fetch_corpora, monkeypatch):
    texts = {name: f"a sentence of {name}\n".encode() for name in fetch_corpora._MULTI30K_SHA256}
    monkeypatch.setattr(
        fetch_corpora, "_MULTI30K_SHA256", {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    )
    at = {
        f"{fetch_corpora._MULTI30K}{split}.lc.norm.tok.{language}": texts[f"{split}.{language}"]
        for split in ("train", "val", "test_2016_flickr")
        for language in ("en", "de")
    }
    assert set(fetch_corpora.multi30k(at.__getitem__)) == {
        *("train.en.gz", "train.de.gz", "val.en", "val.de", "test_2016_flickr.en", "test_2016_flickr.de")
    }
    at[f"{fetch_corpora._MULTI30K}val.lc.norm.tok.de"] += b"one line more\n"
    with pytest.raises(ValueError, match=r"val\.lc\.norm\.tok\.de.*changed"):
        fetch_corpora.multi30k(at.__getitem__)


def test_checksums_of_multi30k_are_those_of_the_results(fetch_corpora):
    """Those of `val` and `test` stand in the results themselves; the training text is compressed there."""
    result = json.loads((ROOT / "results" / "multi30k" / "gated_seed1.json").read_text(encoding="utf-8"))
    for name, expected in fetch_corpora._MULTI30K_SHA256.items():
        assert result["data_sha256"].get(name, expected) == expected


def test_wpt03_has_gold_links_from_zero_and_the_even_half_of_test(fetch_corpora, wpt03):
    files = fetch_corpora.wpt03_enfr(wpt03.__getitem__)
    for split, pairs in (("dev", GOLD), ("test", GOLD[::2])):
        for language, side in (("en", "source"), ("fr", "target")):
            expected = [" ".join(getattr(pair, side)) for pair in pairs]
            assert files[f"{split}.{language}"].decode().split("\n") == [*expected, ""]
        lines = files[f"{split}.align"].decode().splitlines()
        for line, pair in zip(lines, pairs, strict=True):
            links = [tuple(map(int, re.split("[-p]", link))) for link in line.split()]
            assert links == sorted(pair.links)
            assert [link for link in line.split() if "p" in link] == [
                "{}p{}".format(*sorted(pair.links, reverse=True)[1])
            ]


def test_wpt03_trains_on_no_pair_twice_and_translates_other_days(fetch_corpora, wpt03):
    files = fetch_corpora.wpt03_enfr(wpt03.__getitem__)
    pairs = {
        split: list(
            zip(
                *(files[f"{split}.{language}{suffix}"].decode().splitlines() for language in ("en", "fr")), strict=True
            )
        )
        for split, suffix in (("train.100k", ".gz"), ("train.rest", ".xz"), ("mt-valid", ".gz"), ("mt-test", ".gz"))
    }
    train = pairs["train.100k"] + pairs["train.rest"]
    assert len(pairs["train.100k"]) == 100
    assert len(pairs["train.rest"]) > 50
    assert len(set(train)) == len(train)
    held_out = pairs["mt-valid"] + pairs["mt-test"]
    assert len(pairs["mt-valid"]) == 30
    assert len(pairs["mt-test"]) > 10
    assert len(set(held_out)) == len(held_out)
    for side in (0, 1):
        assert {pair[side] for pair in held_out}.isdisjoint(pair[side] for pair in train)
    assert train != sorted(train)
    assert files == fetch_corpora.wpt03_enfr(wpt03.__getitem__)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("trial", lambda files: files | {"trial/trial.wa": "0001 1 1 S\n"}, r"trial\.wa gives \(6, 1, 0\) pairs"),
        ("trial", lambda files: files | {"trial/trial.wa": "0001 99 1 S\n"}, r"Line 1 .*`0001 99 1 S`, does not fit"),
        ("trial", lambda files: files | {"trial/trial.wa": "0007 1 1 S\n"}, r"Line 1 .* does not fit"),
        ("trial", lambda files: {"trial/trial.e": "a\n"}, r"archive has 0 files trial/trial\.f"),
        ("training", lambda files: {"training/a.e": "a\n", "training/a.f": "b\n"}, r"has 1 sentence pairs, not"),
    ],
)
def test_an_archive_that_is_another_one_is_refused(fetch_corpora, wpt03, name, damage, message):
    address = f"{fetch_corpora._WPT03}{name}.tar.gz"
    members = {
        path.partition("/")[2]: data.decode("latin-1") for path, data in fetch_corpora._members(wpt03[address]).items()
    }
    with pytest.raises(ValueError, match=message):
        fetch_corpora.wpt03_enfr((wpt03 | {address: archive(damage(members))}).__getitem__)


def test_it_is_written_from_a_folder_with_the_published_files(fetch_corpora, wpt03, tmp_path, monkeypatch):
    (tmp_path / "published").mkdir()
    for address, data in wpt03.items():
        (tmp_path / "published" / address.rpartition("/")[2]).write_bytes(data)
    command = [
        "fetch_corpora.py",
        "wpt03-enfr",
        "--source",
        str(tmp_path / "published"),
        "--output",
        str(tmp_path / "out"),
    ]
    monkeypatch.setattr(sys, "argv", command)
    fetch_corpora.main()
    files = fetch_corpora.wpt03_enfr(wpt03.__getitem__)
    assert {path.name for path in (tmp_path / "out").iterdir()} == files.keys()
    for name, decompress in (
        ("train.100k.en.gz", gzip.decompress),
        ("train.rest.fr.xz", lzma.decompress),
        ("dev.en", bytes),
    ):
        assert decompress((tmp_path / "out" / name).read_bytes()) == files[name]
