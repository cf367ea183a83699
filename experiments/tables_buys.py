"""The table of what calibration buys: each thing that a user could gain, without calibration and with the gate."""

from collections.abc import Callable

from committed import NOT_RUN, mean_and_spread, ratio, read, read_all, table, with_p_value

CONDITIONS = {
    "clean": "clean lines",
    "typing": "with typing errors",
    "lost": "with words lost",
    "long": "four lines in one",
    "captions": "captions, another domain",
}
Row = list[str]


def _follow(value, keys):
    for key in keys:
        value = value[key]
    return value


def _seed(run: dict) -> int:
    return run["config"]["training"]["seed"]


def _by_seed(pattern: str, *keys: str | int, factor: float = 1) -> dict[int, float]:
    """Return seed -> the number under `keys` of the runs whose files fit the pattern."""
    return {_seed(run): factor * _follow(run, keys) for run in read_all(pattern).values()}


def _row(label: str, page: str, without: dict[int, float], gated: dict[int, float], digits: int, ends=()) -> Row:
    """A row of two settings; where seeds are the same, the difference of each.

    Args:
        label, page, digits: name of the row, the link to what it comes from, and digits behind the point.
        without, gated: seed -> number.
        ends: for each of the two the ends of a 95 % interval, which stands where there is one seed.
    """
    both = sorted(without.keys() & gated.keys())
    differences = ", ".join(f"{gated[seed] - without[seed]:+.{digits}f}" for seed in both) or "-"
    cells = [mean_and_spread(list(values.values()), digits) for values in (without, gated)]
    for place, (values, interval) in enumerate(zip((without, gated), ends, strict=False)):
        if len(values) == 1:
            (low,), (high,) = (end.values() for end in interval)
            cells[place] += f" ({low:.{digits}f} to {high:.{digits}f})"
    return [label, *cells, differences, page]


def _ends(pattern: str, *keys: str | int, factor: float = 1) -> list[dict[int, float]]:
    """Return the lower and the upper end of an interval, by seed."""
    return [_by_seed(pattern, *keys, end, factor=factor) for end in (0, 1)]


def _compared(label: str, page: str, folder: str) -> Row:
    """A row of test BLEU with the differences, and p, that `experiments/converged.py` has written."""
    paired = (read(f"converged/{folder}/paired") or {"paired": {}})["paired"]
    cells = [_by_seed(f"converged/{folder}/{name}_seed*", "test", "bleu") for name in ("baseline", "gated")]
    gains = [with_p_value(of["test"]) for stem, of in paired.items() if stem.startswith("gated_seed")]
    return [label, *(mean_and_spread(list(of.values())) for of in cells), ", ".join(gains) or "-", page]


# ---- rows, by what is gained ----


def _translations() -> list[Row]:
    page = "[translation](translation.md)"
    early = [_by_seed(f"multi30k/{name}_seed*", "test", "bleu") for name in ("baseline", "gated")]
    one_pass = [_by_seed(f"converged/wpt03_large/{name}_seed*", "test", "bleu") for name in ("baseline", "gated")]
    adapters = [_by_seed(f"adapters/multi30k/{name}_seed*", "test", "trained", "bleu") for name in ("lora", "gated")]
    return [
        _compared("BLEU, trained out, English-German", page, "multi30k"),
        _compared("BLEU, trained out, German-Romansh", page, "dermit-derm"),
        _compared("BLEU, 10,000 pairs", page, "multi30k_10000"),
        _compared("BLEU, 5,000 pairs", page, "multi30k_5000"),
        _row("BLEU, after five epochs", page, *early, 2),
        _compared("the same, trained again", page, "control"),
        _row("BLEU, one pass over 200,000 pairs, English-French", page, *one_pass, 2),
        _row("BLEU, finished model with an adapter (without: a LoRA)", "[adapters](adapters.md)", *adapters, 2),
    ]


def _difficult() -> list[Row]:
    """BLEU of difficult input, from `experiments/buys.py`."""
    runs = [read_all(f"buys/{name}_seed*") for name in ("baseline", "gated")]
    rows = []
    for condition, label in CONDITIONS.items():
        values = [[run["translations"][condition]["score"] for run in of.values()] for of in runs]
        gains = [with_p_value(run["translations"][condition]) for run in runs[1].values()]
        rows.append([f"BLEU, {label}", *map(mean_and_spread, values), ", ".join(gains) or "-", "below"])
    return rows


def _probabilities() -> list[Row]:
    found = [_by_seed(f"buys/{name}_seed*", "probabilities", "ece", factor=100) for name in ("baseline", "gated")]
    return [_row("calibration error of the probabilities of tokens (ECE), percent", "below", *found, 2)]


def _attention() -> list[Row]:
    page, rows = "[attention](attention.md)", []
    for layer, number in (("first", 0), ("top", -1)):
        found = [
            {
                _seed(run): 100 * run["charts"]["reliability_by_layer"]["rows"][number][1]
                for run in read_all(f"analysis/observations_multi30k_{name}_seed*").values()
            }
            for name in ("probe", "gated")
        ]
        label = f"the most attended token is the one that matters, {layer} layer, percent (without: a probe)"
        rows.append(_row(label, page, *found, 1))
    return rows


def _faithfulness() -> list[Row]:
    """By how many nats the target is predicted worse without the words that a method names."""
    page, rows = "[words taken away](attribution.md#words-taken-away)", []
    best = {"attention": "attention", "contribution": "contributions (without: attention)"}
    for method, label in best.items():
        both = [
            (
                f"analysis/faithfulness_multi30k_{name}_seed*",
                "reference",
                "methods",
                of,
                "replace",
                "comprehensiveness",
            )
            for name, of in (("baseline", "attention"), ("gated", method))
        ]
        found = [_by_seed(*keys, "value") for keys in both]
        ends = [_ends(*keys, "interval") for keys in both]
        rows.append(_row(f"faithfulness of {label}, nats", page, *found, 2, ends))
    return rows


def _links() -> list[Row]:
    page, rows = "[gold links](attribution.md#gold-links)", []
    methods = {
        "attention": "attention",
        "attention_shifted": "attention, a step later",
        "contribution": "contributions (without: attention)",
    }
    texts = {
        "English-French": "analysis/gold_wpt03-enfr",
        "German-Romansh": "analysis/gold_dermit-derm",
        "English-French, one pass": "buys/gold_wpt03-enfr",
    }
    for text, file in texts.items():
        for method, label in methods.items():
            before = "attention" if method == "contribution" else method
            both = [
                (f"{file}_{name}_seed*", "methods", of, "chosen", "test")
                for name, of in (("baseline", before), ("gated", method))
            ]
            found = [_by_seed(*keys, "aer", factor=100) for keys in both]
            if all(found):
                ends = [_ends(*keys, "interval", factor=100) for keys in both]
                rows.append(_row(f"AER of {label}, {text}, percent", page, *found, 1, ends))
    return rows


def _copies() -> list[Row]:
    page = "[copying](copying.md)"
    rouge = [_by_seed(f"copying/{name}_seed*", "test", "rouge1") for name in ("copy", "copy_gated")]
    right = [
        {_seed(run): 100 * run["words"]["copied_right"] for run in read_all(f"copying/heads/{name}_seed*").values()}
        for name in ("copy", "copy_gated")
    ]
    return [
        _row("ROUGE-1 of headlines with copying", page, *rouge, 2),
        _row("copied words that the reference has, percent", page, *right, 1),
    ]


def _left_out() -> list[Row]:
    """Detection of words left out, by one model's attention before and after calibration, and by contributions."""
    page, rows = "[checking](checking.md#does-a-models-own-attention-show-what-it-left-out)", []
    for domain in ("in", "off"):
        pattern = f"check/own_faults_{domain}_domain_gated_seed*"
        uncalibrated = _auc(pattern, "attention, uncalibrated, most")
        for method, label in (("attention, most", "attention"), ("contribution, most", "contributions")):
            name = f"words left out, AUC of {label}, {domain} domain (without: attention before calibration)"
            rows.append(_row(name, page, uncalibrated, _auc(pattern, method), 1))
    return rows


def _auc(pattern: str, method: str) -> dict[int, float]:
    return _by_seed(pattern, "words", method, "auc", "value", factor=100)


def _costs() -> list[Row]:
    page, rows = "[speed](speed.md)", []
    for name, key, label in (
        ("training", "time_ratio", "time of a training step, stock model 1"),
        ("generation", "speed_ratio", "speed of generation, stock model 1"),
    ):
        result = read(f"benchmark_{name}_cpu")
        cells = [NOT_RUN] * 2
        if result:
            cells = [ratio(result["variants"][variant][key]) for variant in ("baseline", "gated")]
        rows.append([label, *cells, "-", page])
    return rows


GROUPS: dict[str, Callable[[], list[Row]]] = {
    "Translations": _translations,
    "Difficult input": _difficult,
    "Probabilities": _probabilities,
    "Attention": _attention,
    "Faithfulness": _faithfulness,
    "Word links": _links,
    "Copying": _copies,
    "Faults": _left_out,
    "Costs": _costs,
}


def buys() -> str:
    """Every row of every group."""
    rows = [row for group in GROUPS.values() for row in group()]
    if all(cell == NOT_RUN for row in rows for cell in row[1:3]):
        return table([], [])
    header = [
        "what you could gain",
        "without calibration",
        "gated calibration",
        "difference, each seed",
        "measured in",
    ]
    return table(header, rows)


def buys_probabilities() -> str:
    """How well the probabilities of tokens match, of each model, with intervals."""
    rows = []
    for file, run in read_all("buys/*").items():
        if "probabilities" not in run:
            continue
        of = run["probabilities"]
        low, high = (100 * end for end in of["interval"])
        rows.append(
            [
                file.rpartition("/")[2].replace("_seed", ", seed "),
                f"{100 * of['ece']:.2f} ({low:.2f} to {high:.2f})",
                f"{100 * of['mean']:.1f}",
                f"{100 * of['right']:.1f}",
                f"{of['brier']:.3f}",
                f"{of['loss']:.3f}",
            ]
        )
    header = ["model", "ECE, percent", "mean probability", "right", "Brier score", "loss, nats"]
    return table(header, rows)


BUYS_TABLES = {"buys": buys, "buys-probabilities": buys_probabilities}
