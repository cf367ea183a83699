"""The tables of what was published on a Hub of tests and used elsewhere, and of exported graphs."""

from committed import read, table

CHECKS = {
    "published": "published",
    "loaded_without_the_package": "loaded without the package, same numbers",
    "generates": "generates",
    "card_valid": "card valid",
    "adapter_on_top": "adapter on top",
}
FORMATS = {"onnx": "ONNX", "openvino": "OpenVINO"}


def publishing() -> str:
    """Write for each check with how many kinds of models it was tried, and with which it failed."""
    result = read("publishing")
    kinds = result["families"] if result else {}
    rows = []
    for name, label in CHECKS.items():
        outcomes = {kind: outcome[name] for kind, outcome in kinds.items() if name in outcome}
        failed = [kind for kind, worked in outcomes.items() if not worked]
        rows += [[label, str(len(outcomes)), ", ".join(failed) or "0"]] if outcomes else []
    if result:
        faults = result["faults"]
        rows.append(["faults of the Hub", str(faults["tried"]), str(faults["lost"])])
    return table(["check", "tried", "failed"], rows)


def export() -> str:
    """Differences and speed of exported graphs, from `benchmarks/export.py`."""
    result = read("benchmark_export_cpu")
    rows = []
    for family, formats in (result["variants"] if result else {}).items():
        row = [family]
        for name in FORMATS:
            row.append(f"{formats[name]['max_difference']:.1e}")
            row.append("{median:.2f} ({min:.2f} to {max:.2f})".format(**formats[name]["times_as_fast"]))
        rows.append(row)
    header = [f"{name}: {what}" for name in FORMATS.values() for what in ("off by", "times as fast")]
    return table(["graph", *header], rows)


PUBLISHING_TABLES = {"publishing": publishing, "export": export}
