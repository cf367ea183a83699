"""The rules of lines, words and links as the documents tell them, without the package: what fuzzed lines must obey."""

import re
from collections.abc import Sequence

BOM = b"\xef\xbb\xbf"
LONGEST_LINKS = 1_000_000  # bytes of a line of links

# All white space of Unicode, and the four separators of ASCII that Python takes for it. A zero-width space is none.
WHITE_SPACE = {*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)}
WHITE_SPACE |= {0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
_WORD = re.compile(f"[^{''.join(map(re.escape, map(chr, sorted(WHITE_SPACE))))}]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

Links = tuple[set, set]  # of a line: the sure ones, and all


def words_of(text: str) -> list[str]:
    """The words of a line: what white space parts."""
    return _WORD.findall(text)


def pair_of(text: str) -> tuple[str, str] | None:
    """Both sides of a line `source ||| target`, words parted by one space; None where it has no such form."""
    words = words_of(text)
    if not words:
        return "", ""
    if words.count("|||") != 1:
        return None
    middle = words.index("|||")
    return " ".join(words[:middle]), " ".join(words[middle + 1 :])


def readable_lines(data: bytes, longest: int, cut: bool = False) -> tuple[list[str], int | None]:
    """The lines before the first that cannot be read, and the number of that one.

    Args:
        data: of a file. LF and CRLF end a line, and a byte-order mark at the start is none of it.
        longest: bytes that a line may have.
        cut: of a longer line the beginning is read, without the character that is cut in two.
    """
    raw = data.removeprefix(BOM).split(b"\n")
    texts: list[str] = []
    for number, line in enumerate(raw if raw[-1] else raw[:-1], start=1):
        line = line[:-1] if line.endswith(b"\r") else line
        if len(line) > longest and not cut:
            return texts, number
        try:
            texts.append(line[:longest].decode())
        except UnicodeDecodeError as error:
            if len(line) <= longest or error.reason != "unexpected end of data":
                return texts, number
            texts.append(line[: error.start].decode())
        if "\0" in texts[-1]:  # no letter of any text
            return texts[:-1], number
    return texts, None


def links_of_line(text: str, gold: bool) -> Links | None:
    """Sure and all links of a line, indices as they are written; None where one of its words is no link, or where a
    link has two scores.

    Args:
        text: `i-j` are sure links, of at most nine digits a side.
        gold: `ipj` and `i?j` are possible links; without it there are none, and `i-j` may have a score, `i-j:0.9`.
    """
    sure, possible, given = set(), set(), {}
    for token in words_of(text):
        link, colon, score = token.partition(":")
        kind = next((character for character in "-p?" if character in link), "-")
        sides = link.split(kind)
        digits = all(side and set(side) <= set("0123456789") and len(side) < 10 for side in sides)
        scored = not gold and kind == "-" and _NUMBER.fullmatch(score)
        if len(sides) != 2 or not digits or (colon and not scored) or (kind != "-" and not gold):
            return None
        pair = int(sides[0]), int(sides[1])
        value = float(score) if colon else None
        if not gold and given.setdefault(pair, value) != value:
            return None
        (sure if kind == "-" else possible).add(pair)
    return sure, sure | possible


def links_of_lines(texts: Sequence[str], gold: bool) -> list[Links] | int:
    """The links of each line, or the number of the first line that is none of links."""
    result = []
    for number, text in enumerate(texts, start=1):
        links = links_of_line(text, gold)
        if links is None:
            return number
        result.append(links)
    return result


def links_of_file(data: bytes, gold: bool) -> list[Links] | int | None:
    """The same of a file; None where it has no text."""
    texts, wrong = readable_lines(data, LONGEST_LINKS)
    if wrong is not None:
        return wrong
    return links_of_lines(texts, gold) if any(map(words_of, texts)) else None


def scores(gold: Sequence[Links], proposed: Sequence[Links]) -> dict[str, float]:
    """What `attncal score` reports of the same number of lines, by its names: rates are fractions."""
    a, s = sum(len(links) for _, links in proposed), sum(len(sure) for sure, _ in gold)
    in_s, in_p = (sum(len(x & g[side]) for (_, x), g in zip(proposed, gold, strict=True)) for side in (0, 1))
    precision, recall = in_p / a if a else 1.0, in_s / s if s else 1.0
    return {
        "aer": 1 - (in_s + in_p) / (a + s) if a + s else 0.0,
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "sentences": len(gold),
        "sure": s,
        "possible": sum(len(links) for _, links in gold),
        "proposed": a,
        "sure_hits": in_s,
        "possible_hits": in_p,
    }
