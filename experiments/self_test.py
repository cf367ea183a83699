"""The self-test of the analysis: which methods, and which measures of faithfulness, recover what was planted.

    python experiments/self_test.py --seed 1
    python experiments/self_test.py --stack single=runs/stack_single1 --stack soft=runs/stack_soft1

Trains a small translator and an aligner that counts on synthetic pairs (minutes on one core) and writes
results/analysis/self_test_seedN.json. With `--stack`, language models of the stack language that are trained already
(`configs/language/`) are judged in its place, by dependencies that are exact. Written is
results/analysis/self_test_stack_NAME_seedN.json for each.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from tempfile import TemporaryDirectory

import numpy as np
import torch
from committed import RESULTS
from frozen import Frozen, read_models
from stack_sequences import VOCABULARY, generate_stack_split, true_dependencies
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import hf_attncal
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.planted import PlantedScore, planted_score
from hf_attncal.report.planted_truth import CHANCE, MEASURED, SELF_TEST_STEPS, SENTENCES, run_self_test

# ---- the stack language ----


@torch.no_grad()
def stack_scores(model, tokenizer, sequences: Sequence[str], seed: int = 0) -> dict[str, list[np.ndarray]]:
    """Score how much a language model reads each token for each symbol: (symbols, tokens read) for each sequence.

    The methods are `fields`, receptive fields (numbers where attention is soft); `attention`, its mean over layers and
    heads; `occlusion`, how far the log-probability of the symbol falls when another symbol replaces one that was read
    (mean over all others); and `nearest` and `random`, which do not look at the model.

    Args:
        model: a `DiscreteTransformerForCausalLM`, in evaluation mode.
        tokenizer: its own.
        sequences: sequences of the stack language, all of the same length.
        seed: seed of the method `random`.
    """
    ids = torch.tensor(tokenizer(list(sequences))["input_ids"], device=model.device)
    symbols = tokenizer.convert_tokens_to_ids(list(VOCABULARY))
    scores: dict[str, list[np.ndarray]] = {
        name: [] for name in ("fields", "attention", "occlusion", "nearest", CHANCE)
    }
    for index, row in enumerate(ids):
        read, labels = row[None, :-1], row[1:]
        outputs = model(read, output_receptive_fields=True, output_attentions=True)
        scores["fields"].append(outputs.target_receptive_fields[0].double().cpu().numpy())
        weights = torch.stack([layer[0].double().mean(dim=0) for layer in outputs.attentions]).mean(dim=0)
        scores["attention"].append(weights[:, : len(labels)].cpu().numpy())
        scores["occlusion"].append(_symbol_effects(model, read, labels, outputs.logits[0], symbols))
        places = np.arange(len(labels))
        scores["nearest"].append(-np.abs(places[:, None] - places).astype(float))
        scores[CHANCE].append(np.random.default_rng([seed, index]).random((len(labels), len(labels))))
    return scores


def _symbol_effects(model, read: Tensor, labels: Tensor, logits: Tensor, symbols: Sequence[int]) -> np.ndarray:
    """Return by how much log-probabilities fall, (symbols, tokens read); 0 for the token that begins the sequence."""
    copies, places = [], []
    for place in range(1, read.shape[1]):
        for symbol in symbols:
            if symbol != read[0, place]:
                copy = read[0].clone()
                copy[place] = symbol
                copies.append(copy)
                places.append(place)
    whole = logits.double().log_softmax(dim=-1).gather(1, labels[:, None])[:, 0]
    after = model(torch.stack(copies)).logits.double().log_softmax(dim=-1)
    after = after.gather(2, labels[None, :, None].expand(len(copies), -1, 1))[:, :, 0]
    falls = np.zeros((len(labels), read.shape[1]))
    np.add.at(falls.T, places, (whole - after).cpu().numpy())
    return falls / (len(symbols) - 1)


def judge_stack(
    sequences: Sequence[str], scores: Mapping[str, Sequence[np.ndarray]], bootstrap: int = 1000
) -> dict[str, PlantedScore]:
    """Return for each method how well its scores recover what each symbol depends on.

    The token read last is left out: each prediction needs it and every model reads it. The tokens to find are always
    those just before it, so `nearest` is right within a row; only `pooled_auc` asks how far back they go.
    """
    truths = list(true_dependencies(list(sequences)))
    earlier = [np.tri(len(truth), k=-1, dtype=bool) for truth in truths]
    options = {"candidates": earlier, "bootstrap": bootstrap}
    return {name: planted_score(truths, values, **options) for name, values in scores.items()}


def judged_stack(frozen: Frozen, count: int, bootstrap: int) -> dict:
    """Method -> how far it recovers the dependencies of the first sequences of test."""
    hf_attncal.register()
    model = AutoModelForCausalLM.from_pretrained(frozen.folder, dtype="float32").eval()
    sequences = generate_stack_split().test[:count]
    scores = stack_scores(model, AutoTokenizer.from_pretrained(frozen.folder), sequences)
    return {name: asdict(score) for name, score in judge_stack(sequences, scores, bootstrap).items()}


def stack_language(models: list[Frozen], count: int, bootstrap: int) -> None:
    """Write the results of each model."""
    for frozen in models:
        config = {"experiment": "self_test", "part": "stack_language", "sequences": count, "bootstrap": bootstrap}
        config |= {"setting": frozen.name, "training": {"seed": frozen.seed}}
        result = records.record(config, frozen.files) | {"methods": judged_stack(frozen, count, bootstrap)}
        write_json(result, RESULTS / "analysis" / f"self_test_stack_{frozen.stem}.json")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the model and of its training")
    parser.add_argument("--steps", type=int, default=SELF_TEST_STEPS)
    parser.add_argument("--measured", type=int, default=MEASURED, help="test pairs that faithfulness is measured on")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument(
        "--output", help="folder for text and model, taken where they are there; without it they are not kept"
    )
    help = "folder of a language model of the stack language; once for each seed of each setting"
    parser.add_argument("--stack", action="append", metavar="NAME=FOLDER", help=help)
    parser.add_argument("--sequences", type=int, default=100, help="of the stack language that are judged")
    args = parser.parse_args(arguments)
    if args.stack:
        try:
            models = read_models(args.stack)
        except ValueError as error:
            parser.error(str(error))
        stack_language(models, args.sequences, args.bootstrap)
        return
    started = time.monotonic()
    options = {"steps": args.steps, "seed": args.seed, "measured": args.measured, "bootstrap": args.bootstrap}
    with TemporaryDirectory() as temporary:
        found = run_self_test(args.output or f"{temporary}/self_test", **options)
    training = found.pop("training")
    config = {"experiment": "self_test", "sentences": SENTENCES, **options, "training": training["config"]}
    result = records.record(config)
    result |= {"training": {name: training[name] for name in ("steps", "wall_seconds", "parameters", "test")}, **found}
    result["wall_seconds"] = round(time.monotonic() - started, 1)
    write_json(result, RESULTS / "analysis" / f"self_test_seed{args.seed}.json")


if __name__ == "__main__":
    main()
