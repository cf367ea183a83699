"""Parts of speech of target words where no tagger of their language is at hand: those of English words behind them.

    python experiments/parts_of_speech.py --conll DIR/conll2000 --aligner runs/aligner --source test.en \
        --target test.de --output test.tags

English words get the tag that they have most often in the training text of CoNLL-2000, unknown ones that of their
longest known ending; the tags of the Penn Treebank are brought down to a few. A target word has the tag of the source
word to which an aligner (`attncal align train`) gives it the best link, punctuation its own, and a word without a
link `none`. How often a word of the test text of CoNLL-2000 gets its right tag so is printed.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from conll import most_frequent_tags, read_conll

from hf_attncal import WordAligner
from hf_attncal.data.words import is_punctuation
from hf_attncal.files import read_pairs, write_text

# First letters of Penn Treebank tags, the longest first -> what they are brought down to.
COARSE = {
    "NN": "noun",
    "VB": "verb",
    "MD": "verb",
    "JJ": "adjective",
    "RB": "adverb",
    "RP": "particle",
    "IN": "preposition",
    "TO": "preposition",
    "DT": "determiner",
    "PDT": "determiner",
    "WDT": "pronoun",
    "PRP": "pronoun",
    "WP": "pronoun",
    "EX": "pronoun",
    "CD": "number",
    "CC": "conjunction",
    "POS": "particle",
    "WRB": "adverb",
}
PUNCTUATION, OTHER, NONE = "punctuation", "other", "none"
LONGEST_ENDING = 4


def coarse(tag: str) -> str:
    """The few kinds that the tags of the Penn Treebank are brought down to."""
    for start in sorted(COARSE, key=len, reverse=True):
        if tag.startswith(start):
            return COARSE[start]
    return OTHER


class Tagger:
    """The most frequent tag of each word, and of each ending; in lower case, as the text to be tagged is."""

    def __init__(self, tagged: Sequence[tuple[str, str]]):
        words, tags = ([pair[side] for pair in tagged] for side in (0, 1))
        self.words = most_frequent_tags([word.lower() for word in words], tags)
        endings = [(ending, tag) for word, tag in tagged for ending in self._endings(word)]
        self.endings = most_frequent_tags(*([pair[side] for pair in endings] for side in (0, 1)))

    @staticmethod
    def _endings(word: str) -> list[str]:
        """The longest first; the last is empty."""
        word = word.lower()
        return [word[-length:] for length in range(min(LONGEST_ENDING, len(word)), 0, -1)] + [""]

    def tag(self, word: str) -> str:
        """The tag of one word."""
        if is_punctuation(word):
            return PUNCTUATION
        if word.lower() in self.words:
            return self.words[word.lower()]
        return next(self.endings[ending] for ending in self._endings(word) if ending in self.endings)


def read_tagged(path: Path) -> list[tuple[str, str]]:
    """The words of CoNLL-2000, punctuation left out, and their coarse tags."""
    sentences = read_conll(path)
    pairs = (pair for one in sentences for pair in zip(one.words, one.parts_of_speech, strict=True))
    return [(word, coarse(tag)) for word, tag in pairs if not is_punctuation(word)]


def projected(tagger: Tagger, aligner: WordAligner, sources: list[str], targets: list[str]) -> list[list[str]]:
    """The tags of target words."""
    found = []
    for source, target, alignment in zip(
        sources, targets, aligner.align(list(zip(sources, targets, strict=True))), strict=True
    ):
        best: dict[int, tuple[float, int]] = {}
        for (i, j), score in zip(alignment.links, alignment.scores, strict=True):
            best[j] = max(best.get(j, (-1.0, i)), (score, i))
        words = source.split()
        found.append(
            [
                PUNCTUATION if is_punctuation(word) else tagger.tag(words[best[j][1]]) if j in best else NONE
                for j, word in enumerate(target.split())
            ]
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conll", type=Path, required=True, metavar="DIR", help="train.txt.gz and test.txt.gz")
    parser.add_argument("--aligner", required=True, metavar="DIR", help="folder of an aligner")
    for side in ("source", "target", "output"):
        parser.add_argument(f"--{side}", type=Path, required=True, metavar="FILE")
    args = parser.parse_args(arguments)
    tagger = Tagger(read_tagged(args.conll / "train.txt.gz"))
    test = read_tagged(args.conll / "test.txt.gz")
    right = sum(tagger.tag(word) == tag for word, tag in test)
    print(f"English tags: {100 * right / len(test):.1f} % right of {len(test):,} words")
    sources, targets = read_pairs(args.source, args.target)
    tags = projected(tagger, WordAligner.from_pretrained(args.aligner), sources, targets)
    write_text("".join(f"{' '.join(line)}\n" for line in tags), args.output)
    print(Counter(tag for line in tags for tag in line).most_common())


if __name__ == "__main__":
    main()
