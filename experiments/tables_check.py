"""The tables of `attncal check`: annotated and planted faults, and false alarms."""

from committed import percent_with_interval, read, read_all, table

FAULTS = {
    "any": "any hallucination",
    "detached": "detached",
    "omission": "omission",
    "repetitions": "repetitions",
}
SCORES = {
    "together": "`attncal check`",
    "line": "the same, each line by itself (`--no-together`)",
    "alignment_score": "1 - `WordAlignment.score`",
    "shorter": "how short the target is",
}


def check_faults() -> str:
    """AUC and precision at 90 % recall of each fault."""
    result = read("check/hallucinations-deen")
    rows, signature = [], ""
    for score, label in SCORES.items() if result else ():
        cells = [label]
        for fault in FAULTS:
            found = result["faults"][fault][score]
            signature = found["signature"]
            cells.append(percent_with_interval(*_of(found["auc"])))
            cells.append(f"{100 * found['precision_at_90']['value']:.1f}")
        rows.append(cells)
    header = [""]
    for fault, label in FAULTS.items():
        number = result["faults"][fault]["line"]["faults"] if result else 0
        header += [f"{label} ({number}), AUC", "precision at 90 % recall"]
    return table(header, rows, f"`{signature}`")


def check_planted() -> str:
    """AUC of each kind of planted error: of lines, and of words."""
    rows = []
    for result in read_all("check/planted_*").values():
        for kind, found in result["kinds"].items():
            words = (found[side] for side in ("left_out", "made_up"))
            rows.append(
                [
                    f"{kind}, `{result['config']['clean']}`",
                    str(found["lines"]["faults"]),
                    percent_with_interval(*_of(found["lines"]["auc"])),
                    *("-" if word is None else f"{100 * word['auc']['value']:.1f}" for word in words),
                    f"{100 * found['flagged']:.1f}",
                ]
            )
    return table(["planted", "lines", "AUC of lines", "of words left out", "of words made up", "flagged, %"], rows)


def check_false_alarms() -> str:
    """Share of clean lines that are flagged."""
    rows = []
    for result in read_all("check/false_alarms_*").values():
        by_verdict = ", ".join(f"{name} {count}" for name, count in result["by_verdict"].items())
        share = f"{100 * result['share']:.2f}"
        rows.append([f"`{result['config']['clean']}`", str(result["lines"]), share, by_verdict])
    return table(["clean text", "lines", "flagged, %", "lines by verdict"], rows)


def _of(measured: dict) -> tuple:
    return measured["value"], measured["interval"]


CHECK_TABLES = {
    "check-faults": check_faults,
    "check-planted": check_planted,
    "check-false-alarms": check_false_alarms,
}
