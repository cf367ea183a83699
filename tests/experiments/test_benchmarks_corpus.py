"""The benchmark of a corpus: its text, parts that are killed, and what is compared."""

import importlib
import json
from pathlib import Path

import pytest

from hf_attncal.alignment import WordAligner
from hf_attncal.compressed import open_to_read
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

ROOT = Path(__file__).resolve().parents[2]
TEXT = ["a house , red .", "an old house ( red )", "Mary 's house"]


@pytest.fixture(scope="module")
def corpus():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("corpus")


@pytest.fixture
def files(tmp_path) -> tuple[str, str]:
    for name in ("source", "target"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in TEXT))
    return str(tmp_path / "source"), str(tmp_path / "target")


def test_the_text_is_repeated_and_raw(corpus, files, tmp_path):
    path = tmp_path / "text.zst"
    corpus.write_corpus([files[0], files[1]], 8, path)
    with open_to_read(path) as file:
        lines = file.read().decode().splitlines()
    raw = ["a house, red.", "an old house (red)", "Mary's house"]
    assert lines == (raw * 3)[:8]
    path.write_bytes(b"")
    corpus.write_corpus([files[0]], 8, path)  # what is there is kept
    assert path.read_bytes() == b""


@pytest.mark.slow
def test_parts_that_are_killed_and_one_run_have_the_same_bytes(corpus, files, tmp_path, monkeypatch):
    tokenizer = train_bpe_tokenizer(TEXT * 3, vocab_size=60)
    model = HMMAlignModel(HMMAlignConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)).eval()
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    assert WordAligner.from_pretrained(tmp_path / "model").align([("a", "a")])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    options = ["--model", str(tmp_path / "model"), "--source", files[0], "--target", files[1], "--lines", "3000"]
    options += ["--parts", "2", "--kill", "2", "--kill-after", "1", "--batch-tokens", "1024", "--whole"]
    corpus.main([*options, "--folder", str(tmp_path / "work"), "--output", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["lines"] == 3000
    assert [part["killed"] for part in result["parts"]] == [False, True]
    assert result["whole"]["same_bytes"]
    seconds = sum(part["cpu_seconds"] for part in result["parts"])
    assert result["core_hours_per_100m"] == pytest.approx(1e8 * seconds / 3000 / 3600)
    assert result["memory_bytes"] > 1e8
