"""The figures that README states, from the results of the runs; `tables.py` writes them to results/headlines.json.

headlines.yaml has a row for each. An entry is `name` (area/dataset/setting/measure), `value`, `unit`, `spread` (whose
key says what it is: `half_range` over seeds, `interval_95` of a bootstrap, `extremes` over seeds or repetitions; null
for a single number), `seeds`, `signature` of the metric, and `source`: the place of every number that went into it. A
result that is not there has no entry.
"""

import statistics
from collections.abc import Collection, Iterator
from itertools import product
from pathlib import Path

import yaml
from committed import read_all
from places import Found, find, labelled

ROWS = Path(__file__).with_name("headlines.yaml")
_FIELDS = {"name", "unit", "from", "minus", "where", "reads", "spread", "extremes_of", "signature", "divided", "best"}
_SIGNED = ("BLEU", "ROUGE", "%")
# A number, and what is subtracted from it.
Pair = tuple[Found, Found | None]


CALIBRATIONS = ("baseline", "fixed", "annealed", "gated", "leaky", "gumbel")
ADAPTERS = ("probe", "fixed", "fixed_strong", "annealed", "gated", "leaky", "lora", "fixed_lora", "full")
PAIRS = {"wpt03-enfr": "wpt03", "dermit-derm": "dermit"}  # and how the files of their runs begin
# Setting -> its name in results/aligners_PAIR.json. Ours there are the network without counts and without jumps.
ALIGNERS = {"eflomal": "eflomal", "network_alone": "ours, from raw text", "guided": "ours, guided by eflomal"}
# Setting -> the training runs, after the name of the pair.
TRAINED = {"hmm": "_hmm", "raw": "_seed*", "all_pairs": "_all"}
# Setting of the states of encoders -> the checkpoint and the way of experiments/encoder_states.py.
STATES = {
    "": ("multilingual", "gold"),
    "/without_gold": ("multilingual", "agreement"),
    "/tuned": ("multilingual_tuned", "saved"),
    "/translation_model": ("baseline", "gold"),
    "/translation_model/tuned": ("baseline_tuned", "saved"),
}
DEFAULT_SIZE = "small"  # of `attncal align train`
# Setting of the chunking probe -> the model and its stream.
CHUNKING = {
    "soft": ("soft", "only"),
    "single": ("single", "only"),
    "syntactic": ("two", "syntactic"),
    "semantic": ("two", "semantic"),
}
STACK = ("single", "two", "soft", "soft_penalty")
# Folders of results/converged/: corpora, parts of them, and the control, which has five epochs.
CONVERGED = ("multi30k", "multi30k_10000", "multi30k_5000", "dermit-derm", "control")
DTYPES = ("bfloat16", "float32")  # a difference is the first minus the second
COMPARED = (*CALIBRATIONS, "gated_mask_cost", "gated_renormalized", "output_gate")  # settings that may be there
ONE_PASS = "converged/wpt03_large/way"  # written by one_pass.py
READ_ONCE = (*COMPARED, "guided")  # settings that may be in it
# Folders of results/converged/ whose models learned links from the start -> what a table calls them.
GUIDED = {
    "dermit-derm": "German-Romansh, 20,000 pairs",
    "wpt03-enfr_20000": "English-French, 20,000 pairs",
    "multi30k_5000": "Multi30k, 5,000 pairs",
    "multi30k": "Multi30k, 29,000 pairs",
    "wpt03_large": "English-French, 200,000 pairs read once",
}
GUIDED_OVER = {"guided": "baseline", "guided_gated": "gated"}  # setting -> the same without links
# Files of results/multi30k/ -> what tables call these Discrete Transformers; "soft" is Marian.
STREAMS = {
    "soft": "soft",
    "single": "single",
    "single_distilled": "single, distilled",
    "single_penalty": "single, small fields",
    "two": "two",
}
UNFED = "_unfed"  # how the name of a recurrent model without input feeding ends
# Files of results/multi30k/ -> what tables and pictures call them: Marian, and recurrent models.
RECURRENT = {"baseline": "Marian", "luong_none": "no attention"} | {
    f"luong_{window.replace('-', '_')}{suffix}": f"{window}{', not fed' if suffix else ''}"
    for window, suffix in product(("global", "local-m", "local-p"), ("", UNFED))
}
# Files of results/headlines_rouge/ -> what tables and headlines call them.
SUMMARISERS = {"base": "base", "seass": "seass", "seass_uam": "seass+uam"}
# Aligner of copied words in reference headlines -> the model, and the name of its links in results/recurrent/copies/.
COPYISTS = {"attention": ("seass", "attention"), "uam": ("seass_uam", "uam")}
# Files of results/copying/ -> what tables and headlines call them, and the one that each is compared with.
COPYING = {
    "transformer": ("transformer", None),
    "fixed": ("fixed", "transformer"),
    "annealed": ("annealed", "transformer"),
    "gated": ("gated", "transformer"),
    "copy": ("copy", "transformer"),
    "copy_fixed": ("copy+fixed", "copy"),
    "copy_annealed": ("copy+annealed", "copy"),
    "copy_gated": ("copy+gated", "copy"),
    "copy_bottom": ("copy in the bottom layer", "copy"),
    "transformer_bpe": ("transformer, subwords", None),
    "copy_bpe": ("copy, subwords", "transformer_bpe"),
}


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
    where, done = row.get("where", {}), set()
    for pattern in [row["from"]] if isinstance(row["from"], str) else row["from"]:
        named: dict[str, list[Pair]] = {}
        for found in find(pattern, where, row.get("reads")):
            base = next(find(row["minus"], **found.names), None) if "minus" in row else None
            if base is not None or "minus" not in row:
                named.setdefault(labelled(row["name"], found.names, where), []).append((found, base))
        for name, pairs in named.items():
            if name not in done:
                yield _figure(row, name, pairs)
        done |= named.keys()


def _figure(row: dict, name: str, pairs: list[Pair]) -> dict:
    if "best" in row:
        pairs = [{"min": min, "max": max}[row["best"]](pairs, key=lambda pair: pair[0].value)]
    scale = (100 if row["unit"] == "%" else 1) / row.get("divided", 1)
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
    if "extremes_of" in row:
        whole = [found.value for found in find(row["extremes_of"])]
        return {"extremes": [min(whole), max(whole)]}
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


def recurrent_labels(settings: Collection[str]) -> dict[str, str]:
    """What tables and pictures call each of these settings, in their order; one that they do not know by its name."""
    known = {setting: label for setting, label in RECURRENT.items() if setting in settings}
    return known | {setting: setting for setting in settings if setting not in RECURRENT}


def by_setting(pattern: str, *keys: str) -> dict[tuple[str, ...], dict[str, dict]]:
    """The results of models that experiments look at, by those keys of their configuration and the setting."""
    found: dict[tuple[str, ...], dict[str, dict]] = {}
    for file, run in read_all(pattern).items():
        found.setdefault(tuple(run["config"][key] for key in (*keys, "setting")), {})[file] = run
    return found
