"""The documented rules of lines, words and links, implemented without the package, to check fuzzed lines."""

import re
from collections.abc import Sequence

BOM = b"\xef\xbb\xbf"
LONGEST_LINKS = 1_000_000  # bytes of a line of links

# All white space of Unicode, and the four ASCII separators that Python counts as white space; no zero-width space.
WHITE_SPACE = {*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)}
WHITE_SPACE |= {0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
_WORD = re.compile(f"[^{''.join(map(re.escape, map(chr, sorted(WHITE_SPACE))))}]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

Links = tuple[set, set]  # sure links and all links of a line


def words_of(text: str) -> list[str]:
    """Return the words of a line, which are separated by white space."""
    return _WORD.findall(text)


def readable_lines(data: bytes, longest: int, cut: bool = False) -> tuple[list[str], int | None]:
    """Return the lines before the first unreadable one, and the number of that line.

    Args:
        data: content of a file. LF and CRLF end a line; a byte-order mark at the start does not count.
        longest: maximum number of bytes per line.
        cut: True to truncate longer lines, without a character that is cut in two.
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
        if "\0" in texts[-1]:  # not a character of text
            return texts[:-1], number
    return texts, None


def links_of_line(text: str, gold: bool) -> Links | None:
    """Return sure and all links of a line, with the written indices.

    None if a word of the line is not a link, or a link has two scores.

    Args:
        text: sure links `i-j` with at most nine digits per side.
        gold: True for gold links, which may have possible links `ipj` and `i?j`; other links may have a score,
            `i-j:0.9`.
    """
    sure, possible, scores_of = set(), set(), {}
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
        if not gold and scores_of.setdefault(pair, value) != value:
            return None
        (sure if kind == "-" else possible).add(pair)
    return sure, sure | possible


def links_of_lines(texts: Sequence[str], gold: bool) -> list[Links] | int:
    """Return the links of each line, or the number of the first line with something else."""
    result = []
    for number, text in enumerate(texts, start=1):
        links = links_of_line(text, gold)
        if links is None:
            return number
        result.append(links)
    return result


def links_of_file(data: bytes, gold: bool) -> list[Links] | int | None:
    """Return the links of each line of a file, or the number of its first bad line; None for a file without text."""
    texts, wrong = readable_lines(data, LONGEST_LINKS)
    if wrong is not None:
        return wrong
    return links_of_lines(texts, gold) if any(map(words_of, texts)) else None


def scores(gold: Sequence[Links], proposed: Sequence[Links]) -> dict[str, float]:
    """Return the scores of `attncal score` by their names, for as many lines of both; rates are fractions."""
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
