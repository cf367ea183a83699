"""Text that an aligner could get wrong: words that are there several times are linked in order, each once.

The pairs are made up of words with one translation each, aligned by nothing but themselves.
"""

import itertools
import os
import random
from pathlib import Path

from outcomes import Outcome

from hf_attncal import align_quick
from hf_attncal.alignment.merging import WordAlignment

REPEATED = "repeated words"
_WORDS = 20
_SYLLABLES = ("ka", "lo", "mi", "ru", "te", "pa", "no", "si"), ("bra", "dwe", "fli", "gho", "zun", "xey", "vop", "qua")


def run(folder: Path, *, full: bool) -> list[Outcome]:
    """Some dozens of pairs, hundreds if `full`."""
    return repeated(random.Random(int(os.environ.get("ATTNCAL_FAULTS_SEED", "0"))), 400 if full else 40)


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
    return ("survived", "") if right else ("wrong_with_exit_0", alignment.pharaoh())
