"""The figures that README and docs state, from results/; `tables.py` writes them to results/headlines.json.

headlines.yaml has a row for each. An entry is `name` (area/dataset/setting/measure), `value`, `unit`, `spread` (whose
key says what it is: `half_range` over seeds, `interval_95` of a bootstrap, `extremes` over seeds or repetitions; null
for a single number), `seeds`, `signature` of the metric, and `source`: the place of every number that went into it. A
result that is not there has no entry.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

import yaml
from places import Found, find, labelled

ROWS = Path(__file__).with_name("headlines.yaml")
_FIELDS = {"name", "unit", "from", "minus", "where", "reads", "spread", "signature"}
_SIGNED = ("BLEU", "ROUGE", "%")
# A number, and what is subtracted from it.
Pair = tuple[Found, Found | None]


def rows() -> list[dict]:
    """Return the rows of headlines.yaml.

    Raises:
        ValueError: a row has an unknown field.
    """
    content = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    for row in content["rows"]:
        if unknown := sorted(row.keys() - _FIELDS):
            raise ValueError(f"`{unknown[0]}` of `{row['name']}` must be one of {sorted(_FIELDS)}.")
    return content["rows"]


def collect() -> list[dict]:
    """Return every headline that has a result, by name."""
    return sorted((figure for row in rows() for figure in figures(row)), key=lambda figure: figure["name"])


def figures(row: dict) -> Iterator[dict]:
    """Yield the headlines of a row: one for each name that the parts of its places make."""
    where = row.get("where", {})
    named: dict[str, list[Pair]] = {}
    for found in find(row["from"], where, row.get("reads")):
        base = next(find(row["minus"], **found.names), None) if "minus" in row else None
        if base is not None or "minus" not in row:
            named.setdefault(labelled(row["name"], found.names, where), []).append((found, base))
    for name, pairs in named.items():
        yield _figure(row, name, pairs)


def _figure(row: dict, name: str, pairs: list[Pair]) -> dict:
    scale = 100 if row["unit"] == "%" else 1
    numbers = [_number(found) for found, _ in pairs]
    bases = [base for _, base in pairs if base is not None]
    values = [found.value if scale == 1 else scale * found.value for found in numbers]
    values = [value - scale * base.value for value, base in zip(values, bases, strict=True)] if bases else values
    first = numbers[0]
    signature = first.around[-2].get("signature") if first.keys[-1] == "value" else first.beside("signature")
    return {
        "name": name,
        "value": statistics.fmean(values) if len(values) > 1 else values[0],
        "unit": row["unit"],
        "spread": _spread(row, values, first, scale),
        "seeds": [int(found.names["seed"]) for found in numbers if "seed" in found.names],
        "signature": signature if row["unit"] in _SIGNED and row.get("signature", True) else None,
        "source": [found.place for found in (*numbers, *bases)],
    }


def _number(found: Found) -> Found:
    """Return the number of a value that has one: the median of what was repeated, the value with an interval."""
    if isinstance(found.value, dict):
        return found.at("median" if "median" in found.value else "value")
    return found


def _spread(row: dict, values: list[float], first: Found, scale: float) -> dict | None:
    """Return the spread over seeds or, of a single number, what stands beside it."""
    kind = row.get("spread", "extremes" if "minus" in row else "half_range")
    if kind is None:
        return None
    if len(values) > 1:
        ends = [min(values), max(values)]
        return {kind: (ends[1] - ends[0]) / 2 if kind == "half_range" else ends}
    if "minus" in row:
        return None
    if first.keys[-1] == "median" and first.beside("n") != 1 and first.beside("min") is not None:
        return {"extremes": [first.beside("min"), first.beside("max")]}
    interval = first.beside("interval") if row["unit"] == "%" else None
    return {"interval_95": [scale * bound for bound in interval]} if interval else None
