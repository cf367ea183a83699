"""Do a model's own attention and contributions show what its translation left out? With planted truth.

    python experiments/own_faults.py --data ROOT --model gated=runs/gated1 --model gated=runs/gated2 --aligner FOLDER
    python experiments/own_faults.py ... --text in_domain

The encoder sees each source without a few words in a row; what the model then writes cannot translate them. Given the
*whole* source and this translation, every method says how far each source word is covered:

- a method of attribution: the largest score of the word over all words of the translation ("most"), and their sum
  ("sum"), teacher-forced on the translation;
- the aligner of `attncal check`: the probability that the word was left out.

Reported is the ROC AUC of the words taken away among all words with a letter or digit, and of the lines: translations
of the cut source against those of the whole one, by the least covered word, or by the model's own mean log-probability
of a token. Words that the model leaves out by itself count as kept, for every method. ROOT has tatoeba-deen, whose
test text (lower-cased) is off the domain of the models, which were trained on captions, and multi30k, the captions.
Written is results/check/own_faults_TEXT_NAME_seedN.json for each model.
"""

import argparse
import dataclasses
import random
from pathlib import Path

import numpy as np
import torch
from committed import RESULTS
from frozen import add_models, read_models
from torch.nn.functional import cross_entropy

from hf_attncal.checking.checker import Checker, PairVerdict
from hf_attncal.data.segmentation import segment
from hf_attncal.files import read_lines, write_json
from hf_attncal.inference.generation import Search, generate_lines
from hf_attncal.inference.reading import batches_of_pairs, teacher_forced
from hf_attncal.metrics import records
from hf_attncal.metrics.detection import detection
from hf_attncal.report.attribution import word_scores

SOURCES = {"off_domain": "tatoeba-deen/test.de", "in_domain": "multi30k/test_2016_flickr.de"}
METHODS = {
    "attention": ("attention", {"layer": -1}),
    "attention, uncalibrated": ("attention", {"layer": -1, "calibrated": False}),
    "contribution": ("contribution", {"layer": -1}),
    "full_norm": ("full_norm", {"layer": -1}),
    "alti": ("alti", {}),
    "occlusion": ("occlusion", {}),
    "random": ("random", {}),
}
COVERAGES = {"most": np.max, "sum": np.sum}
FEWEST_WORDS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    add_models(parser)
    parser.add_argument("--aligner", required=True, help="aligner that has learned to check these languages")
    parser.add_argument("--text", choices=SOURCES, default="off_domain")
    parser.add_argument("--lines", type=int, default=600, help="how many sources, at most")
    parser.add_argument("--bootstrap", type=int, default=1000)
    options = parser.parse_args()
    name = SOURCES[options.text]
    sources = [line.lower() for line in read_lines(options.data / name)]
    sources = [line for line in sources if len(line.split()) >= FEWEST_WORDS][: options.lines]
    checker = Checker.from_pretrained(options.aligner, device="cpu")
    for frozen in read_models(options.models):
        config = {**frozen.config(frozen.load()[0]), "text": name, "lines": len(sources)}
        config["learned"] = checker.model.learned
        files = {name: options.data / name, **frozen.files}
        numbers = measure(*frozen.load(), sources, checker, options.bootstrap)
        path = RESULTS / "check" / f"own_faults_{options.text}_{frozen.stem}.json"
        write_json(records.record(config, files, "cpu") | numbers, path)
        print(f"wrote {path}", flush=True)


def measure(model, tokenizer, sources: list[str], checker: Checker, bootstrap: int) -> dict:
    """Detect words taken away, and lines that lack them, by every method."""
    spans = [chosen_span(line, seed) for seed, line in enumerate(sources)]
    cut = [without(line, span) for line, span in zip(sources, spans, strict=True)]
    search = Search(num_beams=4, length_penalty=1.0)
    whole, lacking = (
        [line.text for line in generate_lines(model, tokenizer, lines, search, batch_size=32, too_long="error")]
        for lines in (sources, cut)
    )
    rows = [row for row in range(len(sources)) if whole[row].split() and lacking[row].split()]
    texts = [sources[row] for row in rows] * 2
    targets = [system[row] for system in (lacking, whole) for row in rows]
    faulty = np.arange(len(texts)) < len(rows)
    truths = [word_truths(sources[row], spans[row]) for row in rows]
    evidence = missing_words(model, tokenizer, texts, targets, checker)
    likelihoods = mean_log_probabilities(model, tokenizer, texts, targets)
    words, lines = {}, {"log-probability": detection(faulty, -likelihoods, bootstrap)}
    counted = [[place for place, word in enumerate(text.split()) if any(map(str.isalnum, word))] for text in texts]
    for name, missing in evidence.items():
        kept = [np.asarray(line)[places] for line, places in zip(missing, counted, strict=True)]
        of_cut = [np.asarray(truth)[places] for truth, places in zip(truths, counted[: len(rows)], strict=True)]
        words[name] = detection(np.concatenate(of_cut), np.concatenate(kept[: len(rows)]), bootstrap)
        lines[name] = detection(faulty, [line.max() for line in kept], bootstrap)
    return {
        "translated": len(rows),
        "words": {name: dataclasses.asdict(found) for name, found in words.items()},
        "lines": {name: dataclasses.asdict(found) for name, found in lines.items()},
        "examples": [
            {
                "source": texts[row],
                "taken_away": texts[row].split()[slice(*spans[rows[row]])],
                "translation": targets[row],
            }
            for row in range(10)
        ],
    }


def chosen_span(line: str, seed: int) -> tuple[int, int]:
    """Choose two to four words in a row at random, the last word (a full stop, mostly) never among them."""
    words, generator = line.split(), random.Random(seed)
    length = generator.randint(2, min(4, len(words) - 3))
    start = generator.randrange(len(words) - length)
    return start, start + length


def without(line: str, span: tuple[int, int]) -> str:
    words = line.split()
    return " ".join(words[: span[0]] + words[span[1] :])


def word_truths(line: str, span: tuple[int, int]) -> list[bool]:
    return [span[0] <= place < span[1] for place in range(len(line.split()))]


def missing_words(model, tokenizer, sources, targets, checker: Checker) -> dict[str, list[np.ndarray]]:
    """For each method, how likely each source word is to be missing: higher is likelier, (source words,) a line."""
    evidence = {}
    for name, (method, options) in METHODS.items():
        scores = word_scores(model, tokenizer, sources, targets, method, **options)
        for way, coverage in COVERAGES.items():
            evidence[f"{name}, {way}"] = [-coverage(line, axis=0) for line in scores]
    verdicts = checker.check(list(zip(sources, targets, strict=True)))
    evidence["attncal check"] = [by_white_space(verdict) for verdict in verdicts]
    return evidence


def by_white_space(verdict: PairVerdict) -> np.ndarray:
    """The probabilities of source words as white space parts them: the largest where the check cut a word."""
    segments = segment(verdict.source)
    missing = np.zeros(segments.raw_words)
    for owner, probability in zip(segments.owners, verdict.source_words, strict=True):
        if owner is not None:
            missing[owner] = max(missing[owner], probability)
    return missing


@torch.no_grad()
def mean_log_probabilities(model, tokenizer, sources, targets) -> np.ndarray:
    """Mean log-probability of the tokens of each target, given its source: (lines,)."""
    means = np.zeros(len(sources))
    for pairs, batch in batches_of_pairs(model, tokenizer, sources, targets):
        inputs, labels = teacher_forced(model, batch)
        losses = cross_entropy(model(**inputs).logits.transpose(1, 2), labels, reduction="none")  # 0 on padding
        means[[pair.index for pair in pairs]] = -(losses.sum(dim=1) / (labels != -100).sum(dim=1)).numpy()
    return means


if __name__ == "__main__":
    main()
