"""Whether embeddings know parts of speech: nearest neighbours of frequent words, and a map of them.

    python experiments/embeddings.py --data DIR/conll2000 --text DIR/multi30k/train.en.gz --model two=runs/two1 \
        --output results/embeddings --picture docs/images/embeddings.png

Words are the most frequent ones of the text that a model was trained on which are one token of it, have letters only
and stand in the annotated text, lower-cased both; the tag that a word has there most often is its own. Neighbours are
the nearest other such words by cosine: the share of them with the word's own tag is what a map of t-SNE shows, as a
number. The control is chance. The map is that of the first model.
"""

import argparse
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
from chunking import FILES
from committed import RESULTS
from conll import most_frequent_tags, read_conll
from frozen import add_models, read_models
from matplotlib.figure import Figure
from shared_tags import SHARED_TAGS, shared_tag_counts, shared_tags
from word_vectors import embedding_tables, nearest_neighbours, plane, whole_words

from hf_attncal.files import read_lines, write_bytes, write_json
from hf_attncal.metrics import records

# For the colours of the map: how the tags of the Penn Treebank begin.
CLASSES = {"noun": ("NN",), "verb": ("VB", "MD"), "adjective": ("JJ",), "adverb": ("RB",), "number": ("CD",)}
OTHERS = "function word"


def word_class(tag: str) -> str:
    """The class of words that a tag of the Penn Treebank belongs to."""
    return next((name for name, beginnings in CLASSES.items() if tag.startswith(beginnings)), OTHERS)


def frequent_words(lines: Sequence[str], tagger: dict[str, str], tokenizer, count: int) -> dict[str, int]:
    """The first `count` of the words to look at, the most frequent first, each with the number of its token.

    Raises:
        ValueError: fewer than two.
    """
    frequency = Counter(chain.from_iterable(line.split() for line in lines))
    known = [word for word, _ in frequency.most_common() if word.isalpha() and word in tagger]
    words = dict(list(whole_words(tokenizer, known).items())[:count])
    if len(words) < 2:
        raise ValueError(
            f"{len(words)} words of the text are one token and stand in the annotated text, where two are needed at "
            "least. Is it the text that the model was trained on?"
        )
    return words


def measure(model, words: dict[str, int], tagger: dict[str, str], args: argparse.Namespace) -> dict:
    """Everything that the results file of a model says besides its head.

    Raises:
        ValueError: an example that is none of the words; see `nearest_neighbours`.
    """
    spelling, tags = list(words), [tagger[word] for word in words]
    if missing := sorted(set(args.examples) - set(spelling)):
        raise ValueError(f"--examples {' '.join(missing)}: not among the {len(words)} words. Leave it out.")
    streams, counts = {}, {}
    for stream, table in embedding_tables(model).items():
        neighbours = nearest_neighbours(table[list(words.values())], args.neighbours).numpy()
        score = shared_tags(neighbours, tags, bootstrap=args.bootstrap, seed=args.seed)
        examples = {word: [spelling[n] for n in neighbours[spelling.index(word)]] for word in args.examples}
        streams[stream] = {"shared_tags": asdict(score), "examples": examples}
        counts[stream] = shared_tag_counts(neighbours, tags)
    result = {"streams": streams}
    if "syntactic" in streams:
        shares = [streams[stream]["shared_tags"]["share"] for stream in ("syntactic", "semantic")]
        both = counts["semantic"], counts["syntactic"]
        result["syntactic_minus_semantic"] = {
            "share": shares[0] - shares[1],
            "interval": SHARED_TAGS.paired_interval(*both, args.bootstrap, args.seed) if args.bootstrap else None,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {FILES['train']} of CoNLL-2000")
    parser.add_argument("--text", type=Path, required=True, help="what the models were trained on, the source side")
    add_models(parser)
    parser.add_argument("--words", type=int, default=1000, help="most words")
    parser.add_argument("--neighbours", type=int, default=10, help="of each word")
    help = "words whose neighbours are written out"
    parser.add_argument("--examples", nargs="*", default=["man", "running", "red", "behind", "two"], help=help)
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples of the words for the interval")
    parser.add_argument("--seed", type=int, default=1, help="of the resamples and the map")
    parser.add_argument("--output", type=Path, default=RESULTS / "embeddings", help="folder for a file a model")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="PNG of the first model; without it, none")
    args = parser.parse_args()
    try:
        run(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def run(args: argparse.Namespace) -> None:
    """Write the results file of every model, and the picture."""
    files = {FILES["train"]: args.data / FILES["train"], args.text.name: args.text}
    models = read_models(args.models)
    annotated = read_conll(files[FILES["train"]])
    lines = [line.lower() for line in read_lines(args.text)]
    spoken = [word.lower() for sentence in annotated for word in sentence.words]
    tagger = most_frequent_tags(spoken, [tag for sentence in annotated for tag in sentence.parts_of_speech])
    names = ("words", "neighbours", "seed", "bootstrap")
    config = {"experiment": "embeddings", **{name: getattr(args, name) for name in names}}
    for frozen in models:
        model, tokenizer = frozen.load()
        words = frequent_words(lines, tagger, tokenizer, args.words)
        result = measure(model, words, tagger, args)
        head = records.record(config | frozen.config(model), files | frozen.files)
        write_json(head | result, args.output / f"{frozen.stem}.json")
        if args.picture is not None and frozen is models[0]:
            draw(model, words, tagger, args)


def draw(model, words: dict[str, int], tagger: dict[str, str], args: argparse.Namespace) -> None:
    """Draw the map of every table of a model, side by side, into `args.picture`."""
    ids, classes = list(words.values()), np.array([word_class(tagger[word]) for word in words])
    panels = {
        f"embeddings, {stream} stream": plane(table[ids], args.seed)
        for stream, table in embedding_tables(model).items()
    }
    figure = Figure(figsize=(4.5 * len(panels), 5), layout="constrained")
    for axes, (title, places) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        axes.set(title=title, xticks=[], yticks=[])
        for name, marker in zip([*CLASSES, OTHERS], "osD^vP", strict=True):
            axes.scatter(*places[classes == name].T, s=11, marker=marker, alpha=0.75, linewidths=0, label=name)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3 * len(panels))
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write_bytes(image.getvalue(), args.picture)


if __name__ == "__main__":
    main()
