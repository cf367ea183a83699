"""How links are written: one line a pair, in the format of a tool that reads it, or one page of pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from hf_attncal.io.errors import CommandError, one_of
from hf_attncal.io.streams import json_line, write_lines

if TYPE_CHECKING:
    from .merging import WordAlignment

LINK_FORMATS = ("pharaoh", "words", "opustrainer", "json", "html")
_WITH_OFFSETS = ("pharaoh", "json")


@dataclass(frozen=True)
class LinkStyle:
    """How the links of a pair are written.

    Args:
        format: of `LINK_FORMATS`: `i-j`, the words of each link, source and target and links, an object, a picture.
        scores: in the first three, write the score behind each link.
        null: in the first three, add the NULL probabilities of the source words and of the target words.
        offsets: write characters in place of the numbers of words; json: beside the words.

    Raises:
        CommandError: an unknown format, or one that has no place for offsets.
    """

    format: str = "pharaoh"
    scores: bool = False
    null: bool = False
    offsets: bool = False

    def __post_init__(self):
        one_of("--format", self.format, LINK_FORMATS)
        if self.offsets and self.format not in _WITH_OFFSETS:
            raise CommandError(f"--offsets has no place in --format {self.format}. Use pharaoh or json.")

    @property
    def shows_scores(self) -> bool:
        """Whether a reader sees the scores of links."""
        return self.scores or self.format == "json"

    @property
    def counts_words(self) -> bool:
        """Whether links are numbers of words, and nothing else is in a line: so that it is read where links are."""
        return self.format == "pharaoh" and not self.offsets

    def line(self, number: int, alignment: "WordAlignment") -> str:
        """Return what is written for the pair in line `number` of the text, from 1."""
        if self.format == "html":
            from .pictures import page_pair

            return page_pair(number, alignment)
        if self.format == "json":
            return json_line(alignment.to_dict())
        write = alignment.offsets if self.offsets else alignment.pharaoh
        columns = [(alignment.words if self.format == "words" else write)(scores=self.scores)]
        if self.format == "opustrainer":
            columns = [" ".join(alignment.source), " ".join(alignment.target), *columns]
        if self.null:
            sides = (alignment.source_null, alignment.target_null)
            columns += [" ".join(f"{probability:.4f}" for probability in side) for side in sides]
        return "\t".join(columns)

    @contextmanager
    def document(self, target: BinaryIO, aligner: str) -> Iterator[None]:
        """Write what stands before and after the lines: of a page its head, and its end if nothing went wrong.

        Args:
            target: where the lines go.
            aligner: what aligned them, for the heading.
        """
        if self.format != "html":
            yield
            return
        from .pictures import PAGE_FOOT, page_head

        write_lines(target, [page_head(aligner)])
        yield
        write_lines(target, [PAGE_FOOT])
