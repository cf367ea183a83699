"""The tables of methods of attribution: on gold links, by what their words are worth to a model, on planted links."""

import statistics
from collections.abc import Callable, Iterator

from committed import mean_and_spread, read_all, table
from headlines import PAIRS, by_setting

OPERATORS = ("replace", "hide", "unk", "delete")
AREAS = ("comprehensiveness", "sufficiency")
LEAST_WORDS = 50  # of a part of speech


def _methods(runs: Iterator[dict]) -> list[str]:
    """Those of any run, in their order."""
    return list(dict.fromkeys(name for run in runs for name in run["methods"]))


# ---- gold links ----


def gold(pair: str) -> str:
    """Error rates of the layer and head that dev chose and, in brackets, of the mean; the mean over seeds."""
    found = {
        setting: of for (of_pair, setting), of in by_setting("analysis/gold_*", "pair").items() if of_pair == pair
    }
    rows = []
    for method in _methods(run for runs in found.values() for run in runs.values()):
        cells = []
        for runs in found.values():
            scored = [run["methods"][method] for run in runs.values() if method in run["methods"]]
            cells.append(_rates(scored))
        rows.append([method, *cells])
    rows.sort(key=lambda row: [float(cell.split()[0]) if cell != "-" else 100.0 for cell in row[1:]])
    note = "test AER, percent: layer, head and sign chosen on dev (the mean of all layers and heads)"
    signatures = {
        run["methods"]["attention"]["mean"]["test"]["signature"] for of in found.values() for run in of.values()
    }
    headers = [f"{setting}{_seeds(runs)}" for setting, runs in found.items()]
    return table(["method", *headers], rows, f"{note}; `{'`, `'.join(sorted(signatures))}`")


def _rates(scored: list[dict]) -> str:
    if not scored:
        return "-"
    rates = (statistics.fmean(100 * of[kind]["test"]["aer"] for of in scored) for kind in ("chosen", "mean"))
    return "{:.1f} ({:.1f})".format(*rates)


def _seeds(runs: dict) -> str:
    return f" ({len(runs)} seeds)" if len(runs) > 1 else ""


# ---- faithfulness ----


def faithfulness(kind: str) -> str:
    """By how much words are predicted worse under the operator `replace`, for each setting; the mean over seeds."""
    found = _of_multi30k()
    rows = []
    for method in _methods(run[kind] for runs in found.values() for run in runs.values()):
        cells = []
        for runs in found.values():
            scored = [
                run[kind]["methods"][method]["replace"] for run in runs.values() if method in run[kind]["methods"]
            ]
            values = {area: [of[area]["value"] for of in scored] for area in AREAS}
            cells += [f"{statistics.fmean(of):.2f}" if of else "-" for of in values.values()]
        rows.append([method, *cells])
    rows.sort(key=lambda row: [-float(cell) if cell != "-" else 0.0 for cell in row[1::2]])
    headers = [f"{setting}{_seeds(runs)}, {area}" for setting, runs in found.items() for area in AREAS]
    return table(["nats", *headers], rows, "operator `replace`; comprehensiveness: high is good, sufficiency: low is")


def _of_multi30k() -> dict[str, dict[str, dict]]:
    """Setting -> results file -> run."""
    found = by_setting("analysis/faithfulness_*", "corpus").items()
    return {setting: runs for (corpus, setting), runs in found if corpus == "multi30k"}


def verdicts() -> str:
    """How often contributions are more faithful than another method, less, or nobody can tell: seeds and targets."""
    judged: dict[str, dict[str, list[str]]] = {}
    for runs in _of_multi30k().values():
        for run in runs.values():
            for kind in ("reference", "output"):
                if run[kind]["method"] == "contribution":
                    for area in AREAS:
                        for other, verdict in run[kind]["verdicts"][area].items():
                            told = {"contribution": "better", None: "no verdict"}.get(verdict["better"], "worse")
                            judged.setdefault(other, {}).setdefault(area, []).append(told)
    rows = [
        [
            other,
            *(", ".join(f"{name} {of.count(name)}" for name in dict.fromkeys(sorted(of))) for of in by_area.values()),
        ]
        for other, by_area in judged.items()
    ]
    return table(["contributions against", *AREAS], rows)


def operators() -> str:
    """Kendall's tau between the rankings of source words by two operators."""
    found = _of_multi30k()
    rows = []
    for number, first in enumerate(OPERATORS):
        for second in OPERATORS[number + 1 :]:
            cells = [
                mean_and_spread(
                    [run[kind]["operator_agreement"][f"{first}+{second}"]["value"] for run in runs.values()]
                )
                for runs in found.values()
                for kind in ("reference", "output")
            ]
            rows.append([f"{first}, {second}", *cells])
    headers = [f"{setting}, {kind}" for setting in found for kind in ("reference", "output")]
    return table(["Kendall's tau", *headers], rows if found else [])


# ---- planted links ----


def planted() -> str:
    """How often each method's best source word is a linked one, or the one that was copied; percent."""
    runs = read_all("analysis/self_test_seed*").values()
    rows = []
    for method in _methods(iter(runs)):
        scored = [run["methods"][method] for run in runs if method in run["methods"]]
        accuracies = ([100 * of[kind]["accuracy"] for of in scored] for kind in ("links", "copies"))
        rows.append([method, *(mean_and_spread(values, digits=1) for values in accuracies)])
    rows.sort(key=lambda row: -float(row[1].split()[0]))
    for label, key in (("(a word drawn at random)", "by_chance"), ("(always the same place)", "one_place")):
        if runs:
            first = next(iter(next(iter(runs))["methods"].values()))
            rows.append([label, *(f"{100 * first[kind][key]:.1f}" for kind in ("links", "copies"))])
    return table(["best source word is right, percent", "links", "copied words"], rows)


def usable() -> str:
    """How well the order of the methods by a measure is that by accuracy, and whether the measure can be used."""
    runs = list(read_all("analysis/self_test_seed*").values())
    rows = []
    for measure in runs[0]["metrics"]["replace"] if runs else ():
        found = [run["metrics"][operator][measure] for run in runs for operator in OPERATORS]
        taus = [
            f"{statistics.fmean(run['metrics'][operator][measure]['tau'] for run in runs):.2f}"
            for operator in OPERATORS
        ]
        rows.append([measure, f"{sum(one['usable'] for one in found)} of {len(found)}", *taus])
    return table(["measure", "usable", *(f"tau, {operator}" for operator in OPERATORS)], rows)


def stack() -> str:
    """What methods find of the dependencies of the stack language."""
    rows = []
    for (setting,), runs in by_setting("analysis/self_test_stack_*").items():
        for method in _methods(iter(runs.values())):
            scored = [run["methods"][method] for run in runs.values()]
            values = ([100 * of[key] for of in scored] for key in ("precision", "auc", "pooled_auc"))
            rows.append([f"{setting}, {method}", *(mean_and_spread(of, digits=1) for of in values)])
    header = ["percent", "precision of the best R", "AUC within a symbol", "AUC within a sequence"]
    return table(header, rows)


# ---- attention over a corpus ----


def _of_charts(runs, chart: str, column: str, key: Callable[[dict], bool]) -> list[float]:
    """The number in a column of a chart's table, of each run, in the row that fits."""
    found = []
    for run in runs:
        table_of = run["charts"].get(chart)
        rows = [dict(zip(table_of["columns"], row, strict=True)) for row in table_of["rows"]] if table_of else []
        found += [row[column] for row in rows if key(row) and row[column] is not None]
    return found


def observations() -> str:
    """What attention is like in each layer, and what calibration changes: Tables V and VI of Lu et al. and more."""
    rows = []
    columns = {
        "reliability": ("reliability_by_layer", "reliability level"),
        "entropy": ("entropy_by_layer", "entropy of heads (nats)"),
        "divergence": ("change_by_layer", "divergence (nats)"),
        "change of entropy": ("change_by_layer", "change of entropy (nats)"),
        "share that moves": ("change_by_layer", "share that moves"),
    }
    for (corpus, setting), runs in by_setting("analysis/observations_*", "corpus").items():
        layers = {row[0] for run in runs.values() for row in run["charts"]["entropy_by_layer"]["rows"]}
        for layer in sorted(layers):
            cells = []
            for name, (chart, column) in columns.items():
                values = _of_charts(runs.values(), chart, column, lambda row, layer=layer: row["layer"] == layer)
                digits = 4 if name == "divergence" else 3
                cells.append(f"{statistics.fmean(values):.{digits}f}" if values else "-")
            rows.append([f"{corpus}, {setting}{_seeds(runs)}, layer {layer}", *cells])
    return table(["mean over seeds", *columns], rows)


def observed() -> str:
    """The numbers behind the paper's observations, in the top layer: the mean over seeds, and each."""
    rows = []
    for (corpus, setting), runs in by_setting("analysis/observations_*", "corpus").items():
        told = [run["paper"] for run in runs.values() if "paper" in run]
        if told:
            values = {name: [of[name]["value"] for of in told] for name in told[0]}
            digits = {name: 4 if name == "spread_changes_more" else 3 for name in values}
            cells = [f"{mean_and_spread(of, digits=digits[name])}" for name, of in values.items()]
            rows.append([f"{corpus}, {setting}", *cells])
    header = [
        "top layer",
        "reliability",
        "of sharp attention",
        "above the first layer",
        "spread changes more by (nats)",
    ]
    return table(header, rows)


def observed_tags() -> str:
    """Reliability in the top layer by part of speech of the target word (Fig. 3): the mean over seeds."""
    found = {
        setting: runs
        for (corpus, setting), runs in by_setting("analysis/observations_*", "corpus").items()
        if corpus == "multi30k" and any("reliability_by_tag" in run["charts"] for run in runs.values())
    }
    tags = {
        row[0]
        for runs in found.values()
        for run in runs.values()
        for row in run["charts"]["reliability_by_tag"]["rows"]
        if row[1] >= LEAST_WORDS
    }
    rows = []
    for tag in tags:
        cells = []
        for runs in found.values():
            values = _of_charts(
                runs.values(), "reliability_by_tag", "reliability level", lambda row, tag=tag: row["tag"] == tag
            )
            cells.append(f"{statistics.fmean(values):.3f}" if values else "-")
        rows.append([tag, *cells])
    rows.sort(key=lambda row: row[1], reverse=True)
    return table(["reliability", *(f"{setting}{_seeds(runs)}" for setting, runs in found.items())], rows)


ANALYSIS_TABLES = {
    "observations": observations,
    "observed": observed,
    "observed-tags": observed_tags,
    **{f"gold-{short}": (lambda pair=pair: gold(pair)) for pair, short in PAIRS.items()},
    "faithfulness-reference": lambda: faithfulness("reference"),
    "faithfulness-output": lambda: faithfulness("output"),
    "faithfulness-verdicts": verdicts,
    "faithfulness-operators": operators,
    "self-test": planted,
    "self-test-measures": usable,
    "self-test-stack": stack,
}
