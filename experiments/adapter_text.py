"""Text that anybody may learn from, besides that of ROOT: what `encoder_adapter.py` and `encoder_check.py` read of it.

    python experiments/adapter_text.py --data ROOT --europarl FOLDER --toy FOLDER --tatoeba FILE

FOLDER of `--europarl` are the XML files of Europarl-ConcoDisco (GitHub `mjlaali/Europarl-ConcoDisco`, commit
`1a18432`, `xml-files/`), whose pairs of sentences are those of Europarl: its annotations are not read. `--toy` has
`toy.bpe.de` and `toy.bpe.en`, German-English Europarl (GitHub `marian-nmt/marian-regression-tests`, commit `84844f7`,
`data/europarl.de-en`), and FILE are English-French pairs of Tatoeba, separated by a tab (GitHub
`Soubhagya264/Language_Translator-Encoder-Decoder-`, commit `f6c8966`, `fra.txt`; published by manythings.org/anki).

Words are split by simple rules. A pair of which a side is in a test or dev set under ROOT, but for case and
punctuation, is left out, and so is one of which a side has been there. Writes `europarl-enfr`, `europarl-deen` and
`tatoeba-enfr`, each `train.LANGUAGE.gz`, under ROOT. Terms of Europarl: "we are not aware of any copyright
restrictions of the material" (statmt.org/europarl); of Tatoeba: CC BY 2.0 FR.
"""

import argparse
import gzip
import html
import random
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

from hf_attncal.io.files import read_lines

EUROPARL = "European Parliament Proceedings Parallel Corpus (Koehn 2005), no known restriction of copyright"
TATOEBA = "Tatoeba (tatoeba.org), by manythings.org/anki, CC BY 2.0 FR"
TANAKA = "Tanaka corpus (Tatoeba), CC BY 2.0 FR"
PAIRS = 60_000  # of a text at most
PER_FILE, EVERY = 400, 15  # pairs of a file of Europarl, and one file in so many
LONGEST, RATIO = 100, 4.0  # words of a side, and the longer side by the shorter
Pair = tuple[str, str]
_MARKS = re.compile(r"(\.\.\.|[^\w\s'’.,\-]|(?<=\D),|,(?=\D|$)|[.](?=\s*$)|[.](?=\s*[\"»”)]))")
_QUOTES = re.compile(r"(?<!\w)'(?=\w{3})|(?<=\w[^u])'(?=\s|$)")
_ENGLISH = re.compile(r"(?i)(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_FRENCH = re.compile(r"(?i)\b((?:[cdjlmnst]|qu|lorsqu|puisqu|jusqu|quoiqu)')(?=\w)")


def words(text: str, language: str) -> str:
    """Return a sentence with a space between words and punctuation."""
    text = " ".join(text.replace("’", "'").split()).replace("' s ", "'s ")
    text = _QUOTES.sub(" ' ", _MARKS.sub(r" \1 ", text))
    text = _ENGLISH.sub(r" \1", text) if language == "en" else _FRENCH.sub(r"\1 ", text)
    return " ".join(text.split())


def europarl(folder: Path) -> Iterator[Pair]:
    """Yield English-French pairs of the XML files, evenly spread over them."""
    for path in sorted(folder.glob("ep-*.xml"))[::EVERY]:
        try:
            chunks = ElementTree.parse(path).iter("ParallelChunk")
        except ElementTree.ParseError:
            continue
        for chunk in islice(chunks, PER_FILE):
            sides = (chunk.find(language) for language in ("en", "fr"))
            source, target = ("" if side is None else "".join(side.itertext()) for side in sides)
            yield words(source, "en"), words(target, "fr")


def toy(folder: Path) -> Iterator[Pair]:
    """Yield German-English pairs whose pieces are joined again."""
    sides = (read_lines(folder / f"toy.bpe.{language}") for language in ("de", "en"))
    for pair in zip(*sides, strict=True):
        source, target = (html.unescape(side.replace("@@ ", "").replace(" @-@ ", "-")) for side in pair)
        yield source, target


def tatoeba(file: Path) -> Iterator[Pair]:
    """Yield English-French pairs in any order; the file begins with the shortest."""
    lines = [line.split("\t") for line in read_lines(file)]
    random.Random(1).shuffle(lines)
    return ((words(line[0], "en"), words(line[1], "fr")) for line in lines if len(line) > 1)


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def tested(root: Path) -> set[str]:
    """Return the letters of the lines of all dev and test sets."""
    files = [path for kind in ("dev", "test") for path in root.glob(f"**/{kind}.??")]
    return {letters(line) for path in files for line in read_lines(path)}


def kept(pairs: Iterable[Pair], known: set[str]) -> Iterator[Pair]:
    """Yield the pairs of about the same length of which no side is known or has been there."""
    known = set(known)
    for pair in pairs:
        lengths = sorted(len(side.split()) for side in pair)
        said = set(map(letters, pair))
        if not 0 < lengths[0] <= lengths[1] <= min(LONGEST, RATIO * lengths[0]) or known & said:
            continue
        known |= said
        yield pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="ROOT", help="folder of the corpora")
    for name in ("europarl", "toy"):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--tatoeba", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    known = tested(args.data)
    texts = {
        "europarl-enfr": europarl(args.europarl),
        "europarl-deen": toy(args.toy),
        "tatoeba-enfr": tatoeba(args.tatoeba),
    }
    for name, pairs in texts.items():
        found = list(islice(kept(pairs, known), PAIRS))
        (args.data / name).mkdir(exist_ok=True)
        for side, language in enumerate((name[-4:-2], name[-2:])):
            text = "".join(f"{pair[side]}\n" for pair in found)
            (args.data / name / f"train.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(name, len(found), "pairs")


if __name__ == "__main__":
    main()
