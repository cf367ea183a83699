"""Copies: text left in the source language, told by function words of that language.

`Hindi`, `OK`, code, names and addresses are the same in many languages, and no fault. A copy with a function word of
the source language is a sentence or a phrase that nobody translated.
"""

import re
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from itertools import islice

from .number_values import Languages
from .placeholders import Span
from .tables import TABLES

_WORDS_OF = {language: frozenset(words.split()) for language, words in TABLES["function_words"].items()}
# Words outside of code: not those in data_new_from_mem, a/b or for=x
_WORD = re.compile(r"(?<!\w_)(?<![^\W_])(?<![%/=\\.-])[^\W\d_]++(?:['’-][^\W\d_]++)*+(?![\w/=(\\]|\.\w)")
_CODE = re.compile(r"[<>|{}\[\]();=]|--")
_QUOTES = frozenset("\"'“”„«»‹›`‘’")
_MOST_WORDS = 1000  # words of a text that are compared
_LEAST_COPIED, _LEAST_SHARE = 5, 0.6  # words in a row in a text that is partly translated, and their share of it
_LEAST_WORDS, _LEAST_TIMES = 20, 2  # function words that tell the language of a text, per word of the next language


def copied_words(source: str, target: str, languages: Languages = (None, None)) -> tuple[Span, Span] | bool | None:
    """Return the characters of words that both sides share in a row, with function words of the source language.

    Args:
        source, target: The texts, with masked placeholders.
        languages: Codes of both languages; None for any. Default: unknown.

    Returns:
        False if there is no such copy, None if the source has no function word, so that a copy says nothing.
    """
    evidence, shared = _evidence(*languages)
    sides = [list(islice(_WORD.finditer(text.replace("’", "'")), _MOST_WORDS)) for text in (source, target)]
    words = [[match[0].lower() for match in side] for side in sides]
    both = evidence | shared
    if len(words[0]) < 2 or both.isdisjoint(words[0]):
        return None
    if both.isdisjoint(words[1]) or len(words[1]) < 2:
        return False
    run = SequenceMatcher(None, words[0], words[1], autojunk=False).find_longest_match()
    span = sides[1][run.b].start(), sides[1][run.b + run.size - 1].end()
    copied = [match[0] for match in sides[1][run.b : run.b + run.size]]
    lower = sum(map(str.islower, copied))
    function_words = sum(
        word.lower() in evidence and (word.islower() or lower > 0 or 0 < place < len(copied) - 1)
        for place, word in enumerate(copied)
    )
    if run.size < max(map(len, words)):  # a part; names of licences and quotes are kept
        share = run.size / len(words[1])
        enough = run.size >= _LEAST_COPIED and 2 * lower > run.size and (function_words > 1 or share > _LEAST_SHARE)
        function_words *= enough and not _is_kept(target, *span)
    elif lower > 2 and not shared.isdisjoint(copied):  # "in" may be a word of both, but not two more words as well
        function_words += 1
    if not function_words:
        return False
    return (sides[0][run.a].start(), sides[0][run.a + run.size - 1].end()), span


@cache
def _evidence(source: str | None, target: str | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the function words of only the source language, and the English words of several languages."""
    numbers = Counter(word for words in _WORDS_OF.values() for word in words)
    of_any = frozenset(word for word, languages in numbers.items() if languages == 1)
    of_source = of_any if source is None else _WORDS_OF.get(source, frozenset())
    only_source = of_source - _WORDS_OF.get(target or "", frozenset())
    return only_source, (_WORDS_OF["en"] if source in (None, "en") else frozenset()) - only_source


def _is_kept(text: str, start: int, stop: int) -> bool:
    """Return whether characters are a quote or code."""
    quoted = text[:start][-1:] in _QUOTES and text[stop:].lstrip(".!?,")[:1] in _QUOTES
    return quoted or _CODE.search(text, start, stop) is not None


def language_of_texts(texts: Iterable[str]) -> str | None:
    """Return the language of texts by their function words; None if they have too few, or two languages are near."""
    counts: Counter[str] = Counter()
    for text in texts:
        words = [match[0].lower() for match in _WORD.finditer(text)]
        counts.update(language for word in words for language, known in _WORDS_OF.items() if word in known)
    (best, words_of_best), (_, words_of_next) = [*counts.most_common(2), ("", 0), ("", 0)][:2]
    return best if words_of_best >= max(_LEAST_WORDS, _LEAST_TIMES * words_of_next) else None
