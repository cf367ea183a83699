"""The table of what a training on GPUs would take, as `benchmarks/estimate.py` reckons it."""

from committed import read, table


def estimate() -> str:
    """Hours and memory of each variant."""
    result = read("estimate_wmt14")
    found = result["variants"] if result else {}
    gpus = result["config"]["gpus"] if result else 0
    rows = [
        [
            variant,
            f"{numbers['parameters'] / 1e6:.0f}",
            *(f"{hours:.1f}" for hours in numbers["hours"].values()),
            f"{numbers['cpu_thread_hours']:,.0f}",
            f"{numbers['memory']['weights_gradients_adam_gib']:.1f}",
            f"{numbers['memory']['activations_gib']:.1f}",
        ]
        for variant, numbers in found.items()
    ]
    names = next(iter(found.values()))["hours"] if found else ()
    hours = [f"hours, {gpus} {name}" for name in names]
    memory = ["GiB a GPU: weights, optimizer", "activations"]
    return table(["attention", "million parameters", *hours, "hours, a CPU thread", *memory], rows)


DISTRIBUTED_TABLES = {"estimate": estimate}
