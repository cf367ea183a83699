"""Statistical aligner without transformers: counted from a text, or loaded from a folder.

`quick_aligner` counts the given pairs. `plain_aligner` only loads a folder that is exactly as it was saved;
`WordAligner.from_pretrained` loads any other, and reports its errors.

Words that look alike are probably translations (names, cognates, numbers), which is the prior of a small text:
`s(a, b) = 2 |g(a) & g(b)| / (|g(a)| + |g(b)|)`, where g are the pairs of letters of a word including its edges,
without accents; for a word with a digit, the whole word. Two words of a sentence pair are similar if s >
`LEAST_SIMILARITY`, and neither is more similar to another word there. Tokens x and y that cover the same part of
similar words have the prior count `SIMILAR_PRIOR (s(a, b) - LEAST_SIMILARITY) / (1 - LEAST_SIMILARITY) overlap(x, y)
s(x, y)`, the maximum over all words.
"""

import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields as fields_of
from functools import lru_cache
from itertools import product
from math import isqrt
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from hf_attncal.data.segmentation import EMPTY_WORD, Cut, characters, fold, is_unspaced, segment, without_spaces
from hf_attncal.data.tokenizer import PAD, SPACE, SPECIAL_TOKENS, UNK, train_bpe_backend
from hf_attncal.data.word_tokens import WordTokenizer
from hf_attncal.data.words import SEPARATORS, WordTokens, check_cells, split_words
from hf_attncal.families import FAMILIES
from hf_attncal.inference.files import check_model_files, read_object
from hf_attncal.io.errors import in_line
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, SETTINGS_FILE, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from hf_attncal.models.hmm_tables import CountFields, HMMTables, HMMTablesMixin
from hf_attncal.models.limits import check_counting, check_token_ids
from hf_attncal.models.loading import check_finite

from .aligner import Sentence, WordAligner
from .count_learner import IDENTICAL, ITERATIONS, CountLearner, parts_of_pair
from .links import Pair
from .probabilities import saved_probabilities

# The vocabulary of n pairs has their characters and _PIECES * sqrt(n) subwords: less text needs shorter subwords,
# which occur often enough to be counted.
_PIECES, _MAX_PIECES = 65, 16_000
# With an encoder, fewer iterations have the same AER on the dev sets (wpt-roen, bicici-deen, dermit-derm, Hungarian
# and Russian of xlwa).
_ITERATIONS_WITH_ENCODER = (2, 3)
_MANY_GIGABYTES = 0.5
_NULL_PROBABILITY = 0.2  # high, because wrong links are more frequent than missing ones with little text


def quick_aligner(
    pairs: Sequence[tuple[Sentence, Sentence]],
    *,
    tokenize: bool = False,
    fold_words: bool = True,
    words: str = SEPARATORS[0],
    encoder: Any | None = None,
) -> WordAligner:
    """Return a statistical aligner trained only on these pairs.

    Its model consists of tables, which do not need transformers and cannot be saved. A side without spaces between its
    words is cut into the pieces of the encoder, or without one into characters.

    Args:
        pairs, tokenize, words: See `WordAligner.align`.
        fold_words: Ignore case, width and kinds of quotes and dashes (`data.segmentation`). Default: True.
        encoder: `EncoderPrior` that has not read another text. Default: None.

    Raises:
        ValueError: a pair with too many words; see also `WordAligner.align`.

    Warns:
        UserWarning: a side without spaces between its words.
    """
    cuts = unspaced_cuts(pairs, encoder)
    tokenize = tokenize or any(cuts)

    def split(sentence: Sentence, cut: Cut | None) -> tuple[str, ...]:
        if tokenize:
            sentence = segment(sentence if isinstance(sentence, str) else " ".join(sentence), words, cut).words
        elif isinstance(sentence, str):
            sentence = split_words(sentence, words)
        return tuple(map(without_spaces, sentence))

    split_pairs: list[Pair] = []
    for number, pair in enumerate(pairs, start=1):
        source, target = map(split, pair, cuts)
        with in_line(number):
            gigabytes = check_cells(len(source), len(target))
        if gigabytes > _MANY_GIGABYTES:
            LOG.warning("line %d: %d and %d words take about %.1f GB.", number, len(source), len(target), gigabytes)
        if source and target:
            split_pairs += parts_of_pair(source, target)
    split_pairs = split_pairs or [
        ((EMPTY_WORD,), (EMPTY_WORD,))
    ]  # a text without complete pairs is valid, and has no links
    lines = [" ".join(map(fold, side) if fold_words else side) for pair in split_pairs for side in pair]
    characters = len({character for line in lines for character in line}) + len(SPECIAL_TOKENS) + 1
    backend = train_bpe_backend(lines, characters + min(_MAX_PIECES, _PIECES * isqrt(len(lines) // 2)))
    tokenizer = PlainTokenizer(backend)
    config = CountFields(
        vocab_size=backend.get_vocab_size(),
        pad_token_id=backend.token_to_id(PAD),
        null_probability=_NULL_PROBABILITY,
        identical_prior=IDENTICAL,
        tokenize=tokenize,
        fold_words=fold_words,
    )
    model = HMMTables(config).eval()
    sides = WordTokenizer(tokenizer)(lines)
    encoder_factors = None if encoder is None else encoder.factors(split_pairs, sides)
    encoder_used = encoder is not None and encoder.likelihood.strength > 0
    if not encoder_used and len(sides) <= 2 * MAX_PAIRS_TO_SEARCH:  # an encoder makes similar words unnecessary
        folded = [line.split() for line in lines]
        folded_pairs = list(zip(folded[::2], folded[1::2], strict=True))
        set_prior_counts(
            model, prior_counts(folded_pairs, sides, lambda token: str(backend.id_to_token(token)).strip(SPACE))
        )
    tokens = [side.ids for side in sides]
    iterations = _ITERATIONS_WITH_ENCODER if encoder_used else ITERATIONS
    CountLearner(model, tokens[::2], tokens[1::2], encoder_factors=encoder_factors).run(iterations)
    aligner = WordAligner(model, tokenizer, encoder=encoder)
    aligner.source.cuts = cuts
    return aligner


def unspaced_cuts(pairs: Sequence[tuple[Sentence, Sentence]], encoder: Any | None) -> list[Cut | None]:
    """Return what cuts each side into words; None for a side with spaces. Warn of a side without."""
    cuts: list[Cut | None] = [None, None]
    for place, side in enumerate(("source", "target")):
        sentences = (pair[place] for pair in pairs)
        if is_unspaced(text if isinstance(text, str) else " ".join(text) for text in sentences):
            cuts[place] = characters if encoder is None else encoder.pieces
            way = "characters, because only an encoder (--encoder) finds longer words"
            warnings.warn(
                f"The {side} has no spaces between its words. It is cut into "
                f"{way if encoder is None else 'the pieces of the encoder'}. Links count these, punctuation included. "
                "A segmenter for the language may cut better words, above all of Thai, Lao, Khmer and Burmese.",
                stacklevel=3,
            )
    return cuts


# ---- words that look alike ----

# Chosen on small dev sets (docs/log.md).
LEAST_SIMILARITY, SIMILAR_PRIOR = 0.3, 0.5
MAX_PAIRS_TO_SEARCH = 10_000  # more text does not need the prior, and the search takes long
_MAX_WORD_PAIRS = 10**6  # per sentence pair: in a whole book, every word has one that looks alike
_MIN_LETTERS = 4


@lru_cache(maxsize=1 << 17)
def letter_pairs(word: str) -> frozenset[str]:
    """Return the set g of letter pairs of a word."""
    if any(map(str.isdigit, word)):
        return frozenset([word])
    plain = "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
    marked = f"<{plain}>"
    return frozenset(marked[place : place + 2] for place in range(len(marked) - 1))


def similarity(first: str, second: str) -> float:
    """Return the similarity s of two words, from 0 to 1."""
    g, h = letter_pairs(first), letter_pairs(second)
    return 2 * len(g & h) / (len(g) + len(h))


def similar_words(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> dict[tuple[str, str], tuple[float, int, int, int]]:
    """Find the pairs of similar words in a text.

    Args:
        pairs: Folded words of both sides.

    Returns:
        (source word, target word) -> similarity, and the first sentence pair that has both, with the position of each.
    """
    grams = [
        {pair for words in side for word in words for pair in letter_pairs(word)} for side in zip(*pairs, strict=True)
    ]
    columns = {pair: column for column, pair in enumerate(sorted(grams[0] & grams[1]))}
    rows: dict[str, np.ndarray] = {}

    def row(word: str) -> np.ndarray:
        if word not in rows:
            rows[word] = np.zeros(len(columns), np.float32)
            rows[word][[columns[pair] for pair in letter_pairs(word) if pair in columns]] = 1
        return rows[word]

    similar: dict[tuple[str, str], tuple[float, int, int, int]] = {}
    for number, pair in enumerate(pairs):
        places = [
            {word: place for place, word in reversed([*enumerate(words)]) if _is_distinctive(word)} for words in pair
        ]
        if not (columns and all(places)) or len(places[0]) * len(places[1]) > _MAX_WORD_PAIRS:
            continue
        words = [list(side) for side in places]
        sizes = [np.array([len(letter_pairs(word)) for word in side]) for side in words]
        shared = np.stack([row(word) for word in words[0]]) @ np.stack([row(word) for word in words[1]]).T
        values = 2 * shared / (sizes[0][:, None] + sizes[1])
        best = (values == values.max(axis=1, keepdims=True)) & (values == values.max(axis=0))
        for i, j in zip(*np.nonzero(best & (values > LEAST_SIMILARITY)), strict=True):
            source, target = words[0][i], words[1][j]
            similar.setdefault((source, target), (float(values[i, j]), number, places[0][source], places[1][target]))
    return similar


def prior_counts(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]], sides: Sequence[WordTokens], name: Callable[[int], str]
) -> dict[tuple[int, int], float]:
    """Return the positive prior counts, (source token id, target token id) -> count.

    Args:
        pairs: Folded words of both sides.
        sides: Tokens of each pair, source and target in turn.
        name: Function that returns the letters of a token.
    """
    counts: dict[tuple[int, int], float] = {}
    for value, number, *words in similar_words(pairs).values():
        tokens = [
            side.ids[side.word_ids == word].tolist()
            for side, word in zip(sides[2 * number : 2 * number + 2], words, strict=True)
        ]
        (m, n), weight = map(len, tokens), SIMILAR_PRIOR * (value - LEAST_SIMILARITY) / (1 - LEAST_SIMILARITY)
        for (p, x), (q, y) in product(enumerate(tokens[0]), enumerate(tokens[1])):
            overlap = max(m, n) * (min((p + 1) / m, (q + 1) / n) - max(p / m, q / n))
            if overlap > 1e-9:
                count = weight * min(overlap, 1) * similarity(name(x), name(y))
                if count > counts.get((x, y), 0):
                    counts[x, y] = count
    return counts


def set_prior_counts(model: HMMTablesMixin, counts: dict[tuple[int, int], float]) -> None:
    """Start the counts of a new model with prior counts, before any text is counted.

    Args:
        model: Model without counts.
        counts: (source token id, target token id) -> prior count.
    """
    places = sorted(counts)
    tokens = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
    model.counts = torch.tensor([counts[place] for place in places], dtype=torch.float32)
    model.pairs = tokens[0] * model.config.vocab_size + tokens[1]
    model.config.entries = len(places)
    for side, name in enumerate(("source_counts", "target_counts")):
        table: torch.Tensor = getattr(model, name)
        table.index_add_(0, tokens[side], model.counts)


def _is_distinctive(word: str) -> bool:
    return len(word) >= _MIN_LETTERS or any(map(str.isdigit, word))


# ---- from a folder ----

# Other fields that `HMMAlignModel.save_pretrained` writes.
_OTHER_FIELDS = {
    "architectures",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "model_type",
    "transformers_version",
}
_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
# Files that change how the model or the tokenizer is loaded.
_UNSUPPORTED_FILES = (SETTINGS_FILE, ADAPTER_CONFIG, "added_tokens.json", "special_tokens_map.json")


class PlainTokenizer:
    """Fast tokenizer for `WordTokenizer`, without truncation and padding.

    Args:
        backend_tokenizer: Tokenizer of the tokenizers library; it reads special tokens in a text as text.
    """

    is_fast = split_special_tokens = True

    def __init__(self, backend_tokenizer: Tokenizer):
        self.backend_tokenizer = backend_tokenizer
        backend_tokenizer.encode_special_tokens = True
        self.unk_token_id = backend_tokenizer.token_to_id(UNK)

    def __call__(
        self, text: Sequence[str], add_special_tokens: bool, return_offsets_mapping: bool = False, **_
    ) -> dict[str, list]:
        encoded = self.backend_tokenizer.encode_batch(list(text), add_special_tokens=add_special_tokens)
        fields: dict[str, list] = {"input_ids": [encoding.ids for encoding in encoded]}
        if return_offsets_mapping:
            fields["offset_mapping"] = [encoding.offsets for encoding in encoded]
        return fields


def plain_aligner(folder: str | Path, device: str | torch.device = "cpu") -> WordAligner | None:
    """Load a statistical aligner as tables, which cannot be saved; return None for any other folder.

    Args:
        folder: Folder of a saved statistical aligner.
        device: Device. Default: "cpu".
    """
    folder = Path(folder)
    if not folder.is_dir():
        return None
    try:
        aligner = _load(folder, device)
        if aligner is not None:
            aligner.align([("1", "1")])
        return aligner
    except Exception:  # `WordAligner.from_pretrained` reports it
        return None


def _load(folder: Path, device: str | torch.device) -> WordAligner | None:
    check_model_files(folder)
    values, tokens = (read_object(folder / name) for name in (CONFIG, TOKENIZER_CONFIG))
    config = _fields(values)
    if config is None or any((folder / name).exists() for name in _UNSUPPORTED_FILES):
        return None
    if tokens.get("tokenizer_class") not in _TOKENIZERS or tokens.get("split_special_tokens") is not True:
        return None
    if "auto_map" in tokens or not isinstance(tokens.get("model_max_length", 1), int | float):
        return None
    backend = Tokenizer.from_file(str(folder / TOKENIZER))
    numbers = backend.get_vocab().values()
    if len(set(numbers)) < len(numbers) or max(numbers) >= config.vocab_size:
        return None
    if backend.truncation is not None or backend.padding is not None:
        return None
    tables = HMMTables(config)
    weights, expected = load_file(folder / WEIGHTS), tables.state_dict()
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in state.items()} for state in (weights, expected)]
    if shapes[0] != shapes[1]:
        return None
    tables.load_state_dict(weights, assign=True)
    check_finite(tables)
    return WordAligner(tables.to(device), PlainTokenizer(backend), None, saved_probabilities(folder))


def _fields(values: dict[str, Any]) -> CountFields | None:
    """Return the fields of a configuration; None for another model type or other keys."""
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None or not family.counted or values.get("dtype") != "float32":
        return None
    types = {field.name for field in fields_of(CountFields)}
    if values.get("pad_token_id") is None or not types <= values.keys() <= types | _OTHER_FIELDS:
        return None
    fields = CountFields(**{name: values[name] for name in types})
    for name, kind in get_type_hints(CountFields).items():
        if name in types and (isinstance(values[name], bool) != (kind is bool) or not isinstance(values[name], kind)):
            return None
    check_counting(fields)
    for name in ("bos_token_id", "eos_token_id"):
        if values.get(name) is not None and (
            type(values[name]) is not int or not 0 <= values[name] < fields.vocab_size
        ):
            return None
    check_token_ids(fields, fields.vocab_size)
    return fields
