"""Words that a translation adds: NULL of an observer, the model's own probability, and the check, on the same lines.

    python experiments/added_words.py enpt pten --data ROOT --models RUNS --text FOLDER --encoder FOLDER

The arguments are as of text_observer.py, and so is the observer. Each pair of xlwa/en-pt gets four to eight words of
another line in its target (`other_errors`). All scores are of given targets: the observer reads the states of the
model, and nothing is generated. Dev chooses how a line's score comes from its words; test is reported.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import accumulate, groupby
from pathlib import Path

import firefox_models
import numpy as np
import other_errors
import torch
from detection import detection
from text_observer import learned_observer

from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.checking.checker import Checker
from hf_attncal.checking.encoder_check import EncoderJudge
from hf_attncal.io.files import read_lines, write_json
from hf_attncal.metrics.records import record

Pair = tuple[str, str]
SEEDS = (1, 2, 3)  # of what is planted
# A line's score from those of its words; the check has a score of its own.
OF_LINE: dict[str, Callable] = {
    "mean": np.mean,
    "largest": np.max,
    "three": lambda words: max(np.convolve(words, np.ones(3) / 3, "same")),
}


def by_model(model, tokenizer, pairs: Sequence[Pair]) -> dict[str, list[np.ndarray]]:
    """Return NULL's weight and the surprisal (nats) of each target word: the largest, or the sum, of its pieces."""
    found: dict[str, list[np.ndarray]] = {"observer": [], "model": []}
    for source, target in pairs:
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        with torch.no_grad():
            output = model(**batch, output_attention_details=True)
        labels = batch["labels"][0]
        surprisal = -output.logits[0].log_softmax(-1).gather(-1, labels[:, None])[:, 0]
        pieces = tokenizer.convert_ids_to_tokens(labels[:-1].tolist())  # without the end of the sentence
        words = list(accumulate(piece.startswith("▁") for piece in pieces))
        for name, values, join in (("observer", output.guided_null[0], max), ("model", surprisal, sum)):
            by_word = groupby(zip(words, values.tolist(), strict=False), key=lambda piece: piece[0])
            found[name].append(np.array([join(value for _, value in word) for _, word in by_word]))
    return found


def measured(clean: Sequence[Pair], added: Sequence[tuple[Pair, range]], scores: dict) -> dict:
    """Return the AUC of words and lines for each score."""
    results = {}
    for name, (words, lines) in scores.items():
        truths = [np.isin(np.arange(len(pair[1].split())), places) for pair, places in added]
        truths = [*(np.zeros(len(target.split()), bool) for _, target in clean), *truths]
        kept = [n for n, (one, truth) in enumerate(zip(words, truths, strict=True)) if len(one) == len(truth)]
        of_words = detection(np.concatenate([truths[n] for n in kept]), np.concatenate([words[n] for n in kept]))
        is_added = [False] * len(clean) + [True] * len(added)
        of_lines = {how: asdict(detection(is_added, line).auc) for how, line in lines.items()}
        results[name] = {"words": asdict(of_words.auc), "lines": of_lines, "lines_read": len(kept)}
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", choices=firefox_models.FOLDERS)
    for option, metavar in (("data", "ROOT"), ("models", "RUNS"), ("text", "FOLDER"), ("encoder", "FOLDER")):
        parser.add_argument(f"--{option}", type=Path, required=True, metavar=metavar)
    parser.add_argument("--output", type=Path, default=Path("results/observers"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    encoder = EncoderPrior.from_pretrained(args.encoder, adapted=False)
    for direction in args.pairs:
        with tempfile.TemporaryDirectory() as folder:
            model, tokenizer, _ = learned_observer(direction, args.models, args.text, Path(folder))
            results = {}
            for split in ("dev", "test"):
                sides = [read_lines(args.data / f"xlwa/en-pt/{split}.{of}") for of in (direction[:2], direction[2:])]
                clean = list(zip(*sides, strict=True))
                added = [one for seed in SEEDS for one in planted(clean, seed)]
                pairs = [*clean, *(pair for pair, _ in added)]
                scores = {
                    name: (words, {how: [of(one) for one in words] for how, of in OF_LINE.items()})
                    for name, words in by_model(model, tokenizer, pairs).items()
                }
                verdicts = Checker(None, encoder=EncoderJudge(encoder)).check(pairs)  # it learns what is usual anew
                of_check = (
                    [np.array(one.target_words) for one in verdicts],
                    {"own": [one.addition for one in verdicts]},
                )
                results[split] = measured(clean, added, scores | {"check": of_check})
                print(direction, split, results[split], flush=True)
        for name, of_dev in results["dev"].items():
            best = max(of_dev["lines"], key=lambda how: of_dev["lines"][how]["value"])
            results["test"][name]["line"] = {"how": best} | results["test"][name]["lines"][best]
        file = args.output / f"added_words_{direction}.json"
        write_json(record({"seeds": SEEDS}, threads=1) | results, file)


def planted(clean: Sequence[Pair], seed: int) -> list[tuple[Pair, range]]:
    """Return pairs with words that translate nothing, and the places of these words in the target."""
    found = []
    for source, target in other_errors.errors(clean, seed)["inserted clause"]:
        before = {one: other for one, other in clean}[source].split()
        words = target.split()
        start = next(n for n, word in enumerate(words) if n == len(before) or before[n] != word)
        found.append(((source, target), range(start, start + len(words) - len(before))))
    return found


if __name__ == "__main__":
    main()
