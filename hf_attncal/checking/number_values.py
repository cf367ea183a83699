"""Parse the numbers of a text into values, so that 2.000 Firmen and 2,000 companies are equal, and 12,5 is not 125.

The value of a number depends on the language, the domain and the writer: 10.30 is a decimal or a time, 1.234 is a
thousand or a little more than one. So a number has several readings, and two numbers are equal if they share one.
Values are tuples of a kind and a number: ("number", 12.5), ("time", minutes of the day), ("month", 10). "1.5 million"
is also ("unscaled", 1.5), for the other side may have a word for "million" that is not known.

Adjacent groups of digits, as in 2011/2012, 3.10.1990 or 1 234 567, are a run. A run matches the other side if it can
be split into numbers that are all on the other side.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from .tables import TABLES

Value = tuple[str, float]
Languages = tuple[str | None, str | None]  # source and target

_DIGIT = r"[\d\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089]"
_BETWEEN = r"[.,'’:/\-–\u2212]|[ \u00a0\u202f\u2009]"  # inside a run, also with spaces around
_RUN = re.compile(rf"{_DIGIT}+(?:(?:[hH](?={_DIGIT}{{2}}(?!{_DIGIT}))|[ \u00a0]?(?:{_BETWEEN})[ \u00a0]?){_DIGIT}+)*")
_GROUP = re.compile(rf"{_DIGIT}+")
_MOST_GROUPS = 6  # groups of digits in a number
_THOUSANDS = frozenset(".,'’ ")
_HOUR = re.compile(r"[ \u00a0]?(?:uhr|o['’ ]*clock|h|hrs?|hours|uur|heures?|horas?|ore|klokken|kl)\b", re.IGNORECASE)
_DECADE = re.compile(r" ?['’]?s\b|er\b")  # 1970s, in the 70s
_HALF_OF_DAY = re.compile(r"[ \u00a0]?(?:([ap])[ \u00a0]?\.[ \u00a0]?m\b|([ap])m\b)", re.IGNORECASE)
_HALF_BEFORE = re.compile(r"\b(?:halb|half|halv)[ \u00a0]$", re.IGNORECASE)  # halb drei is half past two
_HALF_PAST = re.compile(r"\bhalf past $", re.IGNORECASE)
_MINUS = re.compile(r"(?:(?<![\d\w.,:/)%])[-–]|\u2212|\bminus[ \u00a0])$", re.IGNORECASE)
_PERHAPS_MINUS = re.compile(r"\b(?:moins|menos|meno)[ \u00a0]$", re.IGNORECASE)
_SCALE = re.compile(
    r"[ \u00a0]?(?:(thousand|tausend|mille|mila|duizend|tusind|tsd)"
    r"|(mi(?:ll?i?|lh)[oõó](?:e?n|es|ni|nen)?s?|mill|mio|miljoen)"
    r"|(milliard\w*|miljard\w*|mrd|billion\w*|billon\w*|bilh\w*|bilion\w*))\b",
    re.IGNORECASE,
)
_SCALES = ((1e3,), (1e6,), (1e9, 1e12))  # a billion is a thousand or a million millions
_ROMAN = re.compile(r"\b(?=[IVXLCDM]{2})(M{0,3})(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})(?=e\b|ème\b|\b)")
_ROMAN_WORTH = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_MONTH_OF = {name: number for number, names in enumerate(TABLES["months"], 1) for name in names.split()}
# A date with the name of its month: 3 May, 3. Mai, 3 de mayo, May 3, May 2009
_NAMES = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_DATED = re.compile(
    rf"(?<![^\W_])(?:\d{{1,2}}(?:\.|st|nd|rd|th|º|°|er)? ?(?:of |de |di )?\b({_NAMES})\b|\b({_NAMES})\b[.,]? ?\d)",
    re.IGNORECASE,
)
# Languages with number words. Each has some that no other has.
LANGUAGES = ("de", "en", "fr", "es", "pt", "it", "nl", "da")
_COMPOUND = re.compile(r"(?:jährig|wöchig|tägig|stündig|monatig|minütig|fach|köpfig|teilig)\w{0,2}$")  # zwanzigjährige
_IN_DIGITS = re.compile(r"(\d+)[^\d\s]{0,3}")
_JOINS = frozenset(("-", "and", "und", "et", "e", "y", "en", "og"))


class _Run(NamedTuple):
    """Run of digits: spans of its groups, values of groups i to j - 1 together, and possible months."""

    groups: tuple[tuple[int, int], ...]
    values: dict[tuple[int, int], frozenset[Value]]
    months: frozenset[int]  # groups that may be the month of a date


class Number(NamedTuple):
    """A group of digits or a number in words.

    Args:
        start, stop: First character, and the one after the last.
        has_counterpart: True if the other side has a reading of it.
        in_words: True if it is written in words. Default: False.
    """

    start: int
    stop: int
    has_counterpart: bool
    in_words: bool = False


def compare_numbers(
    source: str, target: str, languages: Languages = (None, None)
) -> tuple[list[Number], list[Number]]:
    """Return the numbers of both texts in their order, compared with the other text.

    Args:
        source, target: The texts.
        languages: Languages of both, from `LANGUAGES`, for numbers in words; None to read only digits. Default: None.
    """
    texts = source, target
    runs = [_runs(text) for text in texts]
    words = [_in_words(text, language) for text, language in zip(texts, languages, strict=True)]
    if not any(runs) and not any(words):
        return [], []
    names = [_dated_months(text) for text in texts]
    values_of_sides = [
        {value for run in side_runs for values in run.values.values() for value in values}
        | {value for *_, values in spelt for value in values}
        | (_others(text, not all(names)) if other else set())
        for text, side_runs, spelt, other in zip(texts, runs, words, reversed(runs), strict=True)
    ]
    result: tuple[list[Number], list[Number]] = ([], [])
    for side, side_runs in enumerate(runs):
        values_of_other = _partners(values_of_sides[1 - side])
        for run in side_runs:
            explained = _explained(run, values_of_other)
            result[side].extend(Number(*group, has) for group, has in zip(run.groups, explained, strict=True))
        for start, stop, values in words[side]:
            result[side].append(Number(start, stop, not values.isdisjoint(values_of_other), True))
        # a month may have a name that is not known, or a number that is not known to be a month
        in_other = {month for *_, month in names[1 - side]} | {
            int(value) for kind, value in values_of_other if kind == "month"
        }
        result[side].extend(
            Number(start, stop, not in_other or month in in_other, True) for start, stop, month in names[side]
        )
    _unmatch_repeated(texts, result)
    return sorted(result[0]), sorted(result[1])


def _partners(values: Set[Value]) -> set[Value]:
    """Return the values that match: one number of two may lack its million, but two millions match no billion."""
    partners = {("number", number) if kind == "unscaled" else (kind, number) for kind, number in values}
    return partners | {("unscaled", number) for kind, number in values if kind == "number"}


def _unmatch_repeated(texts: Sequence[str], numbers: Sequence[list[Number]]) -> None:
    """Take the counterpart from a number that is more often on one side, if only the other side lacks one.

    In "from 1 to 1" for "from 1 to 2", the second 1 is in the place of the 2.
    """
    lacking = [any(not number.has_counterpart for number in side) for side in numbers]
    if lacking[0] == lacking[1]:
        return
    side = lacking.index(False)
    digits = [
        [text[number.start : number.stop] for number in of_side] for text, of_side in zip(texts, numbers, strict=True)
    ]
    for place, number in reversed(list(enumerate(numbers[side]))):
        form = digits[side][place]
        if not number.in_words and 0 < digits[1 - side].count(form) < digits[side].count(form):
            numbers[side][place] = number._replace(has_counterpart=False)
            return


def _dated_months(text: str) -> list[tuple[int, int, int]]:
    """Return first character, the one after the last, and month of each name of a month beside a number."""
    return [
        (*match.span(match.lastindex), _MONTH_OF[match[match.lastindex].lower()])
        for match in _DATED.finditer(text)
        if match.lastindex
    ]


def _explained(run: _Run, known: Set[Value]) -> list[bool]:
    """Return whether each group has a counterpart, in the reading with the most counterparts."""
    has_months = any(kind == "month" for kind, _ in known)
    best: list[tuple[int, tuple[bool, ...]]] = [(0, ())]
    for stop in range(1, len(run.groups) + 1):
        ways = []
        for start in range(max(0, stop - _MOST_GROUPS), stop):
            values = run.values.get((start, stop), frozenset())
            fits = not values.isdisjoint(known)
            if not fits and stop - start == 1 and start in run.months:
                fits = not has_months  # the other side may have its name, in a language without a list
            if fits or stop - start == 1:
                count, before = best[start]
                ways.append((count + (stop - start) * fits, before + (fits,) * (stop - start)))
        best.append(max(ways))
    return list(best[-1][1])


@lru_cache(maxsize=1 << 12)
def _runs(text: str) -> list[_Run]:
    return [_read(text, found) for found in _RUN.finditer(text)]


def _read(text: str, match: re.Match) -> _Run:
    groups = tuple((group.start(), group.end()) for group in _GROUP.finditer(text, match.start(), match.end()))
    digits = [_plain(text[start:stop]) for start, stop in groups]
    marks = [
        text[groups[k][1] : groups[k + 1][0]].replace("\u00a0", " ").replace("\u202f", " ").replace("\u2009", " ")
        for k in range(len(groups) - 1)
    ]
    before = text[max(0, match.start() - 12) : match.start()]
    signs = (-1,) if _MINUS.search(before) else (1, -1) if _PERHAPS_MINUS.search(before) else (1,)
    months = _months(digits, marks)
    values: dict[tuple[int, int], frozenset[Value]] = {}
    for start in range(len(groups)):
        for stop in range(start + 1, min(len(groups), start + _MOST_GROUPS) + 1):
            after = text[groups[stop - 1][1] : groups[stop - 1][1] + 20]
            readings = _values_of(digits, marks, start, stop, months, after, signs if not start else (1,))
            if readings:
                values[start, stop] = frozenset(readings)
    for place in months:
        values[place, place + 1] |= {("month", float(digits[place]))}
    if len(digits[0]) <= 2:
        values[0, 1] |= _half_hours(before, int(digits[0]))
    return _Run(groups, values, months)


def _values_of(
    digits: Sequence[str],
    marks: Sequence[str],
    start: int,
    stop: int,
    months: Set[int],
    after: str,
    signs: Sequence[int],
) -> set[Value]:
    """Return the values of groups `start` to `stop - 1` of a run; `after` is the text after them."""
    numbers = set(_numbers(digits[start:stop], marks[start : stop - 1]))
    if stop - start == 1 and start and len(digits[start]) == 2 and len(digits[start - 1]) == 4:
        numbers.add(float(digits[start - 1][:2] + digits[start]))  # 2011/12
    if stop - start == 1 and start - 1 in months and len(digits[start]) == 2:
        numbers |= {century + float(digits[start]) for century in (1900.0, 2000.0)}  # 3.10.90
    if stop - start == 1 and len(digits[start]) == 4 and _DECADE.match(after):
        numbers.add(float(digits[start][2:]))
    half = _HALF_OF_DAY.match(after)
    times = _times(digits[start:stop], marks[start : stop - 1], half, bool(_HOUR.match(after)))
    numbers = {sign * number for number in numbers for sign in signs}
    kind = "unscaled" if _SCALE.match(after) else "number"
    values = {(kind, number) for number in numbers}
    while (scale := _SCALE.match(after)) and scale.lastindex:  # twice in "two thousand million"
        numbers = {number * factor for number in numbers for factor in _SCALES[scale.lastindex - 1]}
        after = after[scale.end() :]
    return values | {("number", number) for number in numbers} | {("time", time) for time in times}


def _plain(digits: str) -> str:
    return "".join(str(unicodedata.digit(character)) for character in digits)


def _numbers(digits: Sequence[str], marks: Sequence[str]) -> Iterator[float]:
    """Yield the values of groups of digits as one number."""
    if not marks:
        yield float(digits[0])
        return
    marks = [mark.strip() or " " for mark in marks]
    if set(marks) <= _THOUSANDS and _in_thousands(digits, marks):
        yield float("".join(digits))
    if marks[-1] in ".," and (
        len(digits) == 2 or (marks[-1] not in marks[:-1] and _in_thousands(digits[:-1], marks[:-1]))
    ):
        yield float("".join(digits[:-1]) + "." + digits[-1])


def _in_thousands(digits: Sequence[str], marks: Sequence[str]) -> bool:
    """Return whether groups are thousands with one separator: three digits each, or two as in 12,34,567."""
    if len(digits) == 1:
        return True
    inner = {len(group) for group in digits[1:-1]}
    return (
        len(set(marks)) == 1
        and set(marks) <= _THOUSANDS
        and len(digits[-1]) == 3
        and len(digits[0]) <= 3
        and (inner <= {3} or (inner == {2} and marks[0] == ","))
    )


def _times(digits: Sequence[str], marks: Sequence[str], half: re.Match | None, hour: bool) -> set[float]:
    """Return the possible times of groups, in minutes of the day."""
    kinds = [mark.strip() for mark in marks]
    short = all(len(group) <= 2 for group in digits) and all(len(group) == 2 for group in digits[1:])
    if (
        not short
        or len(digits) > 3
        or not set(kinds) <= {":", ".", "h", "H"}
        or (len(digits) == 1 and not (half or hour))
    ):
        return set()
    hours, minutes = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
    if hours > 24 or minutes > 59 or (half and hours > 12):
        return set()
    if half:
        later = (half[1] or half[2]).lower() == "p"
        return {(hours % 12 + 12 * later) * 60 + minutes}
    first = hours % 24 * 60 + minutes
    return {first, first + 720} if 1 <= hours <= 12 else {first}


def _months(digits: Sequence[str], marks: Sequence[str]) -> frozenset[int]:
    """Return the groups that may be the month of a date: 3.10.1990, 10/3/90, 1990-10-03, 3.10."""
    marks = [mark.strip() for mark in marks]
    months = set()
    for start in range(len(digits)):
        three, parts = digits[start : start + 3], set(marks[start : start + 2])
        if len(three) == 3 and len(parts) == 1 and parts <= {".", "/", "-"}:
            year_first = len(three[0]) == 4
            places = (1,) if year_first or parts != {"/"} else (0, 1)
            if year_first or len(three[2]) in (2, 4):
                months |= {start + k for k in places if len(three[k]) <= 2 and 1 <= int(three[k]) <= 12}
    return frozenset(months)


def _others(text: str, named: bool) -> set[Value]:
    """Return the values of Roman numerals and of names of months, which are numbers if only one side is `named`."""
    values: set[Value] = set()
    for word in text.lower().replace(".", " ").split():
        if word in _MONTH_OF:
            values.add(("month", float(_MONTH_OF[word])))
            if named:
                values.add(("number", float(_MONTH_OF[word])))
    for found in _ROMAN.finditer(text):
        worth = [_ROMAN_WORTH[letter] for letter in "".join(found.groups())]
        if worth:
            total = sum(-a if a < b else a for a, b in zip(worth, [*worth[1:], 0], strict=True))
            values.add(("number", float(total)))
    return values


# ---- numbers in words ----


@lru_cache(maxsize=1 << 12)
def _in_words(text: str, language: str | None) -> list[tuple[int, int, frozenset[Value]]]:
    """Return the numbers in words, from two on: first character, the one after the last, values."""
    if language not in LANGUAGES:
        return []
    pieces = [(match.start(), match.end(), match[0].lower()) for match in re.finditer(r"[^\W\d_]+|-", text)]
    numbers: list[tuple[int, int, frozenset[Value]]] = []
    run: list[tuple[int, int, str]] = []
    for piece in [*pieces, (0, 0, "")]:
        word = piece[2]
        if word and (worth(word, language) is not None or (run and word in _JOINS)):
            run.append(piece)
            continue
        while run and run[-1][2] in _JOINS:
            run.pop()
        for start, stop, value, minutes in _with_minutes(_parts(run, language)) if run else ():
            if text[:start].rstrip()[-1:].isdigit() and value >= 1000:
                continue  # "million" in "2 million"
            values = _spoken_values(text, start, stop, value, minutes)
            numbers.append((start, stop, frozenset(values)))
        run = []
    return numbers


def _spoken_values(text: str, start: int, stop: int, value: float, minutes: float | None) -> set[Value]:
    """Return the values of a number in words: itself, and times of the day if the context allows."""
    values: set[Value] = {("number", value)}
    if minutes is not None:
        return {("time", time) for time in _times([str(int(value)), str(int(minutes))], [":"], None, True)}
    if _MINUS.search(text[max(0, start - 12) : start]):
        values.add(("number", -value))
    if value > 24:
        return values
    if halves := _half_hours(text[max(0, start - 12) : start], int(value)):
        values |= halves
    elif _HOUR.match(text[stop : stop + 16]) or _HALF_OF_DAY.match(text[stop : stop + 16]):
        values |= {("time", time) for time in _times([str(int(value))], [], None, True)}
    return values


def _half_hours(before: str, number: int) -> set[Value]:
    """Return the times of "half past NUMBER" or "halb NUMBER", where `before` ends with one of these."""
    to_hour = _HALF_BEFORE.search(before)
    if number > 24 or not (to_hour or _HALF_PAST.search(before)):
        return set()
    hour = number - bool(to_hour)
    return {("time", (hour * 60 + 30 + later) % 1440.0) for later in (0, 720)}


def _with_minutes(parts: Iterable[tuple[int, int, float]]) -> Iterator[tuple[int, int, float, float | None]]:
    """Join an hour and its minutes ("six-thirty") to one entry; yield other numbers with None as their minutes."""
    parts = list(parts)
    if len(parts) == 2 and parts[0][2] <= 24 and 10 <= parts[1][2] < 60:
        yield parts[0][0], parts[1][1], parts[0][2], parts[1][2]
        return
    for part in parts:
        yield *part, None


def _parts(run: list[tuple[int, int, str]], language: str) -> Iterator[tuple[int, int, float]]:
    """Yield the first character, the one after the last, and the value of each number in a run of number words.

    If the whole run can be read as one number ("twenty three"), it is one number. Otherwise each word is a number of
    its own, without "one", which is often no number, and without joining words ("and").

    Args:
        run: First character, the one after the last, and text of each word.
        language: Language of the words.
    """
    words = [word for *_, word in run if word != "-"]
    whole = next(filter(None, (worth(mark.join(words), language) for mark in (" ", "-"))), None)
    if len(words) > 1 and whole is not None:
        yield run[0][0], run[-1][1], whole
        return
    for begin, end, word in run:
        value = None if word in _JOINS else worth(word, language)
        if value is not None and value > 1:
            yield begin, end, value


@lru_cache(maxsize=1 << 16)
def worth(words: str, language: str) -> float | None:
    """Return the value of a cardinal or ordinal number in words, in one of the `LANGUAGES`; None for other words."""
    from text_to_num import alpha2digit  # only a check needs it

    if language == "de":
        words = _COMPOUND.sub("", words)
    match = _IN_DIGITS.fullmatch(alpha2digit(words, language, 0.0))
    return float(match[1]) if match and not words[:1].isdigit() else None


def language_of(counts: Mapping[str, int], most: int = 3000) -> str | None:
    """Return the language with the most number words from two to twelve in a text; None with fewer than two.

    Args:
        counts: Count of each word, in lower case.
        most: Number of the most frequent words that are tested. Default: 3000.
    """
    counts_by_language: dict[str, dict[float, int]] = {language: {} for language in LANGUAGES}
    for word in sorted(counts, key=counts.__getitem__, reverse=True)[:most]:
        for language, values in counts_by_language.items():
            value = worth(word, language)
            if value is not None and 2 <= value <= 12:
                values[value] = values.get(value, 0) + counts[word]
    # A word of another language may be frequent (Danish two is "to"), but not all of them are.
    best = max(
        counts_by_language,
        key=lambda language: (len(counts_by_language[language]), sum(counts_by_language[language].values())),
    )
    return best if len(counts_by_language[best]) > 1 else None
