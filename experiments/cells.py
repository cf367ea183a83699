"""Fill the tables of tables.yaml: rows are places of results/, cells are texts with the numbers that they name.

In a cell, `{name}` is what a name of the row's place stands for, `{/keys}` the values under the row's place,
`{#/keys}` those of its file, and `{FILE#/keys}` those of another, with the names of the row filled in; `A - B`
subtracts seed by seed, and `A or B` takes the first that is there. `{=NAME}` is a headline. After a bar, words say how
values are written: `{/wall_seconds|minutes mean .0f}` scales, reduces and prints them. The words are those of
`SCALES`, `EACH`, `FORMS` and Python's formatting.
"""

import re
import statistics
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

import yaml
from committed import (
    NOT_RUN,
    conditions,
    device,
    markdown,
    mean_and_spread,
    percent_with_interval,
    ratio,
    read,
    with_p_value,
)
from places import NAME, Found, Where, called, closed, find

TABLES = Path(__file__).with_name("tables.yaml")
_FIELD = re.compile(r"\{((?:[^{}]|\{\w+\})*)\}")
_TABLE = {"rows", "columns", "each", "notes", "missing", "keep"}
_BLOCK = {"from", "where", "reads", "over", "let", "cells", "sort"}
DECIMALS = {
    "BLEU": 2,
    "ROUGE": 2,
    "%": 1,
    "share": 3,
    "times": 2,
    "h": 1,
    "pairs/s": 0,
    "findings": 2,
}  # of headlines, by their unit
SCALES = {"%": 100, "minutes": 1 / 60, "million": 1e-6}


def _range(values: list[float], spec: str) -> str:
    return f"{statistics.fmean(values):{spec}} ({min(values):{spec}} to {max(values):{spec}})"


def _ends(found: list[Found], values: list[float], spec: str, scale: float) -> str:
    """The mean over seeds with half the range; of one seed, its interval if it has one."""
    interval = found[0].beside("interval")
    if len(values) > 1 or interval is None:
        return mean_and_spread(values, spec or ".2f")
    return f"{values[0]:{spec}} ({scale * interval[0]:{spec}} to {scale * interval[1]:{spec}})"


def _with_interval(found: Found) -> str:
    measured = found.value if isinstance(found.value, dict) else None
    if measured is None:
        return percent_with_interval(found.value, found.beside("interval"))
    return percent_with_interval(measured["value"], measured["interval"])


def _signed(found: Found) -> str:
    """`-1.2 (-2.0 to -0.4)`, in percent, with the interval where there is one."""
    interval = found.beside("interval")
    ends = f" ({100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})" if interval else ""
    return f"{100 * found.value:+.1f}{ends}"


def _repeated(found: Found, spec: str) -> str:
    """The median of what was repeated, with its extremes if it was."""
    measured = found.value
    extremes = f" ({measured['min']:{spec}} to {measured['max']:{spec}})" if measured["n"] > 1 else ""
    return f"{measured['median']:{spec}}{extremes}"


# Word -> what is written for values, from what was found, the scaled values, the form of a number, and the scale.
FORMS: dict[str, Callable[[list[Found], list[Any], str, float], str]] = {
    "mean": lambda found, values, spec, scale: f"{statistics.fmean(values) if len(values) > 1 else values[0]:{spec}}",
    "first": lambda found, values, spec, scale: f"{values[0]:{spec}}",
    "each": lambda found, values, spec, scale: ", ".join(f"{value:{spec}}" for value in values),
    "seeds": lambda found, values, spec, scale: mean_and_spread(values, spec or ".2f"),
    "range": lambda found, values, spec, scale: _range(values, spec),
    "extent": lambda found, values, spec, scale: f"{min(values):{spec}} to {max(values):{spec}}",
    "ends": _ends,
    "interval": lambda found, values, spec, scale: _with_interval(found[0]),
    "signed": lambda found, values, spec, scale: _signed(found[0]),
    "ratio": lambda found, values, spec, scale: ratio(found[0].value),
    "repeated": lambda found, values, spec, scale: _repeated(found[0], spec),
    "p_value": lambda found, values, spec, scale: ", ".join(map(with_p_value, values)),
    "device": lambda found, values, spec, scale: device(values[0]),
    "conditions": lambda found, values, spec, scale: conditions(values[0]),
}


# Word -> what becomes of each value.
EACH: dict[str, Callable[[Any], Any]] = {"per_second": lambda core_hours: 1e8 / 3600 / core_hours}


def headline(name: str) -> str | None:
    """Return `35.39 ± 0.39 (2 seeds)`, `6.5 (5.4 to 7.7)` or a number alone, with its sign if it is a difference."""
    figure = next((figure for figure in read("headlines") or [] if figure["name"] == name), None)
    if figure is None:
        return None
    number = f"{'+' if '_bleu_to_' in name or '_minus_' in name else ''}.{DECIMALS[figure['unit']]}f"
    spread = figure["spread"] or {}
    if "half_range" in spread:
        return f"{figure['value']:{number}} ± {spread['half_range']:{number}} ({len(figure['seeds'])} seeds)"
    between = next(iter(spread.values()), None)
    if between is None:
        return f"{figure['value']:{number}}"
    return f"{figure['value']:{number}} ({between[0]:{number}} to {between[1]:{number}})"


class Block:
    """Some rows of a table: those of one pattern of places, or a single one."""

    def __init__(self, settings: dict | str, columns: list[str], keep: bool) -> None:
        settings = {"from": settings} if isinstance(settings, str) else settings
        if unknown := sorted(settings.keys() - _BLOCK):
            raise ValueError(f"`{unknown[0]}` in {TABLES.name} must be one of {sorted(_BLOCK)}.")
        self.pattern: str | None = settings.get("from")
        self.where: Where = settings.get("where", {})
        self.reads = settings.get("reads")
        self.over = {"seed", *settings.get("over", ())}
        cells = settings.get("cells", columns)
        rows, let = [cells] if isinstance(cells[0], str) else cells, settings.get("let", {})
        self.cells = [[Template(cell).safe_substitute(let) for cell in row] for row in rows]
        self.sort: list[int] = settings.get("sort", [])
        self.keep = keep

    def names(self) -> list[dict[str, str]]:
        """Return what the names of each row stand for, in the order of `where`, then of files and keys."""
        told = {name: list(map(str, allowed)) for name, allowed in self.where.items() if closed(allowed)}
        if self.pattern is None or self.keep:
            return [dict(zip(told, parts, strict=True)) for parts in product(*told.values())]
        rows: list[dict[str, str]] = []
        for found in find(self.pattern, self.where, self.reads):
            names = {name: part for name, part in found.names.items() if name not in self.over}
            if names not in rows:
                rows.append(names)
        ordered = list(self.where)
        while ordered and ordered[-1] not in told:
            ordered.pop()
        for name in reversed(ordered):
            order = told.get(name) or list(dict.fromkeys(names.get(name, "") for names in rows))
            rows.sort(key=lambda names, name=name, order=order: order.index(names[name]) if name in names else -1)
        return rows

    def lines(self, each: dict[str, dict[str, str]], missing: str) -> list[list[str]]:
        """Return the cells of each row; without `keep`, a row that has not found anything is left out."""
        lines = []
        for names in self.names():
            absent = self.keep and self.pattern and not self.found("/", names)
            for cells in self.cells:
                filled = [self.fill(cell, names, NOT_RUN if absent else missing) for cell in _expanded(cells, each)]
                if self.keep or any(found for _, found in filled):
                    lines.append([text for text, _ in filled])
        for column in reversed(self.sort):
            lines.sort(key=lambda line, column=column: _order(line[abs(column)], column < 0))
        return lines

    def found(self, query: str, names: dict[str, str]) -> list[Found]:
        """Return the values of a query, with the names of a row; of a difference, those that have both sides."""
        for choice in query.split(" or "):
            ours, _, base = choice.partition(" - ")
            found = list(self._found(ours, names))
            if base:
                pairs = [(one, next(self._found(base, names | one.names), None)) for one in found]
                found = [one._replace(value=one.value - other.value) for one, other in pairs if other is not None]
            if found:
                return found
        return []

    def _found(self, query: str, names: dict[str, str]) -> Iterator[Found]:
        if query[0] not in "/#":
            yield from find(query, **names)
            return
        file, _, keys = (self.pattern or "").partition("#")
        path = f"{file}{query}" if query[0] == "#" else f"{file}#{keys}{query}"
        for found in find(path, self.where, self.reads if query[0] == "/" else None, **names):
            others = found.names.keys() - names.keys() - self.over
            if not any(f"{{{name}}}" in self.pattern for name in others):
                yield found

    def fill(self, cell: str, names: dict[str, str], missing: str) -> tuple[str, bool]:
        """Return the text of a cell, and whether a query in it has found something; `missing` where one has not."""
        any_found, whole = False, True

        def written(field: re.Match) -> str:
            nonlocal any_found, whole
            if re.fullmatch(r"\w+", field[1]):
                return called(self.where.get(field[1]), names[field[1]]) or "" if field[1] in names else ""
            query, _, words = field[1].partition("|")
            if query.startswith("="):
                text = headline(NAME.sub(lambda name: names[name[1]], query[1:]))
                any_found, whole = any_found or text is not None, whole and text is not None
                return text or ""
            found = self.found(query, names)
            any_found |= bool(found)
            whole &= bool(found)
            return write(found, words) if found else ""

        text = _FIELD.sub(written, cell)
        return text if whole else missing, any_found


def _expanded(cells: list[str], each: dict[str, dict[str, str]], labels: bool = False) -> list[str]:
    """Return cells with those that name one of `each` once for every part that it stands for."""
    for name, parts in each.items():
        field, wide = f"{{{name}}}", []
        for cell in cells:
            every = [cell.replace(field, label if labels else part) for part, label in parts.items()]
            wide += every if field in cell else [cell]
        cells = wide
    return cells


def write(found: list[Found], words: str) -> str:
    """Return the text of values, as words say: a scale, what becomes of each, a form, and how a number is printed."""
    form, spec, scale = "mean", "", 1.0
    for word in words.split():
        if word in SCALES:
            scale = SCALES[word]
        elif word in EACH:
            found = [one._replace(value=EACH[word](one.value)) for one in found]
        elif word in FORMS:
            form = word
        else:
            spec = word
    values = [one.value if scale == 1 else scale * one.value for one in found]
    if form == "mean" and isinstance(values[0], str):
        form = "first"
    return FORMS[form](found, values, spec, scale)


def _parts(allowed: Any, name: str) -> dict[str, str]:
    if isinstance(allowed, str):
        return {part: part for part in dict.fromkeys(found.names[name] for found in find(allowed))}
    return {str(part): str(part) if isinstance(allowed, list) else allowed[part] for part in allowed}


def _order(cell: str, largest_first: bool) -> tuple[bool, float]:
    """Return what a row is ordered by: the number that its cell begins with; one without comes last."""
    number = re.match(r"[-+]?[\d,]*\.?\d+", cell)
    value = float(number[0].replace(",", "")) if number else 0.0
    return number is None, -value if largest_first else value


def table(settings: dict) -> str:
    """Return a table of tables.yaml in Markdown."""
    if unknown := sorted(settings.keys() - _TABLE):
        raise ValueError(f"`{unknown[0]}` in {TABLES.name} must be one of {sorted(_TABLE)}.")
    each = {name: _parts(allowed, name) for name, allowed in settings.get("each", {}).items()}
    header, columns = ([column[side] for column in settings["columns"]] for side in (0, 1))
    rows = settings["rows"] if isinstance(settings["rows"], list) else [settings["rows"]]
    blocks = [Block(block, columns, settings.get("keep", False)) for block in rows]
    lines = [line for block in blocks for line in block.lines(each, settings.get("missing", "-"))]
    if not lines:
        return f"{NOT_RUN}\n"
    alone = Block({}, [""], keep=False)
    first = next(iter(blocks[0].names()), {})
    notes = [blocks[0].fill(note, first, "")[0] for note in settings.get("notes", ())]
    header = [alone.fill(title, {}, "")[0] for title in _expanded(header, each, labels=True)]
    return markdown(header, lines) + "".join(f"\n{note}\n" for note in notes if note)


def read_tables() -> dict[str, dict]:
    """Return the tables of tables.yaml by their names."""
    return yaml.safe_load(TABLES.read_text(encoding="utf-8"))["tables"]
