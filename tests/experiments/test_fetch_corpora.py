"""Published corpora: they are the text that was measured."""

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fetch_corpora(experiment):
    return experiment("fetch_corpora")


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
