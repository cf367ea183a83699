"""Tables of aligners that read the text at hand, and of aligners without a model."""

from committed import NOT_RUN, markdown, percent_with_interval, read_all, table

SYSTEMS = ("eflomal", "hmm", "adapted", "quick")


def aer(found: dict | None) -> str:
    return "-" if found is None else percent_with_interval(found["aer"], found["interval"])


def adapted() -> str:
    """Every pair of `results/adapting/`: AER on test of each system, and the difference from eflomal."""
    rows = []
    for result in read_all("adapting/adapted_*").values():
        systems, config = result["systems"], result["config"]
        against = systems.get("adapted", systems.get("quick"))["against_eflomal"]
        low, high = against["interval"]
        rows.append(
            [
                config["pair"],
                f"{config['train_pairs']:,}",
                *(aer(systems.get(system)) for system in SYSTEMS),
                f"{100 * against['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})",
            ]
        )
    columns = ["test AER", "other pairs", "eflomal", "counts", "adapted", "quick", "to eflomal"]
    return markdown(columns, rows) if rows else f"{NOT_RUN}\n"


def quick() -> str:
    """AER and CPU seconds by the number of pairs, ours and eflomal's."""
    rows = []
    for result in read_all("adapting/quick_*").values():
        for size, systems in sorted(result["sizes"].items(), key=lambda item: int(item[0])):
            figures = [f"{100 * systems[s]['aer']:.1f}" for s in ("eflomal", "quick")]
            seconds = [f"{systems[s]['cpu_seconds']:.1f}" for s in ("eflomal", "quick")]
            rows.append([result["config"]["pair"], f"{int(size):,}", *figures, *seconds])
    columns = ["AER", "pairs", "eflomal", "quick", "eflomal, CPU seconds", "quick, CPU seconds"]
    return markdown(columns, rows) if rows else f"{NOT_RUN}\n"


def without_gold() -> str:
    """The error rate of aligners beside what is known without gold links, those with the lowest error rate first."""
    rows = []
    for result in read_all("without_gold/*").values():
        ordered = sorted(result["systems"].items(), key=lambda item: item[1]["aer"])
        for name, system in ordered:
            figures = [f"{100 * system['aer']:.1f}", f"{system['links']:,}", f"{system['nats']['value']:.3f}"]
            rows.append([result["config"]["pair"], name, *figures])
    return table(["pair", "aligner", "AER, test", "links", "nats"], rows)


ADAPTING_TABLES = {"without-gold": without_gold, "adapted": adapted, "quick": quick}
