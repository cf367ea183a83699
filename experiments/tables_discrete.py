"""The tables of the Discrete Transformer: the stack language, translation, speed, what its encoders know of syntax."""

from committed import (
    NOT_RUN,
    conditions,
    markdown,
    mean_and_spread,
    percent_with_interval,
    ratio,
    read,
    read_all,
)
from headlines import CHUNKING, STREAMS

# Files of results/stack/ -> what a table calls them.
STACK = {
    "single_seed*": "discrete",
    "soft_seed*": "soft",
    "soft_penalty_seed*": "soft, with the penalty",
}
STACK_ABLATION = {
    "single_seed1": "as above, seed 1",
    "ablation_null": "without NULL",
    "ablation_relative": "without relative positions",
    "ablation_paper": "the printed recipe: without both, noise 1, penalty 0.1 from the first step",
    "search_noise_2_seed2": "1,800 steps, seed 2",
    "search_noise_1_seed2": "1,800 steps, noise 1, seed 2",
    "search_short_seed*": "1,500 steps, noise 1, temperature to 0.3, penalty 0.02",
    "search_cold_seed*": "3,500 steps, noise 1, temperature to 0.3, penalty 0.015",
}
# Files of results/discrete_search/ -> what they were.
SEARCH = {
    "soft": "soft",
    "soft_relative": "soft, relative positions",
    "paper": "hard, as in the paper: noise 1, temperature 1",
    "cooling": "hard, no noise, temperature to 0.1",
    "cooling_eight_heads_null": "the same, with eight heads and NULL",
    "straight_through": "hard, no noise, straight-through",
    "relative": "hard, no noise, straight-through step by step, relative positions",
}
SPEED_PARTS = {
    "encoder": "encoder",
    "step": "step of the decoder",
    "attention": "attention",
    "attention_step": "its step",
}


def _shares(runs: list[dict], counted: str) -> list[str]:
    """Precision and recall on test, in percent."""
    fields = [run["test"]["receptive_field"][counted] for run in runs]
    return [mean_and_spread([100 * field[name] for field in fields]) for name in ("precision", "recall")]


def _stack(settings: dict[str, str]) -> tuple[list[list[str]], dict | None]:
    """Rows, and one of the runs."""
    rows, one = [], None
    for pattern, label in settings.items():
        runs = list(read_all(f"stack/{pattern}").values())
        if not runs:
            rows.append([label, *[NOT_RUN] * 7])
            continue
        one = runs[0]
        field = [run["test"]["receptive_field"]["field_size"] for run in runs]
        rows.append(
            [
                label,
                *_shares(runs, "begin"),
                *_shares(runs, "no_begin"),
                mean_and_spread(field),
                mean_and_spread([run["test"]["perplexity"] for run in runs], digits=3),
                mean_and_spread([run["wall_seconds"] / 60 for run in runs], digits=0),
            ]
        )
    return rows, one


def _stack_table(settings: dict[str, str]) -> str:
    rows, one = _stack(settings)
    header = ["", "precision", "recall", "precision, without `<s>`", "recall, without `<s>`", "tokens in a field"]
    table = markdown([*header, "perplexity", "minutes"], rows)
    if one is None:
        return table
    signature = one["test"]["receptive_field"]["begin"]["signature"]
    return f"{table}\n`{signature}`; perplexity of the generator itself: {one['generator_perplexity']:.3f}\n"


def stack() -> str:
    """Receptive fields on the stack language against its true dependencies; test."""
    return _stack_table(STACK)


def stack_ablation() -> str:
    """The same with single parts taken away."""
    return _stack_table(STACK_ABLATION)


def translation() -> str:
    """BLEU of hard attention in one stream and in two, beside soft attention at equal steps."""
    runs = {setting: read_all(f"multi30k/{setting}_seed*").values() for setting in STREAMS}
    soft = {run["config"]["training"]["seed"]: run["test"]["bleu"] for run in runs["soft"]}
    rows, signature = [], ""
    for setting, found in runs.items():
        label = STREAMS[setting]
        if not found:
            rows.append([label, *[NOT_RUN] * 4])
            continue
        seeds = [run["config"]["training"]["seed"] for run in found]
        gains = [run["test"]["bleu"] - soft[seed] for run, seed in zip(found, seeds, strict=True) if seed in soft]
        signature = next(iter(found))["test"]["signature"]
        rows.append(
            [
                label,
                mean_and_spread([run["dev"]["bleu"] for run in found]),
                mean_and_spread([run["test"]["bleu"] for run in found]),
                "-" if setting == "soft" else " / ".join(f"{gain:+.2f}" for gain in gains),
                mean_and_spread([run["wall_seconds"] / 60 for run in found], digits=0),
            ]
        )
    table = markdown(["attention", "dev BLEU", "test BLEU", "test, to soft (each seed)", "minutes"], rows)
    return f"{table}\nsacreBLEU `{signature}`\n"


def search() -> str:
    """What hard attention in one stream was tried with; one seed, 1,500 steps."""
    rows = []
    for name, label in SEARCH.items():
        run = read(f"discrete_search/{name}")
        if run is not None:
            rows.append([label, f"{run['dev']['bleu']:.2f}", f"{run['test']['bleu']:.2f}"])
    return markdown(["one stream, 1,500 steps, seed 1", "dev BLEU", "test BLEU"], rows) if rows else f"{NOT_RUN}\n"


def field_sizes() -> str:
    """How many tokens of source and target a target token is computed from, by the length of the source."""
    rows, lengths = [], []
    for name, run in read_all("fields/*").items():
        lengths = [f"{part['source_tokens_from']} to {part['to']}" for part in run["by_length"]]
        parts = [run["dev"], *run["by_length"]]
        sizes = [f"{part['source_tokens']:.1f} of {part['source_length']:.1f}" for part in parts]
        rows.append(
            [name.removeprefix("fields/"), f"{run['penalty']:g}", *sizes, f"{run['dev']['target_tokens']:.1f}"]
        )
    header = ["source tokens read", "penalty", "all", *lengths, "target tokens read, all"]
    return markdown(header, rows) if rows else f"{NOT_RUN}\n"


def speed() -> str:
    """How many times as fast hard attention is as soft, by length; training steps over stock Marian's."""
    text = ""
    for result in read_all("benchmark_discrete_*").values():
        rows = [
            [f"{setting}, {length}", *(ratio(parts.get(part, {}).get("speed_ratio")) for part in SPEED_PARTS)]
            for setting, found in result["variants"].items()
            for length, parts in found["inference"].items()
        ]
        header = ["streams, length", *SPEED_PARTS.values()]
        steps = [
            [setting, *(ratio(value) for value in found["training_step"].values())]
            for setting, found in result["variants"].items()
        ]
        columns = ["training step over stock Marian's", "without penalty", "with"]
        text += f"{markdown(header, rows)}\n{markdown(columns, steps)}\n{conditions(result)}\n"
    return text or f"{NOT_RUN}\n"


CHUNKING_CONTROLS = ("untrained", "embeddings")


def chunking() -> str:
    """Chunks by one linear layer over frozen encoders, and over the two controls of experiments/chunking.py."""
    reported = read("reported_chunking") or {"f1": {}}
    baseline = read("chunking/baseline")
    measured = {"baseline": [] if baseline is None else [{"encoder": baseline}]}
    for setting, (model, stream) in CHUNKING.items():
        measured[setting] = [run["streams"][stream] for run in read_all(f"chunking/{model}_seed*").values()]
    rows, signature = [], None
    for setting, probes in measured.items():
        paper = f"{reported['f1'][setting]:.2f}" if setting in reported["f1"] else "-"
        if not probes:
            rows.append([setting, *[NOT_RUN] * 6, paper])
            continue
        scores = [probe["encoder"]["test"] for probe in probes]
        signature = scores[0]["signature"]
        measures = [[100 * score[name] for score in scores] for name in ("accuracy", "precision", "recall", "f1")]
        for control in CHUNKING_CONTROLS:
            measures.append([100 * probe[control]["test"]["f1"] for probe in probes if control in probe])
        rows.append([setting, *(mean_and_spread(values) if values else "-" for values in measures), paper])
    header = ["", "accuracy", "precision", "recall", "F1", "F1, random weights", "F1, embeddings", "paper, F1"]
    return markdown(header, rows) + (f"\n`{signature}`\n" if signature else "")


def neighbours() -> str:
    """Nearest neighbours in the tables of embeddings that have the tag of their word."""
    rows, signature = [], None
    for setting, (model, stream) in CHUNKING.items():
        runs = [run["streams"][stream]["shared_tags"] for run in read_all(f"embeddings/{model}_seed*").values()]
        if not runs:
            rows.append([setting, *[NOT_RUN] * 4])
            continue
        signature = runs[0]["signature"]
        shares = [[100 * run[name] for run in runs] for name in ("share", "chance")]
        interval = percent_with_interval(runs[0]["share"], runs[0]["interval"])
        rows.append([setting, mean_and_spread(shares[0]), interval, f"{shares[1][0]:.1f}", f"{runs[0]['words']:,}"])
    header = ["neighbours with the word's tag, percent", "all seeds", "first seed (95 %)", "by chance", "words"]
    return markdown(header, rows) + (f"\n`{signature}`\n" if signature else "")


DISCRETE = {
    "stack": stack,
    "stack-ablation": stack_ablation,
    "discrete-translation": translation,
    "discrete-search": search,
    "field-sizes": field_sizes,
    "discrete-speed": speed,
    "chunking": chunking,
    "neighbours": neighbours,
}
