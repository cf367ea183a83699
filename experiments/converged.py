"""Does calibration help a model that is trained out? Each model beside the baseline of its seed, on dev and test.

    python experiments/converged.py multi30k --data DIR/multi30k --model baseline=runs/baseline1 \
        --model gated=runs/gated1 ...

A model is the folder of a finished training by `configs/translation/multi30k_converged_*.yaml` or `dermit_*.yaml`,
given once for each seed. Written is results/converged/<corpus>/paired.json: BLEU of the translations that the training
has left in its folder, and a two-sided paired bootstrap against the baseline. What stands there of other models stays:
each states the SHA-256 of what was compared. `--name` names another folder of results/converged, such as
`multi30k_5000` of models that had 5,000 pairs.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from committed import RESULTS
from frozen import add_models, read_models
from paired_bleu import paired_bleu

from hf_attncal.io.files import read_lines, sha256, write_json
from hf_attncal.metrics import records

REFERENCES = {
    "multi30k": {"dev": "val.de", "test": "test_2016_flickr.de"},
    "dermit-derm": {"dev": "mt-valid.rm", "test": "mt-test.rm"},
}
BASELINE, BOOTSTRAP = "baseline", 1000


def paired(models, references: dict[str, list[str]]) -> dict[str, dict[str, dict]]:
    """Stem of each model but the baselines -> split -> how it compares with the baseline of its seed."""
    baselines = {model.seed: model for model in models if model.name == BASELINE}
    found = {}
    for model in models:
        if model.name == BASELINE or model.seed not in baselines:
            continue
        run = json.loads((model.folder / "results.json").read_text(encoding="utf-8"))
        tokenize = run["config"]["evaluation"]["bleu_tokenize"]
        found[model.stem] = {}
        for split, lines in references.items():
            files = [one.folder / f"{split}.hypotheses.txt" for one in (model, baselines[model.seed])]
            compared = paired_bleu(*map(read_lines, files), lines, tokenize, BOOTSTRAP)
            hashes = dict(zip(("translations_sha256", "baseline_sha256"), map(sha256, files), strict=True))
            found[model.stem][split] = asdict(compared) | hashes
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=list(REFERENCES))
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the corpus")
    parser.add_argument("--name", help="of the folder of results/converged; without it, the corpus")
    add_models(parser)
    args = parser.parse_args(arguments)
    models = read_models(args.models)
    files = {name: args.data / name for name in REFERENCES[args.corpus].values()}
    references = {split: read_lines(args.data / name) for split, name in REFERENCES[args.corpus].items()}
    found = paired(models, references)
    result = records.record({"experiment": "converged", "corpus": args.corpus, "bootstrap": BOOTSTRAP}, files)
    path = RESULTS / "converged" / (args.name or args.corpus) / "paired.json"
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        for key in ("config", "data_sha256"):
            if earlier[key] != result[key]:
                raise ValueError(f"{path} has another `{key}`: {earlier[key]}, now {result[key]}. Remove it first.")
        found = earlier["paired"] | found
        result |= {key: earlier[key] for key in ("p_values",) if key in earlier}  # how older ones were computed
    write_json(result | {"paired": dict(sorted(found.items()))}, path)


if __name__ == "__main__":
    main()
