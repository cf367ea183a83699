"""English-German pairs with invented words, each of which a translation can only have from its place in the source.

The grammar of `english_german.py` knows which words are linked, but a translator may know a word without looking:
from the words before it, or because it is frequent. An invented word is drawn evenly among many and stands in both
texts, so that nothing but its source word tells it.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice, product

import numpy as np

from hf_attncal.data.pharaoh import Link

from .english_german import AlignedPair

_SYLLABLES = [first + second for first, second in product("bdfgklmpvz", "aiou")]
# As many as are learned by name: `Baba`, `Bafi` and so on.
INVENTED = [f"{a}{b}".capitalize() for a, b in islice(product(_SYLLABLES, repeat=2), 0, None, 16)]


def plant_copies(pairs: Iterable[AlignedPair], seed: int = 0) -> list[AlignedPair]:
    """The pairs, where an invented word stands for one word and its translation.

    It takes the places of two words that are linked with each other and nothing else, drawn evenly; a pair without
    such words is as it was.

    Args:
        pairs: as `generate_pairs` makes them.
        seed: of the words and their places.
    """
    generator = np.random.default_rng(seed)
    return [_planted(pair, *generator.random(2)) for pair in pairs]


def copied_words(source: str, target: str) -> list[Link]:
    """(i source, j target) of every target word that stands exactly once in the source, in the order of the target."""
    words = source.split()
    once = {word for word, number in Counter(words).items() if number == 1}
    places = {word: i for i, word in enumerate(words) if word in once}
    return [(places[word], j) for j, word in enumerate(target.split()) if word in places]


def is_only_signs(word: str) -> bool:
    """Whether a word has neither a letter nor a digit."""
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
