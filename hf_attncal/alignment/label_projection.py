"""Tags, spans or inline markup of source sentences, carried over the links of a text: `attncal align project`."""

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

# What becomes of a span or an element without a linked word.
_UNLINKED = {"span": "are not in the output", "element": "are empty where their words would be"}
_MOST_NAMED = 10  # lines in a warning


@dataclass(frozen=True)
class ProjectedLine:
    """The labels of one target sentence.

    Args:
        text: the line that `attncal align project` writes: tags, tags in BIO, or the target with markup.
        details: plain data, for JSON: the target words with their tags; or with the place of each span; or the text
            with the elements that are empty or have words elsewhere.
        lost: how many spans or elements are "unlinked" or "split", and how many tags stood "inside_words".
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

    Lists and streams do alike: each line is read when its result is asked for, 1024 at once where an aligner makes the
    links.

    Args:
        pairs: (source, target) texts, with `markup` where tags are taken away.
        links: of each pair; or the aligner that makes them.
        tags: of the words of each source, parted by spaces.
        spans: the same in BIO (`B-TYPE`, `I-TYPE`, `O`).
        markup: the sources have inline markup, to be carried over.
        words: what parts the words that links count, one of `SEPARATORS`; None: what the links and tags of a line fit.

    Raises:
        ValueError: not one of `tags`, `spans` and `markup`.
        LineError: of a line: another number of tags than words, tags that are no BIO, broken markup, links of words
            that are not there or that may be counted in two ways, or what the aligner raises. All lines before it have
            been given.
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
    for number, target, labels, found in lines:
        with in_line(number, "links"):
            carried = project_tags(labels, found[0], len(target), found[1])
        text = " ".join("_" if tag is None else tag for tag in carried)
        yield ProjectedLine(text, {"target": target, "tags": tuple(carried)}, {})


def _span_lines(lines: Iterable[tuple]) -> Iterator[ProjectedLine]:
    for number, target, labels, found in lines:
        with in_line(number, "spans"):
            wrong = next((tag for tag in labels if not is_chunk_tag(tag)), None)
            if wrong is not None:
                raise ValueError(
                    f"a tag is `O`, `B-TYPE` or `I-TYPE`, got {wrong!r}. Are these tags of words, and no spans?"
                )
        spans = spans_of(labels)
        with in_line(number, "links"):
            places = project_spans(spans, found[0], len(labels), len(target), found[1])
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
    """Yield the number of each line, its target words, the labels of its source words, and its links with scores."""
    texts, of_pairs = links_beside(pairs, links, parting)
    rows = together(**{"pairs": texts, where: labels, "links": of_pairs})
    for number, (pair, line, (found, scores, sizes)) in enumerate(rows, start=1):
        tags = line.split()
        with in_line(number, "links"):
            source, target = parting.split(LinkedPair(pair[0], pair[1], found, len(tags), sizes))
        with in_line(number, where):
            if len(tags) != len(source):
                raise ValueError(
                    f"{len(tags)} tags for {len(source)} source words. Give one a word, as white space parts them."
                )
        yield number, tuple(target), tags, (found, scores)


def _markup_lines(pairs: Texts, links: Links, parting: WordSeparator) -> Iterator[ProjectedLine]:
    marked, of_pairs = links_beside(_parsed(pairs), links, parting, lambda pair: (pair[0].plain, pair[1]))
    rows = together(pairs=marked, links=of_pairs)
    for number, ((source, target), (found, scores, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            parting.split(LinkedPair(source.plain, target, found, sizes=sizes))
            result = project_markup(source, target, found, scores, parting.words or SEPARATORS[0])
        lost = {name: len(getattr(result, name)) for name in ("unlinked", "split", "inside_words")}
        yield ProjectedLine(result.text, asdict(result), lost)


def _parsed(pairs: Texts) -> Iterator[tuple[MarkedText, str]]:
    for number, (source, target) in enumerate(pairs, start=1):
        with in_line(number, "source"):
            yield parse_markup(source), target


# ---- writing ----


def warned_of_lost(lines: Iterable[ProjectedLine], what: str) -> Iterator[ProjectedLine]:
    """Yield the lines, and at the end warn of what has no place in the target, or not all of it.

    Args:
        lines: of `project_labels`.
        what: "span" or "element".

    Warns:
        UserWarning: how many there are, and the numbers of the first such lines.
    """
    kinds = {
        "unlinked": f"{what}s without a linked word, which {_UNLINKED[what]}",
        "split": f"{what}s with words in several places, which are where most of their links are",
        "inside_words": "tags inside a word (of text that is not tokenised), which are beside a word now",
    }
    counts: Counter[str] = Counter()
    numbers: defaultdict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        for kind, count in line.lost.items():
            counts[kind] += count
            if count and len(numbers[kind]) <= _MOST_NAMED:
                numbers[kind].append(str(number) if len(numbers[kind]) < _MOST_NAMED else "...")
        yield line
    for kind, told in kinds.items():
        if counts[kind]:
            message = f"{told}: {counts[kind]} (line {', '.join(numbers[kind])}; --format json says which)."
            warnings.warn(message, stacklevel=2)


def write_projected(lines: Iterable[ProjectedLine], path: str | os.PathLike | None, form: str) -> None:
    """Write the labels of each line ("text"), or all that is known of them ("json"), as the lines arrive.

    Args:
        lines: of `project_labels`.
        path: of the file; None or - for standard output.
        form: which of the two.
    """
    with output_lines(None if path is None else os.fspath(path)) as file:
        write_lines(file, (line.text if form == "text" else json_line(line.details) for line in lines))
