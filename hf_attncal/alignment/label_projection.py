"""Carry tags, spans or inline markup of source sentences over word links: `attncal align project`."""

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from hf_attncal.alignment.projection import is_chunk_tag
from hf_attncal.data.linked_pairs import LinkedPair, WordSeparator
from hf_attncal.data.words import SEPARATORS
from hf_attncal.io.errors import in_line
from hf_attncal.io.streams import json_line, output_lines, write_lines

from .linked_texts import Links, Texts, links_beside, together
from .projection import MarkedText, Span, bio_tags, parse_markup, project_markup, project_spans, project_tags, spans_of

# Treatment of a span or an element without linked words, in a warning.
_UNLINKED = {"span": "are not in the output", "element": "are empty in the output"}
_MAX_LINES_NAMED = 10


@dataclass(frozen=True)
class ProjectedLine:
    """Labels of one target sentence.

    Args:
        text: Output line: tags, tags in BIO, or the target with markup.
        details: JSON data: the target words with their tags; or with the position of each span; or the text with the
            elements that are empty or split.
        lost: Numbers of "unlinked" and "split" spans or elements, and of tags "inside_words".
    """

    text: str
    details: dict
    lost: dict[str, int]


def project_labels(
    pairs: Texts,
    links: Links,
    *,
    tags: Iterable[str] | None = None,
    spans: Iterable[str] | None = None,
    markup: bool = False,
    words: str | WordSeparator | None = None,
) -> Iterator[ProjectedLine]:
    """Carry labels of source sentences over word links to their translations, one line at a time.

    Streams are read as the results are used; an aligner reads 1024 lines at once.

    Args:
        pairs: (source, target) texts.
        links: Links of each pair, or the aligner that creates them.
        tags: Tags of the words of each source, separated by spaces. Default: None.
        spans: Tags in BIO (`B-TYPE`, `I-TYPE`, `O`). Default: None.
        markup: True if the sources have inline markup to carry over. Default: False.
        words: Word separator, one of `SEPARATORS`. Default: None, the one that fits the links and tags.

    Raises:
        ValueError: not exactly one of `tags`, `spans` and `markup`.
        LineError: a line with different numbers of tags and words, tags that are not BIO, malformed markup, links
            outside the pair, an ambiguous word separator, or an error of the aligner. All lines before were yielded.
    """
    labels, where = (tags, "tags") if spans is None else (spans, "spans")
    if (tags is not None) + (spans is not None) + markup != 1:
        raise ValueError("Give one of `tags`, `spans` and `markup`.")
    parting = WordSeparator.of(words)
    if labels is None:
        return _markup_lines(pairs, links, parting)
    lines = _labelled(pairs, links, parting, labels, where)
    return _tag_lines(lines) if where == "tags" else _span_lines(lines)


def _tag_lines(lines: Iterable[tuple]) -> Iterator[ProjectedLine]:
    for number, target, labels, (links, scores) in lines:
        with in_line(number, "links"):
            carried = project_tags(labels, links, len(target), scores)
        text = " ".join("_" if tag is None else tag for tag in carried)
        yield ProjectedLine(text, {"target": target, "tags": tuple(carried)}, {})


def _span_lines(lines: Iterable[tuple]) -> Iterator[ProjectedLine]:
    for number, target, labels, (links, scores) in lines:
        with in_line(number, "spans"):
            wrong = next((tag for tag in labels if not is_chunk_tag(tag)), None)
            if wrong is not None:
                raise ValueError(
                    f"a tag must be `O`, `B-TYPE` or `I-TYPE`, got {wrong!r}. Use --tags for tags of single words."
                )
        spans = spans_of(labels)
        with in_line(number, "links"):
            places = project_spans(spans, links, len(labels), len(target), scores)
        placed = [Span(*place[:2], span.label) for span, place in zip(spans, places, strict=True) if place]
        details = [
            {
                "label": span.label,
                "source": span[:2],
                "target": place and place[:2],
                "dropped": place and place.dropped,
            }
            for span, place in zip(spans, places, strict=True)
        ]
        split = sum(place is not None and place.dropped > 0 for place in places)
        lost = {"unlinked": places.count(None), "split": split}
        yield ProjectedLine(" ".join(bio_tags(placed, len(target))), {"target": target, "spans": tuple(details)}, lost)


def _labelled(
    pairs: Texts, links: Links, parting: WordSeparator, labels: Iterable[str], where: str
) -> Iterator[tuple]:
    """Yield the number of each line, its target words, source labels, and (links, scores)."""
    texts, of_pairs = links_beside(pairs, links, parting)
    rows = together(**{"pairs": texts, where: labels, "links": of_pairs})
    for number, (pair, line, (of_pair, scores, sizes)) in enumerate(rows, start=1):
        tags = line.split()
        with in_line(number, "links"):
            source, target = parting.split(LinkedPair(pair[0], pair[1], of_pair, len(tags), sizes))
        with in_line(number, where):
            if len(tags) != len(source):
                raise ValueError(
                    f"{len(tags)} tags for {len(source)} source words. Give one tag per word separated by white space."
                )
        yield number, tuple(target), tags, (of_pair, scores)


def _markup_lines(pairs: Texts, links: Links, parting: WordSeparator) -> Iterator[ProjectedLine]:
    marked, of_pairs = links_beside(_parsed(pairs), links, parting, lambda pair: (pair[0].plain, pair[1]))
    rows = together(pairs=marked, links=of_pairs)
    for number, ((source, target), (of_pair, scores, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            parting.split(LinkedPair(source.plain, target, of_pair, sizes=sizes))
            result = project_markup(source, target, of_pair, scores, parting.words or SEPARATORS[0])
        lost = {name: len(getattr(result, name)) for name in ("unlinked", "split", "inside_words")}
        yield ProjectedLine(result.text, asdict(result), lost)


def _parsed(pairs: Texts) -> Iterator[tuple[MarkedText, str]]:
    for number, (source, target) in enumerate(pairs, start=1):
        with in_line(number, "source"):
            yield parse_markup(source), target


# ---- writing ----


def warned_of_lost(lines: Iterable[ProjectedLine], what: str) -> Iterator[ProjectedLine]:
    """Yield the lines, and warn at the end of labels that are lost or split.

    Args:
        lines: Lines of `project_labels`.
        what: "span" or "element", for the warning.

    Warns:
        UserWarning: the number of lost or split labels, and the first lines with some.
    """
    kinds = {
        "unlinked": f"{what}s without a linked word, which {_UNLINKED[what]}",
        "split": f"{what}s with words in several places, which are at the place with most of their links",
        "inside_words": "tags inside a word (of text that is not tokenised), which were moved to its edge",
    }
    counts: Counter[str] = Counter()
    numbers: defaultdict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        for kind, count in line.lost.items():
            counts[kind] += count
            if count and len(numbers[kind]) <= _MAX_LINES_NAMED:
                numbers[kind].append(str(number) if len(numbers[kind]) < _MAX_LINES_NAMED else "...")
        yield line
    for kind, description in kinds.items():
        if counts[kind]:
            message = f"{description}: {counts[kind]} (line {', '.join(numbers[kind])}; see --format json)."
            warnings.warn(message, stacklevel=2)


def write_projected(lines: Iterable[ProjectedLine], path: str | os.PathLike | None, form: str) -> None:
    """Write the labels of each line as the lines arrive.

    Args:
        lines: Lines of `project_labels`.
        path: Output file; None or - for standard output.
        form: "text" or "json".
    """
    with output_lines(None if path is None else os.fspath(path)) as file:
        write_lines(file, (line.text if form == "text" else json_line(line.details) for line in lines))
