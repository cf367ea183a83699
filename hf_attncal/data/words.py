"""From tokens to words: which whitespace-separated word of a text every token belongs to."""

from collections.abc import Sequence

Link = tuple[int, int]


WordIds = Sequence[int | None]


def subword_word_ids(text: str, offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """Which whitespace-separated word of `text` every subword belongs to.

    A fast tokenizer's own `word_ids()` counts pieces of its pre-tokenizer ("don", "'", "t"); word alignments count
    whitespace-separated words, so the mapping goes through character offsets instead.

    Args:
        text: the sentence as it was given to the tokenizer.
        offsets: (start, end) of every subword, from `tokenizer(text, return_offsets_mapping=True)`; special tokens
            are empty spans.

    Returns:
        One word index, or `None`, for every subword. A subword that covers only white space counts as the beginning of
        the word that follows.
    """
    word_of_character: list[int | None] = []
    word = -1
    for position, character in enumerate(text):
        if not character.isspace() and (position == 0 or text[position - 1].isspace()):
            word += 1
        word_of_character.append(word + 1 if character.isspace() else word)
    number_of_words = word + 1
    result: list[int | None] = []
    for start, end in offsets:
        # The last character decides: " house" with its leading space belongs to "house".
        found = word_of_character[end - 1] if end > start else None
        result.append(found if found is not None and found < number_of_words else None)
    return result
