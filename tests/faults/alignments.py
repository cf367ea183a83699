"""Text that an aligner could get wrong: repeated words, and text that its probabilities were not learned from.

Words that are there several times are linked in order, each once: in pairs of words with one translation each, aligned
by nothing but themselves. Where a pair is unlike the annotated ones, no probability is above the score.
"""

import itertools
import os
import random
from pathlib import Path

from outcomes import Outcome

from hf_attncal import align_quick
from hf_attncal.alignment.merging import WordAlignment
from hf_attncal.alignment.probabilities import LinkProbabilities, Platt

REPEATED, UNLIKE = "repeated words", "probabilities of unlike text"
_WORDS = 20
_SYLLABLES = ("ka", "lo", "mi", "ru", "te", "pa", "no", "si"), ("bra", "dwe", "fli", "gho", "zun", "xey", "vop", "qua")


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Some dozens of pairs, hundreds if `full`."""
    chance, count = random.Random(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0"))), 400 if full else 40
    return [*repeated(chance, count), *unlike(chance, count)]


def repeated(chance: random.Random, count: int) -> list[Outcome]:
    """Pairs of a word so many times and its translation so many times, alone or between two other words."""
    sides = [[_word(chance, syllables) for _ in range(_WORDS)] for syllables in _SYLLABLES]
    text = [
        tuple(" ".join(side[n] for n in order) for side in sides)
        for order in (chance.sample(range(_WORDS), chance.randint(2, 6)) for _ in range(300))
    ]
    tried = []
    for number in range(count):
        word, before, after = chance.sample(range(_WORDS), 3)
        times = [chance.randint(2, 6)] * 2 if number % 2 else [chance.randint(2, 6) for _ in sides]
        frame = number % 4 > 1
        words = [
            [side[before]] * frame + [side[word]] * often + [side[after]] * frame
            for side, often in zip(sides, times, strict=True)
        ]
        tried.append((times, int(frame), tuple(map(" ".join, words))))
    alignments = align_quick([*text, *(pair for *_, pair in tried)])[len(text) :]
    return [
        Outcome(REPEATED, " ||| ".join(pair), *_judged(alignment, times, frame))
        for (times, frame, pair), alignment in zip(tried, alignments, strict=True)
    ]


def _word(chance: random.Random, syllables: tuple[str, ...]) -> str:
    return "".join(chance.choice(syllables) for _ in range(4))


def _judged(alignment: WordAlignment, times: list[int], frame: int) -> tuple[str, str]:
    """Right: in order, a link for each place of the word that is there less often, and the diagonal if equal."""
    links = [(i - frame, j - frame) for i, j in alignment.links]
    inside = [(i, j) for i, j in links if 0 <= i < times[0] and 0 <= j < times[1]]
    in_order = all(first < second for side in zip(*inside, strict=True) for first, second in itertools.pairwise(side))
    right = in_order and len(inside) == min(times) and (times[0] != times[1] or all(i == j for i, j in inside))
    return ("survived", "") if right else ("wrong", alignment.pharaoh())


def unlike(chance: random.Random, count: int) -> list[Outcome]:
    """Rules that raise or lower scores, and pairs with more unknown tokens, or a lower score, than those annotated."""
    found = []
    for number in range(count):
        rule = Platt(chance.uniform(0.1, 3), chance.uniform(-4, 4))
        scores = tuple(chance.random() for _ in range(chance.randint(1, 5)))
        words = tuple("abcde"[: len(scores)])
        links = tuple((place, place) for place in range(len(scores)))
        like = {"unknown": (0.2, 0.4), "score": (0.7, 0.5)}
        unknown, score = (0.9, 0.8) if number % 2 else (0.1, 0.3)
        pair = WordAlignment(words, words, links, scores, None, None, score, "harmonic", 0.5)
        said = LinkProbabilities({"harmonic": rule}, 9, **like).applied(pair, unknown=unknown).scores
        rises = [f"{p} > {s}" for p, s in zip(said, scores, strict=True) if p > s]
        result = ("wrong", ", ".join(rises)) if rises else ("survived", "")
        found.append(Outcome(UNLIKE, f"{rule} {scores}, unknown {unknown}, score {score}", *result))
    return found
