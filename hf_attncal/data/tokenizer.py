"""A vocabulary trained from raw text, of subwords or of whole words, as a plain `transformers` tokenizer."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"
NULL = "<null>"  # what extends a target to the length of its source, where the model is to align the two
SPECIAL_TOKENS = [EOS, UNK, PAD]  # ids 0, 1, 2; Marian checkpoints have eos 0 and unk 1, too
LANGUAGE_TOKENS = [*SPECIAL_TOKENS, BOS]  # of a language model; without EOS where the end of a text says nothing
_NAMES = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}
SPACE = "▁"  # what SentencePiece writes for a space; in front of the first word, too
# A run of punctuation or symbols, with the space before it, is a unit of its own: "dog." and "dog" share "dog".
PUNCTUATION = Regex(rf"{SPACE}?(?:\p{{P}}|(?!{SPACE})\p{{S}})+")


def train_bpe_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    model_max_length: int = 512,
    show_progress: bool = False,
    special_tokens: list[str] = SPECIAL_TOKENS,
) -> PreTrainedTokenizerFast:
    """Learn byte-pair merges (Sennrich et al. 2016) over the lines of both languages.

    Text is normalised to NFC, runs of white space become one space and outer white space goes; on such text `decode`
    gives back exactly what `__call__` was given. A character that is not in the training text becomes `<unk>`: falling
    back to bytes would add 256 entries whose embeddings a small corpus never trains. `</s>`, `<unk>` and `<pad>`
    written in the text are ordinary characters, so that no input can end a sentence early.

    The result depends on the text and `vocab_size` only. It is saved by `save_pretrained` and loaded by
    `AutoTokenizer.from_pretrained`, which does not need this package.

    Args:
        lines: sentences of all languages that share the vocabulary.
        vocab_size: number of entries, special tokens included. Text too small for so many merges gives fewer;
            `len(tokenizer)` tells.
        model_max_length: written into the tokenizer; nothing is truncated unless asked for.
        show_progress: progress bars of the trainer.
        special_tokens: with `<s>`, for a language model, a text begins with it and ends in nothing, so that it can be
            continued; otherwise it ends in `</s>`.

    Raises:
        ValueError: no text, or `vocab_size` below the special tokens and the characters of the text.
    """
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
    tokenizer.train_from_iterator(lines, trainer)
    _check_vocabulary(tokenizer, vocab_size, special_tokens)
    return _finished(tokenizer, special_tokens, model_max_length)


def train_word_tokenizer(
    lines: Iterable[str],
    vocab_size: int,
    model_max_length: int = 512,
    show_progress: bool = False,
    special_tokens: list[str] = LANGUAGE_TOKENS,
) -> PreTrainedTokenizerFast:
    """The words of a text, which white space parts, as the vocabulary of a language model: for languages of symbols.

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
    tokenizer.train_from_iterator(lines, trainer)
    _check_vocabulary(tokenizer, vocab_size, special_tokens)
    return _finished(tokenizer, special_tokens, model_max_length)


def null_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of `<null>`, which is added to the special tokens of a tokenizer that does not have it.

    A model with fewer embeddings than the tokenizer then has tokens is to be resized
    (`model.resize_token_embeddings(len(tokenizer))`).
    """
    if NULL not in tokenizer.get_vocab():
        tokenizer.add_special_tokens({"extra_special_tokens": [NULL]}, replace_extra_special_tokens=False)
    return tokenizer.convert_tokens_to_ids(NULL)


def _finished(tokenizer: Tokenizer, special_tokens: list[str], model_max_length: int) -> PreTrainedTokenizerFast:
    """A trained tokenizer as transformers', which puts a special token before a text or behind it."""
    marked, begins = (BOS, True) if BOS in special_tokens else (EOS, False)
    single, other = (f"{marked} $A", "$B") if begins else (f"$A {marked}", f"$B {marked}")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} {other}", special_tokens=[(marked, tokenizer.token_to_id(marked))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{name: token for name, token in _NAMES.items() if token in special_tokens},
        model_max_length=model_max_length,
        padding_side="right",
        model_input_names=["input_ids", "attention_mask"],  # no `token_type_ids`: translation models refuse them
        clean_up_tokenization_spaces=False,  # a reader with transformers 4 would turn " ." into "."
        split_special_tokens=True,
    )


def _check_vocabulary(tokenizer: Tokenizer, vocab_size: int, special_tokens: list[str]) -> None:
    """The trainer keeps every character even when that exceeds `vocab_size`; refuse that, and text without words."""
    size = tokenizer.get_vocab_size()
    if size <= len(special_tokens):
        raise ValueError("The text to train a tokenizer on is empty. Give at least one line with a word.")
    if size > vocab_size:
        raise ValueError(
            f"`vocab_size` must be at least {size} for this text ({size - len(special_tokens)} characters and "
            f"{len(special_tokens)} special tokens), got {vocab_size}. Raise it, or remove lines with rare characters."
        )
