"""Text for one model of two languages, whose encoder is then aligned with: both directions, and each language itself.

    python experiments/multilingual_text.py --source FILE --target FILE --languages en fr --output FOLDER

FOLDER gets `train.source.txt` and `train.target.txt`: every pair in both directions, and of every third pair each side
from itself with words left out (denoising). A target begins with a word that names its language (`2en`), so it is the
decoder that learns which language to write; the encoder is not told, and has to say what a sentence means in one way.
`configs/translation/wpt03_multilingual.yaml` trains on it.
"""

import argparse
import random
from pathlib import Path

from hf_attncal.files import read_pairs

LEFT_OUT = 0.15  # of the words of a sentence that is to be restored
RESTORED = 3  # one in so many pairs


def multilingual_pairs(
    source: list[str], target: list[str], languages: tuple[str, str], seed: int = 1
) -> list[tuple[str, str]]:
    """What is read and what is to be written, in a random order."""
    draw = random.Random(seed)
    first, second = (f"2{language}" for language in languages)
    pairs = []
    for number, (one, other) in enumerate(zip(source, target, strict=True)):
        pairs += [(one, f"{second} {other}"), (other, f"{first} {one}")]
        if number % RESTORED == 0:
            pairs += [(_noisy(one, draw), f"{first} {one}"), (_noisy(other, draw), f"{second} {other}")]
    draw.shuffle(pairs)
    return pairs


def _noisy(text: str, draw: random.Random) -> str:
    words = text.split()
    return " ".join(word for word in words if draw.random() >= LEFT_OUT) or text


def main(arguments: list[str] | None = None) -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--languages", nargs=2, required=True)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args(arguments)
    pairs = multilingual_pairs(*read_pairs(options.source, options.target), tuple(options.languages))
    options.output.mkdir(parents=True, exist_ok=True)
    for name, side in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (options.output / f"train.{name}.txt").write_text("\n".join([*side, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
