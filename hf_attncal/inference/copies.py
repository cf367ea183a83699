"""Find how much of each generated token a model with `copy` copied, and from which word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from hf_attncal.data.batching import beginning
from hf_attncal.data.words import NO_WORD, text_and_word_ids, tokenize_words


@dataclass(frozen=True, slots=True)
class Copy:
    """How much of a generated token is copied, and from where.

    Args:
        share: copied share of its probability, from 0 to 1; the rest is generated.
        source_token: the source token (from 0, as the model reads it) that is most likely copied; None if the source
            does not have the token.
        source_word: the word of the line (from 0) that `source_token` belongs to; None if it belongs to no word.
        word: the word of the generated text (from 0) that the token belongs to; None for a special token.
    """

    share: float
    source_token: int | None
    source_word: int | None
    word: int | None

    @property
    def is_copied(self) -> bool:
        """Whether more of the token is copied than generated."""
        return self.share > 0.5


def copy_shares(ids: Tensor, copied: Tensor, tokens: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the copied share of each token y_t, `sum_(s: x_s = y_t) c_s / P(y_t)`, and the s of the largest c_s.

    Args:
        ids: source tokens x, as numbers of slots where they have one, (B, S).
        copied: probability c of copying each source token, (B, T, S).
        tokens: generated tokens y, (B, T).
        log_probabilities: log P(y), (B, T).

    Returns:
        The shares and the places s, (B, T) each; s is -1 where no source token is y_t.
    """
    same = ids.unsqueeze(1) == tokens.unsqueeze(2)
    total = copied.masked_fill(~same, 0.0).sum(dim=-1)
    share = torch.where(total > 0, total / log_probabilities.to(total.dtype).exp(), 0.0).clamp(max=1.0)
    best = copied.masked_fill(~same, -1.0).argmax(dim=-1)
    return share, best.masked_fill(~same.any(dim=-1), -1)


def words_of_sources(
    tokenizer, lines: Sequence[str], prefix: str, lengths: Sequence[tuple[int, int | None]]
) -> Iterator[list[int | None]]:
    """Yield for each line the word of each token that the model reads; None for special tokens and the prefix.

    Args:
        tokenizer: the model's tokenizer.
        lines: source lines.
        prefix: text before each line.
        lengths: for each line the number of tokens that are read and, if the line was cut, the number that it has.
    """
    tokenized = tokenize_words(tokenizer, lines, prefix=prefix)
    for line, (read, whole) in zip(tokenized, lengths, strict=True):
        words = [None if word == NO_WORD else word for word in line.word_ids.tolist()]
        words += [None] * ((whole or read) - len(words))  # an end of sentence that the tokenizer does not add
        yield beginning(words, None if whole is None else read)


def words_of_text(
    tokenizer, ids: Sequence[int], slot_words: Sequence[str], vocab_size: float, text: str
) -> list[int | None]:
    """Return the word of a generated text that each of its tokens belongs to.

    Args:
        tokenizer: the model's tokenizer.
        ids: numbers of the tokens; those from `vocab_size` on stand for `slot_words`.
        slot_words: words of the slots of the source.
        vocab_size: `vocab_size` of the model's configuration.
        text: the decoded text, in which spaces before punctuation may have been removed.
    """
    pieces: list[str] = []
    places: list[int | None] = []  # of tokens among the pieces
    for in_slots, run in groupby(ids, lambda token: token >= vocab_size):
        tokens, before = list(run), len(pieces)
        if in_slots:
            pieces += [slot_words[token - vocab_size] for token in tokens]
            places += range(before, len(pieces))
        else:
            piece, words = text_and_word_ids(tokenizer, tokens)
            pieces += piece.split()
            places += [None if word == NO_WORD else before + word for word in words.tolist()]
    word_of_letter = [number for number, word in enumerate(text.split()) for _ in word]
    words, letters = [], 0
    for piece in pieces:
        letters += len("".join(piece.split()))
        words.append(word_of_letter[letters - 1])
    return [None if place is None else words[place] for place in places]
