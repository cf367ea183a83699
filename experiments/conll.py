"""Annotated sentences in columns, as of the CoNLL-2000 shared task: a word, its part of speech and its chunk tag.

Chunk tags are IOB2: `B-X` begins a chunk of type X, `I-X` continues it, `O` is outside.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hf_attncal.data.chunk_tags import OUTSIDE, is_chunk_tag
from hf_attncal.files import read_lines

_COLUMNS = "word, part of speech, chunk tag"


class TaggedSentence(NamedTuple):
    """A sentence with as many tags as words."""

    words: tuple[str, ...]
    parts_of_speech: tuple[str, ...]
    chunk_tags: tuple[str, ...]


def read_conll(path: str | Path) -> list[TaggedSentence]:
    """The sentences of a file with one word a line and an empty line behind each sentence; `.gz` and `.xz`, too.

    Raises:
        ValueError: see `read_lines`; also, with the number of the line, if there are not three columns, or a chunk tag
            is none or an `I-X` that continues no chunk of type X.
    """
    sentences: list[TaggedSentence] = []
    rows: list[list[str]] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        columns = line.split()
        if columns:
            _check_row(f"{path}, line {number}", columns, rows[-1][2] if rows else OUTSIDE)
            rows.append(columns)
        elif rows:
            sentences.append(TaggedSentence(*zip(*rows, strict=True)))
            rows = []
    return sentences


def _check_row(where: str, columns: list[str], before: str) -> None:
    """Refuse what is no row behind one with the chunk tag `before`."""
    if len(columns) != 3:
        raise ValueError(
            f"{where}: a word needs three columns ({_COLUMNS}), got {len(columns)}: {' '.join(columns)[:80]!r}. Mend "
            "the line; an empty one ends a sentence."
        )
    tag = columns[2]
    if not is_chunk_tag(tag):
        raise ValueError(f"{where}: a chunk tag is `O`, `B-TYPE` or `I-TYPE`, got {tag!r}. Columns: {_COLUMNS}.")
    if tag[0] == "I" and before[1:] != tag[1:]:
        raise ValueError(
            f"{where}: `{tag}` must continue a chunk of its type, but the tag before it is `{before}`. Begin "
            f"the chunk with `B{tag[1:]}` (IOB2)."
        )


def most_frequent_tags(keys: Sequence[str], tags: Sequence[str]) -> dict[str, str]:
    """A tagger that knows one thing, such as the word: the tag that goes with it most often.

    Args:
        keys: what to tell the tag by, one of annotated text after the other.
        tags: one for each key. Of equally frequent ones the first in the alphabet is taken.

    Raises:
        ValueError: another number of tags than of keys.
    """
    if len(keys) != len(tags):
        raise ValueError(f"{len(tags)} tags do not fit {len(keys)} words. Give one a word.")
    counts: dict[str, Counter[str]] = {}
    for key, tag in zip(keys, tags, strict=True):
        counts.setdefault(key, Counter())[tag] += 1
    return {key: min(of_key, key=lambda tag: (-of_key[tag], tag)) for key, of_key in counts.items()}
