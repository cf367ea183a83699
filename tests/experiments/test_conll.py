"""Annotated sentences in columns: what is read, and what is refused with its line."""

import gzip

import pytest
from conll import most_frequent_tags, read_conll

from hf_attncal.data.chunk_tags import is_chunk_tag

ROWS = ["The DT B-NP", "dog NN I-NP", "runs VBZ B-VP", ". . O"]


def written(tmp_path, *lines):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_sentences_are_read_column_by_column(tmp_path):
    path = written(tmp_path, "", *ROWS, "", "", "Dogs NNS B-NP", "  ")
    first, second = read_conll(path)
    assert first.words == ("The", "dog", "runs", ".")
    assert first.parts_of_speech == ("DT", "NN", "VBZ", ".")
    assert first.chunk_tags == ("B-NP", "I-NP", "B-VP", "O")
    assert second == (("Dogs",), ("NNS",), ("B-NP",))


def test_the_last_sentence_needs_no_empty_line_and_gzip_is_read(tmp_path):
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress("\n".join(ROWS).encode()))
    assert [len(sentence.words) for sentence in read_conll(path)] == [4]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("runs VBZ", r"needs three columns \(word, part of speech, chunk tag\), got 2: 'runs VBZ'"),
        ("runs VBZ B-VP x", "needs three columns .* got 4"),
        ("runs B-VP VBZ", "a chunk tag is `O`, `B-TYPE` or `I-TYPE`, got 'VBZ'"),
        ("runs VBZ B-", "a chunk tag is .* got 'B-'"),
        ("runs VBZ E-VP", "a chunk tag is .* got 'E-VP'"),
        ("runs VBZ I-VP", "`I-VP` must continue a chunk of its type, but the tag before it is `I-NP`.*`B-VP`"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, line, told):
    path = written(tmp_path, *ROWS[:2], line)
    with pytest.raises(ValueError, match=rf"text\.txt.*line 3.*{told}"):
        read_conll(path)


@pytest.mark.parametrize("before", ["", "x NN O"])
def test_a_chunk_does_not_begin_in_its_middle(tmp_path, before):
    with pytest.raises(ValueError, match=r"line 6.*`I-NP`.*`O`"):
        read_conll(written(tmp_path, *ROWS[:3], "", before, "dog NN I-NP"))


def test_a_text_without_sentences_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is empty"):
        read_conll(written(tmp_path, "", ""))


def test_tags():
    assert all(map(is_chunk_tag, ("O", "B-NP", "I-X-Y")))
    assert not any(map(is_chunk_tag, ("", "o", "B", "B-", "NP", "B-N P", "O-NP", "B--")))


def test_the_most_frequent_tag_and_of_equals_the_first_in_the_alphabet():
    assert most_frequent_tags(["a", "b", "a", "b", "a"], ["Y", "Z", "X", "Y", "X"]) == {"a": "X", "b": "Y"}
    with pytest.raises(ValueError, match=r"1 tags.*2 words"):
        most_frequent_tags(["a", "b"], ["X"])
