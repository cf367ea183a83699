"""Whether receptive fields of a language model are the true dependencies of the stack language.

    python experiments/stack_sequences.py --output DIR
    python training/train.py --config configs/language/stack_single.yaml --data DIR training.output_dir=MODEL
    python experiments/stack_language.py --model MODEL --data DIR --name single_seed1
    python experiments/stack_language.py --picture FILE --data DIR --models discrete=MODEL soft=MODEL ...

After the Discrete Transformer, sec. 7.1. Writes results/stack/NAME.json: precision and recall of the fields on dev
and test, with the token that begins a sequence counted and without, and the perplexity that the training has measured
beside the generator's own. A soft model's field has the tokens whose summed weights reach a half.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from committed import RESULTS
from dependencies import dependency_score
from stack_sequences import entropy_per_symbol, true_dependencies
from transformers import AutoModelForCausalLM, AutoTokenizer

import hf_attncal
from hf_attncal.drawing.plots import heat_map
from hf_attncal.io.files import read_lines, write_json
from hf_attncal.metrics import records

SPLITS = ("dev", "test")
SOFT = 0.5  # of a sum of weights, where attention is soft
# What counts: the token that begins every sequence, and the token read last, which is in every field.
COUNTED = {"begin": {}, "no_begin": {"begin": False}, "no_begin_no_current": {"begin": False, "current": False}}


@torch.inference_mode()
def fields(folder: str, sequences: list[str], batch_size: int = 250) -> np.ndarray:
    """Receptive fields of all predictions, (sequences, target, source): booleans, or weights of a soft model."""
    hf_attncal.register()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for start in range(0, len(sequences), batch_size):
        ids = tokenizer(sequences[start : start + batch_size], return_tensors="pt").input_ids
        found.append(model(ids[:, :-1], output_receptive_fields=True).target_receptive_fields.numpy())
    return np.concatenate(found)


def scores(folder: str, sequences: list[str], bootstrap: int) -> dict[str, dict]:
    """Precision, recall and F1 with their intervals, by what is counted."""
    found = fields(folder, sequences)
    chosen = found if found.dtype == bool else found >= SOFT
    true = true_dependencies(sequences)
    measured = {}
    for name, options in COUNTED.items():
        score = dependency_score(true, chosen, bootstrap=bootstrap, **options)
        measured[name] = {key: getattr(score, key) for key in ("precision", "recall", "f1", "signature", "intervals")}
    return measured | {"field_size": float(chosen.sum() / chosen[..., 0].size)}


def evaluate(folder: str, data: Path, name: str, bootstrap: int) -> None:
    """Write the results of a model."""
    run = json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))
    files = {f"{split}.txt": data / f"{split}.txt" for split in SPLITS}
    config = run["config"] | {"experiment": "stack_language", "name": name, "bootstrap": bootstrap}
    result = records.record(config, files)
    result |= {key: run[key] for key in ("parameters", "steps", "wall_seconds")}
    result["generator_perplexity"] = float(np.exp(entropy_per_symbol()))
    for split in SPLITS:
        measured = scores(folder, read_lines(data / f"{split}.txt"), bootstrap)
        result[split] = {"perplexity": run[split]["perplexity"], "receptive_field": measured}
        precision, recall = (measured["begin"][key] for key in ("precision", "recall"))
        print(f"{split}: precision {precision:.3f}, recall {recall:.3f}, perplexity {run[split]['perplexity']:.3f}")
    write_json(result, RESULTS / "stack" / f"{name}.json")


def draw(models: dict[str, str], data: Path, number: int, picture: str) -> None:
    """Draw the true dependencies of a test sequence beside the fields of models."""
    sequence = read_lines(data / "test.txt")[number]
    symbols = sequence.split()
    panels = {"true dependencies": true_dependencies([sequence])[0]}
    panels |= {name: fields(folder, [sequence])[0] for name, folder in models.items()}
    heat_map(panels, ["<s>", *symbols[:-1]], symbols).savefig(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the sequences")
    parser.add_argument("--model", help="folder of a trained model")
    parser.add_argument("--name", help="of its results file: NAME_seedN")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--picture", help="file to draw")
    parser.add_argument("--models", nargs="+", metavar="NAME=FOLDER", default=[], help="that are in it")
    parser.add_argument("--sequence", type=int, default=0, help="number of the test sequence in it")
    args = parser.parse_args()
    if args.picture:
        draw(dict(model.split("=", 1) for model in args.models), args.data, args.sequence, args.picture)
    else:
        evaluate(args.model, args.data, args.name, args.bootstrap)


if __name__ == "__main__":
    main()
