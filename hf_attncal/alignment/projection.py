"""Labels of source words carried over word links to the target: a tag for each word, and spans.

One rule does it all (inline markup, too: `markup.py`). A target word belongs to the label that has most of its links,
or of their scores; of equals, to that of the first of its source words, but for a span that would have no word: it
gets what it has as many links to as another. A word without links belongs to none.

A span stays one piece. What belongs to it in the target may lie in several runs; words without links between two words
of a run belong to the run, others part it. The run with most links is the span, of equals the first, and what is left
out is counted. Two spans never claim the same word.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from math import isclose
from typing import NamedTuple, TypeVar

from hf_attncal.data.pharaoh import Link, check_inside_pair
from hf_attncal.data.words import SEPARATORS, word_spans

OUTSIDE = "O"
_TAG = re.compile(r"O|[BI]-[^\s-]\S*")
Owner = TypeVar("Owner", bound=Hashable)
# Of a target word: source word -> weight of the link.
Votes = Sequence[dict[int, float]]


class Span(NamedTuple):
    """Words `start` to `stop - 1`, counted from 0."""

    start: int
    stop: int
    label: str


class Carried(NamedTuple):
    """Where a span or an element is in the target: words `start` to `stop - 1`.

    `dropped` target words belong to it, too, and lie elsewhere.
    """

    start: int
    stop: int
    dropped: int = 0


def project_tags(
    tags: Sequence[str], links: Sequence[Link], target_words: int, scores: Sequence[float] | None = None
) -> list[str | None]:
    """Return the tag of each target word; None for a word without links.

    Args:
        tags: one for each source word.
        links: (source word, target word).
        target_words: how many there are.
        scores: of the links; None: all are alike.

    Raises:
        ValueError: a link of a word that is not there, or another number of scores than links.
    """
    return owners(votes(links, len(tags), target_words, scores), tags)


def project_spans(
    spans: Sequence[Span],
    links: Sequence[Link],
    source_words: int,
    target_words: int,
    scores: Sequence[float] | None = None,
) -> list[Carried | None]:
    """Return the place of each span in the target; None for a span to which no target word belongs.

    Args:
        spans: of source words, in any order; no two share a word, and none is empty.
        source_words, target_words: how many there are.
        links, scores: as of `project_tags`.

    Raises:
        ValueError: as `project_tags`; also spans that are empty, share a word, or go beyond the source.
    """
    inside: list[int | None] = [None] * source_words
    for number, (start, stop, label) in enumerate(spans):
        if not 0 <= start < stop <= source_words or any(owner is not None for owner in inside[start:stop]):
            raise ValueError(
                f"`spans` must be of words from 0 to {source_words - 1}, one or more, that no other span has, got "
                f"{label!r} from {start} to {stop - 1}."
            )
        inside[start:stop] = [number] * (stop - start)
    return carried(votes(links, source_words, target_words, scores), inside, len(spans), (0, target_words))


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of tags in BIO: `B-X` begins one of type X, `I-X` goes on or begins one, `O` is outside."""
    return [Span(first, last + 1, label) for label, first, last in chunks_of(tags)]


def bio_tags(spans: Sequence[Span], words: int) -> list[str]:
    """Return the tags of so many words with these spans, which share no word."""
    tags = [OUTSIDE] * words
    for start, stop, label in spans:
        tags[start:stop] = [f"B-{label}", *[f"I-{label}"] * (stop - start - 1)]
    return tags


# ---- the rule ----


def votes(links: Sequence[Link], source_words: int, target_words: int, scores: Sequence[float] | None = None) -> Votes:
    """Return the links of each target word; arguments and errors are those of `project_spans`."""
    weights = [1.0] * len(links) if scores is None else scores
    if len(weights) != len(links):
        raise ValueError(f"`scores` must be one for each of the {len(links)} links, got {len(weights)}.")
    found: list[dict[int, float]] = [{} for _ in range(target_words)]
    check_inside_pair(links, (source_words, target_words))
    for (i, j), weight in zip(links, weights, strict=True):
        found[j][i] = weight
    return found


def owners(found: Votes, inside: Sequence[Owner]) -> list[Owner | None]:
    """Return the label of each target word: one of those of its source words (`inside`), or None without links."""
    totals = (_totals(of_word, inside) for of_word in found)
    return [max(of, key=of.__getitem__, default=None) for of in totals]  # the first of equals


def _totals(of_word: dict[int, float], inside: Sequence[Owner]) -> dict[Owner, float]:
    """Return the links of a target word to each label, in the order of the source."""
    totals: dict[Owner, float] = defaultdict(float)
    for i in sorted(of_word):
        totals[inside[i]] += of_word[i]
    return totals


def carried(found: Votes, inside: Sequence[int | None], count: int, within: tuple[int, int]) -> list[Carried | None]:
    """Return the place of each of `count` things in the target, between two places of it.

    Args:
        found: of `votes`.
        inside: the number of the thing that a source word belongs to; None for none.
        count: how many things there are; their numbers are from 0.
        within: the first target word to look at, and the one behind the last.

    Returns:
        The run of each thing that has most of its links; None for one that no target word there belongs to.
    """
    owned = owners(found, inside)
    words = range(*within)
    _claim(found, inside, owned, words)
    pieces: list[list[tuple[float, int, int, int]]] = [[] for _ in range(count)]  # weight, -start, stop, words
    last: int | None = None
    for j in words:
        if not found[j]:
            continue
        number = owned[j]
        if number is not None:
            weight = sum(score for i, score in found[j].items() if inside[i] == number)
            before, minus_start, words_before = 0.0, -j, 0
            if number == last:
                before, minus_start, _, words_before = pieces[number].pop()
            pieces[number].append((before + weight, minus_start, j + 1, words_before + 1))
        last = number
    places: list[Carried | None] = []
    for of_thing in pieces:
        if not of_thing:
            places.append(None)
            continue
        _, minus_start, stop, most = max(of_thing)
        places.append(Carried(-minus_start, stop, sum(piece[3] for piece in of_thing) - most))
    return places


def _claim(found: Votes, inside: Sequence[int | None], owned: list[int | None], words: range) -> None:
    """Give things without a word what they have as many links to as another: as none, or as one that can spare it."""
    linked: dict[int, list[int]] = defaultdict(list)
    for j in words:
        for number in {inside[i] for i in found[j]}:
            if number is not None:
                linked[number].append(j)
    counts = Counter(owned[j] for j in words)
    for number in sorted(linked.keys() - counts.keys()):
        totals = [(j, _totals(found[j], inside)) for j in linked[number]]
        tied = [j for j, of in totals if isclose(of[number], of[owned[j]])]
        free = [j for j in tied if owned[j] is None]
        for j in free or [j for j in tied if counts[owned[j]] > 1][:1]:
            counts[owned[j]] -= 1
            owned[j] = number


# ---- tags of chunks ----


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


# ---- inline markup ----

_MARKUP_TAG = re.compile(
    r"<!--.*?-->|<(?P<end>/?)(?P<name>[A-Za-z_][\w:.-]*+)(?P<rest>(?:[^<>\"']|\"[^\"]*+\"|'[^']*+')*+)>", re.DOTALL
)
_BEGINS_A_TAG = re.compile(r"<(?=/?[A-Za-z_]|!--)")
_ENTITY = re.compile(r"&(?:#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_DEEPEST = 100  # elements within each other
# Elements of HTML that have no end tag.
_VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
# Those that a browser writes on lines or in cells of their own.
_PARTING = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption"
    "|figure|footer|form|frameset|h[1-6]|head|header|hgroup|hr|html|legend|li|listing|main|menu|nav|noscript|ol"
    "|optgroup|option|p|plaintext|pre|search|section|select|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr"
    "|ul|xmp",
    re.IGNORECASE,
)


@dataclass
class Element:
    """Tags as they are written, and the source words between them, `start` to `stop - 1`.

    `touches`: there is no word between them, and they touch the word before and not the one behind.
    """

    begin: str
    end: str = ""
    start: int = 0
    stop: int = 0
    touches: bool = False
    children: list["Element"] = field(default_factory=list)


@dataclass(frozen=True)
class MarkedText:
    """A text with markup: its words without it, the outermost elements, and tags that stand inside a word.

    `text` is what was read, `plain` that without markup, and `parted` what parts its words.
    """

    words: tuple[str, ...]
    elements: Sequence[Element]
    inside_words: tuple[str, ...] = ()
    text: str = ""
    plain: str = ""
    parted: str = SEPARATORS[0]


@dataclass(frozen=True)
class ProjectedMarkup:
    """A target text with the markup of its source.

    Args:
        text: of the target, escaped, with tags.
        unlinked: begin tags of elements of which no word has a place; they are empty.
        split: begin tags of elements that have words elsewhere, too.
        inside_words: tags that stood inside a word, and are now beside one.
    """

    text: str
    unlinked: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    inside_words: tuple[str, ...] = ()


def parse_markup(text: str, parted: str = SEPARATORS[0]) -> MarkedText:
    """Read tags, comments and entities (`&amp;`). A `<` that begins no name is text; `parted` is one of `SEPARATORS`.

    Raises:
        ValueError: a tag that is not whole, that ends what was not begun, or that is not ended; more than 100 elements
            within each other.
    """
    plain, tags = _plain_and_tags(text)
    words = word_spans(plain, parted)
    ends = [end for _, end in words]
    opened = [(Element(""), "", 0)]  # with the name and the place of the begin tag
    inside = []
    for tag, offset in tags:
        before = bisect_right(ends, offset)  # words that end before the tag
        within = before < len(words) and words[before][0] < offset
        if within:
            inside.append(tag[0])
        if tag["end"]:
            element, name, begun = opened.pop()
            if tag["name"] != name:
                told = f"`<{name}>` is to be ended first" if name else "nothing is to be ended"
                raise ValueError(f"{tag[0]!r} ends what was not begun: {told}.")
            element.start += within and begun == offset  # nothing is between the tags: they are behind the word
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
            if len(opened) > _DEEPEST:
                raise ValueError(f"{tag[0]!r} is in more than {_DEEPEST} elements. Take some away.")
    (root, *_), *unended = opened
    if unended:
        element, name, _ = unended[-1]
        raise ValueError(f"{element.begin!r} is not ended. Write `</{name}>`, or `/>` at its end.")
    named = tuple(plain[start:end] for start, end in words)
    return MarkedText(named, root.children, tuple(inside), text, plain, parted)


def _plain_and_tags(text: str) -> tuple[str, list[tuple[re.Match, int]]]:
    """Return a text without its tags, and these with their places in it; a line end is where a tag parts words."""
    plain, place = "", 0
    tags: list[tuple[re.Match, int]] = []
    waiting: list[re.Match] = []  # tags behind the plain text

    def add(piece: str) -> None:
        nonlocal plain
        parting = [n for n, tag in enumerate(waiting) if _PARTING.fullmatch(tag["name"] or "")]
        parts = parting and plain and piece and not (plain[-1].isspace() or piece[0].isspace())
        # Ends stand before the line end, and begins behind it.
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
                f"{text[begin.start() :][:40]!r} begins a tag that has no end. Write `&lt;` for a `<` of the text."
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
        source: with markup.
        target: plain text: nothing in it is markup, and it is escaped.
        links: (source word, target word), of words where markup has been taken away.
        scores: of the links; None: all are alike.
        parted: what parts words, one of `SEPARATORS`.

    Raises:
        ValueError: see `parse_markup`; a link of a word that is not there, or another number of scores than links.
    """
    marked = parse_markup(source, parted) if isinstance(source, str) else source
    if marked.parted != parted:
        marked = parse_markup(marked.text, parted)
    words = word_spans(target, parted)
    found = votes(links, len(marked.words), len(words), scores)
    writer = _Writer(target, words, len(marked.words), found)
    writer.write(marked.elements, (0, len(marked.words)), (0, len(words)))
    writer.text_to(len(target))
    return ProjectedMarkup("".join(writer.pieces), tuple(writer.unlinked), tuple(writer.split), marked.inside_words)


class _Writer:
    """Writes a target from left to right, an element within the other."""

    def __init__(self, target: str, words: Sequence[tuple[int, int]], source_words: int, found: Votes):
        self.target, self.words, self.found = target, words, found
        self.targets: list[list[int]] = [[] for _ in range(source_words)]  # of each source word, ascending
        for j, of_word in enumerate(found):
            for i in of_word:
                self.targets[i].append(j)
        self.pieces: list[str] = []
        self.done = 0  # characters of the target
        self.unlinked: list[str] = []
        self.split: list[str] = []

    def text_to(self, offset: int) -> None:
        self.pieces.append(escape(self.target[self.done : offset], quote=False))
        self.done = max(self.done, offset)

    def write(self, elements: Sequence[Element], source: tuple[int, int], target: tuple[int, int]) -> None:
        """Write the elements that lie in the source words `source`, around the target words `target`."""
        for element, place in self._placed(elements, source, target):
            if target[0] < target[1]:  # else it lies where it is
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
        """Return the elements in the order of the target, each with its place."""
        inside: list[int | None] = [None] * len(self.targets)
        for number, element in enumerate(elements):
            inside[element.start : element.stop] = [number] * (element.stop - element.start)
        places = carried(self.found, inside, len(elements), target)
        whole = [place for place in places if place is not None]
        placed = []
        for element, found in zip(elements, places, strict=True):
            if found is None:
                if element.start < element.stop:
                    self.unlinked.append(element.begin)
                place = self._between(element, source, target)
                for other in whole:
                    if other.start < place < other.stop:
                        place = other.stop if element.touches else other.start
                found = Carried(place, place)
            elif found.dropped:
                self.split.append(element.begin)
            placed.append((element, found))
        # Python's sort leaves equals in the order of the source.
        return sorted(placed, key=lambda one: (one[1].start, not one[0].touches, one[1].start < one[1].stop))

    def _between(self, element: Element, source: tuple[int, int], target: tuple[int, int]) -> int:
        """Return a place for an element without one.

        It stands where its own words are linked to, even if another element has that place. Without such links it
        stands before the link of the next word, or after the link of the word before.
        """
        options = []  # distance, whether it is on the side that does not matter, place
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
