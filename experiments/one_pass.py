"""What calibration gains while a text is read for the first time: the curve of likelihood and BLEU of a test text.

    python experiments/one_pass.py --data DIR/wpt03-enfr --model baseline=runs/baseline1 --model gated=runs/gated1 ...

A model is the folder of a finished training by `configs/translation/wpt03_pass_*.yaml`, with its checkpoints, given
once for each seed. A point of its way is the mean of the last five checkpoints up to a step, as the final model is.
Its translations are greedy; its likelihood is that of the reference, in nats a target token, its end included.

A model that learned links (`guided`) is measured in the same way; the time that counting took is not in its steps.

A calibrated step costs more than a plain one: its CPU time, over that of the baseline, is measured on the same batches
in turn. "Equal time" compares the last point of the baseline with the point of the other model that had as much time.

Written is results/converged/wpt03_large/way.json, after each model; what is there is not measured again.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from committed import RESULTS
from frozen import Frozen, add_models, read_models

from hf_attncal.data.corpora import load_parallel
from hf_attncal.files import write_json
from hf_attncal.inference.translation import translate_texts
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import bleu
from hf_attncal.training.checkpoints import average_checkpoints
from hf_attncal.training.folder import last_checkpoints

PAIRS = 200_000  # that the whole way reads
AVERAGED = 5  # checkpoints
POINTS = 4  # of the way whose translations are scored, beside that of equal time
TEST = {"source": "mt-test.en.gz", "target": "mt-test.fr.gz"}
WAY = "converged/wpt03_large/way"
BASELINE = "baseline"
LINES, REPEATS, WARM = 56, 20, 3  # pairs of a batch of which time is taken, batches, and those before them


def step_costs(models: list[Frozen], sources: list[str], targets: list[str]) -> dict[str, dict[str, float]]:
    """CPU time of a training step of each setting over that of the baseline: median and extremes over batches."""
    first = {frozen.name: frozen for frozen in reversed(models)}
    steps = {name: _step(frozen) for name, frozen in first.items()}
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(-WARM, REPEATS):
        rows = slice(LINES * (repeat + WARM), LINES * (repeat + WARM + 1))
        seconds = {name: step(sources[rows], targets[rows]) for name, step in steps.items()}
        for name, of_setting in ratios.items() if repeat >= 0 else ():
            of_setting.append(seconds[name] / seconds[BASELINE])
    return {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in ratios.items()
    }


def _step(frozen: Frozen) -> Callable[[list[str], list[str]], float]:
    """A function that makes a training step of some pairs, as the training did, and returns its CPU seconds."""
    model, tokenizer = frozen.load()
    run = json.loads((frozen.folder / "results.json").read_text(encoding="utf-8"))
    model.set_attn_implementation(run["config"]["model"]["attn_implementation"])
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5)

    def step(sources: list[str], targets: list[str]) -> float:
        inputs = _inputs(tokenizer, sources, targets)
        if model.config.guided:  # which links they are changes no time
            shape = (len(sources), inputs["labels"].shape[1], inputs["input_ids"].shape[1])
            inputs["links"] = torch.eye(*shape[1:]).expand(shape)
        begun = time.process_time()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - begun

    return step


def points_of(steps: list[int], cost: float) -> tuple[list[int], int]:
    """The steps at which translations are scored, and the one that had as much time as the baseline's last.

    Args:
        steps: of the checkpoints, in order.
        cost: of a step, of the baseline's 1.
    """
    evenly = [steps[-1] * part // POINTS for part in range(1, POINTS + 1)]
    at = [max(step for step in steps if step <= wanted) for wanted in evenly]
    # Nobody had more time than the baseline at the end, so a model that is not slower is compared there.
    return at, max(step for step in steps if step <= steps[-1] / max(cost, 1.0))


@torch.no_grad()
def nats(model, tokenizer, sources: list[str], targets: list[str], batch_size: int = 50) -> float:
    """Mean negative log-likelihood of the target tokens, in nats."""
    order = sorted(range(len(sources)), key=lambda row: len(targets[row]))  # so that little is padded
    total = count = 0.0
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        inputs = _inputs(tokenizer, [sources[row] for row in rows], [targets[row] for row in rows])
        labels = inputs["labels"]
        logits = model(**inputs).logits.float()
        total += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").item()
        count += int((labels != -100).sum())
    return total / count


def _inputs(tokenizer, sources: list[str], targets: list[str]) -> dict[str, torch.Tensor]:
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    labels = batch["labels"].masked_fill(batch["labels"] == tokenizer.pad_token_id, -100)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


def way_of(frozen: Frozen, cost: float, sources: list[str], targets: list[str]) -> dict:
    """The points of a model's way, by step; and which of them stand for equal steps and equal time."""
    checkpoints = {int(path.name.partition("-")[2]): path for path in last_checkpoints(frozen.folder)}
    steps = list(checkpoints)
    scored, timely = points_of(steps, cost)
    model, tokenizer = frozen.load()
    weights, points = model.state_dict(), {}
    for step in sorted({*steps[3::4], *scored, timely}):
        last = [checkpoints[one] for one in steps if one <= step][-AVERAGED:]
        for name, tensor in average_checkpoints(last).items():
            weights[name].copy_(tensor)  # in place, which reaches tied weights too
        points[step] = {"pairs": round(PAIRS * step / steps[-1]), "nats": nats(model, tokenizer, sources, targets)}
        if step in (*scored, timely):
            found = bleu(translate_texts(model, tokenizer, sources, num_beams=1), targets, tokenize="none")
            points[step] |= {"bleu": found.score, "signature": found.signature}
        print(frozen.stem, step, points[step], flush=True)
    return {
        "config": frozen.config(model),
        "equal_steps": points[steps[-1]],
        "equal_time": points[timely],
        "way": [{"step": step, **point} for step, point in points.items()],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the corpus")
    add_models(parser)
    args = parser.parse_args(arguments)
    models = read_models(args.models)
    files = {name: args.data / name for name in TEST.values()}
    text = load_parallel({side: files[name] for side, name in TEST.items()})
    sources, targets = list(text["source"]), list(text["target"])
    path = RESULTS / f"{WAY}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    costs, ways = found.get("step_cost", {}), found.get("models", {})
    if not {frozen.name for frozen in models} <= costs.keys():
        costs |= step_costs(models, sources, targets)
    for frozen in models:
        if frozen.stem in ways:
            continue
        ways[frozen.stem] = way_of(frozen, costs[frozen.name]["median"], sources, targets)
        head = records.record({"experiment": "one_pass", "averaged_checkpoints": AVERAGED}, files)
        write_json(head | {"step_cost": costs, "models": dict(sorted(ways.items()))}, path)


if __name__ == "__main__":
    main()
