"""The table of what was published on a Hub of tests, and used elsewhere."""

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


PUBLISHING_TABLES = {"publishing": publishing}
