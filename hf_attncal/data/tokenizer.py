"""Train a vocabulary of subwords or whole words, as a plain `transformers` tokenizer, and copy words outside it.

A model with `copy` reads the unknown words of a source as numbers after the vocabulary, and writes such numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Self

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from .batching import beginning

if TYPE_CHECKING:  # `fast_tokenizer` imports transformers, which takes seconds
    import torch
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"
NULL = "<null>"  # extends a target to the length of its source, for models with `uam`
SPECIAL_TOKENS = [EOS, UNK, PAD]  # ids 0, 1, 2; Marian checkpoints have eos 0 and unk 1, too
LANGUAGE_TOKENS = [*SPECIAL_TOKENS, BOS]  # for a language model; drop EOS if the end of a text means nothing
_NAMES = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}
SPACE = "▁"  # SentencePiece's mark of a space, also put before the first word
# A run of punctuation or symbols, with the space before it, is a separate unit, so "dog." and "dog" share "dog".
PUNCTUATION = Regex(rf"{SPACE}?(?:\p{{P}}|(?!{SPACE})\p{{S}})+")


def train_bpe_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    model_max_length: int = 512,
    show_progress: bool = False,
    special_tokens: list[str] = SPECIAL_TOKENS,
) -> "PreTrainedTokenizerFast":
    """Learn byte-pair merges (Sennrich et al. 2016) over the lines of both languages.

    Text is normalised to NFC, runs of white space become one space, and outer white space is removed; for such text
    `decode` returns exactly the text that `__call__` got. A character that is not in the training text becomes
    `<unk>`, as a byte fallback would add 256 entries whose embeddings a small corpus never trains. `</s>`, `<unk>` and
    `<pad>` in the text are ordinary characters, so no input can end a sentence early.

    The result depends only on the text and `vocab_size`. `AutoTokenizer.from_pretrained` loads it without this
    package.

    Args:
        lines: sentences of all languages that share the vocabulary.
        vocab_size: number of entries, special tokens included. A small text gives fewer; see `len(tokenizer)`.
        model_max_length: stored in the tokenizer; it truncates only when asked to.
        show_progress: show the trainer's progress bars.
        special_tokens: special tokens. If they include `<s>`, for a language model, a text begins with it and has no
            end mark, so that it can be continued; otherwise a text ends in `</s>`.

    Raises:
        ValueError: no text, or `vocab_size` below the number of special tokens and characters of the text.
    """
    backend = train_bpe_backend(lines, vocab_size, show_progress, special_tokens)
    return fast_tokenizer(backend, model_max_length, special_tokens)


def train_bpe_backend(
    lines: Iterable[str],
    vocab_size: int,
    show_progress: bool = False,
    special_tokens: list[str] = SPECIAL_TOKENS,
) -> Tokenizer:
    """As `train_bpe_tokenizer`, without what transformers adds to it."""
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
    """Make a vocabulary of the white-space words of a text, for a language model of a language of symbols.

    A word that is not in the training text becomes `<unk>`.

    Args:
        lines, model_max_length, show_progress, special_tokens: as for `train_bpe_tokenizer`.
        vocab_size: most entries, special tokens included; of more words, the rarest become `<unk>`.

    Raises:
        ValueError: no text, or `vocab_size` that has no room for a word.
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
    """Return the number of `<null>`, adding it to the special tokens of a tokenizer that does not have it.

    If the tokenizer then has more tokens than the model has embeddings, resize the model
    (`model.resize_token_embeddings(len(tokenizer))`).
    """
    if NULL not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"extra_special_tokens": [NULL]}, replace_extra_special_tokens=False)
    return tokenizer.get_vocab()[NULL]


def _trained(
    tokenizer: Tokenizer,
    trainer: trainers.Trainer,
    lines: Iterable[str],
    vocab_size: int,
    special_tokens: list[str],
) -> Tokenizer:
    """Train a tokenizer, and return it; it puts a special token before or after a text.

    Raises:
        ValueError: text without words, or with more characters than `vocab_size`, as the trainer keeps all.
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
    marked, begins = (BOS, True) if BOS in special_tokens else (EOS, False)
    single, other = (f"{marked} $A", "$B") if begins else (f"$A {marked}", f"$B {marked}")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {other}", special_tokens=[(marked, tokenizer.token_to_id(marked))]
    )
    return tokenizer


def fast_tokenizer(
    backend: Tokenizer, model_max_length: int = 512, special_tokens: list[str] = SPECIAL_TOKENS
) -> "PreTrainedTokenizerFast":
    """Wrap a trained tokenizer for transformers; arguments as of `train_bpe_tokenizer`."""
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
    """Tokenises texts so that each unknown word of a source gets a slot of its own after the vocabulary.

    Each source has slots for its own unknown words, in the order of their first appearance; a word that appears again
    has the same slot. Words beyond the last slot stay unknown: `left_unknown` counts them, and a warning says so once.

    Args:
        tokenizer: a fast tokenizer of whole words with an unknown token. (With subwords hardly any token is unknown.)
        config: configuration of a model with `copy`; its `vocab_size` and `max_copied_tokens` are read.

    Raises:
        ValueError: the tokenizer is not fast, or has no unknown token.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", config) -> None:
        if not tokenizer.is_fast or tokenizer.unk_token_id is None:
            raise ValueError(
                "`tokenizer` must be a fast one with an unknown token, so that unknown words are found in the text, "
                f"got a {type(tokenizer).__name__} with `unk_token_id` {tokenizer.unk_token_id}."
            )
        self.tokenizer, self.vocab_size, self.slots = tokenizer, config.vocab_size, config.max_copied_tokens
        self.left_unknown = 0

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerBase", config) -> Self | None:
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
                from transformers.utils import logging

                logging.get_logger(__name__).warning_once(
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
    tokens: "torch.Tensor | Sequence[Sequence[int]]",
    copied_words: Sequence[Sequence[str]],
    tokenizer: "PreTrainedTokenizerBase",
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
    rows = tokens if isinstance(tokens, Sequence) else tokens.tolist()
    if not copied_words or len(rows) % len(copied_words):
        raise ValueError(
            f"`tokens` must have as many rows for each of `copied_words`, got {len(rows)} rows for "
            f"{len(copied_words)} sources."
        )
    each = len(rows) // len(copied_words)
    return [_decoded(row, copied_words[n // each], tokenizer, vocab_size) for n, row in enumerate(rows)]


def _decoded(row: Sequence[int], words: Sequence[str], tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> str:
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
