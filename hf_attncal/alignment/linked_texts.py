"""Sentence pairs with their links, read from files or given as lists, and the lexicon that they make."""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import groupby, tee, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hf_attncal.data.linked_pairs import LinkedPair, WordSeparator, may_have_special_space
from hf_attncal.data.pharaoh import Link, check_inside_pair, parse_scored
from hf_attncal.data.words import SEPARATORS
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, LineError, in_line
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    LONGEST_LINE,
    STANDARD,
    Text,
    check_files,
    files_among,
    is_file,
    json_line,
    line_error,
    output_lines,
    rows_of_texts,
    text_name,
    write_lines,
)

_END = object()
Texts = Iterable[tuple[str, str]]


class Linked(Protocol):
    """The links of a sentence pair with their scores, such as a `WordAlignment`."""

    links: Sequence[Link]
    scores: Sequence[float] | None


@runtime_checkable
class Linker(Protocol):
    """What makes links of sentence pairs, such as a `WordAligner`."""

    def stream(self, pairs: Texts, **options: Any) -> Iterator[Linked]:
        """Yield the links of each pair."""


# A line `i-j i-j` (or `i-j:score`), an alignment, or pairs (i source, j target).
Links = Linker | Iterable[str | Linked | Sequence[Link]]


@dataclass(frozen=True)
class LinkedTexts:
    """Streams of the lines of several texts that belong together.

    Args:
        names: argument -> what messages call its text.
        pairs: (source, target).
        links: lines of links, or what makes them.
        parting: what parts the words that links count.
        labels: lines of a third text, such as tags, where there is one.
    """

    names: Mapping[str, str]
    pairs: Iterator[tuple[str, str]]
    links: Links
    parting: WordSeparator
    labels: Iterator[str] | None = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn a LineError of the block into an error for the user that names the file.

        Raises:
            CommandError: in its place.
        """
        try:
            yield
        except LineError as error:
            problem = "cannot be aligned" if error.where is None else f"of {self.names[error.where]}"
            raise line_error(error.number, problem, error.error) from error


def open_linked(
    source: Text,
    target: Text,
    links: Any,
    output: str | os.PathLike | None,
    running: Running,
    words: str | None = None,
    plain: Callable[[str], str] = str,
    **labels: Text,
) -> LinkedTexts:
    """Open two texts, their links, and labels if there are any.

    Args:
        source, target: files, or lines.
        links: a file, lines, alignments, or a loaded aligner.
        output: the file that will be written, which must be none of these.
        running: how an aligner runs, and the longest line of a file.
        words: word separator of the links, one of `SEPARATORS`. None: the separator recorded beside the file, or
            inferred from files that can be read twice.
        plain: makes the text that has these words of a source.
        labels: a third text, under the name of its argument.

    Raises:
        CommandError: files that cannot be read or written, or a model in the place of links.
    """
    texts = {"source": source, "target": target, **labels}
    names = {name: text_name(text, name) for name, text in (texts | {"links": links}).items()}
    aligner: Linker | None = links if hasattr(links, "stream") else None
    if is_file(links) and os.path.isdir(links):
        raise CommandError(
            f"--links {links} is a folder: give links. `attncal align run {links}` writes them, also into a pipe that "
            "`--links -` reads."
        )
    if aligner is None:
        texts["links"] = links
    if named := files_among(*texts.values()):
        files = [name for name in named if name != STANDARD]
        check_files(
            files, {"--output": None if output is None else os.fspath(output)}, standard=len(files) < len(named)
        )
    longest = running.longest_line or LONGEST_LINE
    parting = WordSeparator(words, links) if aligner is None else WordSeparator(words or SEPARATORS[0])
    if parting.words is None and all(map(_can_be_read_twice, texts.values())):
        parting.find(_linked_pairs(rows_of_texts(texts, longest), plain, bool(labels)))
    pairs, third, last = tee(rows_of_texts(texts, longest), 3)
    return LinkedTexts(
        names,
        pairs=map(itemgetter(0, 1), pairs),
        links=map(itemgetter(-1), last) if aligner is None else _Batched(aligner, running.batch_size),
        parting=parting,
        labels=map(itemgetter(2), third) if labels else None,
    )


def _can_be_read_twice(text: Text) -> bool:
    return os.path.isfile(text) if isinstance(text, str | os.PathLike) else hasattr(text, "__len__")


def _linked_pairs(rows: Iterable[tuple], plain: Callable[[str], str], labelled: bool) -> Iterator[LinkedPair]:
    """Yield what rows say of their words, but for those with a line that is wrong: who works on it will tell."""
    for source, target, *labels, of_pair in rows:
        with suppress(ValueError):
            if not (may_have_special_space(source) or may_have_special_space(target)):
                continue
            links, _, sizes = _links_and_scores(of_pair)
            yield LinkedPair(plain(source), target, links, len(labels[0].split()) if labelled else None, sizes)


class _Batched(NamedTuple):
    """An aligner that reads so many pairs at once; None: as many as it does by itself."""

    aligner: Linker
    batch_size: int | None

    def stream(self, pairs: Texts, **options) -> Iterator[Linked]:
        return self.aligner.stream(pairs, **options | ({"batch_size": self.batch_size} if self.batch_size else {}))


Found = tuple[Sequence[Link], Sequence[float] | None, tuple[int, int] | None]


def links_beside(
    pairs: Iterable, links: Links, parting: WordSeparator, text_of: Callable[[Any], tuple[str, str]] | None = None
) -> tuple[Iterable, Iterator[Found]]:
    """Return the pairs and their links, to be read side by side.

    With the links come scores, or None where these have none, and the numbers of words on both sides, where known.

    Args:
        pairs: (source, target) texts, or what `text_of` makes them of.
        links: of each pair; or what makes them.
        parting: what parts words; an aligner's does if nothing is said.
        text_of: what an aligner reads of a pair.
    """
    if isinstance(links, Linker):
        parting.words = parting.words or SEPARATORS[0]
        options = {} if parting.words == SEPARATORS[0] else {"words": parting.words}
        pairs, texts = tee(pairs)
        links = links.stream(texts if text_of is None else map(text_of, texts), **options)
    return pairs, _numbered_links(links)


def _numbered_links(links: Iterable[str | Linked | Sequence[Link]]) -> Iterator[Found]:
    for number, of_pair in enumerate(links, start=1):
        with in_line(number, "links"):
            found = _links_and_scores(of_pair)
        yield found


def _links_and_scores(of_pair: str | Linked | Sequence[Link]) -> Found:
    if isinstance(of_pair, str):
        return *parse_scored(of_pair), None
    if isinstance(of_pair, Collection):
        return of_pair, None, None
    source, target = getattr(of_pair, "source", None), getattr(of_pair, "target", None)
    sizes = None if source is None or target is None else (len(source), len(target))
    return of_pair.links, of_pair.scores, sizes


def together(**streams: Iterable) -> Iterator[tuple]:
    """Yield item n of every stream together; ValueError where one has fewer than another."""
    for number, row in enumerate(zip_longest(*streams.values(), fillvalue=_END), start=1):
        if short := [name for name, item in zip(streams, row, strict=True) if item is _END]:
            raise ValueError(f"`{short[0]}` has {number - 1} lines, and others have more. Give one for each pair.")
        yield row


# ---- lexicon ----

_HEADING = ("source", "target", "count", "p(target|source)", "p(source|target)")
# What a spreadsheet computes, or runs, where a cell begins with it. No signs alone, and no number.
_FORMULA = re.compile(r"[=+\-@](?=.*\w)(?![\d.,]*$)")


@dataclass(frozen=True)
class Entry:
    """Two words that are linked.

    Args:
        source, target: the words.
        count: how many links they have.
        target_given_source: p(t|s), the share of the links of the source word that lead to the target word.
        source_given_target: p(s|t), the same the other way round.
    """

    source: str
    target: str
    count: int
    target_given_source: float
    source_given_target: float


class LinkCounts:
    """Counts links of pairs of words, a sentence pair at a time; it grows with the number of different pairs of words.

    Args:
        lowercase: words that differ in capitals alone are one.
    """

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase
        self.pairs: Counter[tuple[str, str]] = Counter()

    def add(self, source: Sequence[str], target: Sequence[str], links: Collection[Link]) -> None:
        """Count the links of a sentence pair.

        Raises:
            ValueError: a link of a word that is not there; none of the pair has been counted.
        """
        check_inside_pair(links, (len(source), len(target)))
        if self.lowercase:
            source, target = [word.lower() for word in source], [word.lower() for word in target]
        self.pairs.update((source[i], target[j]) for i, j in links)

    def lexicon(self, least_count: int = 1, top: int | None = None) -> Iterator[Entry]:
        """Return entries by source word, the most frequent first, then by target word.

        Args:
            least_count: entries with fewer links are left out.
            top: most entries of a source word.
        """
        sources: Counter[str] = Counter()
        targets: Counter[str] = Counter()
        for (source, target), count in self.pairs.items():
            sources[source] += count
            targets[target] += count
        ordered = sorted(self.pairs.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        for _, of_source in groupby(ordered, key=lambda item: item[0][0]):
            written = 0
            for (source, target), count in of_source:
                entry = Entry(source, target, count, count / sources[source], count / targets[target])
                if count >= least_count and (top is None or written < top):
                    written += 1
                    yield entry


def count_links(
    pairs: Texts,
    links: Links,
    *,
    words: str | WordSeparator | None = None,
    lowercase: bool = False,
    least_count: int = 1,
    top: int | None = None,
) -> Iterator[Entry]:
    """Count the linked words of sentence pairs, a list or a stream, and yield the lexicon; see `LinkCounts`.

    Args:
        pairs, links, words: see `project_labels`.
        lowercase: see `LinkCounts`.
        least_count, top: see `LinkCounts.lexicon`.

    Raises:
        LineError: a line with links of words that are not there, or that the aligner fails on.
    """
    counts = LinkCounts(lowercase)
    parting = WordSeparator.of(words)
    texts, of_pairs = links_beside(pairs, links, parting)
    rows = together(pairs=texts, links=of_pairs)
    for number, ((source, target), (found, _, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            counts.add(*parting.split(LinkedPair(source, target, found, sizes=sizes)), found)
    return counts.lexicon(least_count, top)


def write_lexicon(entries: Iterable[Entry], path: str | os.PathLike | None, form: str) -> None:
    """Write a lexicon: a table of columns parted by tabs ("tsv"), or one object a line ("json").

    Words stay as they are. Of a table, a log message counts those that a spreadsheet may take for a formula.

    Args:
        entries: of the lexicon.
        path: of the file; None or - for standard output.
        form: which of the two.
    """
    formulas = 0

    def lines() -> Iterator[str]:
        nonlocal formulas
        if form == "json":
            yield from (json_line(asdict(entry)) for entry in entries)
            return
        yield "\t".join(_HEADING)
        for entry in entries:
            formulas += any(map(_FORMULA.match, (entry.source, entry.target)))
            shares = f"{entry.target_given_source:.6f}", f"{entry.source_given_target:.6f}"
            yield "\t".join((entry.source, entry.target, str(entry.count), *shares))

    with output_lines(None if path is None else os.fspath(path)) as file:
        write_lines(file, lines())
    if formulas:
        LOG.warning(
            "%d lines have a word that a spreadsheet may take for a formula (it begins with =, +, - or @). Words stay "
            "as they are: import the columns as text, or write --format json.",
            formulas,
        )
