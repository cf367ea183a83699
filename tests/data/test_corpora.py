"""Reading parallel text and turning it into token ids: what is kept, what is dropped, what stops the program."""

import gzip
import json

import datasets
import pytest
from datasets import Dataset
from tokenizers.processors import TemplateProcessing

from hf_attncal.data.corpora import all_lines, load_parallel, read_parallel, tokenize_pairs
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.io.files import read_lines

ENGLISH = ["a man reads a book .", "the woman sleeps .", "two dogs run in the park ."] * 4
GERMAN = ["ein Mann liest ein Buch .", "die Frau schläft .", "zwei Hunde laufen im Park ."] * 4


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe_tokenizer(ENGLISH + GERMAN, vocab_size=120)


@pytest.fixture
def write(tmp_path):
    """Write text (or bytes) to a file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress)])
def test_read_lines_of_every_compression(write, suffix, compress):
    path = write("train.de" + suffix, compress("Größe\n\nzwei\n".encode()))
    assert read_lines(path) == ["Größe", "", "zwei"]


def test_only_line_feeds_end_a_line(write):
    """U+2028, form feed, next line and a lone carriage return would shift one language against the other."""
    path = write("x", "\ufeffone\u2028still\x0cone\x85\rone\r\ntwo")
    assert read_lines(path) == ["one\u2028still\x0cone\x85\rone", "two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.en", b"", r"empty\.en.*empty.*0 bytes.*Give a file"),
        ("blank.en", b" \n\n", r"blank\.en.*empty.*3 bytes"),
        ("latin.en", "gut\nschön\n".encode("latin1"), r"line 2 of .*latin\.en is not UTF-8 .*iconv -f latin1"),
        ("broken.gz", b"plain text", r"broken\.gz.*cannot be decompressed.*rename"),
    ],
)
def test_unreadable_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_lines(write(name, content))


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.en`.*exist"):
        read_lines(tmp_path / "absent.en")
    with pytest.raises(ValueError, match="is a directory"):
        read_lines(tmp_path)
    with pytest.raises(ValueError, match="is a device"):
        read_lines("/dev/null")


def test_read_parallel(write):
    dataset = read_parallel(write("x.en", "\n".join(ENGLISH)), write("x.de", "\n".join(GERMAN) + "\n"))
    assert dataset.column_names == ["source", "target"]
    assert dataset[1] == {"source": ENGLISH[1], "target": GERMAN[1]}
    assert len(dataset) == 12


def test_unequal_files_name_both_counts(write):
    with pytest.raises(ValueError, match=r"x\.en`.*3.*x\.de`.*2"):
        read_parallel(write("x.en", "a\nb\nc\n"), write("x.de", "a\nb\n"))


def test_load_parallel_joins_lists_of_files(write):
    one, two = write("1", "a\nb"), write("2", "c")
    dataset = load_parallel({"source": [str(one), str(two)], "target": [str(two), str(one)][::-1]})
    assert dataset["source"][:] == dataset["target"][:] == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"`source`.*2 files.*`target`.*1"):
        load_parallel({"source": [one, two], "target": one})


@pytest.mark.parametrize("nested", [False, True])
def test_load_parallel_from_a_dataset(tmp_path, monkeypatch, nested):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "corpus"
    folder.mkdir()
    rows = [{"en": source, "de": target} for source, target in zip(ENGLISH, GERMAN, strict=True)]
    lines = [json.dumps({"translation": row, "id": 1} if nested else row) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines))
    prefix = "translation." if nested else ""
    spec = {"dataset": str(folder), "split": "train", "source_field": prefix + "en", "target_field": prefix + "de"}
    dataset = load_parallel(spec)
    assert dataset.column_names == ["source", "target"]
    assert (dataset["source"][:], dataset["target"][:]) == (ENGLISH, GERMAN)
    with pytest.raises(ValueError, match=r"has no field `fr`; it has \["):
        load_parallel({**spec, "source_field": "fr"})


def test_all_lines_leaves_out_missing_ones():
    dataset = Dataset.from_dict({"source": ["a", None, "c"], "target": ["A", "B", ""], "other": [1, 2, 3]})
    assert sorted(all_lines(dataset, batch_size=2)) == ["A", "B", "a", "c"]


def test_tokenize_pairs(tokenizer):
    dataset, report = tokenize_pairs(Dataset.from_dict({"source": ENGLISH, "target": GERMAN}), tokenizer, 64)
    assert dataset.column_names == ["input_ids", "labels", "length"]
    for row, source, target in zip(dataset, ENGLISH, GERMAN, strict=True):
        assert row["input_ids"][-1] == row["labels"][-1] == tokenizer.eos_token_id
        assert tokenizer.decode(row["input_ids"], skip_special_tokens=True) == source
        assert tokenizer.decode(row["labels"], skip_special_tokens=True) == target
        assert row["length"] == max(len(row["input_ids"]), len(row["labels"]))
    assert (report.kept, report.dropped) == (12, 0)
    assert str(report) == "Kept 12 of 12 sentence pairs."


def test_dropped_pairs_are_counted_and_never_cut(tokenizer):
    """Rows: fine, empty source, blank target, missing target, long source, long target, fine."""
    long = " ".join(["book"] * 40)
    dataset = Dataset.from_dict(
        {
            "source": ["a man", "", "b", "c", long, "d", "a book"],
            "target": ["Mann", "B", " \t", None, "C", long, "Buch"],
        }
    )
    with pytest.warns(UserWarning, match="Kept 2 of 7"):
        kept, report = tokenize_pairs(dataset, tokenizer, 20)
    assert (report.kept, report.empty, report.too_long) == (2, 3, 2)
    assert "more than 20 tokens (raise `max_length`" in str(report)
    assert "3 with no text, or an empty side (remove these lines" in str(report)
    assert tokenizer.batch_decode(kept["input_ids"][:], skip_special_tokens=True) == ["a man", "a book"]


def test_max_length_includes_the_end_of_the_sentence(tokenizer):
    dataset = Dataset.from_dict({"source": ["a man reads"], "target": ["a"]})
    length = len(tokenizer("a man reads").input_ids)
    assert tokenize_pairs(dataset, tokenizer, length)[1].kept == 1
    with pytest.raises(ValueError, match=r"No sentence pair.*1 with more than 3 tokens"):
        tokenize_pairs(dataset, tokenizer, length - 1)


def test_tokenizer_without_trailing_eos_gets_one(tokenizer):
    bare = train_bpe_tokenizer(ENGLISH, vocab_size=100)
    bare.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    assert bare("a man").input_ids[-1] != bare.eos_token_id
    dataset, _ = tokenize_pairs(Dataset.from_dict({"source": ["a man"], "target": ["a"]}), bare, 9)
    assert dataset[0]["input_ids"] == [*bare("a man").input_ids, bare.eos_token_id]


def test_tokenize_pairs_checks_its_arguments(tokenizer):
    dataset = Dataset.from_dict({"source": ["a"], "target": ["b"]})
    with pytest.raises(ValueError, match=r"`max_length`.*2.*got 1"):
        tokenize_pairs(dataset, tokenizer, 1)
    without = train_bpe_tokenizer(ENGLISH, vocab_size=100)
    without.eos_token = None
    with pytest.raises(ValueError, match="no `eos_token`"):
        tokenize_pairs(dataset, without, 9)


def test_nothing_is_written_to_the_cache(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    dataset, _ = tokenize_pairs(Dataset.from_dict({"source": ENGLISH, "target": GERMAN}), tokenizer, 64)
    assert dataset.cache_files == []
    assert list(tmp_path.iterdir()) == []
