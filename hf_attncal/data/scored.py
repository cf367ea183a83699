"""Texts that are scored: read whole, from a file, from standard input, or given as lines."""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from hf_attncal.io.errors import CommandError, user_errors
from hf_attncal.io.files import Text, is_file, lines_of, text_name
from hf_attncal.io.streams import STANDARD, files_among, open_file, read_windows, standard_input

from .parting import WORDS, LinkedPair, WordParting, readings_differ, recorded_words, split_words
from .pharaoh import Link

LONGEST_SCORED_LINE = 1_000_000  # bytes: some 200,000 links, which take about 100 MB


class ScoredText(NamedTuple):
    """The lines of a text.

    Args:
        name: its file, or what lines without one are called.
        told: what messages call it.
        lines: at least one has text.
        unit: what a line of it and of every other text belong to, such as "sentence pair".
        first: the text whose number of lines it must have; None for that text itself.
    """

    name: str
    told: str
    lines: Sequence[str]
    unit: str
    first: "ScoredText | None" = None

    def parsed(self, parse: Callable[..., list], **options: Any) -> list:
        """Return what `parse` makes of the lines.

        Raises:
            CommandError: in place of a ValueError, or for another number of lines; it names the text.
        """
        try:
            found = parse(self.lines, **options)
        except ValueError as error:
            raise CommandError(f"{self.told}: {error}") from error
        self.check_length()
        return found

    def check_length(self) -> None:
        """Raise CommandError for another number of lines than that of the first text."""
        if self.first is not None and len(self.lines) != len(self.first.lines):
            raise CommandError(
                f"{self.first.told} has {len(self.first.lines)} lines and {self.told} has {len(self.lines)}. Line n "
                f"of every file must belong to the same {self.unit}."
            )


def read_scored(texts: Mapping[str, Text], unit: str) -> Iterator[ScoredText]:
    """Yield texts, each read when it is asked for.

    Args:
        texts: files, - for standard input, or lines with the names that they are called by.
        unit: see `ScoredText`.

    Raises:
        CommandError: standard input is named twice, or a text cannot be read or is empty.
    """
    if files_among(*texts.values()).count(STANDARD) > 1:
        raise CommandError("Standard input (-) can be read only once.")
    return _read(texts, unit)


def _read(texts: Mapping[str, Text], unit: str) -> Iterator[ScoredText]:
    first = None
    for key, text in texts.items():
        name = text_name(text, key)
        told = "standard input" if is_file(text) and name == STANDARD else name
        with user_errors():
            lines = _lines_of_file(name, told) if is_file(text) else lines_of(text)
        if not any(line.strip() for line in lines):
            raise CommandError(f"{told} is empty ({len(lines)} lines without text).")
        read = ScoredText(name, told, lines, unit, first)
        first = first or read
        yield read


def words_of_sides(
    sides: Sequence[ScoredText],
    systems: Sequence[tuple[ScoredText, Callable[[], Sequence[Collection[Link]]]]],
    words: str | None = None,
) -> list[tuple[list[str], list[str]]]:
    """Return the words of both sides of sentence pairs, as links of them count words.

    Args:
        sides: the sources and the targets; none where only the links are known.
        systems: texts of links, with what gives the links of each pair.
        words: what parts words, one of `WORDS`; None: what stands on record beside the links, or what they fit.

    Raises:
        CommandError: links that do not count the same words, or that may count either; different numbers of lines.
    """
    for side in sides:
        side.check_length()
    pairs = list(zip(*(side.lines for side in sides), strict=True))
    rows = [row for row, pair in enumerate(pairs) if readings_differ(*pair)]
    found = {text.told: recorded_words(text.name) for text, _ in systems} if words is None else {}
    for text, parsed in systems if words is None and rows else ():
        links = parsed()
        parting = WordParting(found[text.told], text.name)
        some = [LinkedPair(*pairs[row], links[row]) for row in rows if row < len(links)]
        parting.find(some, text.told)
        for row, pair in zip(rows, some, strict=False):
            try:
                parting.split(pair)
            except ValueError as error:
                raise CommandError(f"{text.told}: line {row + 1}: {error}") from error
        found[text.told] = parting.words
    said = {by: told for told, by in found.items() if by is not None}
    if len(said) > 1:
        raise CommandError(
            f"{said[WORDS[1]]} counts words that spaces part, and {said[WORDS[0]]} those that any white space parts, "
            "no-break spaces too. Links of the same words are needed: align again with --words."
        )
    words = words or next(iter(said), WORDS[0])
    return [(split_words(source, words), split_words(target, words)) for source, target in pairs]


def _lines_of_file(name: str, told: str) -> list[str]:
    lines: list[str] = []
    with nullcontext(standard_input()) if name == STANDARD else open_file(name, "rb") as file:
        for window, error in read_windows(file, sys.maxsize, told, LONGEST_SCORED_LINE, remedy="Split it."):
            if error is not None:
                raise error
            lines += window
    return lines
