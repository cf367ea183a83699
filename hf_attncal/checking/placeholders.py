"""Placeholders and tags of software text: printf, Qt, braces, ICU messages and markup.

Forms that may also be ordinary text (`%1`, `:name`, `$x`) are compared only where the source has them. Names in angle
brackets that are not markup (`<file>`) are translated, and not compared.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .tables import TABLES

Span = tuple[int, int]
MASK = "\ufffc"  # in place of each character of a placeholder or an address
ADDRESS = re.compile(
    r"(?:(?:https?|ftp)://|www\.)[^\s\"'<>|\\^`{}\u0080-\uffff]*[\w/#=&-]|(?<![\w.%+-])[\w.%+-]+@[\w-]+(?:\.[\w-]+)+"
)

_SIGN = re.compile(
    r"(?P<literal>%%)"
    r"|(?P<sure>\{\{[^{}\n]*\}\}|\{%[^{}]*%\}|(?<!\\x)[$#%]?\{ ?(?:[\w.$-]*(?:![rsa])?(?::[^{}\s]*)?"
    r"|[\w-]+, ?(?:number|date|time|spellout|ordinal|duration)[^{}]*) ?\}"
    r"|%\(\w+\)[-+0#]*\d*(?:\.\d+)?[a-zA-Z]|%<\w+>[.\d]*[a-z]|%[A-Za-z_]\w{2,}%(?!\w)|\$\(\w+\))"
    r"|(?<!\d)%(?:(?P<position>\d+)\$)?[-+0#']*(?P<width>\*(?:\d+\$)?|\d*)(?P<precision>\.(?:\*(?:\d+\$)?|\d+))?"
    r"(?P<type>(?:hh?|ll?|[Lzjt]|I64|I32)?(?:[dsux]|[ioXeEfFgGcp@](?![^\W\d_])))"
    r"|(?P<maybe>(?<![\w%])(?:%\d{1,2}%|%L?\d{1,2}(?![\w$%]|[.,]\d)|%n\b|(?<![:/.\\\[]):[a-z_]\w+\b(?!:|\.\w)|\$[A-Za-z_]\w*))"
    r"|<(?P<tag>/?[A-Za-z][\w:-]*|/?\d+)(?P<attributes>\s[^<>=]{0,50}=[^<>]{0,300}|\s*)/?>"
)
_STARTS = re.compile(r"[%{<$@]|:[\w/]|www")
# strftime, whose fields each language chooses.
_TIME_FORMAT = re.compile(r"(?<!%)(?:%%)*%[-_0^]?[YmHMBbyAjI](?![^\W\d_]|\d\d)")
_ALONE = re.compile(r"br|hr|img|p|li|wbr|x|bx|ex|ph")  # tags without an end tag
_EMPHASIS = frozenset(["b", "big", "code", "em", "i", "small", "strong", "tt", "u"])  # its words differ by language
# Attributes that are translated, or change only the look; an address has a rule of its own.
_LOCAL_ATTRIBUTE = re.compile(
    r"\s(?:title|alt|lang|aria-label|placeholder|href|target|rel|class|style|size|weight|colou?r|face)\s*=\s*(?:\"[^\"]*\"|'[^']*')"
)
_IN_ATTRIBUTE = re.compile(r"%(?:\(\w+\))?\w|\{[^{}]*\}")
_MESSAGE = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,(?:\s*offset:\s*\d+)?")
_ARM = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
_MAY_LACK_COUNT = frozenset(("=0", "=1", "=2", "zero", "one", "two"))  # "a file" in place of "1 file"


class Sign(NamedTuple):
    """A placeholder or a tag.

    Args:
        form: Form that is compared; for printf with its position.
        start, stop: First character and the one after the last.
        sure: False for a form that may be ordinary text, and for emphasis.
        counted: True if the target must not have more of them than the source.
    """

    form: str
    start: int
    stop: int
    sure: bool
    counted: bool


class _Message(NamedTuple):
    """An ICU message: its argument, kind and arms with their characters, and its own characters."""

    argument: str
    kind: str
    arms: dict[str, Span]
    start: int
    stop: int


@lru_cache(maxsize=1 << 12)  # used by several rules
def signs_of(text: str) -> tuple[Sign, ...]:
    """Return the placeholders and tags of a text without ICU messages."""
    return tuple(_signs(text)) if _STARTS.search(text) else ()


def _signs(text: str) -> Iterator[Sign]:
    position = 0
    of_time = "cdegpuxX" if _TIME_FORMAT.search(text) else ""
    for match in _SIGN.finditer(text):
        kind, form, sure = match.lastgroup, match[0].replace(" ", ""), not match["maybe"]
        if kind == "literal" or (match["type"] or "-") in of_time:
            continue
        counted = form in ("{}", "%{}")
        if match["type"]:
            position += 1 + (match["width"] == "*") + (match["precision"] == ".*")
            form = f"%{match['position'] or position}${match['type'].lower().replace('i', 'd')}"
        elif match["tag"]:
            name, attributes = match["tag"].lower(), match["attributes"] or ""
            markup = name[0] == "/" or "=" in attributes or form[-2] == "/" or _ALONE.fullmatch(name)
            if (not markup and f"</{match['tag']}>" not in text) or name.strip("/") == "sup":  # 1<sup>er</sup>
                continue
            attributes = _LOCAL_ATTRIBUTE.sub(lambda match: "".join(_IN_ATTRIBUTE.findall(match[0])), attributes)
            form, sure = f"<{name}{''.join(attributes.split())}", name.strip("/") not in _EMPHASIS
            counted = sure and name != "br"
        yield Sign(form, match.start(), match.end(), sure, counted)


@lru_cache(maxsize=1 << 12)
def masked(text: str) -> str:
    """Return a text of the same length with `MASK` for each character of a placeholder, an address or ICU syntax."""
    if not _STARTS.search(text):
        return text
    characters = list(text)
    for message in _messages(text):
        characters[message.start : message.stop] = MASK * (message.stop - message.start)
        for start, stop in message.arms.values():
            characters[start:stop] = masked(text[start:stop])
    text = "".join(characters)
    for start, stop in [
        *((sign.start, sign.stop) for sign in signs_of(text)),
        *map(re.Match.span, ADDRESS.finditer(text)),
    ]:
        characters[start:stop] = MASK * (stop - start)
    return "".join(characters)


def _messages(text: str) -> list[_Message]:
    """Return the ICU messages of a text, without those inside another."""
    messages: list[_Message] = []
    for match in _MESSAGE.finditer(text) if ", plural" in text or "select" in text or ",plural" in text else ():
        if messages and match.start() < messages[-1].stop:
            continue
        arms, place = {}, match.end()
        while arm := _ARM.match(text, place):
            place = _closing(text, arm.end())
            arms[arm[1]] = arm.end(), place - 1
        if arms and text[place:].lstrip()[:1] == "}":
            messages.append(_Message(match[1], match[2], arms, match.start(), text.index("}", place) + 1))
    return messages


def _closing(text: str, place: int) -> int:
    """Return the place after the brace that closes the one before `place`, or the end of the text."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, place):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return len(text) + 1


# Text and characters on each side, None if only the other side has a placeholder.
Difference = tuple[tuple[str, Span] | None, tuple[str, Span] | None]


def compare_placeholders(source: str, target: str, language: str | None = None) -> Difference | None:
    """Return the first difference of placeholders and tags; None if there is none.

    Args:
        source, target: The texts.
        language: Code of the target language, for the plurals of ICU messages. Default: unknown.
    """
    of_source, of_target = _messages(source), _messages(target)
    if not of_source:
        return _compared(source, _with_arm(target, of_target[0], "other") if of_target else target)
    for message in of_source:
        same = next((other for other in of_target if other[:2] == message[:2]), None)
        if same is None:
            renamed = of_target[0] if of_target else None
            return _quoted(source, message), renamed and _quoted(target, renamed)
        for side, keys in enumerate(_lone_arms(message, same, language)):
            if keys:
                lone = f"{keys[0]} {{…}}", ((message, same)[side].start, (message, same)[side].stop)
                return (None, lone) if side else (lone, None)
        for key in same.arms:
            of_key = key if key in message.arms else "one" if key == "=1" and "one" in message.arms else "other"
            sides = _with_arm(source, message, of_key, key), _with_arm(target, same, key, key)
            if compare_placeholders(*sides, language):
                return _quoted(source, message, of_key), _quoted(target, same, key)
    return None


def _quoted(text: str, message: _Message, arm: str | None = None) -> tuple[str, Span]:
    """Return the text and the characters of a message, or of one of its arms."""
    span = message.arms.get(arm or "", (message.start, message.stop))
    return f"{arm or ''} {text[slice(*span)]}".strip(), span


def _lone_arms(source: _Message, target: _Message, language: str | None) -> tuple[list[str], list[str]]:
    """Return the arms that only one of two messages has and needs."""
    if source.kind == "select":
        return [key for key in source.arms if key not in target.arms], [
            key for key in target.arms if key not in source.arms
        ]
    needed = [key for key in source.arms if key[0] == "=" or key == "other"]
    of_language = TABLES["plural_arms"].get((language or "").replace("_", "-").split("-")[0], ("one",))
    if source.kind == "plural":  # ordinals differ more between languages
        needed += [key for key in of_language if key != "one" or "one" in source.arms]
    alike = {"=0": "zero", "=1": "one", "=2": "two", "one": "=1"}
    return [key for key in needed if key not in target.arms and alike.get(key) not in target.arms], []


def _with_arm(text: str, message: _Message, arm: str, shown: str = "other") -> str:
    """Return a text with an arm in place of a message, and the argument in place of `#`.

    Args:
        text: Text of the message.
        message: The message.
        arm: Name of the arm.
        shown: Name of the target's arm. It may say the number in words, and then both arms lose the argument.
    """
    start, stop = message.arms.get(arm) or next(iter(message.arms.values()))
    content, argument = text[start:stop], f"{{{message.argument}}}"
    if message.kind != "select":
        content = content.replace("#", argument)
        content = content.replace(argument, "") if shown in _MAY_LACK_COUNT else content
    parts, done = [], 0
    for one in _messages(text):  # the others are compared on their own, or n messages would have 2 ** n forms
        parts += [text[done : one.start], content if one.start == message.start else ""]
        done = one.stop
    return "".join([*parts, text[done:]])


def _compared(source: str, target: str) -> Difference | None:
    """Compare texts without ICU messages."""
    sides = signs_of(source), signs_of(target)
    counts = [Counter(sign.form for sign in side) for side in sides]
    lone: list[tuple[str, Span] | None] = [None, None]
    for side, text in enumerate((source, target)):
        for sign in sides[side]:
            number, in_other = counts[side][sign.form], counts[1 - side][sign.form]
            # a form that may be text counts as new only in the place of a lost one
            if (number > in_other if sign.counted else not in_other) and (sign.sure or not side or lone[0]):
                lone[side] = text[sign.start : sign.stop], (sign.start, sign.stop)
                break
    return (lone[0], lone[1]) if any(lone) else None
