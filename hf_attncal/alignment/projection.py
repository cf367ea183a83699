"""Carry labels of source words over word links to the target: tags, spans and inline markup (`align project`).

A target word gets the label with most of its links, weighted by their scores. In a tie, the label of its first source
word wins, unless another tied span would be left without a word. A word without links gets no label.

A span stays in one piece. Its target words may form several runs; words without links inside a run belong to it, other
words end it. The run with most links becomes the span, the first one in a tie, and the words outside are counted. No
word belongs to two spans.
"""

import re
import warnings
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from math import isclose
from typing import NamedTuple, TypeVar

from hf_attncal.data.linked_pairs import LinkedPair, WordSeparator
from hf_attncal.data.pharaoh import Link, check_inside_pair
from hf_attncal.data.words import SEPARATORS, word_spans
from hf_attncal.io.errors import in_line

from .linked_texts import Links, Texts, numbered_links, together

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-[^\s-]\S*")
Owner = TypeVar("Owner", bound=Hashable)
# Weights of the links of each target word, by source word.
Votes = Sequence[dict[int, float]]
# Treatment of a span or an element without linked words, in a warning.
_UNLINKED = {"span": "are not in the output", "element": "are empty in the output"}


class Span(NamedTuple):
    """Labelled words `start` to `stop - 1`, counted from 0."""

    start: int
    stop: int
    label: str


class Carried(NamedTuple):
    """Target words `start` to `stop - 1` of a span or an element; `dropped` more words lie elsewhere."""

    start: int
    stop: int
    dropped: int = 0


def project_tags(
    tags: Sequence[str], links: Sequence[Link], target_words: int, scores: Sequence[float] | None = None
) -> list[str | None]:
    """Return the tag of each target word; None for a word without links.

    Args:
        tags: Tag of each source word.
        links: Links (source word, target word).
        target_words: Number of target words.
        scores: Scores of the links. Default: None, equal weights.

    Raises:
        ValueError: a link outside the pair, or different numbers of scores and links.
    """
    return owners(votes(links, len(tags), target_words, scores), tags)


def project_spans(
    spans: Sequence[Span],
    links: Sequence[Link],
    source_words: int,
    target_words: int,
    scores: Sequence[float] | None = None,
) -> list[Carried | None]:
    """Return the place of each span in the target; None for a span without target words.

    Args:
        spans: Spans of source words in any order, not empty and without common words.
        source_words, target_words: Numbers of words.
        links, scores: See `project_tags`.

    Raises:
        ValueError: see `project_tags`; also spans that are empty, overlap, or exceed the source.
    """
    inside: list[int | None] = [None] * source_words
    for number, (start, stop, label) in enumerate(spans):
        if not 0 <= start < stop <= source_words or any(owner is not None for owner in inside[start:stop]):
            raise ValueError(
                f"`spans` must have words from 0 to {source_words - 1} and not overlap, got {label!r} from {start} to "
                f"{stop - 1}."
            )
        inside[start:stop] = [number] * (stop - start)
    return carried(votes(links, source_words, target_words, scores), inside, len(spans), (0, target_words))


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of tags in BIO: `B-X` starts a span, `I-X` continues or starts one, `O` is outside.

    seqeval returns the same, but it has no wheel, and building its source needs more than pip.
    """
    spans: list[Span] = []
    for place, tag in enumerate(tags):
        continues = tag[0] == "I" and spans and spans[-1].stop == place and spans[-1].label == tag[2:]
        if continues:
            spans[-1] = spans[-1]._replace(stop=place + 1)
        elif tag != OUTSIDE:
            spans.append(Span(place, place + 1, tag[2:]))
    return spans


def bio_tags(spans: Sequence[Span], words: int) -> list[str]:
    """Return the BIO tags of a sentence with `words` words and these spans."""
    tags = [OUTSIDE] * words
    for start, stop, label in spans:
        tags[start:stop] = [f"B-{label}", *[f"I-{label}"] * (stop - start - 1)]
    return tags


# ---- the rule ----


def votes(links: Sequence[Link], source_words: int, target_words: int, scores: Sequence[float] | None = None) -> Votes:
    """Return the link weights of each target word; see `project_spans` for arguments and errors."""
    weights = [1.0] * len(links) if scores is None else scores
    if len(weights) != len(links):
        raise ValueError(f"`scores` must have one score per link, {len(links)}, got {len(weights)}.")
    by_target: list[dict[int, float]] = [{} for _ in range(target_words)]
    check_inside_pair(links, (source_words, target_words))
    for (i, j), weight in zip(links, weights, strict=True):
        by_target[j][i] = weight
    return by_target


def owners(by_target: Votes, inside: Sequence[Owner]) -> list[Owner | None]:
    """Return the label of each target word from the labels of the source words (`inside`); None without links."""
    totals = (_totals(of_word, inside) for of_word in by_target)
    return [max(weights, key=weights.__getitem__, default=None) for weights in totals]  # the first one in a tie


def _totals(of_word: dict[int, float], inside: Sequence[Owner]) -> dict[Owner, float]:
    """Return the total link weight of a target word to each label, in the order of the source."""
    totals: dict[Owner, float] = defaultdict(float)
    for i in sorted(of_word):
        totals[inside[i]] += of_word[i]
    return totals


def carried(
    by_target: Votes, inside: Sequence[int | None], count: int, within: tuple[int, int]
) -> list[Carried | None]:
    """Return the place of each span in a range of target words.

    Args:
        by_target: Link weights of `votes`.
        inside: Number of the span of each source word; None outside spans.
        count: Number of spans.
        within: First target word, and end of the range.

    Returns:
        The run with most links of each span; None for a span without target words.
    """
    owned = owners(by_target, inside)
    words = range(*within)
    _claim(by_target, inside, owned, words)
    pieces: list[list[tuple[float, int, int, int]]] = [[] for _ in range(count)]  # weight, -start, stop, words
    last: int | None = None
    for j in words:
        if not by_target[j]:
            continue
        number = owned[j]
        if number is not None:
            weight = sum(score for i, score in by_target[j].items() if inside[i] == number)
            before, minus_start, words_before = 0.0, -j, 0
            if number == last:
                before, minus_start, _, words_before = pieces[number].pop()
            pieces[number].append((before + weight, minus_start, j + 1, words_before + 1))
        last = number
    places: list[Carried | None] = []
    for of_span in pieces:
        if not of_span:
            places.append(None)
            continue
        _, minus_start, stop, most = max(of_span)
        places.append(Carried(-minus_start, stop, sum(piece[3] for piece in of_span) - most))
    return places


def _claim(by_target: Votes, inside: Sequence[int | None], owned: list[int | None], words: range) -> None:
    """Give each span without words the tied words outside all spans, else one from a span with several words."""
    linked: dict[int, list[int]] = defaultdict(list)
    for j in words:
        for number in {inside[i] for i in by_target[j]}:
            if number is not None:
                linked[number].append(j)
    counts = Counter(owned[j] for j in words)
    for number in sorted(linked.keys() - counts.keys()):
        totals = [(j, _totals(by_target[j], inside)) for j in linked[number]]
        tied = [j for j, weights in totals if isclose(weights[number], weights[owned[j]])]
        free = [j for j in tied if owned[j] is None]
        for j in free or [j for j in tied if counts[owned[j]] > 1][:1]:
            counts[owned[j]] -= 1
            owned[j] = number


# ---- inline markup ----

_MARKUP_TAG = re.compile(
    r"<!--.*?-->|<(?P<end>/?)(?P<name>[A-Za-z_][\w:.-]*+)(?P<rest>(?:[^<>\"']|\"[^\"]*+\"|'[^']*+')*+)>", re.DOTALL
)
_BEGINS_A_TAG = re.compile(r"<(?=/?[A-Za-z_]|!--)")
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_MAX_DEPTH = 100  # depth of nested elements
# HTML elements without an end tag.
_VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
# Block elements and cells, which separate words.
_PARTING = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption"
    "|figure|footer|form|frameset|h[1-6]|head|header|hgroup|hr|html|legend|li|listing|main|menu|nav|noscript|ol"
    "|optgroup|option|p|plaintext|pre|search|section|select|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr"
    "|ul|xmp",
    re.IGNORECASE,
)


@dataclass
class Element:
    """Markup element: its tags, and its source words `start` to `stop - 1`.

    `touches` is True for an element without words that is attached to the word before it and not to the next one.
    """

    begin: str
    end: str = ""
    start: int = 0
    stop: int = 0
    touches: bool = False
    children: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class MarkedText:
    """Text with markup.

    Args:
        words: Words without markup.
        elements: Outermost elements.
        inside_words: Tags inside a word.
        text: The text with markup.
        plain: The text without markup.
        parted: Word separator.
    """

    words: tuple[str, ...]
    elements: Sequence[Element]
    inside_words: tuple[str, ...] = ()
    text: str = ""
    plain: str = ""
    parted: str = SEPARATORS[0]


@dataclass(frozen=True)
class ProjectedMarkup:
    """Target text with the markup of its source.

    Args:
        text: Escaped target text with tags.
        unlinked: Begin tags of elements without target words; they are empty.
        split: Begin tags of elements with words in several places.
        inside_words: Tags inside a source word, which were moved to its edge.
    """

    text: str
    unlinked: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    inside_words: tuple[str, ...] = ()


def parse_markup(text: str, parted: str = SEPARATORS[0]) -> MarkedText:
    """Parse tags, comments and entities (`&amp;`); a `<` before anything but a name is text.

    Args:
        text: Text with markup.
        parted: Word separator, one of `SEPARATORS`.

    Raises:
        ValueError: an incomplete tag, an end tag without a begin tag or the reverse, or more than 100 nested elements.
    """
    plain, tags = _plain_and_tags(text)
    words = word_spans(plain, parted)
    ends = [end for _, end in words]
    opened = [(Element(""), "", 0)]  # element, name, and position of the begin tag
    inside = []
    for tag, offset in tags:
        before = bisect_right(ends, offset)  # words that end before the tag
        within = before < len(words) and words[before][0] < offset
        if within:
            inside.append(tag[0])
        if tag["end"]:
            element, name, begun = opened.pop()
            if tag["name"] != name:
                problem = f"`<{name}>` must be ended first" if name else "there is no open element"
                raise ValueError(f"{tag[0]!r} does not end an open element: {problem}.")
            element.start += within and begun == offset  # adjacent tags inside a word are moved behind it
            element.end, element.stop = tag[0], max(element.start, before + within)
            element.touches = element.touches and element.start == element.stop
            continue
        empty = not tag["name"] or tag["rest"].endswith("/") or tag["name"].lower() in _VOID
        start = before + (within and empty)
        touched = before > 0 and words[before - 1][1] == offset
        touching = before < len(words) and words[before][0] == offset
        element = Element(tag[0], start=start, stop=start, touches=within or (touched and not touching))
        opened[-1][0].children.append(element)
        if not empty:
            opened.append((element, tag["name"], offset))
            if len(opened) > _MAX_DEPTH:
                raise ValueError(f"{tag[0]!r} must be in at most {_MAX_DEPTH} elements. Remove some.")
    (root, *_), *unended = opened
    if unended:
        element, name, _ = unended[-1]
        raise ValueError(f"{element.begin!r} has no end tag. Write `</{name}>`, or `/>` at its end.")
    word_texts = tuple(plain[start:end] for start, end in words)
    return MarkedText(word_texts, root.children, tuple(inside), text, plain, parted)


def _plain_and_tags(text: str) -> tuple[str, list[tuple[re.Match, int]]]:
    """Return a text without tags, and its tags with their positions; tags that separate words become a line end."""
    plain, place = "", 0
    tags: list[tuple[re.Match, int]] = []
    waiting: list[re.Match] = []  # tags after the plain text

    def add(piece: str) -> None:
        nonlocal plain
        parting = [n for n, tag in enumerate(waiting) if _PARTING.fullmatch(tag["name"] or "")]
        parts = parting and plain and piece and not (plain[-1].isspace() or piece[0].isspace())
        # End tags go before the line end, begin tags after it.
        first = next((n for n in parting if not waiting[n]["end"]), parting[-1] + 1) if parting else 0
        tags.extend((tag, len(plain)) for tag in waiting[:first])
        plain += "\n" if parts else ""
        tags.extend((tag, len(plain)) for tag in waiting[first:])
        plain += piece
        waiting.clear()

    while begin := _BEGINS_A_TAG.search(text, place):
        tag = _MARKUP_TAG.match(text, begin.start())
        if tag is None:
            raise ValueError(
                f"{text[begin.start() :][:40]!r} starts an incomplete tag. Write `&lt;` for a `<` of the text."
            )
        if begin.start() > place:
            add(_unescaped(text[place : begin.start()]))
        waiting.append(tag)
        place = tag.end()
    add(_unescaped(text[place:]))
    return plain, tags


def project_markup(
    source: MarkedText | str,
    target: str,
    links: Sequence[Link],
    scores: Sequence[float] | None = None,
    parted: str = SEPARATORS[0],
) -> ProjectedMarkup:
    """Return the target with the markup of the source.

    Args:
        source: Source with markup.
        target: Plain target text, which is escaped.
        links: Links (source word, target word) of the text without markup.
        scores: Scores of the links. Default: None, equal weights.
        parted: Word separator, one of `SEPARATORS`.

    Raises:
        ValueError: see `parse_markup`; a link outside the pair, or different numbers of scores and links.
    """
    marked = parse_markup(source, parted) if isinstance(source, str) else source
    if marked.parted != parted:
        marked = parse_markup(marked.text, parted)
    words = word_spans(target, parted)
    by_target = votes(links, len(marked.words), len(words), scores)
    writer = _Writer(target, words, len(marked.words), by_target)
    writer.write(marked.elements, (0, len(marked.words)), (0, len(words)))
    writer.text_to(len(target))
    return ProjectedMarkup("".join(writer.pieces), tuple(writer.unlinked), tuple(writer.split), marked.inside_words)


class _Writer:
    """Writer of a target with nested elements, from left to right."""

    def __init__(self, target: str, words: Sequence[tuple[int, int]], source_words: int, by_target: Votes):
        self.target, self.words, self.by_target = target, words, by_target
        self.targets: list[list[int]] = [[] for _ in range(source_words)]  # links of each source word, ascending
        for j, of_word in enumerate(by_target):
            for i in of_word:
                self.targets[i].append(j)
        self.pieces: list[str] = []
        self.done = 0  # written characters of the target
        self.unlinked: list[str] = []
        self.split: list[str] = []

    def text_to(self, offset: int) -> None:
        self.pieces.append(escape(self.target[self.done : offset], quote=False))
        self.done = max(self.done, offset)

    def write(self, elements: Sequence[Element], source: tuple[int, int], target: tuple[int, int]) -> None:
        """Write the elements of a range of source words around a range of target words."""
        for element, place in self._placed(elements, source, target):
            if target[0] < target[1]:  # an empty range has no text to write before the element
                behind = place.start == target[1] or (element.touches and place.start > target[0])
                self.text_to(self.words[place.start - 1][1] if behind else self.words[place.start][0])
            self.pieces.append(element.begin)
            if element.children:
                self.write(element.children, (element.start, element.stop), (place.start, place.stop))
            if place.start < place.stop:
                self.text_to(self.words[place.stop - 1][1])
            self.pieces.append(element.end)

    def _placed(
        self, elements: Sequence[Element], source: tuple[int, int], target: tuple[int, int]
    ) -> list[tuple[Element, Carried]]:
        """Return the elements with their places, in the order of the target."""
        inside: list[int | None] = [None] * len(self.targets)
        for number, element in enumerate(elements):
            inside[element.start : element.stop] = [number] * (element.stop - element.start)
        places = carried(self.by_target, inside, len(elements), target)
        whole = [place for place in places if place is not None]
        placed = []
        for element, place in zip(elements, places, strict=True):
            if place is None:
                if element.start < element.stop:
                    self.unlinked.append(element.begin)
                position = self._between(element, source, target)
                for neighbour in whole:
                    if neighbour.start < position < neighbour.stop:
                        position = neighbour.stop if element.touches else neighbour.start
                place = Carried(position, position)
            elif place.dropped:
                self.split.append(element.begin)
            placed.append((element, place))
        # The sort is stable: ties stay in the order of the source.
        return sorted(placed, key=lambda pair: (pair[1].start, not pair[0].touches, pair[1].start < pair[1].stop))

    def _between(self, element: Element, source: tuple[int, int], target: tuple[int, int]) -> int:
        """Return the position of an element without target words.

        It is the position of its own words' links, even if they belong to another element. Without such links it is
        before the link of the next word, or after the link of the previous word.
        """
        options = []  # distance, False on the preferred side, position
        for word in range(*source):
            linked = [j for j in self.targets[word] if target[0] <= j < target[1]]
            if linked:
                behind = word < element.start
                distance = element.start - 1 - word if behind else max(-1, word - element.stop)
                options.append((distance, behind != element.touches, linked[-1] + 1 if behind else linked[0]))
        if options:
            return min(options)[2]
        return target[1] if element.start > source[0] else target[0]


def _unescaped(text: str) -> str:
    return _ENTITY.sub(lambda entity: unescape(entity[0]), text)


# ---- whole texts ----


@dataclass(frozen=True)
class ProjectedLine:
    """Labels of one target sentence.

    Args:
        text: Output line: tags, tags in BIO, or the target with markup.
        lost: Numbers of "unlinked" and "split" spans or elements, and of tags "inside_words".
    """

    text: str
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

    Streams are read as the results are used.

    Args:
        pairs: (source, target) texts.
        links: Links of each pair, such as the lines or alignments of an aligner.
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
        yield ProjectedLine(text, {})


def _span_lines(lines: Iterable[tuple]) -> Iterator[ProjectedLine]:
    for number, target, labels, (links, scores) in lines:
        with in_line(number, "spans"):
            wrong = next((tag for tag in labels if not _TAG.fullmatch(tag)), None)
            if wrong is not None:
                raise ValueError(
                    f"a tag must be `O`, `B-TYPE` or `I-TYPE`, got {wrong!r}. Use --tags for tags of single words."
                )
        spans = spans_of(labels)
        with in_line(number, "links"):
            places = project_spans(spans, links, len(labels), len(target), scores)
        placed = [Span(*place[:2], span.label) for span, place in zip(spans, places, strict=True) if place]
        split = sum(place is not None and place.dropped > 0 for place in places)
        lost = {"unlinked": places.count(None), "split": split}
        yield ProjectedLine(" ".join(bio_tags(placed, len(target))), lost)


def _labelled(
    pairs: Texts, links: Links, parting: WordSeparator, labels: Iterable[str], where: str
) -> Iterator[tuple]:
    """Yield the number of each line, its target words, source labels, and (links, scores)."""
    rows = together(**{"pairs": pairs, where: labels, "links": numbered_links(links)})
    for number, (pair, line, (of_pair, scores, sizes)) in enumerate(rows, start=1):
        tags = line.split()
        with in_line(number, "links"):
            source, target = parting.split(LinkedPair(pair[0], pair[1], of_pair, len(tags), sizes))
        with in_line(number, where):
            if len(tags) != len(source):
                raise ValueError(
                    f"{len(tags)} tags for {len(source)} source words. Give one tag per word separated by white space."
                )
        yield number, target, tags, (of_pair, scores)


def _markup_lines(pairs: Texts, links: Links, parting: WordSeparator) -> Iterator[ProjectedLine]:
    rows = together(pairs=_parsed(pairs), links=numbered_links(links))
    for number, ((source, target), (of_pair, scores, sizes)) in enumerate(rows, start=1):
        with in_line(number, "links"):
            parting.split(LinkedPair(source.plain, target, of_pair, sizes=sizes))
            result = project_markup(source, target, of_pair, scores, parting.words or SEPARATORS[0])
        lost = {name: len(getattr(result, name)) for name in ("unlinked", "split", "inside_words")}
        yield ProjectedLine(result.text, lost)


def _parsed(pairs: Texts) -> Iterator[tuple[MarkedText, str]]:
    for number, (source, target) in enumerate(pairs, start=1):
        with in_line(number, "source"):
            yield parse_markup(source), target


# ---- what is lost ----


def warned_of_lost(lines: Iterable[ProjectedLine], what: str) -> Iterator[ProjectedLine]:
    """Yield the lines, and warn at the end of labels that are lost or split.

    Args:
        lines: Lines of `project_labels`.
        what: "span" or "element", for the warning.

    Warns:
        UserWarning: the number of lost or split labels, and the first line with some.
    """
    kinds = {
        "unlinked": f"{what}s without a linked word, which {_UNLINKED[what]}",
        "split": f"{what}s with words in several places, which are at the place with most of their links",
        "inside_words": "tags inside a word (of text that is not tokenised), which were moved to its edge",
    }
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        counts.update(line.lost)
        for kind in +Counter(line.lost):
            first.setdefault(kind, number)
        yield line
    for kind, number in first.items():
        warnings.warn(f"{kinds[kind]}: {counts[kind]}, the first in line {number}.", stacklevel=2)
