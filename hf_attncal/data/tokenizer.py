"""Tokenizers of subwords or whole words for transformers, and slots for copied words.

A model with `copy` reads and writes the unknown words of a source as token ids after the vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Self

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .batching import beginning

if TYPE_CHECKING:  # importing transformers takes seconds
    import torch
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"
NULL = "<null>"  # extends a target to the length of its source, for models with `uam`
SPECIAL_TOKENS = [EOS, UNK, PAD]  # ids 0, 1, 2; Marian checkpoints also have eos 0 and unk 1
LANGUAGE_TOKENS = [*SPECIAL_TOKENS, BOS]  # for a language model; leave EOS out if texts have no end
_NAMES = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}
SPACE = "▁"  # SentencePiece's mark of a space, also before the first word
# A run of punctuation or symbols, with the space before it, is a separate unit, so "dog." and "dog" share "dog".
PUNCTUATION = Regex(rf"{SPACE}?(?:\p{{P}}|(?!{SPACE})\p{{S}})+")


def train_bpe_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    model_max_length: int = 512,
    show_progress: bool = False,
    special_tokens: list[str] = SPECIAL_TOKENS,
) -> "PreTrainedTokenizerFast":
    """Train a BPE tokenizer (Sennrich et al. 2016) on the lines of both languages.

    Text is normalised to NFC, runs of white space become one space, and outer white space is removed. For such text
    `decode` returns exactly the input of `__call__`. A character outside the training text becomes `<unk>`, as a byte
    fallback would add 256 entries whose embeddings a small corpus never trains. `</s>`, `<unk>` and `<pad>` in the
    text are ordinary characters, so no input can end a sentence early.

    The result depends only on the text and `vocab_size`. `AutoTokenizer.from_pretrained` loads it without this
    package.

    Args:
        lines: sentences of all languages that share the vocabulary.
        vocab_size: number of entries, special tokens included. A small text results in fewer; see `len(tokenizer)`.
        model_max_length: maximum length stored in the tokenizer; it truncates only on request. Default: 512.
        show_progress: True to show the trainer's progress bars.
        special_tokens: special tokens. With `<s>`, for a language model, a text begins with it and has no end mark, so
            that it can be continued. Otherwise a text ends in `</s>`.

    Raises:
        ValueError: no text, or `vocab_size` below the number of special tokens and characters of the text.
    """
    backend = train_bpe_backend(lines, vocab_size, show_progress, special_tokens)
    return fast_tokenizer(backend, model_max_length, special_tokens)


def train_bpe_backend(
    lines: Iterable[str], vocab_size: int, show_progress: bool = False, special_tokens: list[str] = SPECIAL_TOKENS
) -> Tokenizer:
    """Train the backend of `train_bpe_tokenizer`, without the wrapper of transformers."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(SPACE, prepend_scheme="always"), pre_tokenizers.Split(PUNCTUATION, "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special_tokens, min_frequency=2, show_progress=show_progress
    )
    return _trained(tokenizer, trainer, lines, vocab_size, special_tokens)


def train_word_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    model_max_length: int = 512,
    show_progress: bool = False,
    special_tokens: list[str] = LANGUAGE_TOKENS,
) -> "PreTrainedTokenizerFast":
    """Train a tokenizer of white-space words, for a language model over symbols.

    A word outside the training text becomes `<unk>`.

    Args:
        lines, model_max_length, show_progress, special_tokens: see `train_bpe_tokenizer`.
        vocab_size: maximum number of entries, special tokens included. The rarest words beyond it become `<unk>`.

    Raises:
        ValueError: no text, or `vocab_size` without room for a word.
    """
    if vocab_size <= len(special_tokens):
        raise ValueError(f"`vocab_size` must be above the {len(special_tokens)} special tokens, got {vocab_size}.")
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, special_tokens=special_tokens, show_progress=show_progress
    )
    backend = _trained(tokenizer, trainer, lines, vocab_size, special_tokens)
    return fast_tokenizer(backend, model_max_length, special_tokens)


def null_token_id(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the id of `<null>`, after adding it to the tokenizer's special tokens if it is missing.

    If the tokenizer then has more tokens than the model has embeddings, resize the model
    (`model.resize_token_embeddings(len(tokenizer))`).
    """
    if NULL not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"extra_special_tokens": [NULL]}, replace_extra_special_tokens=False)
    return tokenizer.get_vocab()[NULL]


def _trained(
    tokenizer: Tokenizer, trainer: trainers.Trainer, lines: Iterable[str], vocab_size: int, special_tokens: list[str]
) -> Tokenizer:
    """Train a tokenizer and add the special token before or after a text.

    Raises:
        ValueError: text without words, or with more characters than `vocab_size`, as the trainer keeps them all.
    """
    tokenizer.train_from_iterator(lines, trainer)
    size = tokenizer.get_vocab_size()
    if size <= len(special_tokens):
        raise ValueError("The text to train a tokenizer on is empty. Give at least one line with a word.")
    if size > vocab_size:
        raise ValueError(
            f"`vocab_size` must be at least {size} for this text ({size - len(special_tokens)} characters and "
            f"{len(special_tokens)} special tokens), got {vocab_size}. Raise it, or remove lines with rare characters."
        )
    mark, begins = (BOS, True) if BOS in special_tokens else (EOS, False)
    single, second = (f"{mark} $A", "$B") if begins else (f"$A {mark}", f"$B {mark}")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {second}", special_tokens=[(mark, tokenizer.token_to_id(mark))]
    )
    return tokenizer


def fast_tokenizer(
    backend: Tokenizer, model_max_length: int = 512, special_tokens: list[str] = SPECIAL_TOKENS
) -> "PreTrainedTokenizerFast":
    """Wrap a trained tokenizer for transformers; for the arguments see `train_bpe_tokenizer`."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{name: token for name, token in _NAMES.items() if token in special_tokens},
        model_max_length=model_max_length,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],  # no `token_type_ids`: translation models refuse them
        clean_up_tokenization_spaces=False,  # a reader with transformers 4 would turn " ." into "."
        split_special_tokens=True,
    )


# ---- copied words ----


class CopyTokenizer:
    """Tokenizer that assigns a slot after the vocabulary to each unknown word of a source.

    Each source has slots for its own unknown words, in the order of their first appearance. A repeated word has the
    same slot. Words beyond the last slot stay unknown: `left_unknown` counts them, with one warning.

    Args:
        tokenizer: fast tokenizer of whole words with an unknown token. (With subwords hardly any token is unknown.)
        config: configuration of a model with `copy`, with `vocab_size` and `max_copied_tokens`.

    Raises:
        ValueError: a slow tokenizer, or one without an unknown token.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", config) -> None:
        if not tokenizer.is_fast or tokenizer.unk_token_id is None:
            raise ValueError(
                "`tokenizer` must be a fast tokenizer with an unknown token, to find unknown words in the text, "
                f"got a {type(tokenizer).__name__} with `unk_token_id` {tokenizer.unk_token_id}."
            )
        self.tokenizer, self.vocab_size, self.slots = tokenizer, config.vocab_size, config.max_copied_tokens
        self.left_unknown = 0

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase", config) -> Self | None:
        """Return the tokenizer of a model with this configuration, or None if the model has no slots."""
        return cls(tokenizer, config) if getattr(config, "max_copied_tokens", 0) else None

    def source(self, text: str, longest: int | None = None) -> dict[str, list]:
        """Tokenise one source; see `sources`."""
        return {name: column[0] for name, column in self.sources([text], longest).items()}

    def sources(self, texts: Sequence[str], longest: int | None = None) -> dict[str, list]:
        """Tokenise sources.

        Args:
            texts: sources.
            longest: maximum number of tokens. A longer source is truncated before its end of sentence. Default: no
                limit.

        Returns:
            Columns with an entry per source: `input_ids`, `attention_mask` and `extended_input_ids` (ids),
            `copied_words` (the word of each slot), and `length` (number of tokens of the whole source).
        """
        names = ("input_ids", "attention_mask", "extended_input_ids", "copied_words", "length")
        columns: dict[str, list] = {name: [] for name in names}
        for ids, surfaces in self._tokenized(texts, "text"):
            length = len(ids)
            ids, surfaces = beginning(ids, longest), beginning(surfaces, longest)
            unknown = dict.fromkeys(surface for surface in surfaces if surface is not None)
            words = list(unknown)[: self.slots]
            if len(unknown) > len(words):
                self.left_unknown += len(unknown) - len(words)
                from transformers.utils import logging

                logging.get_logger(__name__).warning_once(
                    f"A source has {len(unknown)} different unknown words, more than the {self.slots} slots of the "
                    "model (`max_copied_tokens`). The words beyond cannot be copied; `CopyTokenizer.left_unknown` "
                    "counts them over all sources."
                )
            row = ids, [1] * len(ids), self._extended(ids, surfaces, words), words, length
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
        return columns

    def target(self, text: str, copied_words: Sequence[str]) -> list[int]:
        """Return the `labels` of a target; unknown words of its source are the ids of their slots.

        Args:
            text: target.
            copied_words: words of its source's slots.
        """
        return self.targets([text], [copied_words])[0]

    def targets(self, texts: Sequence[str], copied_words: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the `labels` of targets, given the words of each source's slots."""
        tokenized = self._tokenized(texts, "text_target")
        return [self._extended(*target, words) for target, words in zip(tokenized, copied_words, strict=True)]

    def _tokenized(self, texts: Sequence[str], side: str) -> Iterator[tuple[list[int], list[str | None]]]:
        """Yield the ids of each text, and the written word of each unknown token (None for known tokens)."""
        if not texts:  # fast tokenizers fail on an empty list
            return
        options = {"truncation": False, "padding": False, "verbose": False, "return_offsets_mapping": True}
        encoded = self.tokenizer(**{side: list(texts)}, **options)
        unknown, end = self.tokenizer.unk_token_id, self.tokenizer.eos_token_id
        special = {unknown, *self.tokenizer.all_special_ids}
        for text, ids, places in zip(texts, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            # A special token that is spelled out in a text is an unknown word.
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
    tokens: "torch.Tensor | Sequence[Sequence[int]]",
    copied_words: Sequence[Sequence[str]],
    tokenizer: "PreTrainedTokenizerBase",
    vocab_size: int,
) -> list[str]:
    """Decode the output of `generate()` without special tokens; ids from `vocab_size` on are copied source words.

    Args:
        tokens: token ids, (n, length). n is a multiple of the number of sources, for several outputs per source.
        copied_words: words of each source's slots (`CopyTokenizer.source`).
        tokenizer: tokenizer of the model.
        vocab_size: `vocab_size` of the model's configuration.

    Raises:
        ValueError: n is not a multiple, or an id is a slot that its source does not have.
    """
    rows = tokens if isinstance(tokens, Sequence) else tokens.tolist()
    if not copied_words or len(rows) % len(copied_words):
        raise ValueError(
            f"`tokens` must have the same number of rows per source in `copied_words`, got {len(rows)} rows for "
            f"{len(copied_words)} sources."
        )
    each = len(rows) // len(copied_words)
    return [_decoded(row, copied_words[n // each], tokenizer, vocab_size) for n, row in enumerate(rows)]


def _decoded(row: Sequence[int], words: Sequence[str], tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> str:
    if max(row, default=0) >= vocab_size + len(words):
        raise ValueError(
            f"`tokens` must be below {vocab_size + len(words)}, as the source has {len(words)} slots, "
            f"got {max(row)}. Pass the `copied_words` of the sources that the output was generated from."
        )
    pieces = []
    for copied, run in groupby(row, lambda token: token >= vocab_size):
        if copied:
            pieces += [words[token - vocab_size] for token in run]
        else:
            pieces += tokenizer.batch_decode([list(run)], skip_special_tokens=True)
    return " ".join(piece for piece in pieces if piece)
