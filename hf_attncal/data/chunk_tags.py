"""Read chunk tags of words (IOB2): `B-X` begins a chunk of type X, `I-X` continues it, `O` is outside any chunk.

An `I-X` that does not continue a chunk begins one.
"""

import re
from collections.abc import Sequence

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-[^\s-]\S*")


def is_chunk_tag(tag: str) -> bool:
    """Return whether a tag is `O`, `B-TYPE` or `I-TYPE`."""
    return _TAG.fullmatch(tag) is not None


def chunks_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return type, first and last word (from 0) of every chunk of a sentence.

    seqeval gives the same, but it has no wheel, and building its source needs more than pip.
    """
    kinds = [tag[2:] for tag in tags]  # "" outside
    begins = [
        place
        for place, (tag, kind) in enumerate(zip(tags, kinds, strict=True))
        if kind and (tag[0] == "B" or place == 0 or kinds[place - 1] != kind)
    ]
    ends = [
        next((after for after in range(first + 1, len(tags)) if after in begins or not kinds[after]), len(tags))
        for first in begins
    ]
    return [(kinds[first], first, end - 1) for first, end in zip(begins, ends, strict=True)]
