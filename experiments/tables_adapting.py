"""Tables of aligners that read the text at hand, of aligners without a model, and of gold links that are displaced."""

from itertools import combinations

from committed import NOT_RUN, markdown, percent_with_interval, read, read_all, table

_AS_MANY = 1.05
SYSTEMS = ("eflomal", "hmm", "adapted", "quick")


def aer(found: dict | None) -> str:
    return "-" if found is None else percent_with_interval(found["aer"], found["interval"])


def adapted() -> str:
    """Every pair of `results/adapting/`: AER on test of each system, and the difference from eflomal."""
    rows = []
    for result in read_all("adapting/adapted_*").values():
        systems, config = result["systems"], result["config"]
        against = systems.get("adapted", systems.get("quick"))["against_eflomal"]
        rows.append(
            [
                config["pair"],
                f"{config['train_pairs']:,}",
                *(aer(systems.get(system)) for system in SYSTEMS),
                _to(against),
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
    return table(["pair", "aligner", "AER, test", "links", "nats"], rows, _ordered_alike())


def _ordered_alike() -> str:
    """How many pairs of aligners the error rate and the nats order alike: of all, and with about as many links."""
    both = [
        two for result in read_all("without_gold/*").values() for two in combinations(result["systems"].values(), 2)
    ]
    near = [(a, b) for a, b in both if max(a["links"], b["links"]) <= _AS_MANY * min(a["links"], b["links"])]
    alike = [
        sum((a["aer"] - b["aer"]) * (a["nats"]["value"] - b["nats"]["value"]) > 0 for a, b in some)
        for some in (near, both)
    ]
    return (
        f"Of aligners whose numbers of links differ by 5 % at most, both order {alike[0]} of {len(near)} pairs alike; "
        f"of all, {alike[1]} of {len(both)}."
    )


def displaced() -> str:
    """AER of every aligner on all pairs of DERMIT, on those whose gold links are displaced, and on the others."""
    result, rows = read("aligner/without_displaced"), []
    for split, parts in result["splits"].items() if result else ():
        for name in parts["all"]:
            found = [aer(parts[part][name]) for part in ("all", "displaced", "others")]
            against = parts["others"][name].get("against", {}).get("eflomal")
            rows.append([f"{name}, {split}", *found, "-" if against is None else _to(against)])
    pairs = [result["splits"]["test"]["pairs"][part] for part in ("all", "displaced", "others")] if result else []
    header = [f"{part} ({count})" for part, count in zip(("all pairs", "displaced", "others"), pairs, strict=False)]
    return table(["AER", *header, "others, to eflomal"], rows)


def similar_words() -> str:
    """AER of aligners without a model, without and with the prior of words that look alike."""
    result = read("aligner/similar_words")
    rows = []
    for split in ("dev", "test") if result else ():
        for name, found in result[split].items():
            without, with_it = (100 * found[how] for how in ("without", "with"))
            rows.append([f"{split}: {name}", f"{without:.1f}", f"{with_it:.1f}", f"{with_it - without:+.2f}"])
    return table(["AER", "without", "with", "difference"], rows)


def _to(against: dict) -> str:
    low, high = against["interval"]
    return f"{100 * against['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


ADAPTING_TABLES = {
    "without-gold": without_gold,
    "adapted": adapted,
    "quick": quick,
    "displaced": displaced,
    "similar-words": similar_words,
}
