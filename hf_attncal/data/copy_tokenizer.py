"""Give the unknown words of a source numbers after the vocabulary, and turn such numbers back into words."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Self

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .batching import beginning

logger = logging.get_logger(__name__)


class CopyTokenizer:
    """Tokenises texts so that each unknown word of a source gets a slot of its own after the vocabulary.

    Each source has slots for its own unknown words, in the order of their first appearance; a word that appears again
    has the same slot. Words beyond the last slot stay unknown: `left_unknown` counts them, and a warning says so once.

    Args:
        tokenizer: a fast tokenizer of whole words with an unknown token. (With subwords hardly any token is unknown.)
        config: configuration of a model with `copy`; its `vocab_size` and `max_copied_tokens` are read.

    Raises:
        ValueError: the tokenizer is not fast, or has no unknown token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config) -> None:
        if not tokenizer.is_fast or tokenizer.unk_token_id is None:
            raise ValueError(
                "`tokenizer` must be a fast one with an unknown token, so that unknown words are found in the text, "
                f"got a {type(tokenizer).__name__} with `unk_token_id` {tokenizer.unk_token_id}."
            )
        self.tokenizer, self.vocab_size, self.slots = tokenizer, config.vocab_size, config.max_copied_tokens
        self.left_unknown = 0

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, config) -> Self | None:
        """Make the tokenizer for a model with this configuration, or return None if the model has no slots."""
        return cls(tokenizer, config) if getattr(config, "max_copied_tokens", 0) else None

    def source(self, text: str, longest: int | None = None) -> dict[str, list]:
        """Tokenise one source, as `sources` does several."""
        return {name: column[0] for name, column in self.sources([text], longest).items()}

    def sources(self, texts: Sequence[str], longest: int | None = None) -> dict[str, list]:
        """Tokenise several sources.

        Args:
            texts: the sources.
            longest: most tokens; a longer source is cut to its beginning and the end of sentence.

        Returns:
            Columns with an entry for each source: `input_ids`, `attention_mask` and `extended_input_ids` (numbers),
            `copied_words` (the word of each slot), and `length` (number of tokens of the whole source).
        """
        names = ("input_ids", "attention_mask", "extended_input_ids", "copied_words", "length")
        columns: dict[str, list] = {name: [] for name in names}
        for ids, surfaces in self._read(texts, "text"):
            length = len(ids)
            ids, surfaces = beginning(ids, longest), beginning(surfaces, longest)
            unknown = dict.fromkeys(surface for surface in surfaces if surface is not None)
            words = list(unknown)[: self.slots]
            if len(unknown) > len(words):
                self.left_unknown += len(unknown) - len(words)
                logger.warning_once(
                    f"A source has {len(unknown)} different unknown words, more than the {self.slots} slots of the "
                    "model (`max_copied_tokens`): the others cannot be copied, here and in other sources "
                    "(`CopyTokenizer.left_unknown` counts them)."
                )
            row = ids, [1] * len(ids), self._extended(ids, surfaces, words), words, length
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
        return columns

    def target(self, text: str, copied_words: Sequence[str]) -> list[int]:
        """Return the `labels` of a target: unknown words that its source has become the numbers of their slots.

        Args:
            text: the target.
            copied_words: the words of its source's slots.
        """
        return self.targets([text], [copied_words])[0]

    def targets(self, texts: Sequence[str], copied_words: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the `labels` of several targets, given the slot words of each one's source."""
        tokenized = self._read(texts, "text_target")
        return [self._extended(*target, words) for target, words in zip(tokenized, copied_words, strict=True)]

    def _read(self, texts: Sequence[str], side: str) -> Iterator[tuple[list[int], list[str | None]]]:
        """Yield the ids of each text and, for each unknown token, its word as written (None for known tokens)."""
        if not texts:  # fast tokenizers fail on an empty list
            return
        options = {"truncation": False, "padding": False, "verbose": False, "return_offsets_mapping": True}
        encoded = self.tokenizer(**{side: list(texts)}, **options)
        unknown, end = self.tokenizer.unk_token_id, self.tokenizer.eos_token_id
        special = {unknown, *self.tokenizer.all_special_ids}
        for text, ids, places in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            # A special token that is spelled out in a text is a word, and one that the model does not know.
            surfaces = [
                text[first:last] if token in special and last > first else None
                for token, (first, last) in zip(ids, places, strict=True)
            ]
            ids = [token if surface is None else unknown for token, surface in zip(ids, surfaces, strict=True)]
            if end is not None and ids[-1:] != [end]:
                ids, surfaces = [*ids, end], [*surfaces, None]
            yield ids, surfaces

    def _extended(self, ids: list[int], surfaces: list[str | None], words: Sequence[str]) -> list[int]:
        slots: dict[str | None, int] = {word: self.vocab_size + number for number, word in enumerate(words)}
        return [slots.get(surface, token) for token, surface in zip(ids, surfaces, strict=True)]


def decode_copied(
    tokens: torch.Tensor | Sequence[Sequence[int]],
    copied_words: Sequence[Sequence[str]],
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
) -> list[str]:
    """Decode the output of `generate()` without special tokens; numbers from `vocab_size` on are words of the source.

    Args:
        tokens: token numbers, (n, length). n is a multiple of the number of sources, for several outputs of each.
        copied_words: the slot words of each source (`CopyTokenizer.source`).
        tokenizer: the tokenizer of the model.
        vocab_size: `vocab_size` of the model's configuration.

    Raises:
        ValueError: n is not a multiple, or a number stands for a slot that its source does not have.
    """
    rows = tokens.tolist() if isinstance(tokens, torch.Tensor) else tokens
    if not copied_words or len(rows) % len(copied_words):
        raise ValueError(
            f"`tokens` must have as many rows for each of `copied_words`, got {len(rows)} rows for "
            f"{len(copied_words)} sources."
        )
    each = len(rows) // len(copied_words)
    return [_decoded(row, copied_words[n // each], tokenizer, vocab_size) for n, row in enumerate(rows)]


def _decoded(row: Sequence[int], words: Sequence[str], tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> str:
    if max(row, default=0) >= vocab_size + len(words):
        raise ValueError(
            f"`tokens` must be below {vocab_size + len(words)}, as the source has {len(words)} words of its own, "
            f"got {max(row)}. Pass the `copied_words` of the sources that the output was generated from."
        )
    pieces = []
    for copied, run in groupby(row, lambda token: token >= vocab_size):
        if copied:
            pieces += [words[token - vocab_size] for token in run]
        else:
            pieces += tokenizer.batch_decode([list(run)], skip_special_tokens=True)
    return " ".join(piece for piece in pieces if piece)
