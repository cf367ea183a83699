"""The statistical aligner without transformers: counted from the text at hand, or read from its folder.

`quick_aligner` counts the pairs that it is given. `plain_aligner` is no second way to load a checkpoint: it takes a
folder that looks exactly as it was saved, and leaves any other to `WordAligner.from_pretrained`, which knows what is
wrong with it.

Words of both sides that look alike are probably translations (names, cognates, numbers), a prior for a small text:
`s(a, b) = 2 |g(a) & g(b)| / (|g(a)| + |g(b)|)`, g the pairs of letters of a word with its edges, without accents; of a
word with a digit, the word alone. Two words of a sentence pair are similar if s > `LEAST_SIMILARITY` and neither is
more similar to another word there. Tokens x and y of them that cover the same part of their words begin with the count
`SIMILAR_PRIOR (s(a, b) - LEAST_SIMILARITY) / (1 - LEAST_SIMILARITY) overlap(x, y) s(x, y)`, the largest over all
words.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
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

from hf_attncal.data.segmentation import EMPTY_WORD, fold, segment, without_spaces
from hf_attncal.data.tokenizer import PAD, SPACE, SPECIAL_TOKENS, UNK, train_bpe_backend
from hf_attncal.data.words import SEPARATORS, WordTokenizer, WordTokens, split_words
from hf_attncal.families import FAMILIES
from hf_attncal.inference.files import check_model_files, read_object
from hf_attncal.layouts import ADAPTER_CONFIG, CONFIG, SETTINGS_FILE, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS
from hf_attncal.models.functional_mask_align import harmonic_mean
from hf_attncal.models.hmm_tables import CountFields, HMMTables, HMMTablesMixin
from hf_attncal.models.limits import check_counting, check_token_ids
from hf_attncal.models.loading import check_finite

from .aligner import Sentence, WordAligner
from .count_learner import IDENTICAL, ITERATIONS, CountLearner
from .links import largest_over_words
from .merging import WordAlignment
from .probabilities import saved_probabilities
from .sources import Words

# Tokens of the vocabulary of n pairs, beside their characters: _PIECES * sqrt(n). The less text, the shorter the
# pieces that it has often enough to count; words that look alike share them.
_PIECES, _LARGEST = 65, 16_000
# With an encoder, which knows from the start what counts find out, fewer iterations have the same AER on the dev sets
# (wpt-roen, bicici-deen, dermit-derm, Hungarian and Russian of xlwa).
_HELPED = (2, 3)
_NULL = 0.2  # of a token to be aligned to NULL: with little text, a wrong link is likelier than a missing one


def quick_links(
    pairs: Iterable[tuple[Sentence, Sentence]],
    *,
    tokenize: bool = False,
    fold_words: bool = True,
    words: str = SEPARATORS[0],
    encoder: Any | None = None,
    beside: Iterable[tuple[Sentence, Sentence]] = (),
    **options,
) -> list[WordAlignment]:
    """Align sentence pairs by an aligner that has counted them, and nothing else.

    Args:
        pairs, tokenize, words: as of `WordAligner.align`.
        fold_words: look words up without regard to case, quotes, dashes, width (`data.segmentation`).
        encoder: an `EncoderPrior` that has read no other text; None for counts alone.
        beside: other pairs, which are counted and not aligned.
        options: others of `WordAligner.align`.

    Raises:
        ValueError: see `WordAligner.align`.
    """
    pairs = list(pairs)
    aligner = quick_aligner([*pairs, *beside], tokenize=tokenize, fold_words=fold_words, words=words, encoder=encoder)
    return aligner.align(pairs, words=words, **options)


def quick_aligner(
    pairs: Sequence[tuple[Sentence, Sentence]],
    *,
    tokenize: bool = False,
    fold_words: bool = True,
    words: str = SEPARATORS[0],
    encoder: Any | None = None,
) -> WordAligner:
    """Return an aligner that has counted these pairs, each of them; arguments as of `quick_links`.

    Its model are tables, which need no transformers and cannot be saved.
    """

    def cut(sentence: Sentence) -> tuple[str, ...]:
        if tokenize:
            sentence = segment(sentence if isinstance(sentence, str) else " ".join(sentence), words).words
        elif isinstance(sentence, str):
            sentence = split_words(sentence, words)
        return tuple(map(without_spaces, sentence))

    read = [pair for pair in ((cut(source), cut(target)) for source, target in pairs) if all(pair)]
    # Where no pair has words on both sides nothing can be linked, and anything may be learned.
    read = read or [((EMPTY_WORD,), (EMPTY_WORD,))]
    lines = [" ".join(map(fold, side) if fold_words else side) for pair in read for side in pair]
    characters = len({character for line in lines for character in line}) + len(SPECIAL_TOKENS) + 1
    backend = train_bpe_backend(lines, characters + min(_LARGEST, _PIECES * isqrt(len(lines) // 2)))
    tokenizer = PlainTokenizer(backend)
    config = CountFields(
        vocab_size=backend.get_vocab_size(),
        pad_token_id=backend.token_to_id(PAD),
        null_probability=_NULL,
        identical_prior=IDENTICAL,
        tokenize=tokenize,
        fold_words=fold_words,
    )
    model = HMMTables(config).eval()
    sides = WordTokenizer(tokenizer)(lines)
    witness = None if encoder is None else encoder.witness(read, sides)
    helped = encoder is not None and encoder.belief.strength > 0
    if not helped and len(sides) <= 2 * MOST_PAIRS_READ:  # an encoder knows what words that look alike tell
        looked_up = [line.split() for line in lines]
        counted = list(zip(looked_up[::2], looked_up[1::2], strict=True))
        begin_with(model, prior_counts(counted, sides, lambda token: str(backend.id_to_token(token)).strip(SPACE)))
    tokens = [side.ids for side in sides]
    iterations = _HELPED if helped else ITERATIONS
    CountLearner(model, tokens[::2], tokens[1::2], witness=witness).run(iterations)
    return WordAligner(model, tokenizer, encoder=encoder)


def link_cells(aligner: WordAligner, pairs: Sequence[Words]) -> list[np.ndarray]:
    """Return how sure each link of words is, the harmonic mean of both directions, (source words, target words)."""
    found = [np.zeros(tuple(map(len, pair)), np.float32) for pair in pairs]
    for indices, weights in aligner.source.weights(pairs, 256, 4096):
        if weights.backward is None:
            raise ValueError("`aligner` must read both directions, and its model has one.")
        both = harmonic_mean(weights.forward, weights.backward)
        both = largest_over_words(both, weights.source_words, weights.target_words)
        for index, cells, (sources, targets) in zip(indices, both, weights.words, strict=True):
            found[index] = cells[:sources, :targets].numpy()
    return found


# ---- words that look alike ----

# Chosen on small dev sets (docs/log.md).
LEAST_SIMILARITY, SIMILAR_PRIOR = 0.3, 0.5
MOST_PAIRS_READ = 10_000  # of more text, counts know the words, and the search takes long
_MOST_CELLS = 10**6  # pairs of different words of a pair: among those of a whole book, all have one that looks alike
_SHORTEST = 4  # letters of a word


@lru_cache(maxsize=1 << 17)
def letter_pairs(word: str) -> frozenset[str]:
    """Return g of a word."""
    if any(map(str.isdigit, word)):
        return frozenset([word])
    plain = "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
    marked = f"<{plain}>"
    return frozenset(marked[place : place + 2] for place in range(len(marked) - 1))


def similarity(first: str, second: str) -> float:
    """Return s of two words, from 0 to 1."""
    one, other = letter_pairs(first), letter_pairs(second)
    return 2 * len(one & other) / (len(one) + len(other))


def similar_words(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
) -> dict[tuple[str, str], tuple[float, int, int, int]]:
    """Return s of each source and target word that are similar somewhere, and where first: pair, source, target word.

    Args:
        pairs: words of both sides, folded.
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

    found: dict[tuple[str, str], tuple[float, int, int, int]] = {}
    for number, pair in enumerate(pairs):
        places = [{word: place for place, word in reversed([*enumerate(words)]) if _tells(word)} for words in pair]
        if not (columns and all(places)) or len(places[0]) * len(places[1]) > _MOST_CELLS:
            continue
        words = [list(side) for side in places]
        sizes = [np.array([len(letter_pairs(word)) for word in side]) for side in words]
        shared = np.stack([row(word) for word in words[0]]) @ np.stack([row(word) for word in words[1]]).T
        values = 2 * shared / (sizes[0][:, None] + sizes[1])
        best = (values == values.max(axis=1, keepdims=True)) & (values == values.max(axis=0))
        for i, j in zip(*np.nonzero(best & (values > LEAST_SIMILARITY)), strict=True):
            source, target = words[0][i], words[1][j]
            found.setdefault((source, target), (float(values[i, j]), number, places[0][source], places[1][target]))
    return found


def prior_counts(
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]], sides: Sequence[WordTokens], name: Callable[[int], str]
) -> dict[tuple[int, int], float]:
    """Return the count that each pair of a source and a target token begins with, above 0.

    Args:
        pairs: as of `similar_words`.
        sides: tokens of the source and the target of each pair in turn.
        name: of a token, its letters.
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


def begin_with(model: HMMTablesMixin, counts: dict[tuple[int, int], float]) -> None:
    """Put counts of pairs of tokens into a fresh model; they stay beside what it counts itself."""
    places = sorted(counts)
    tokens = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
    model.counts = torch.tensor([counts[place] for place in places], dtype=torch.float32)
    model.pairs = tokens[0] * model.config.vocab_size + tokens[1]
    model.config.entries = len(places)
    for side, name in enumerate(("source_counts", "target_counts")):
        table: torch.Tensor = getattr(model, name)
        table.index_add_(0, tokens[side], model.counts)


def _tells(word: str) -> bool:
    return len(word) >= _SHORTEST or any(map(str.isdigit, word))


# ---- from a folder ----

# What `HMMAlignModel.save_pretrained` writes beside the fields that say how to align.
_BESIDE = {"architectures", "auto_map", "bos_token_id", "dtype", "eos_token_id", "model_type", "transformers_version"}
_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
# What would change how the model or the tokenizer is loaded.
_OTHERS = (SETTINGS_FILE, ADAPTER_CONFIG, "added_tokens.json", "special_tokens_map.json")


class PlainTokenizer:
    """A fast tokenizer as `WordTokenizer` uses one, for a file without truncation and padding.

    Args:
        backend_tokenizer: special tokens in a text are text to it.
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
        found = {"input_ids": [one.ids for one in encoded]}
        return found | {"offset_mapping": [one.offsets for one in encoded]} if return_offsets_mapping else found


def plain_aligner(folder: str | Path, device: str | torch.device = "cpu") -> WordAligner | None:
    """Load an aligner that counts, or return None for a folder that `WordAligner.from_pretrained` has to load.

    The model of the aligner are tables, which align and cannot be saved.

    Args:
        folder: folder of a saved aligner that counts; anything else is answered with None.
        device: where it aligns.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return None
    try:
        aligner = _load(folder, device)
        if aligner is not None:
            aligner.align([("1", "1")])
        return aligner
    except Exception:  # whatever it is, the ordinary way meets it again and explains it
        return None


def _load(folder: Path, device: str | torch.device) -> WordAligner | None:
    check_model_files(folder)
    values, tokens = (read_object(folder / name) for name in (CONFIG, TOKENIZER_CONFIG))
    config = _fields(values)
    if config is None or any((folder / name).exists() for name in _OTHERS):
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
    read, expected = load_file(folder / WEIGHTS), tables.state_dict()
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} for found in (read, expected)]
    if shapes[0] != shapes[1]:
        return None
    tables.load_state_dict(read, assign=True)
    check_finite(tables)
    return WordAligner(tables.to(device), PlainTokenizer(backend), None, saved_probabilities(folder))


def _fields(values: dict[str, Any]) -> CountFields | None:
    """Return the fields in a configuration; None for a configuration of another kind or with other keys."""
    family = FAMILIES.get(str(values.get("model_type")))
    if family is None or not family.counted or values.get("dtype") != "float32":
        return None
    types = {field.name for field in fields_of(CountFields)}
    if values.get("pad_token_id") is None or not types <= values.keys() <= types | _BESIDE:
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
