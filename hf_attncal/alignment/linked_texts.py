"""Sentence pairs with their links, from files or lists, and the lexicon of the linked words."""

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
    """Links of a sentence pair with their scores, such as a `WordAlignment`."""

    links: Sequence[Link]
    scores: Sequence[float] | None


@runtime_checkable
class Linker(Protocol):
    """Aligner that creates the links of sentence pairs, such as a `WordAligner`."""

    def stream(self, pairs: Texts, **options: Any) -> Iterator[Linked]:
        """Yield the links of each pair."""


# An aligner; or for each pair a line `i-j i-j` (or `i-j:score`), an alignment, or links (i source, j target).
Links = Linker | Iterable[str | Linked | Sequence[Link]]


@dataclass(frozen=True)
class LinkedTexts:
    """Streams of the lines of parallel texts with their links.

    Args:
        names: Name of each text in messages, by argument.
        pairs: (source, target) texts.
        links: Lines of links, or the aligner that creates them.
        parting: Word separator.
        labels: Lines of a third text such as tags. Default: None.
    """

    names: Mapping[str, str]
    pairs: Iterator[tuple[str, str]]
    links: Links
    parting: WordSeparator
    labels: Iterator[str] | None = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn a LineError of the block into a CommandError that names the file."""
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
        source, target: Files or lines.
        links: File, lines, alignments, or a loaded aligner.
        output: Output file, which must differ from the inputs.
        running: Options of the run: batch size of an aligner, longest line of a file.
        words: Word separator, one of `SEPARATORS`. Default: None, the recorded one, or the one that fits the links in
            files that can be read twice.
        plain: Function that removes the markup of a source. Default: `str`.
        labels: A third text under the name of its argument.

    Raises:
        CommandError: files that cannot be read or written, or a model in place of links.
    """
    texts = {"source": source, "target": target, **labels}
    names = {name: text_name(text, name) for name, text in (texts | {"links": links}).items()}
    aligner: Linker | None = links if hasattr(links, "stream") else None
    if is_file(links) and os.path.isdir(links):
        raise CommandError(
            f"--links must be a file of links, got the folder {links}. Write links with `attncal align run "
            f"{links}`, or pipe them into `--links -`."
        )
    if aligner is None:
        texts["links"] = links
    if inputs := files_among(*texts.values()):
        files = [name for name in inputs if name != STANDARD]
        check_files(
            files, {"--output": None if output is None else os.fspath(output)}, standard=len(files) < len(inputs)
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
    """Yield the linked pairs of rows whose word separator is uncertain; malformed rows are reported later."""
    for source, target, *labels, of_pair in rows:
        with suppress(ValueError):
            if not (may_have_special_space(source) or may_have_special_space(target)):
                continue
            links, _, sizes = _links_and_scores(of_pair)
            yield LinkedPair(plain(source), target, links, len(labels[0].split()) if labelled else None, sizes)


class _Batched(NamedTuple):
    """Aligner with a batch size; None for its default."""

    aligner: Linker
    batch_size: int | None

    def stream(self, pairs: Texts, **options) -> Iterator[Linked]:
        return self.aligner.stream(pairs, **options | ({"batch_size": self.batch_size} if self.batch_size else {}))


ScoredLinks = tuple[Sequence[Link], Sequence[float] | None, tuple[int, int] | None]


def links_beside(
    pairs: Iterable, links: Links, parting: WordSeparator, text_of: Callable[[Any], tuple[str, str]] | None = None
) -> tuple[Iterable, Iterator[ScoredLinks]]:
    """Return the pairs and their (links, scores or None, numbers of words or None), to be read in parallel.

    Args:
        pairs: (source, target) texts, or the input of `text_of`.
        links: Links of each pair, or the aligner that creates them.
        parting: Word separator; set to the aligner's if it is unknown.
        text_of: Function that returns the texts of a pair for an aligner. Default: None.
    """
    if isinstance(links, Linker):
        parting.words = parting.words or SEPARATORS[0]
        options = {} if parting.words == SEPARATORS[0] else {"words": parting.words}
        pairs, texts = tee(pairs)
        links = links.stream(texts if text_of is None else map(text_of, texts), **options)
    return pairs, _numbered_links(links)


def _numbered_links(links: Iterable[str | Linked | Sequence[Link]]) -> Iterator[ScoredLinks]:
    for number, of_pair in enumerate(links, start=1):
        with in_line(number, "links"):
            scored_links = _links_and_scores(of_pair)
        yield scored_links


def _links_and_scores(of_pair: str | Linked | Sequence[Link]) -> ScoredLinks:
    if isinstance(of_pair, str):
        return *parse_scored(of_pair), None
    if isinstance(of_pair, Collection):
        return of_pair, None, None
    source, target = getattr(of_pair, "source", None), getattr(of_pair, "target", None)
    sizes = None if source is None or target is None else (len(source), len(target))
    return of_pair.links, of_pair.scores, sizes


def together(**streams: Iterable) -> Iterator[tuple]:
    """Yield the n-th items of all streams together; raise ValueError if one stream is shorter."""
    for number, row in enumerate(zip_longest(*streams.values(), fillvalue=_END), start=1):
        if short := [name for name, item in zip(streams, row, strict=True) if item is _END]:
            raise ValueError(f"`{short[0]}` must have one line per pair, got only {number - 1} lines.")
        yield row


# ---- lexicon ----

_HEADING = ("source", "target", "count", "p(target|source)", "p(source|target)")
# A spreadsheet may evaluate a cell that starts like this, except for single signs and numbers.
_FORMULA = re.compile(r"[=+\-@](?=.*\w)(?![\d.,]*$)")


@dataclass(frozen=True)
class Entry:
    """Pair of linked words.

    Args:
        source, target: Words.
        count: Number of links.
        target_given_source: p(t|s), the share of the source word's links that go to the target word.
        source_given_target: p(s|t), the share of the target word's links that go to the source word.
    """

    source: str
    target: str
    count: int
    target_given_source: float
    source_given_target: float


class LinkCounts:
    """Counts of the links of word pairs; memory grows with the number of different pairs.

    Args:
        lowercase: Ignore case. Default: False.
    """

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase
        self.pairs: Counter[tuple[str, str]] = Counter()

    def add(self, source: Sequence[str], target: Sequence[str], links: Collection[Link]) -> None:
        """Count the links of a sentence pair.

        Raises:
            ValueError: a link outside the pair; none of its links is counted.
        """
        check_inside_pair(links, (len(source), len(target)))
        if self.lowercase:
            source, target = [word.lower() for word in source], [word.lower() for word in target]
        self.pairs.update((source[i], target[j]) for i, j in links)

    def lexicon(self, least_count: int = 1, top: int | None = None) -> Iterator[Entry]:
        """Yield entries sorted by source word, descending count, and target word.

        Args:
            least_count: Minimum count of an entry. Default: 1.
            top: Maximum number of entries per source word. Default: None, all.
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
    """Count the linked words of sentence pairs, and return the entries of the lexicon.

    Args:
        pairs, links, words: See `project_labels`.
        lowercase: Ignore case. Default: False.
        least_count, top: See `LinkCounts.lexicon`.

    Raises:
        LineError: a line with links outside the pair, or that cannot be aligned.
    """
    counts = LinkCounts(lowercase)
    parting = WordSeparator.of(words)
    texts, of_pairs = links_beside(pairs, links, parting)
    rows = together(pairs=texts, links=of_pairs)
    for number, ((source, target), (of_pair, _, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            counts.add(*parting.split(LinkedPair(source, target, of_pair, sizes=sizes)), of_pair)
    return counts.lexicon(least_count, top)


def write_lexicon(entries: Iterable[Entry], path: str | os.PathLike | None, form: str) -> None:
    """Write a lexicon; log the number of words in a table that a spreadsheet may evaluate as formulas.

    Args:
        entries: Entries of the lexicon.
        path: Output file; None or - for standard output.
        form: "tsv" for columns separated by tabs, "json" for one object per line.
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
            "%d lines have a word that a spreadsheet may take for a formula (it starts with =, +, - or @). Import the "
            "columns as text, or use --format json.",
            formulas,
        )
