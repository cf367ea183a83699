"""What copies: which head looks at the words that a headline takes from its text, and what comes of another's copying.

    python experiments/copied_words.py --data DIR/reuters-headlines --model copy=runs/copy1 --model copy=runs/copy2

Each `--model NAME=FOLDER` is a finished training of configs/summarization/headlines_*.yaml; for each,
`results/copying/heads/NAME_seedN.json` tells of test, given the reference headlines word by word:

- `heads`: of words that stand exactly once in the text, how many each head of each layer gives the most of its
  attention where they stand (at the step that predicts the word); with a calibration before and after it.
- `words`: of what the model writes itself, how many words stand in the text, how many are copied (more than half of
  the word's probability is), how many of those the reference has; and of the words that are not in the vocabulary but
  in the text, how many of the reference's it writes. Unknown words that were written are left out of a text, as ROUGE
  has it; `rouge1_unknown_kept` is ROUGE-1 with them.
- `swapped`: ROUGE on dev when another head is copied by than the one that was trained for it.
"""

import argparse
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cells import labels_of
from committed import RESULTS
from copy_accuracy import copy_accuracy
from frozen import Frozen, add_models, read_models

from hf_attncal.drawing.plots import Picture
from hf_attncal.files import read_pairs as read_text_pairs
from hf_attncal.files import write_bytes, write_json
from hf_attncal.inference.reading import decoder_size, readings_of_pairs
from hf_attncal.inference.summarization import summarize_lines
from hf_attncal.inference.word_attention import word_attention
from hf_attncal.metrics import records
from hf_attncal.metrics.rouge import rouge

SPLITS = {"dev": ("valid.src", "valid.tgt"), "test": ("test.src", "test.tgt")}
STAGES = {"before": "uncalibrated", "after": "attentions"}  # of a calibration; without one there is nothing before
BEAMS, NEW_TOKENS, ROUGE_TOKENS = 4, 40, "none"  # as in the training's own scores


def head_accuracies(model, tokenizer, pairs: Sequence[tuple[str, str]], bootstrap: int) -> dict[str, list[list[dict]]]:
    """Stage -> layer -> head -> `CopyAccuracy` as a dictionary."""
    links = head_links(model, tokenizer, pairs)
    return {
        stage: [[asdict(copy_accuracy(pairs, head, bootstrap=bootstrap)) for head in layer] for layer in layers]
        for stage, layers in links.items()
    }


def head_links(model, tokenizer, pairs: Sequence[tuple[str, str]]) -> dict[str, list[list[list[set]]]]:
    """Stage -> layer -> head -> pair -> one link for each target word: to the source word with the largest weight."""
    layers, heads = decoder_size(model.config)
    stages = [stage for stage in STAGES if stage == "after" or model.config.calibration is not None]
    links = {stage: [[[set() for _ in pairs] for _ in range(heads)] for _ in range(layers)] for stage in stages}
    for batch, reading in readings_of_pairs(model, tokenizer, *zip(*pairs, strict=True), details="before" in stages):
        for stage in stages:
            for layer, weights in enumerate(getattr(reading, STAGES[stage])):
                for row, (index, source, target) in enumerate(batch):
                    words = word_attention(reading.unpadded(weights, row).cpu(), source, target)
                    for head, best in enumerate(words.argmax(dim=-1).tolist()):
                        links[stage][layer][head][index] = {(i, j) for j, i in enumerate(best)}
    return links


def word_shares(model, tokenizer, pairs: Sequence[tuple[str, str]]) -> dict[str, float | int | None]:
    """Shares of what the model writes; see the head of this file. A share of nothing is None."""
    copies = bool(model.config.copy)
    found = summarize_lines(
        model,
        tokenizer,
        [source for source, _ in pairs],
        num_beams=BEAMS,
        max_new_tokens=NEW_TOKENS,
        scores=True,
        copied=copies,
    )
    whole = [_with_unknown(summary, tokenizer) for summary in found]
    vocabulary, counts = tokenizer.get_vocab(), Counter()
    for (source, reference), summary in zip(pairs, found, strict=True):
        source, reference, written = source.split(), reference.split(), summary.text.split()
        outside = {word for word in source if word not in vocabulary}
        counts["written"] += len(written)
        counts["unknown"] += summary.unknown  # they stand in no text
        counts["in_source"] += sum(word in source for word in written)
        counts["in_source_right"] += _shared((word for word in written if word in source), reference)
        counts["outside_reference"] += sum(word in outside for word in reference)
        counts["outside_written"] += sum(word in outside for word in written)
        counts["outside_right"] += _shared((word for word in written if word in outside), reference)
        if copies:
            copied = [written[j] for j in {j for _, j in summary.links}]
            counts["copied"] += len(copied)
            counts["copied_right"] += _shared(copied, reference)
    ratios = {
        "in_source": ("in_source", "written"),
        "in_source_right": ("in_source_right", "in_source"),
        "copied": ("copied", "written"),
        "copied_right": ("copied_right", "copied"),
        "outside_recall": ("outside_right", "outside_reference"),
        "outside_precision": ("outside_right", "outside_written"),
    }
    shares = {name: counts[a] / counts[b] if counts[b] else None for name, (a, b) in ratios.items()}
    if not copies:
        shares |= {"copied": None, "copied_right": None}
    shares |= {f"{name}_words": counts[name] for name in ("written", "unknown", "outside_reference")}
    return shares | {"rouge1_unknown_kept": rouge(whole, [reference for _, reference in pairs], ROUGE_TOKENS).rouge1}


def _with_unknown(summary, tokenizer) -> str:
    """What was written, with the unknown words that its text leaves out; a word is a token."""
    special = set(tokenizer.all_special_tokens) - {tokenizer.unk_token}
    return " ".join(token for token in summary.tokens if token not in special)


def _shared(words, reference: Sequence[str]) -> int:
    """How many of the words the reference has, each at most as often as there."""
    return (Counter(words) & Counter(reference)).total()


def swapped(model, tokenizer, pairs: Sequence[tuple[str, str]]) -> list[dict]:
    """ROUGE of greedy search for every head that could be copied by."""
    layers, heads = decoder_size(model.config)
    found = []
    for layer, head in ((layer, head) for layer in range(layers) for head in range(heads)):
        with copying_by(model, layer, head):
            sources = [source for source, _ in pairs]
            summaries = summarize_lines(model, tokenizer, sources, num_beams=1, max_new_tokens=NEW_TOKENS)
        score = rouge([one.text for one in summaries], [target for _, target in pairs], ROUGE_TOKENS)
        trained = (layer, head) == (model.config.layer_of_copies, model.config.copy_head)
        found.append({"layer": layer, "head": head, "trained": trained, "rouge1": score.rouge1})
    return found


@contextmanager
def copying_by(model, layer: int, head: int) -> Iterator[None]:
    """The model copies by this head for a while."""
    config, chosen = model.config, (model.config.copy_layer, model.config.copy_head)
    config.copy_layer, config.copy_head = layer, head
    try:
        yield
    finally:
        config.copy_layer, config.copy_head = chosen


def measure(frozen: Frozen, texts: dict[str, list[tuple[str, str]]], bootstrap: int) -> tuple[dict, dict]:
    """Of one model the settings, and all that is measured."""
    model, tokenizer = frozen.load()
    found = {
        "copy_head": [model.config.layer_of_copies, model.config.copy_head] if model.config.copy else None,
        "heads": head_accuracies(model, tokenizer, texts["test"], bootstrap),
        "words": word_shares(model, tokenizer, texts["test"]),
    }
    if model.config.copy:
        found["swapped"] = swapped(model, tokenizer, texts["dev"])
    return frozen.config(model), found


def draw(measured: dict[str, list[dict]], path: Path) -> None:
    """A line of dots for each setting and stage: what each head of each seed looks at; those that copy stand out."""
    rows = {}
    for name, found in measured.items():
        label = labels_of("copying-words", "setting").get(name, name)
        for stage in found[0]["heads"]:
            row = label if len(found[0]["heads"]) == 1 else f"{label}, {stage}"
            rows[row] = [(one["heads"][stage], one["copy_head"]) for one in found]
    figure = Picture(figsize=(7.5, 0.8 + 0.32 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    colours = ("#9db7d5", "#1f4e86")  # of layers, the top one dark
    for place, found in enumerate(rows.values()):
        for layers, copying in found:
            for number, layer in enumerate(layers):
                others = [100 * h["accuracy"] for n, h in enumerate(layer) if [number, n] != copying]
                axes.scatter(others, [place] * len(others), s=26, color=colours[min(number, 1)], alpha=0.8, zorder=2)
            if copying:
                own = 100 * layers[copying[0]][copying[1]]["accuracy"]
                axes.scatter([own], [place], s=52, marker="D", color="#d9720a", zorder=3)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("copied words that a head looks at, percent")
    axes.grid(axis="x", color="#e5e5e5", zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    kinds = [("head of the bottom layer", "o", colours[0]), ("of the top layer", "o", colours[1])]
    kinds.append(("head that copies", "D", "#d9720a"))
    for label, marker, colour in kinds:
        axes.scatter([], [], s=36, marker=marker, color=colour, label=label)
    figure.legend(loc="outside upper right", ncols=3, frameon=False, fontsize="small")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write_bytes(image.getvalue(), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder of the headlines")
    add_models(parser)
    parser.add_argument("--output", type=Path, default=RESULTS / "copying" / "heads", help="folder of the results")
    parser.add_argument("--picture", type=Path, help="file for the picture of the heads; without it, none")
    parser.add_argument("--bootstrap", type=int, default=1000, help="resamples for the intervals")
    args = parser.parse_args()
    try:
        run(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))


def run(args: argparse.Namespace) -> None:
    """Write the results of all models, and draw them."""
    files = {name: args.data / name for names in SPLITS.values() for name in names}
    texts = {
        split: list(zip(*read_text_pairs(*(files[name] for name in names)), strict=True))
        for split, names in SPLITS.items()
    }
    measured: dict[str, list[dict]] = {}
    for frozen in read_models(args.models):
        config, found = measure(frozen, texts, args.bootstrap)
        config |= {"experiment": "copying", "data": args.data.name, "bootstrap": args.bootstrap}
        head = records.record(config, files | frozen.files)
        write_json(head | found, args.output / f"{frozen.stem}.json")
        measured.setdefault(frozen.name, []).append(found)
    if args.picture is not None:
        draw(measured, args.picture)


if __name__ == "__main__":
    main()
