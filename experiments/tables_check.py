"""The tables of `attncal check`: annotated and planted faults, and false alarms."""

import itertools
import statistics

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


# The label of a results file -> the aligner that it is of.
ALIGNERS = {
    "": "counts (`hmm`)",
    "_with_this_text": "counts, the checked text among what they learned from",
    "_small": "network (`small`)",
}


def planted_results() -> dict[str, dict]:
    """Name -> results of planted errors, those of other aligners left out."""
    labels = tuple(label for label in ALIGNERS if label)
    return {name: result for name, result in read_all("check/planted_*").items() if not name.endswith(labels)}


def check_aligners() -> str:
    """AUC by aligner: annotated faults, planted omissions and insertions word by word, and speed."""
    rows = []
    for label, aligner in ALIGNERS.items():
        annotated = read(f"check/hallucinations-deen{label}")
        if annotated is None:
            continue
        cells = [aligner]
        cells += [f"{100 * annotated['faults'][fault]['together']['auc']['value']:.1f}" for fault in FAULTS]
        planted = read(f"check/planted_tatoeba-deen{label}")
        for kind, side in (("omission", "left_out"), ("insertion", "made_up"), ("name", "made_up")):
            cells.append(f"{100 * planted['kinds'][kind][side]['auc']['value']:.1f}" if planted else "-")
        speed = read(f"check/speed{label}")
        cells.append(f"{speed['lines_per_core_second']['median']:,.0f}" if speed else "-")
        rows.append(cells)
    header = ["aligner", *FAULTS.values(), "words left out", "words inserted", "names", "lines a second and core"]
    return table(header, rows)


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
    for result in planted_results().values():
        for kind, found in result["kinds"].items():
            words = (found[side] for side in ("left_out", "made_up"))
            cells = ((word, measure) for word in words for measure in ("auc", "f1"))
            rows.append(
                [
                    f"{kind}, `{result['config']['clean']}`",
                    str(found["lines"]["faults"]),
                    percent_with_interval(*_of(found["lines"]["auc"])),
                    *("-" if word is None else f"{100 * word[measure]['value']:.1f}" for word, measure in cells),
                    f"{100 * found['flagged']:.1f}",
                ]
            )
    header = ["planted", "lines", "AUC of lines", "of words left out", "F1", "of words made up", "F1", "flagged, %"]
    return table(header, rows)


def check_false_alarms() -> str:
    """Share of clean lines that are flagged."""
    rows = []
    for result in read_all("check/false_alarms_*").values():
        by_verdict = ", ".join(f"{name} {count}" for name, count in result["by_verdict"].items())
        share = f"{100 * result['share']:.2f}"
        rows.append([f"`{result['config']['clean']}`", str(result["lines"]), share, by_verdict])
    return table(["clean text", "lines", "flagged, %", "lines by verdict"], rows)


def check_own_faults() -> str:
    """AUC of words taken away from what the encoder sees, and of lines that lack them: mean over seeds, extremes."""
    texts = {name: list(read_all(f"check/own_faults_{name}_domain_gated_seed*").values()) for name in ("in", "off")}
    if not all(texts.values()):
        return table([], [])
    rows = []
    for method in texts["in"][0]["lines"]:
        cells = [method]
        for results, part in itertools.product(texts.values(), ("words", "lines")):
            values = [100 * result[part][method]["auc"]["value"] for result in results if method in result[part]]
            cells.append(f"{statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else "-")
        rows.append(cells)
    header = [f"AUC of {part}, {name} domain" for name, part in itertools.product(texts, ("words", "lines"))]
    return table(["method", *header], rows)


def _of(measured: dict) -> tuple:
    return measured["value"], measured["interval"]


CHECK_TABLES = {
    "check-aligners": check_aligners,
    "check-own-faults": check_own_faults,
    "check-faults": check_faults,
    "check-planted": check_planted,
    "check-false-alarms": check_false_alarms,
}
