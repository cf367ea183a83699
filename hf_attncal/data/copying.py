"""Words that only a source has: their numbers behind a vocabulary of whole words, and back to words."""

from collections.abc import Sequence
from itertools import groupby

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

logger = logging.get_logger(__name__)


class CopyTokenizer:
    """Numbers for texts, in which each unknown word of a source has a slot of its own behind the vocabulary.

    The slots of a source are for its own unknown words, in the order in which they come first; a word that comes again
    has the same. Those beyond the last slot stay unknown: `left_unknown` counts them, and a warning says so once.

    Args:
        tokenizer: a fast one of whole words, with an unknown token. Of subwords hardly one is unknown.
        config: of a model with `copy`; `vocab_size` and `max_copied_tokens` are read.

    Raises:
        ValueError: a tokenizer that is not fast, or has no unknown token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config) -> None:
        if not tokenizer.is_fast or tokenizer.unk_token_id is None:
            raise ValueError(
                "`tokenizer` must be a fast one with an unknown token, so that unknown words are found in the text, "
                f"got a {type(tokenizer).__name__} with `unk_token_id` {tokenizer.unk_token_id}."
            )
        self.tokenizer, self.vocab_size, self.slots = tokenizer, config.vocab_size, config.max_copied_tokens
        self.left_unknown = 0

    def source(self, text: str, **options) -> dict[str, list]:
        """One source.

        Args:
            options: of the tokenizer, as `truncation` and `max_length`.

        Returns:
            `input_ids`, `attention_mask`, `extended_input_ids`, and `copied_words`: the word of each slot.
        """
        ids, surfaces = self._read(text, "text", options)
        unknown = dict.fromkeys(surface for surface in surfaces if surface is not None)
        words = list(unknown)[: self.slots]
        if len(unknown) > len(words):
            self.left_unknown += len(unknown) - len(words)
            logger.warning_once(
                f"A source has {len(unknown)} different unknown words, and `max_copied_tokens` slots are "
                f"{self.slots}: the others stay unknown, here and in other sources. `CopyTokenizer.left_unknown` "
                "counts them; raise `max_copied_tokens` if they matter."
            )
        extended = self._extended(ids, surfaces, words)
        mask = [1] * len(ids)
        return {"input_ids": ids, "attention_mask": mask, "extended_input_ids": extended, "copied_words": words}

    def target(self, text: str, copied_words: Sequence[str], **options) -> list[int]:
        """`labels` of a target: unknown words that its source has are the numbers of their slots.

        Args:
            copied_words: of its source. options: of the tokenizer.
        """
        return self._extended(*self._read(text, "text_target", options), copied_words)

    def _read(self, text: str, side: str, options: dict) -> tuple[list[int], list[str | None]]:
        """Ids, and of each unknown token the word as it is written, `None` of the others."""
        encoded = self.tokenizer(**{side: text}, return_offsets_mapping=True, **options)
        ids, unknown = encoded["input_ids"], self.tokenizer.unk_token_id
        surfaces = [
            text[start:end] if token == unknown and end > start else None
            for token, (start, end) in zip(ids, encoded["offset_mapping"], strict=True)
        ]
        return ids, surfaces

    def _extended(self, ids: list[int], surfaces: list[str | None], words: Sequence[str]) -> list[int]:
        slots = {word: self.vocab_size + number for number, word in enumerate(words)}
        return [slots.get(surface, token) for token, surface in zip(ids, surfaces, strict=True)]


def decode_copied(
    tokens: torch.Tensor | Sequence[Sequence[int]],
    copied_words: Sequence[Sequence[str]],
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
) -> list[str]:
    """Texts of what `generate()` returns, without special tokens; numbers from `vocab_size` on are the source's words.

    Args:
        tokens: (n, length). copied_words: of each source (`CopyTokenizer.source`); n is a multiple of their number,
            for several outputs of each.
        vocab_size: of the model's configuration.

    Raises:
        ValueError: n is no multiple, or a slot that its source does not have.
    """
    rows = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
    if not copied_words or len(rows) % len(copied_words):
        raise ValueError(
            f"`tokens` must have a row for each of `copied_words`, or equally many, got {len(rows)} for "
            f"{len(copied_words)}."
        )
    each = len(rows) // len(copied_words)
    return [_decoded(row, copied_words[n // each], tokenizer, vocab_size) for n, row in enumerate(rows)]


def _decoded(row: Sequence[int], words: Sequence[str], tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> str:
    if max(row, default=0) >= vocab_size + len(words):
        raise ValueError(
            f"`tokens` must be below {vocab_size + len(words)} where the source has {len(words)} words of its own, "
            f"got {max(row)}. Pass the `copied_words` of the very sources that were generated from."
        )
    pieces = []
    for copied, run in groupby(row, lambda token: token >= vocab_size):
        if copied:
            pieces += [words[token - vocab_size] for token in run]
        else:
            pieces.append(tokenizer.decode(list(run), skip_special_tokens=True))
    return " ".join(piece for piece in pieces if piece)
