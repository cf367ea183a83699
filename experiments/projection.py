"""Labels planted in generated sentences and carried over links: how many arrive where they are true.

    python experiments/projection.py --output FILE

The generated language pair (`data/synthetic/english_german.py`) has exact links, so the truth about carried labels is
known without the rule that carries them:

- `tags`: words that links join, directly or through others, get one tag, drawn at random; a target word without links
  has none. Accuracy is over target words.
- `spans`: phrases of one to five source words whose links, and no others, lead to one piece of the target that begins
  and ends with linked words. Right is a span with both ends.
- `markup`: such phrases within each other and beside each other, as elements; right is one with both ends.

For each seed an aligner that counts learns from 20,000 generated pairs, and labels of 1,000 others are carried over
exact links and over its own.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.alignment.markup import parse_markup, project_markup
from hf_attncal.alignment.projection import Span, project_spans, project_tags
from hf_attncal.data.synthetic.english_german import AlignedPair, generate_split, write_pairs
from hf_attncal.files import write_json
from hf_attncal.metrics import records
from hf_attncal.metrics.base import Metric, ratio

SEEDS = (1, 2, 3)
TRAIN, TEST = 20_000, 1_000
TAGS = 10
LONGEST = 5  # words of a phrase
SPANS = 2  # of a pair, at most
ACCURACY = Metric("ProjectionAccuracy", ratio)
UNITS = {"tags": "target word", "spans": "span, both ends", "markup": "element, both ends"}
Phrase = tuple[Span, tuple[int, int]]  # source words, and the target words that they are


def planted_tags(pair: AlignedPair, generator: random.Random) -> tuple[list[str], list[str | None]]:
    """Tags of the source words, and those of the target words, None where there is no link."""
    group = list(range(len(pair.source) + len(pair.target)))
    for i, j in pair.links:  # few words: no need for anything faster
        old, new = group[len(pair.source) + j], group[i]
        group = [new if one == old else one for one in group]
    tags = {one: f"T{generator.randrange(TAGS)}" for one in sorted(set(group))}
    linked = {j for _, j in pair.links}
    target = [tags[one] if j in linked else None for j, one in enumerate(group[len(pair.source) :])]
    return [tags[one] for one in group[: len(pair.source)]], target


def phrases(pair: AlignedPair) -> list[Phrase]:
    """All source phrases that are one piece of the target, and nothing else is."""
    found = []
    for start in range(len(pair.source)):
        for stop in range(start + 1, min(start + LONGEST, len(pair.source)) + 1):
            targets = {j for i, j in pair.links if start <= i < stop}
            others = {j for i, j in pair.links if not start <= i < stop}
            if targets and not others & set(range(min(targets), max(targets) + 1)):
                found.append((Span(start, stop, f"S{len(found)}"), (min(targets), max(targets) + 1)))
    return found


def apart(chosen: Sequence[Phrase], new: Phrase) -> bool:
    """Whether a phrase has no word that another has."""
    return all(new[0].stop <= span.start or span.stop <= new[0].start for span, _ in chosen)


def planted_spans(pair: AlignedPair, generator: random.Random) -> list[Phrase]:
    """Some phrases without a word in common."""
    chosen: list[Phrase] = []
    for phrase in generator.sample(found := phrases(pair), len(found)):
        if len(chosen) < SPANS and apart(chosen, phrase):
            chosen.append(phrase)
    return chosen


def planted_markup(pair: AlignedPair, generator: random.Random) -> tuple[str, dict[str, tuple[int, int]]]:
    """A source with elements, some within others, and the target words of each by its name."""
    chosen = planted_spans(pair, generator)
    for outer, _ in list(chosen):
        inner = [one for one in phrases(pair) if outer.start <= one[0].start and one[0].stop <= outer.stop]
        inner = [one for one in inner if one[0][:2] != outer[:2]]
        if inner:
            chosen.append(generator.choice(inner))
    words = list(pair.source)
    for (start, stop, label), _ in sorted(chosen, key=lambda one: one[0].stop - one[0].start):  # the inner ones first
        words[start] = f"<{label}>{words[start]}"
        words[stop - 1] = f"{words[stop - 1]}</{label}>"
    return " ".join(words), {span.label: place for span, place in chosen}


def elements_of(text: str) -> dict[str, tuple[int, int]]:
    """The words of each element of a text, by its name."""
    found, waiting = {}, list(parse_markup(text).elements)
    while waiting:
        element = waiting.pop()
        found[element.begin[1:-1]] = (element.start, element.stop)
        waiting += element.children
    return found


def accuracies(
    pairs: Sequence[AlignedPair], links: Sequence[tuple[tuple, tuple | None]], seed: int
) -> dict[str, dict]:
    """The share of words, spans and elements that are where they are true.

    Args:
        pairs: with exact links.
        links: links and scores to carry labels over.
        seed: of what is planted.
    """
    generator = random.Random(seed)
    right = {"tags": [], "spans": [], "markup": []}
    for pair, (found, scores) in zip(pairs, links, strict=True):
        lengths = len(pair.source), len(pair.target)
        tags, true_tags = planted_tags(pair, generator)
        carried = project_tags(tags, found, lengths[1], scores)
        right["tags"] += [one == true for one, true in zip(carried, true_tags, strict=True)]
        planted = planted_spans(pair, generator)
        places = project_spans([span for span, _ in planted], found, *lengths, scores)
        right["spans"] += [
            place is not None and place[:2] == true for place, (_, true) in zip(places, planted, strict=True)
        ]
        marked, true_elements = planted_markup(pair, generator)
        elements = elements_of(project_markup(marked, " ".join(pair.target), found, scores).text)
        right["markup"] += [elements[name] == true for name, true in true_elements.items()]
    return {
        name: {
            "accuracy": sum(values) / len(values),
            "count": len(values),
            "signature": ACCURACY.signature(unit=UNITS[name], pairs=str(len(pairs))),
        }
        for name, values in right.items()
    }


def trained(pairs: Sequence[AlignedPair]) -> WordAligner:
    """An aligner that counts, of these pairs."""
    with tempfile.TemporaryDirectory() as folder:
        text = [Path(folder) / name for name in ("source.txt", "target.txt")]
        write_pairs(pairs, *text)
        train = {"source": str(text[0]), "target": str(text[1])}
        output = Path(folder) / "aligner"
        AlignerJob.train(
            AlignerConfig.make({"preset": "hmm", "data": {"train": train}, "training": {"output_dir": str(output)}})
        )
        return WordAligner.from_pretrained(output, device="cpu")


def main() -> None:
    """Plant, align, carry, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    found = {}
    for seed in SEEDS:
        split = generate_split(TRAIN, 0, TEST, seed)
        aligned = trained(split.train).align([(pair.source, pair.target) for pair in split.test])
        exact = [(tuple(sorted(pair.links)), None) for pair in split.test]
        found[str(seed)] = {
            "exact_links": accuracies(split.test, exact, seed),
            "aligner": accuracies(split.test, [(one.links, one.scores) for one in aligned], seed),
        }
    config = {"train_pairs": TRAIN, "test_pairs": TEST, "seeds": list(SEEDS), "preset": "hmm", "tags": TAGS}
    write_json({**records.record(config, device="cpu"), "seeds": found}, args.output)


if __name__ == "__main__":
    main()
