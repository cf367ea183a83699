"""The tables of aligning with the states of encoders, for `tables.py`."""

from collections.abc import Callable

from committed import percent_with_interval, read_all, table

WAYS = {
    "attention": "cross-attention, chosen on dev gold",
    "gold": "states, chosen on dev gold",
    "agreement": "states, chosen without gold",
    "saved": "states, as tuned and saved",
}


def encoder_states() -> str:
    """AER of every checkpoint of `results/encoder_states/` in every way, and what was read."""
    rows = []
    for result in read_all("encoder_states/*").values():
        for name, system in result["systems"].items():
            for way, found in system["ways"].items():
                if way == "gold" and "saved" in system["ways"]:  # the same choice, kept by the tuning
                    continue
                settings = found["settings"]
                read = f"layer {settings['layer']}" + (f" above {settings['threshold']}" if way != "attention" else "")
                rows.append(
                    [
                        f"{name}, {WAYS[way]}",
                        f"{100 * found['dev']['aer']:.1f}",
                        percent_with_interval(found["test"]["aer"], found["test"]["interval"]),
                        f"{100 * found['test']['precision']:.1f}",
                        f"{100 * found['test']['recall']:.1f}",
                        read,
                    ]
                )
    return table(["", "dev AER", "test AER (95 %)", "precision", "recall", "what is read"], rows)


def encoder_layers() -> str:
    """The lowest AER on dev of each layer, by any threshold."""
    systems = {
        name: system["layers"]
        for result in read_all("encoder_states/*").values()
        for name, system in result["systems"].items()
        if "tuned" not in system
    }
    layers = sorted({layer for found in systems.values() for layer in found}, key=int)
    rows = [
        [name, *(f"{100 * found[n]:.1f}" if n in found else "-" for n in layers)] for name, found in systems.items()
    ]
    return table(["dev AER", *(f"layer {n}" for n in layers)], rows)


ENCODER_TABLES: dict[str, Callable[[], str]] = {"encoder-states": encoder_states, "encoder-layers": encoder_layers}
