"""Train a vocabulary of subwords or whole words from raw text, as a plain `transformers` tokenizer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

if TYPE_CHECKING:  # `fast_tokenizer` imports it, which takes seconds
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
