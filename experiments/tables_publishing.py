"""The tables of what was published on a Hub of tests and used elsewhere, and of exported graphs."""

from committed import read, table

COLUMNS = {
    "published": "published",
    "loaded_without_the_package": "loaded without the package, same numbers",
    "generates": "generates",
    "card_valid": "card valid",
    "adapter_on_top": "adapter on top",
}


def publishing() -> str:
    """Say for each kind of model what worked."""
    result = read("publishing")
    rows = [
        [kind, *("-" if name not in found else "yes" if found[name] else "no" for name in COLUMNS)]
        for kind, found in (result or {"families": {}})["families"].items()
    ]
    note = f"Faults of the Hub: {result['faults']['tried']} tried, {result['faults']['lost']} lost." if result else ""
    return table(["model", *COLUMNS.values()], rows, note)


def export() -> str:
    """Differences and speed of exported graphs, from `benchmarks/export.py`."""
    result = read("benchmark_export_cpu")
    rows = [
        [
            f"{family}, {format}",
            f"{found['max_difference']:.1e}",
            f"{found['largest_value']:.2f}",
            f"{found['times_as_fast']['median']:.2f}",
            f"{found['times_as_fast']['min']:.2f} to {found['times_as_fast']['max']:.2f}",
        ]
        for family, formats in (result["variants"] if result else {}).items()
        for format, found in formats.items()
    ]
    return table(["graph", "largest difference", "largest value", "times as fast", "extremes"], rows)


PUBLISHING_TABLES = {"publishing": publishing, "export": export}
