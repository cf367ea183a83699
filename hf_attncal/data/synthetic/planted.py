"""Make English-German pairs with invented words that a translator can only copy from their place in the source.

The grammar of `english_german.py` knows which words are linked, but a translator may guess a word without looking at
the source: from the words before it, or because it is frequent. An invented word is drawn evenly among many and stands
in both texts, so only its source word predicts it.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice, product

import numpy as np

from hf_attncal.data.pharaoh import Link

from .english_german import AlignedPair

_SYLLABLES = [first + second for first, second in product("bdfgklmpvz", "aiou")]
# Few enough for a model to learn each of them: `Baba`, `Bafi` and so on.
INVENTED = [f"{a}{b}".capitalize() for a, b in islice(product(_SYLLABLES, repeat=2), 0, None, 16)]


def plant_copies(pairs: Iterable[AlignedPair], seed: int = 0) -> list[AlignedPair]:
    """Replace one word of each pair and its translation by an invented word.

    The two words, drawn evenly, are linked with each other and nothing else; a pair without such words stays as it is.

    Args:
        pairs: pairs of `generate_pairs`.
        seed: seed of the words and their places.
    """
    generator = np.random.default_rng(seed)
    return [_planted(pair, *generator.random(2)) for pair in pairs]


def copied_words(source: str, target: str) -> list[Link]:
    """Link each target word that appears exactly once in the source to it: (i source, j target), in target order."""
    words = source.split()
    once = {word for word, number in Counter(words).items() if number == 1}
    places = {word: i for i, word in enumerate(words) if word in once}
    return [(places[word], j) for j, word in enumerate(target.split()) if word in places]


def is_only_signs(word: str) -> bool:
    """Return whether a word has neither a letter nor a digit."""
    return not any(character.isalnum() for character in word)


def _planted(pair: AlignedPair, place: float, word: float) -> AlignedPair:
    of_source, of_target = (Counter(link[side] for link in pair.links) for side in (0, 1))
    alone = [(i, j) for i, j in sorted(pair.links) if of_source[i] == of_target[j] == 1 and pair.source[i].isalpha()]
    if not alone:
        return pair
    i, j = alone[int(place * len(alone))]
    invented = INVENTED[int(word * len(INVENTED))]
    return AlignedPair(_with(pair.source, i, invented), _with(pair.target, j, invented), pair.links)


def _with(words: tuple[str, ...], place: int, word: str) -> tuple[str, ...]:
    return (*words[:place], word, *words[place + 1 :])
