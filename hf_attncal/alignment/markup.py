"""Inline markup of a source sentence, such as `<b>the old</b> house`, carried over word links to its translation.

Elements are spans (`projection.py`), nested ones within the place of what they are in. Every tag of the source is in
the result, once, with its attributes, and what encloses what stays as it was. An element without a place, because no
word of it is linked, is put empty where its words would be; one without words (`<br/>`) goes with the word behind it,
or with the word before it where only that one touches it. What is text is escaped. Tags such as `<p>` and `<br>` part
words, as in a browser; others stand within a word or beside it.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape, unescape

from hf_attncal.data.parting import WORDS, word_spans
from hf_attncal.data.pharaoh import Link

from .projection import Carried, Votes, carried, votes

_TAG = re.compile(
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
    parted: str = WORDS[0]


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


def parse_markup(text: str, parted: str = WORDS[0]) -> MarkedText:
    """Read tags, comments and entities (`&amp;`). A `<` that begins no name is text; `parted` is one of `WORDS`.

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
    plain, tags, place = "", [], 0
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
        tag = _TAG.match(text, begin.start())
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
    parted: str = WORDS[0],
) -> ProjectedMarkup:
    """Return the target with the markup of the source.

    Args:
        source: with markup.
        target: plain text: nothing in it is markup, and it is escaped.
        links: (source word, target word), of words where markup has been taken away.
        scores: of the links; None: all are alike.
        parted: what parts words, one of `WORDS`.

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
