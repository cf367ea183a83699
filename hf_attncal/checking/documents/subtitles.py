"""Subtitles: the cues of SubRip and WebVTT files.

A well-kept reader (pysubs2) forgets lines and the spaces between cues, and takes a minute for a million of them.
"""

import re

from hf_attncal.decoding import decoded

from .segments import Segment, lines_with_places, plain

_TIMES = re.compile(
    r"\s*(?:(\d{1,3}):)?(\d\d):(\d\d)[.,](\d{1,3})\s*-->\s*(?:(\d{1,3}):)?(\d\d):(\d\d)[.,](\d{1,3})(?:\s.*)?"
)
_MARKUP = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_MOST_CUES = 50_000


def read_subtitles(data: bytes, name: str) -> list[Segment]:
    """Read the cues of a file; the number of a cue is its key.

    Raises:
        ValueError: it is not UTF-8, has no cue, or more than a film can have.
    """
    if data.count(b"-->") > _MOST_CUES:
        raise ValueError(f"has more than {_MOST_CUES:,} cues, as no film has. Split it.")
    text = _text_of(data, name)
    found: list[Segment] = []
    lines = lines_with_places(data, text)
    number, place = 0, 0
    while place < len(lines):
        times = _TIMES.fullmatch(lines[place][0]) if "-->" in lines[place][0] else None
        if times is None:
            place += 1
            continue
        number += 1
        has_name = place and lines[place - 1][0].strip()
        first = place - 1 if has_name else place
        key = lines[first][0].strip() if has_name else str(number)
        place += 1
        said = []
        while place < len(lines) and lines[place][0].strip() and "-->" not in lines[place][0]:
            said.append(lines[place][0])
            place += 1
        if place < len(lines) and "-->" in lines[place][0] and said:  # no empty line before the next
            said.pop()
        content = plain(_MARKUP.sub("", " ".join(said)))
        if any(map(str.isalnum, content)):
            time = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
            found.append(Segment(content, "cue", first + 1, key, " ".join(said), lines[first][1], time=time))
    return found


def note_vtt(data: bytes, notes: list[tuple[int, list[str]]]) -> bytes:
    """Write notes as comments (`NOTE`) before the cues."""
    from .formats import inserted

    end = b"\r\n" if b"\r\n" in data else b"\n"
    pieces = []
    for at, lines in notes:
        text = [line.replace("-->", "→") for line in lines]
        pieces.append((at, b"NOTE " + end.join(line.encode() for line in text) + end + end))
    return inserted(data, pieces)


def _text_of(data: bytes, name: str) -> str:
    try:
        return decoded(data.removeprefix(b"\xef\xbb\xbf"), name)
    except ValueError as error:
        if "is not UTF-8 (byte" in str(error) and b"\0" not in data:
            message = str(error).partition(". ")[0]
            raise ValueError(
                f"{message}. Old subtitles often are Windows-1252 (for Western languages): `iconv -f cp1252 -t UTF-8`."
            ) from error
        raise


def _seconds(parts) -> float:
    hours, minutes, seconds, fraction = parts
    return 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")
