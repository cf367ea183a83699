"""Find numbers in results/ by a pattern of their places, as `multi30k/{setting}_seed{seed}#/test/bleu`.

A place is a file of results/ without `.json`, `#`, and the keys that lead to a value. In a pattern, `{name}` stands
for any text, which is kept under that name, `{seed}` for digits, `*` for any text, and `[_seed{seed}]` may be missing.
The key `@key` is the one that the file has as its own value of `key`. headlines.yaml is made of such patterns.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import committed

NAME = re.compile(r"\{(\w+)\}")
_TOKEN = re.compile(r"(\{\w+\}|[*\[\]])")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
# What a name may stand for: these; or these, and what to call them ("*": all others, null: left out); or "> 0.1".
Allowed = Mapping[str, str | None] | list | str
Where = Mapping[str, Allowed]


class Found(NamedTuple):
    """A value of results/, what the names of the pattern stand for, where it is, and the values that it is in."""

    names: dict[str, str]
    file: str
    keys: tuple[str, ...]
    value: Any
    around: tuple[Any, ...]

    @property
    def place(self) -> str:
        """Where the value stands, as headlines say it."""
        return "/".join([f"results/{self.file}.json#", *self.keys])

    def beside(self, key: str) -> Any:
        """Return what stands under `key` beside the value, or `None`."""
        return self.around[-1].get(key) if self.around and isinstance(self.around[-1], dict) else None

    def at(self, key: str) -> "Found":
        """Return what stands under `key` in the value."""
        value = self.value[int(key)] if isinstance(self.value, list) else self.value[key]
        return Found(self.names, self.file, (*self.keys, key), value, (*self.around, self.value))


def called(allowed: Allowed | None, part: str) -> str | None:
    """Return what a part is called that a name stands for, or `None` where it is left out."""
    if allowed is None:
        return part
    if isinstance(allowed, str):
        return part if float(part) > float(allowed.removeprefix(">")) else None
    if isinstance(allowed, list):
        return part if part in map(str, allowed) else None
    labels = {str(key): label for key, label in allowed.items()}
    label = labels.get(part, labels.get("*"))
    return None if label is None else label.replace("{}", part)


def closed(allowed: Allowed | None) -> bool:
    """Return whether all is told that a name may stand for."""
    return not isinstance(allowed, str | None) and "*" not in allowed


def labelled(template: str, names: Mapping[str, str], where: Where) -> str:
    """Return a text with what `where` calls the parts that its names stand for; one that stands for none is empty."""
    labels = {name: called(where.get(name), part) for name, part in names.items()}
    return NAME.sub(lambda name: labels.get(name[1]) or "", template)


def find(
    pattern: str, where: Where | None = None, reads: Mapping[str, str] | None = None, **names: str
) -> Iterator[Found]:
    """Yield every value of results/ whose place fits, in the order of files and of keys; a null is no value.

    Args:
        pattern: where the value stands.
        where: name -> what it may stand for.
        reads: name -> the keys of the same file under which it stands, or a place in another.
        names: what they stand for, where that is known already.
    """
    where = where or {}
    file_pattern, _, keys = pattern.partition("#")
    for file, parts in _files(_filled(file_pattern, names), where):
        whole = Found(names | parts, file, (), committed.read(file), ())
        for found in _follow(whole, keys, where):
            parts = dict(found.names)
            for name, path in (reads or {}).items():
                same = whole._replace(names=parts)
                for at in find(path, **parts) if "#" in path else _follow(same, path, {}):
                    parts[name] = str(at.value)
            fits = all(called(allowed, parts[name]) is not None for name, allowed in where.items() if name in parts)
            fits &= all(parts.get(name) == names.get(name, parts.get(name)) for name in reads or ())
            if found.value is not None and fits and parts.keys() >= set(reads or ()):
                yield found._replace(names=parts)


def _filled(pattern: str, names: Mapping[str, str]) -> str:
    """Return a pattern with what its names stand for, where that is known; `[...]` of known names is not optional."""

    def kept(optional: re.Match) -> str:
        inside = set(NAME.findall(optional[1]))
        return optional[1] if inside and names.keys() >= inside else optional[0]

    return NAME.sub(lambda name: str(names.get(name[1], name[0])), _OPTIONAL.sub(kept, pattern) if names else pattern)


def _files(pattern: str, where: Where) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every file of results/ that fits the pattern, and what its names stand for."""
    folder = re.split(_TOKEN, pattern, maxsplit=1)[0].rpartition("/")[0]
    parts = pattern.removeprefix(folder).strip("/").split("/")
    if len(parts) == 1 and not _TOKEN.search(pattern):
        candidates = [committed.RESULTS / f"{pattern}.json"]
    else:
        candidates = sorted((committed.RESULTS / folder).glob("/".join("*" for _ in parts) + ".json"))
    matcher = _matcher(pattern, where)
    for path in candidates:
        file = path.relative_to(committed.RESULTS).with_suffix("").as_posix()
        if path.exists() and (match := matcher.fullmatch(file)) and "/" not in "".join(_parts(match).values()):
            yield file, _parts(match)


def _follow(found: Found, path: str, where: Where) -> Iterator[Found]:
    """Yield every value that keys lead to, which are written with a slash between them."""
    key, _, others = path.strip("/").partition("/")
    key = _filled(key, found.names)
    if not key:
        yield found
        return
    if key.startswith("@"):
        key = (found.around or (found.value,))[0][key[1:]]
    if isinstance(found.value, dict):
        keys = list(found.value)
    elif isinstance(found.value, list):
        # A place in a list may be counted from its end; a name stands for those that `where` tells, or for all.
        size, name = len(found.value), NAME.fullmatch(key)
        told = where.get(name[1]) if name else None
        if not closed(told):
            told = range(-size, size) if key.lstrip("-").isdigit() else range(size)
        keys = [str(number) for number in told if -size <= int(number) < size]
    else:
        return
    matcher = _matcher(key, where)
    for one in keys:
        if match := matcher.fullmatch(one):
            inner = found.at(one)
            yield from _follow(inner._replace(names=found.names | _parts(match)), others, where)


def _matcher(pattern: str, where: Where) -> re.Pattern:
    """Return the regular expression of a part of a pattern."""
    form = ""
    for token in _TOKEN.split(pattern):
        if name := NAME.fullmatch(token):
            allowed = where.get(name[1])
            parts = r"\d+" if name[1] == "seed" else ".+?"
            if closed(allowed):
                parts = "|".join(re.escape(str(part)) for part in allowed)
            form += f"(?P<{name[1]}>{parts})"
        else:
            form += {"*": ".*", "[": "(?:", "]": ")?"}.get(token) or re.escape(token)
    return re.compile(form)


def _parts(match: re.Match) -> dict[str, str]:
    return {name: part for name, part in match.groupdict().items() if part is not None}
