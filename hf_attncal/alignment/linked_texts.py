"""Sentence pairs with their links, from files or lists; the lexicon of the linked words; a comparison of aligners."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice, tee, zip_longest
from operator import itemgetter
from typing import Any, Protocol

from hf_attncal.data.linked_pairs import LinkedPair, WordSeparator, may_have_special_space
from hf_attncal.data.pharaoh import Link, check_index_base, check_inside_pair, parse_hypotheses, parse_scored
from hf_attncal.data.texts import ScoredText, words_of_sides
from hf_attncal.drawing.page import text_table
from hf_attncal.io.errors import CommandError, LineError, in_line
from hf_attncal.io.streams import (
    LONGEST_LINE,
    STANDARD,
    Text,
    check_files,
    files_among,
    is_file,
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


# A line `i-j i-j` (or `i-j:score`) for each pair, an alignment, or links (i source, j target).
Links = Iterable[str | Linked | Sequence[Link]]


@dataclass(frozen=True)
class LinkedTexts:
    """Streams of the lines of parallel texts with their links.

    Args:
        names: Name of each text in messages, by argument.
        pairs: (source, target) texts.
        links: Links of each pair.
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
    longest_line: int | None = None,
    words: str | None = None,
    plain: Callable[[str], str] = str,
    **labels: Text,
) -> LinkedTexts:
    """Open two texts, their links, and labels if there are any.

    Args:
        source, target: Files or lines.
        links: File, lines or alignments.
        output: Output file, which must differ from the inputs.
        longest_line: Maximum number of characters of a line. Default: None, `LONGEST_LINE`.
        words: Word separator, one of `SEPARATORS`. Default: None, the one that fits the links, in files that
            can be read twice.
        plain: Function that removes the markup of a source. Default: `str`.
        labels: A third text under the name of its argument.

    Raises:
        CommandError: files that cannot be read or written, or a model in place of links.
    """
    texts = {"source": source, "target": target, **labels, "links": links}
    names = {name: text_name(text, name) for name, text in texts.items()}
    if is_file(links) and os.path.isdir(links):
        raise CommandError(
            f"--links must be a file of links, got the folder {links}. Write links with `attncal align run "
            f"{links}`, or pipe them into `--links -`."
        )
    if inputs := files_among(*texts.values()):
        files = [name for name in inputs if name != STANDARD]
        check_files(
            files, {"--output": None if output is None else os.fspath(output)}, standard=len(files) < len(inputs)
        )
    longest = longest_line or LONGEST_LINE
    parting = WordSeparator(words)
    if parting.words is None and all(map(_can_be_read_twice, texts.values())):
        parting.find(_linked_pairs(rows_of_texts(texts, longest), plain, bool(labels)))
    pairs, third, last = tee(rows_of_texts(texts, longest), 3)
    return LinkedTexts(
        names,
        pairs=map(itemgetter(0, 1), pairs),
        links=map(itemgetter(-1), last),
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


ScoredLinks = tuple[Sequence[Link], Sequence[float] | None, tuple[int, int] | None]


def numbered_links(links: Links) -> Iterator[ScoredLinks]:
    """Yield (links, scores or None, numbers of words or None) of each pair."""
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

    Memory grows with the number of different pairs of words.

    Args:
        pairs, links, words: See `project_labels`.
        lowercase: Ignore case. Default: False.
        least_count: Minimum count of an entry. Default: 1.
        top: Maximum number of entries per source word. Default: None, all.

    Raises:
        LineError: a line with links outside the pair, or that cannot be aligned.
    """
    counts: Counter[tuple[str, str]] = Counter()
    parting = WordSeparator.of(words)
    rows = together(pairs=pairs, links=numbered_links(links))
    for number, ((source, target), (of_pair, _, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            sides = parting.split(LinkedPair(source, target, of_pair, sizes=sizes))
            check_inside_pair(of_pair, (len(sides[0]), len(sides[1])))
        first, second = ([word.lower() for word in side] if lowercase else side for side in sides)
        counts.update((first[i], second[j]) for i, j in of_pair)
    return _entries(counts, least_count, top)


def _entries(counts: Counter[tuple[str, str]], least_count: int, top: int | None) -> Iterator[Entry]:
    """Yield entries sorted by source word, descending count, and target word."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    for (source, target), count in counts.items():
        sources[source] += count
        targets[target] += count
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    for _, of_source in groupby(ordered, key=lambda item: item[0][0]):
        frequent = ((pair, count) for pair, count in of_source if count >= least_count)
        for (source, target), count in islice(frequent, top):
            yield Entry(source, target, count, count / sources[source], count / targets[target])


def write_lexicon(entries: Iterable[Entry], path: str | os.PathLike | None) -> None:
    """Write a lexicon as columns separated by tabs; None or - for standard output."""
    rows = (
        (one.source, one.target, str(one.count), f"{one.target_given_source:.6f}", f"{one.source_given_target:.6f}")
        for one in entries
    )
    with output_lines(None if path is None else os.fspath(path)) as file:
        write_lines(file, map("\t".join, chain([_HEADING], rows)))


# ---- comparison of aligners without gold links ----

WordPairs = Sequence[tuple[Sequence[str], Sequence[str]]]  # source and target words
LinksOfPairs = Sequence[Collection[Link]]


@dataclass(frozen=True)
class ComparedLinks:
    """Statistics of the links of one aligner.

    Args:
        links: Number of links.
        source_linked, target_linked: Shares of the words with a link.
        agreement: F1 of the links with the first aligner, `2 |A ∩ B| / (|A| + |B|)`; None without links.
    """

    links: int
    source_linked: float
    target_linked: float
    agreement: float | None


@dataclass(frozen=True)
class AlignerComparison:
    """Comparison of several aligners on the same text, which prints as a table.

    Args:
        rows: Statistics by name of the aligner.
        pairs: Number of sentence pairs.
    """

    rows: Mapping[str, ComparedLinks]
    pairs: int

    def __str__(self) -> str:
        rows = list(self.rows.values())
        columns = {
            "hypothesis": list(self.rows),
            "links": [str(row.links) for row in rows],
            "source linked": [f"{100 * row.source_linked:.1f}" for row in rows],
            "target linked": [f"{100 * row.target_linked:.1f}" for row in rows],
            "agreement": ["" if row.agreement is None else f"{100 * row.agreement:.1f}" for row in rows],
        }
        notes = [
            f"{self.pairs} sentence pairs. Shares in per cent; agreement: F1 with the links of the first hypothesis.",
            "With gold links, `attncal score` measures the error rate.",
        ]
        return "\n".join([*text_table(columns), "", *notes])


def compare_texts(texts: Iterator[ScoredText], *, words: str | None = None) -> AlignerComparison:
    """Compare aligners on texts: source sentences, target sentences, and the links of each aligner.

    Args:
        texts: Texts of `read_scored`.
        words: Word separator, see `words_of_sides`. Default: None.

    Raises:
        ValueError: see `compare_links`; CommandError for lines that are not links.
    """
    sides = [next(texts), next(texts)]
    sides[1].check_length()
    parsed = [(text, text.parsed(parse_hypotheses)) for text in texts]
    pairs = words_of_sides(sides, [(text, partial(list, links)) for text, links in parsed], words)
    return AlignerComparison(compare_links(pairs, {text.label: links for text, links in parsed}), len(pairs))


def compare_links(pairs: WordPairs, systems: Mapping[str, LinksOfPairs]) -> dict[str, ComparedLinks]:
    """Compare aligners on the same text without gold links. Two that agree can both be wrong.

    Args:
        pairs: Source and target words of each sentence pair.
        systems: Links of each pair by name of the aligner; the first aligner is the reference.

    Raises:
        ValueError: no aligners, no pairs, different numbers of lines, a link outside the pair, or 1-based links.
    """
    if not systems or not pairs:
        raise ValueError(f"`pairs` and `systems` must not be empty, got {len(pairs)} and {len(systems)}.")
    lengths = [(len(source), len(target)) for source, target in pairs]
    for name, links in systems.items():
        try:
            check_index_base(links, lengths, "take 1 from each index")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    first = next(iter(systems.values()))
    compared = {}
    for name, links in systems.items():
        shared = sum(len(frozenset(a) & frozenset(b)) for a, b in zip(links, first, strict=True))
        both = sum(map(len, links)) + sum(map(len, first))
        compared[name] = ComparedLinks(
            links=sum(map(len, links)),
            source_linked=_linked(pairs, links, 0),
            target_linked=_linked(pairs, links, 1),
            agreement=2 * shared / both if both else None,
        )
    return compared


def _linked(pairs: WordPairs, links: LinksOfPairs, side: int) -> float:
    words = sum(len(pair[side]) for pair in pairs)
    return sum(len({link[side] for link in of_pair}) for of_pair in links) / words if words else 0.0
