"""Are probabilities better calibrated, and translations of difficult input better, where attention is calibrated?

    python experiments/buys.py --data ROOT --model baseline=runs/wpt03_pass_baseline1 \
        --model gated=runs/wpt03_pass_gated1 --translations runs/buys

A model is the folder of a finished training of English-French text (`configs/translation/wpt03_pass_*.yaml`), given
once for each seed, and the baseline of each seed with it.

- Probabilities: given the source and the reference up to there, a model says how probable its best next token is. It
  is right where the reference goes on with this token. Reported are the calibration error, the Brier score and the
  mean loss of a token.
- Input: BLEU of greedy search on the same lines as they are ("clean"); with a typing error in one of seven longer
  words ("typing"); with one of ten words lost ("lost"); with four lines in one ("long"); and on captions instead of
  debates ("captions"). Each setting is compared with the baseline of its seed by a two-sided paired bootstrap.

ROOT has wpt03-enfr and multi30k. Written is results/buys/NAME_seedN.json for each model. Translations are kept in
the folder of `--translations`, and are not made again.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from committed import RESULTS
from converged import BASELINE, BOOTSTRAP
from frozen import Frozen, add_models, read_models
from paired_bleu import paired_bleu
from torch.nn.functional import cross_entropy

from hf_attncal.data.corpora import read_parallel
from hf_attncal.files import write_json, write_text
from hf_attncal.inference.generation import Search, generate_lines, longer_than, source_limit
from hf_attncal.inference.reading import batches_of_pairs, teacher_forced
from hf_attncal.metrics import records
from hf_attncal.metrics.bleu import bleu
from hf_attncal.metrics.probabilities import probability_score

FILES = {
    "debates": ("wpt03-enfr/mt-test.en.gz", "wpt03-enfr/mt-test.fr.gz"),
    "captions": ("multi30k/test_2016_flickr.en", "multi30k/test_2016_flickr.fr"),
}
TYPED, LOST, JOINED = 1 / 7, 1 / 10, 4
LONGER = 4  # letters of a word that may be mistyped
Pair = tuple[str, str]


# ---- difficult input ----


def mistyped(line: str, draw: random.Random) -> str:
    """Swap two letters, leave one out or double one, in one of seven words of four letters or more."""
    words = line.split()
    for place, word in enumerate(words):
        if len(word) < LONGER or not word.isalpha() or draw.random() >= TYPED:
            continue
        at = draw.randrange(len(word) - 1)
        pair = word[at : at + 2]
        words[place] = word[:at] + draw.choice((pair[::-1], pair[1], pair[0] + pair)) + word[at + 2 :]
    return " ".join(words)


def with_lost_words(line: str, draw: random.Random) -> str:
    """Leave out one of ten words; a line keeps one at least."""
    words = line.split()
    return " ".join([word for word in words if draw.random() >= LOST] or words[:1])


def joined(pairs: Sequence[Pair]) -> list[Pair]:
    """Put every four pairs in one; the last ones, fewer than four, are left out."""
    groups = zip(*[iter(pairs)] * JOINED, strict=False)
    return [(" ".join(s for s, _ in group), " ".join(t for _, t in group)) for group in groups]


def conditions(debates: Sequence[Pair], captions: Sequence[Pair], seed: int = 0) -> dict[str, list[Pair]]:
    """Return the pairs of each condition."""
    draw = random.Random(seed)
    return {
        "clean": list(debates),
        "typing": [(mistyped(source, draw), target) for source, target in debates],
        "lost": [(with_lost_words(source, draw), target) for source, target in debates],
        "long": joined(debates),
        "captions": list(captions),
    }


def readable(model, tokenizer, pairs: Sequence[Pair]) -> list[Pair]:
    """Leave out the pairs with a side that the model has no positions for."""
    limit = source_limit(model, tokenizer)
    sides = zip(*pairs, strict=True)
    long = {row for side in sides for row in longer_than(limit, tokenizer, list(side))}
    return [pair for row, pair in enumerate(pairs) if row not in long]


# ---- measures ----


@torch.no_grad()
def said_of_tokens(model, tokenizer, pairs: Sequence[Pair]) -> Iterator[tuple[list[float], list[bool], list[float]]]:
    """Yield for each pair, in no order: the probability of the best token of each step, whether it is right, the loss.

    The end of the sentence is a step, too.
    """
    for _, batch in batches_of_pairs(model, tokenizer, *map(list, zip(*pairs, strict=True))):
        inputs, labels = teacher_forced(model, batch)
        logits = model(**inputs).logits.float()
        said, best = logits.softmax(dim=-1).max(dim=-1)
        losses = cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        for row, real in enumerate(labels != -100):
            right = best[row, real] == labels[row, real]
            yield said[row, real].tolist(), right.tolist(), losses[row, real].tolist()


def probabilities(model, tokenizer, pairs: Sequence[Pair], bootstrap: int) -> dict:
    """Return how well the probabilities of tokens match what the references say."""
    said, right, losses = zip(*said_of_tokens(model, tokenizer, pairs), strict=True)
    score = probability_score(said, right, bootstrap=bootstrap)
    count = sum(map(len, losses))
    return asdict(score) | {"loss": sum(map(sum, losses)) / count}


def translations(frozen: Frozen, model, tokenizer, kept: Path, texts: dict[str, list[Pair]]) -> dict[str, list[str]]:
    """Translate each condition greedily; what is in the folder `kept` is read."""
    found = {}
    for name, pairs in texts.items():
        path = kept / f"{frozen.stem}.{name}.txt"
        if not path.exists():
            lines = [source for source, _ in pairs]
            search = Search(num_beams=1, length_penalty=1.0)
            written = generate_lines(model, tokenizer, lines, search, batch_size=32, too_long="error")
            write_text("".join(f"{line.text}\n" for line in written), path)
        found[name] = path.read_text(encoding="utf-8").split("\n")[:-1]  # a model may write nothing at all
        if len(found[name]) != len(pairs):
            raise ValueError(f"{path} has {len(found[name])} lines for {len(pairs)} sources. Remove it.")
    return found


def compared(own: dict[str, list[str]], baseline: dict[str, list[str]], texts: dict[str, list[Pair]]) -> dict:
    """Return BLEU of each condition, and the difference from the baseline."""
    found = {}
    for name, pairs in texts.items():
        references = [target for _, target in pairs]
        if own is baseline:
            found[name] = asdict(bleu(own[name], references, "none"))
        else:
            found[name] = asdict(paired_bleu(own[name], baseline[name], references, "none", BOOTSTRAP))
        found[name]["lines"] = len(pairs)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT")
    add_models(parser)
    parser.add_argument("--translations", type=Path, required=True, metavar="FOLDER", help="made if need be")
    parser.add_argument("--pairs", type=int, default=2000, help="of debates, for probabilities")
    parser.add_argument("--lines", type=int, default=500, help="lines that are translated in each condition")
    args = parser.parse_args(arguments)
    models = sorted(read_models(args.models), key=lambda model: (model.seed, model.name != BASELINE))
    baselines = {model.seed for model in models if model.name == BASELINE}
    if lone := [model.stem for model in models if model.seed not in baselines]:
        parser.error(f"--model {lone[0]} has no baseline of its seed: give one, as {BASELINE}=FOLDER")
    files = {name: args.data / name for names in FILES.values() for name in names}
    debates, captions = (
        list(zip(text["source"], text["target"], strict=True))
        for text in (read_parallel(*(str(files[name]) for name in names)) for names in FILES.values())
    )
    texts = conditions(debates[: args.lines], captions[: args.lines])
    args.translations.mkdir(parents=True, exist_ok=True)
    config = {"experiment": "buys", "pairs": args.pairs, "lines": args.lines, "bootstrap": BOOTSTRAP, "num_beams": 1}
    by_seed = {}
    for frozen in models:
        model, tokenizer = frozen.load()
        of_model = {name: readable(model, tokenizer, pairs) for name, pairs in texts.items()}
        own = translations(frozen, model, tokenizer, args.translations, of_model)
        baseline = by_seed.setdefault(frozen.seed, own)
        result = records.record(config | frozen.config(model), files | frozen.files, "cpu")
        result |= {"probabilities": probabilities(model, tokenizer, debates[: args.pairs], BOOTSTRAP)}
        result |= {"translations": compared(own, baseline, of_model)}
        write_json(result, RESULTS / "buys" / f"{frozen.stem}.json")
        print(f"{frozen.stem} is written", flush=True)


if __name__ == "__main__":
    main()
