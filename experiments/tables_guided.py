"""Tables of docs/experiments/aligning.md: heads that learned links. `tables.py` writes them."""

from committed import NOT_RUN, markdown, percent_with_interval, read, with_p_value

KINDS = {"unguided": "trained without links", "guided": "trained with links", "adapter": "adapter on the frozen model"}
# Of models of half the width that read 200,000 pairs once, with or without links from the first step.
KINDS_READ_ONCE = {"unguided": "200,000 pairs, never links", "guided": "200,000 pairs, links from the first step"}


def place(settings: dict) -> str:
    """Layer, heads and step that are read, counted from 1."""
    heads = "all heads" if settings["heads"] is None else f"heads {', '.join(str(h + 1) for h in settings['heads'])}"
    return f"layer {settings['layer'] + 1}, {heads}, {'Shift-Att' if settings['shift'] else 'Naive-Att'}"


def guided_heads() -> str:
    """AER and BLEU before and after a head learned links."""
    result = read("aligner/guided_heads")
    if result is None:
        return f"{NOT_RUN}\n"

    def aer(row: dict) -> list[str]:
        above = row["above_threshold"]
        found = [percent_with_interval(row[split]["aer"], row[split]["interval"]) for split in ("dev", "test")]
        return [*found, f"{100 * above['test']['aer']:.1f} ({above['threshold']})"]

    def against(row: dict, other: str) -> str:
        compared = (row["bleu"] or {}).get(other)
        return "-" if compared is None else with_p_value(compared)

    def of_runs(found: dict, kinds: dict[str, str]) -> list[list[str]]:
        rows = []
        for row in sorted(found["runs"], key=lambda row: (list(kinds).index(row["kind"]), row["seed"])):
            bleu = f"{next(iter(row['bleu'].values()))['score']:.2f}" if row["bleu"] else "-"
            compared = [against(row, other) for other in ("before", "unguided")]
            rows.append(
                [f"{kinds[row['kind']]}, seed {row['seed']}", *aer(row), bleu, *compared, place(row["settings"])]
            )
        return rows

    before = result["before"]
    rows = [["before", *aer(before), f"{before['bleu']:.2f}", "-", "-", place(before["settings"])]]
    rows += of_runs(result, KINDS)
    from_the_first_step = read("aligner/guided_heads_read_once")
    if from_the_first_step is not None:
        rows += of_runs(from_the_first_step, KINDS_READ_ONCE)
    measures = ["dev AER", "test AER (95 %)", "test AER, links above", "BLEU", "to before", "to without links", "read"]
    signature = f"`{before['test']['signature']}`, `{before['signature']}`"
    return f"{markdown(['model', *measures], rows)}\n{signature}\n"


def guided_heads_dev() -> str:
    """How the layer, the step and the weight were chosen."""
    result = read("aligner/guided_heads_dev")
    if result is None:
        return f"{NOT_RUN}\n"
    rows = []
    for row in sorted(result["runs"], key=lambda row: (row["kind"] != "model", row["aer"])):
        losses = [f"{row[name]:.3f}" for name in ("guided_loss", "nmt_loss")]
        weight, learned = f"{row['guided_weight']:g}", row["settings"]
        rows.append([f"{row['kind']}, {place(learned)}", weight, f"{100 * row['aer']:.1f}", *losses])
    return markdown(["trained", "weight", "dev AER", "guided loss", "translation loss"], rows)


GUIDED_TABLES = {"guided-heads": guided_heads, "guided-heads-dev": guided_heads_dev}
