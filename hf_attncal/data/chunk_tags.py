"""Tags of chunks, one a word (IOB2): `B-X` begins a chunk of type X, `I-X` continues it, `O` is outside.

An `I-X` that continues no chunk begins one.
"""

import re
from collections.abc import Sequence

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-[^\s-]\S*")


def is_chunk_tag(tag: str) -> bool:
    """Whether it is `O`, `B-TYPE` or `I-TYPE`."""
    return _TAG.fullmatch(tag) is not None


def chunks_of(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Type, first and last word (from 0) of every chunk of a sentence.

    seqeval finds the same, but there is no wheel of it, and its source needs more than pip to be installed.
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
