"""Does the verdict on attention go with the truth? Small translators along their training, on planted links.

    python experiments/verdicts.py

The translator of the self-test is looked at after 50, 100, 150 and 300 of 1,000 steps with two seeds, and with the
first seed after 600. The truth about its attention is how often the source word with the most attention is a true one:
not above that in the same place (the diagonal), above it, or two thirds of the target words and more, at the lower end
of an interval. The verdict is that of `attncal analyze` and of a training, from other pairs without their links. How
much is enough for trust was chosen on seed 1. Written is results/analysis/verdicts.json.
"""

import argparse
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from committed import RESULTS
from transformers import TrainerCallback

from hf_attncal.data.strict_yaml import load_yaml
from hf_attncal.data.synthetic.english_german import write_pairs
from hf_attncal.files import write_json
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.inference.source_use import source_use
from hf_attncal.metrics import records
from hf_attncal.metrics.faithfulness import kendall_tau
from hf_attncal.metrics.means import mean_difference
from hf_attncal.metrics.planted import PLANTED_MEASURES, planted_counts, planted_score
from hf_attncal.metrics.trust import verdict_of
from hf_attncal.report.attribution import word_scores
from hf_attncal.report.planted_truth import SELF_TEST_SETTINGS, SELF_TEST_STEPS, VOCABULARY_SIZE, Task, planted_pairs
from hf_attncal.training.translation import TranslationConfig, train_translation

STEPS = {1: (50, 100, 150, 300, 600), 2: (50, 100, 150, 300)}  # seed -> when it is looked at
LEVELS = ("do not", "in part", "trust")
TWO_THIRDS = 2 / 3  # of the target words


class _StoppedError(Exception):
    pass


class _Stop(TrainerCallback):
    """Ends a training where nobody looks any further."""

    def on_save(self, args, state, control, **kwargs):
        if state.global_step >= max(STEPS[args.seed]):
            raise _StoppedError


def trained(folder: Path, pairs, seed: int) -> None:
    """Train a translator into `folder/model`, and keep its checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in pairs.items():
        write_pairs(split, folder / f"{name}.en", folder / f"{name}.de")
    values = load_yaml(SELF_TEST_SETTINGS % VOCABULARY_SIZE)
    del values["data"]["test"]
    values["data"]["root"] = str(folder)
    values["training"] |= {"output_dir": str(folder / "model"), "max_steps": SELF_TEST_STEPS, "seed": seed}
    values["training"] |= {"save_strategy": "steps", "save_steps": 50, "save_total_limit": SELF_TEST_STEPS}
    with suppress(_StoppedError):
        train_translation(TranslationConfig.make(values), resume=True, callbacks=[_Stop()])


def truth(model, tokenizer, task: Task) -> dict:
    """Return how often attention and the diagonal name a true source word, and what that comes to as a level."""
    links = task.truths["links"]
    scores = {
        name: word_scores(model, tokenizer, task.sources, task.targets, name) for name in ("attention", "diagonal")
    }
    found = {name: planted_score(links, of, bootstrap=1000) for name, of in scores.items()}
    place = PLANTED_MEASURES.index("accuracy")
    above = mean_difference(*(planted_counts(links, of)[:, place] for of in scores.values()))
    attention = found["attention"]
    level = (
        "do not"
        if above.interval[0] <= 0
        else "in part"
        if attention.intervals["accuracy"][0] < TWO_THIRDS
        else "trust"
    )
    return {
        "level": level,
        "attention": attention.accuracy,
        "interval": attention.intervals["accuracy"],
        "diagonal": found["diagonal"].accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, help="for text and models, taken where they are there; default: not kept"
    )
    args = parser.parse_args()
    pairs = planted_pairs()
    dev, test = (Task.of(pairs[name]) for name in ("dev", "test"))
    models = {}
    with TemporaryDirectory() as temporary:
        for seed, looked_at in STEPS.items():
            folder = (args.folder or Path(temporary)) / f"seed{seed}"
            if not (folder / "model" / f"checkpoint-{max(looked_at)}").exists():
                trained(folder, pairs, seed)
            for steps in looked_at:
                model, tokenizer = load_seq2seq(folder / "model" / f"checkpoint-{steps}", dtype="float32")
                verdict = verdict_of(source_use(model, tokenizer, dev.sources, dev.targets))
                name = f"seed {seed}, {steps} steps"
                models[name] = {"truth": truth(model, tokenizer, test), "verdict": verdict.to_dict()}
                print(name, models[name]["truth"], verdict, flush=True)
    planted, told = ([LEVELS.index(of[side]["level"]) for of in models.values()] for side in ("truth", "verdict"))
    right = [of["truth"]["attention"] for of in models.values()]
    share = [of["verdict"]["measured"]["attention"]["value"] for of in models.values()]
    result = records.record({"experiment": "verdicts", "steps_by_seed": STEPS})
    result |= {
        "as_planted": sum(one == other for one, other in zip(planted, told, strict=True)),
        "too_kind": sum(one < other for one, other in zip(planted, told, strict=True)),
        "tau": float(kendall_tau(np.array(right), np.array(share))),
        "models": models,
    }
    write_json(result, RESULTS / "analysis" / "verdicts.json")


if __name__ == "__main__":
    main()
