"""Align a text by what it says itself: no model, no folder."""

from collections.abc import Iterable, Sequence
from math import isqrt
from typing import Any

import numpy as np

from hf_attncal.data.parting import WORDS, split_words
from hf_attncal.data.segmentation import NOTHING, fold, segment, solid
from hf_attncal.data.tokenizer import PAD, SPACE, SPECIAL_TOKENS, train_bpe_backend
from hf_attncal.data.words import WordTokenizer
from hf_attncal.models.functional_mask_align import harmonic_mean
from hf_attncal.models.hmm_tables import CountFields, HMMTables

from .aligner import Sentence, WordAligner
from .count_learner import IDENTICAL, ITERATIONS, CountLearner
from .merging import WordAlignment
from .plain_counts import PlainTokenizer
from .similar_words import MOST_PAIRS_READ, begin_with, prior_counts
from .sources import Words
from .subword_pooling import largest_over_words

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
    words: str = WORDS[0],
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
    words: str = WORDS[0],
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
        return tuple(map(solid, sentence))

    read = [pair for pair in ((cut(source), cut(target)) for source, target in pairs) if all(pair)]
    # Where no pair has words on both sides nothing can be linked, and anything may be learned.
    read = read or [((NOTHING,), (NOTHING,))]
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
        words = [line.split() for line in lines]
        pairs = list(zip(words[::2], words[1::2], strict=True))
        begin_with(model, prior_counts(pairs, sides, lambda token: backend.id_to_token(token).strip(SPACE)))
    tokens = [side.ids for side in sides]
    iterations = _HELPED if helped else ITERATIONS
    CountLearner(model, tokens[::2], tokens[1::2], witness=witness).run(iterations)
    return WordAligner(model, tokenizer, encoder=encoder)


def link_cells(aligner: WordAligner, pairs: Sequence[Words]) -> list[np.ndarray]:
    """Return how sure each link of words is, the harmonic mean of both directions, (source words, target words)."""
    found = [np.zeros(tuple(map(len, pair)), np.float32) for pair in pairs]
    for indices, weights in aligner.source.weights(pairs, 256, 4096):
        both = harmonic_mean(weights.forward, weights.backward)
        both = largest_over_words(both, weights.source_words, weights.target_words)
        for index, cells, (sources, targets) in zip(indices, both, weights.words, strict=True):
            found[index] = cells[:sources, :targets].numpy()
    return found
