"""Map tokens to the white-space words of a text.

Training data, alignment, forced decoding and generated text all use this module, so they agree. The rule: a token
belongs to the word of the last character that it covers. A token that ends in the space before a word, or covers no
character (a byte-level "Ġ" whose offsets are trimmed), belongs to the next word, if there is one. A special token
belongs to no word (`NO_WORD`). Words are separated as by `str.split()`.
"""

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from .languages import check_target, codes_of, leading_code, source_prefixes
from .words import NO_WORD, WordTokens

if TYPE_CHECKING:  # a command that only reads its options needs no numpy
    import numpy as np

_METASPACE = "▁"
_MAX_CACHED_WORDS = 1 << 14  # some 6 MB of tokens; rarer words are tokenised again


def tokenize_words(
    tokenizer, texts: Sequence[str], *, target: bool = False, prefix: str = "", special_tokens: bool = True
) -> list[WordTokens]:
    """Tokenise texts, and find the word of each token.

    A fast tokenizer returns character offsets. (Its own `word_ids()` counts pieces of its pre-tokenizer: "don", "'",
    "t".) A slow tokenizer (Marian's SentencePiece) does not: words are tokenised one by one, which almost always
    results in the tokens of the sentence. Otherwise the two token sequences are matched, and the tokens between two
    matches are divided among the words in proportion.

    Args:
        tokenizer: tokenizer of the model.
        texts: sentences; none is truncated.
        target: True to tokenise as target text (`text_target`), for tokenizers whose two languages differ.
        prefix: text before each sentence; its tokens belong to no word.
        special_tokens: True to include special tokens, and the code of the target language where it precedes a source
            (`languages.source_prefixes`). The code belongs to no word, even if the text begins with it. Default: True.

    Raises:
        ValueError: a missing language code.
    """
    if not texts:
        return []
    if tokenizer.is_fast:
        return _by_offsets(tokenizer, texts, prefix, target, special_tokens)
    before = source_prefixes(tokenizer, texts, prefix) if special_tokens and not target else [prefix] * len(texts)
    return _by_matching(tokenizer, texts, before, target, special_tokens)


def encode_sources(tokenizer, texts: Sequence[str], prefix: str = "") -> list[list[int]]:
    """Return the token ids of sources with language codes and special tokens; raises as `tokenize_words`."""

    whole = [front + text for front, text in zip(source_prefixes(tokenizer, texts, prefix), texts, strict=True)]
    return _encode(tokenizer, whole, False, True)["input_ids"]


def encode_targets(tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of targets with the end token of the target vocabulary; raises as `tokenize_words`."""
    return [_ended(tokenizer, ids) for ids in _encode(tokenizer, texts, True, True)["input_ids"]]


def _ended(tokenizer, ids: list[int]) -> list[int]:
    """Replace the final end-of-sentence id of the source vocabulary by its id in the target vocabulary."""
    end = special_target_id(tokenizer, "eos_token")
    return [*ids[:-1], end] if ids and end is not None and ids[-1] == tokenizer.eos_token_id else ids


class WordTokenizer:
    """Tokenizer without special tokens that caches the tokens of words, for tokenizers that treat each separately.

    The tokenizers of this package do. A corpus repeats its words, and without the cache tokenising takes a quarter of
    the time of statistical alignment.

    Args:
        tokenizer: fast tokenizer.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self._ids: dict[str, list[int]] | None = {} if _treats_words_separately(tokenizer) else None

    def __call__(self, texts: Sequence[str]) -> list[WordTokens]:
        # "▁" in a text depends on the characters before it, so words cannot be tokenised one by one.
        if self._ids is None or not texts or any(_METASPACE in text for text in texts):
            return tokenize_words(self.tokenizer, texts, special_tokens=False)
        lines = [text.split() for text in texts]
        used = {word for line in lines for word in line}
        if len(self._ids) > _MAX_CACHED_WORDS:
            self._ids = {word: self._ids[word] for word in used & self._ids.keys()}
        if new := sorted(used - self._ids.keys()):
            self._ids.update(zip(new, _encode(self.tokenizer, new, False, False)["input_ids"], strict=True))
        pieces = [self._ids[word] for line in lines for word in line]
        import numpy as np

        lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        words = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))
        before = np.concatenate([[0], np.cumsum(words)])
        bounds = np.concatenate([[0], np.cumsum(lengths)])[before].tolist()
        ids = _flat(pieces, bounds[-1])
        word_ids = np.repeat(np.arange(len(pieces)) - np.repeat(before[:-1], words), lengths)
        return _split_texts(ids, word_ids, words, bounds)


def token_names(tokenizer, ids: Sequence[int], target: bool = True) -> list[str]:
    """Return the names of token ids of a target or a source.

    The two vocabularies of a tokenizer may differ (Marian with `separate_vocabs`). Transformers then mixes up the ids
    of special tokens and the names of tokens of the two sides.
    """
    if not getattr(tokenizer, "separate_vocabs", False):
        return tokenizer.convert_ids_to_tokens([int(token) for token in ids])
    names = tokenizer.decoder if target else {number: name for name, number in tokenizer.encoder.items()}
    return [names.get(int(token), tokenizer.unk_token) for token in ids]


def special_target_id(tokenizer, name: str) -> int | None:
    """Return the id of a special token (`"eos_token"`) in targets; see `token_names`."""
    if not getattr(tokenizer, "separate_vocabs", False):
        return getattr(tokenizer, f"{name}_id")
    return tokenizer.target_encoder.get(getattr(tokenizer, name))


def special_numbers(tokenizer) -> tuple[set[int], set[int]]:
    """Return the ids of language codes and special tokens (except unknown) in sources, and in targets."""
    codes = {tokenizer.convert_tokens_to_ids(token) for token in codes_of(tokenizer).values()}
    sources = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id} | codes
    if not getattr(tokenizer, "separate_vocabs", False):
        return sources, sources
    ends = (special_target_id(tokenizer, f"{name}_token") for name in ("bos", "eos", "pad"))
    return sources, {end for end in ends if end is not None}


def target_text(tokenizer, ids: Sequence[int], skip_special_tokens: bool = True, **options) -> str:
    """Decode the tokens of a target; options are passed to `decode`."""
    if not getattr(tokenizer, "separate_vocabs", False):
        # The codes of M2M100 are not special tokens.
        if skip_special_tokens and (codes := getattr(tokenizer, "id_to_lang_token", ())):
            ids = [token for token in ids if int(token) not in codes]
        return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, **options)
    special = tokenizer.all_special_tokens if skip_special_tokens else ()
    return tokenizer.convert_tokens_to_string([name for name in token_names(tokenizer, ids) if name not in special])


def text_and_word_ids(tokenizer, tokens: Sequence[int]) -> "tuple[str, np.ndarray]":
    """Decode generated tokens; return the text and the word of each token, (tokens,) int64.

    Tokenising the text again may result in different tokens, so they are decoded from left to right. A token without
    visible text (white space, the first bytes of a character) belongs to the word of the next visible token. A special
    token belongs to no word.
    """
    tokens = list(tokens)

    def decode(ids: list[int], special: bool = False) -> str:
        return target_text(tokenizer, ids, not special, clean_up_tokenization_spaces=False)

    text = decode(tokens)
    words = len(text.split())
    import numpy as np

    word_ids = np.full(len(tokens), NO_WORD)
    waiting: list[int] = []
    before = ""
    for n, token in enumerate(tokens):
        after = decode(tokens[: n + 1])
        if after.rstrip() != before.rstrip():
            # Later tokens may have joined two words, so the number must not exceed the last word.
            word_ids[[*waiting, n]] = min(len(after.split()), words) - 1
            waiting = []
        elif decode([token]).strip() == decode([token], special=True).strip():
            waiting.append(n)
        before = after
    return text, word_ids


def _treats_words_separately(tokenizer) -> bool:
    """Return whether a tokenizer is certain to treat each word separately.

    Metaspace does if it splits before every word, including the first, after normalizers that do not move words.
    """
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    steps = {name: backend[name] or {} for name in ("normalizer", "pre_tokenizer")}
    normalizers = steps["normalizer"].get("normalizers", [steps["normalizer"]])
    first = steps["pre_tokenizer"].get("pretokenizers", [steps["pre_tokenizer"]])[0]
    spaces = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    return (
        tokenizer.split_special_tokens
        and all(step.get("type") in ("NFC", "Strip") or step == spaces for step in normalizers)
        and first.get("type") == "Metaspace"
        and first.get("prepend_scheme") == "always"
        and first.get("split") is True
        and backend["model"].get("type") == "BPE"
        and not backend["model"].get("dropout")
    )


def _encode(tokenizer, texts: Sequence[str], target: bool, special_tokens: bool, **options) -> dict[str, list]:
    if target:
        check_target(tokenizer)
    return tokenizer(
        **{"text_target" if target else "text": texts},
        add_special_tokens=special_tokens,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
        **options,
    )


def _by_offsets(tokenizer, texts: Sequence[str], prefix: str, target: bool, special_tokens: bool) -> list[WordTokens]:
    """Find words by the offsets of a fast tokenizer, for all texts at once: alignment spends its time here."""
    import numpy as np

    texts = [prefix + text for text in texts]
    options = {"return_offsets_mapping": True, "return_special_tokens_mask": special_tokens}
    encoded = _encode(tokenizer, texts, target, special_tokens, **options)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    count = sum(lengths)
    ids = _flat(encoded["input_ids"], count)
    start, end = _flat(chain.from_iterable(encoded["offset_mapping"]), 2 * count).reshape(-1, 2).T
    # All texts are joined into one array of characters, with a line end after each. The word of a character is the
    # number of words that end before it, so white space belongs to the next word.
    codes = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    white_space = _white_space()
    space = white_space[np.minimum(codes, len(white_space) - 1)]
    ended = np.cumsum(np.concatenate([[False], ~space[:-1] & space[1:]]))
    text_start = np.cumsum([0, *(len(text) + 1 for text in texts)])
    first = text_start[:-1] + len(prefix.rstrip())  # after the words of the prefix
    before = ended[first]
    words = ended[text_start[1:] - 1] - before
    text_of_token = np.repeat(np.arange(len(texts)), lengths)
    last_character = text_start[text_of_token] + np.where(end > start, end - 1, end)
    word_ids = ended[last_character] - before[text_of_token]
    without_word = (last_character < first[text_of_token]) | (word_ids >= words[text_of_token])
    if special_tokens:
        without_word |= _flat(encoded["special_tokens_mask"], count).astype(bool)
    word_ids[without_word] = NO_WORD
    return _split_texts(ids, word_ids, words, [0, *accumulate(lengths)])


def _split_texts(
    ids: "np.ndarray", word_ids: "np.ndarray", words: "np.ndarray", bounds: Sequence[int]
) -> list[WordTokens]:
    """Split the tokens of all texts; `bounds` are the first token of each text, and the number of tokens."""
    parts = zip(bounds[:-1], bounds[1:], words.tolist(), strict=True)
    return [WordTokens(ids[begin:stop], word_ids[begin:stop], number) for begin, stop, number in parts]


@cache
def _white_space() -> "np.ndarray":
    """Return for each character code whether it is white space; U+3000 is the last one of Unicode."""
    import numpy as np

    return np.array([chr(code).isspace() for code in range(0x3002)])


def _flat(rows, count: int) -> "np.ndarray":
    import numpy as np

    return np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=count)


def _by_matching(
    tokenizer, texts: Sequence[str], before: Sequence[str], target: bool, special_tokens: bool
) -> list[WordTokens]:
    """Find words by the tokens of each single word from a slow tokenizer; each text has its own prefix."""
    import numpy as np

    whole = [front + text for front, text in zip(before, texts, strict=True)]
    vocabulary = sorted({word for text in whole for word in text.split()})
    single = _encode(tokenizer, vocabulary, target, False)["input_ids"] if vocabulary else []
    word_tokens = dict(zip(vocabulary, single, strict=True))
    plain = _encode(tokenizer, whole, target, False)["input_ids"]
    complete = _encode(tokenizer, whole, target, True)["input_ids"] if special_tokens else plain
    result = []
    for text, line, ids, inner in zip(texts, whole, complete, plain, strict=True):
        words = len(text.split())
        prefix_words = len(line.split()) - words
        first = prefix_words + bool(leading_code(tokenizer, text))  # a code is a word of the text without a token
        numbers = [n - prefix_words if n >= first else NO_WORD for n in range(prefix_words + words)]
        expected = [(token, n) for n, word in zip(numbers, line.split(), strict=True) for token in word_tokens[word]]
        words_of_tokens = _matched_words([token for token, _ in expected], [word for _, word in expected], inner)
        # Special tokens surround the others.
        start = next(n for n in range(len(ids) - len(inner) + 1) if ids[n : n + len(inner)] == inner)
        word_ids = np.full(len(ids), NO_WORD)
        word_ids[start : start + len(inner)] = words_of_tokens
        if target and len(ids) > len(inner):
            ids = _ended(tokenizer, ids)
        result.append(WordTokens(np.array(ids, dtype=np.int64), word_ids, words))
    return result


def _matched_words(expected: list[int], words: list[int], tokens: list[int]) -> list[int]:
    """Return the word of each token, given the tokens `expected` of single words and the word of each."""
    if expected == tokens:
        return words
    result: list[int] = []
    for _, first, last, begin, end in SequenceMatcher(None, expected, tokens, autojunk=False).get_opcodes():
        for n in range(end - begin):
            place = min(first + n * (last - first) // (end - begin), len(words) - 1)
            result.append(words[place] if words else NO_WORD)
    return result
