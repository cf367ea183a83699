"""Generate a text for each line with any encoder-decoder: batches, search, scores, and sources of copied words."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from hf_attncal.data.batching import batches_by_length, beginning, padded
from hf_attncal.data.languages import check_target
from hf_attncal.data.pharaoh import Link
from hf_attncal.data.tokenizer import CopyTokenizer, decode_copied
from hf_attncal.data.word_tokens import (
    encode_sources,
    special_target_id,
    target_text,
    text_and_word_ids,
    token_names,
    tokenize_words,
)
from hf_attncal.data.words import NO_WORD

from .reading import evaluating, position_limit
from .search import Search

_TOKENS_AT_ONCE = 512  # scored at a time; their logits take 120 MB with a vocabulary of 60,000


class LineTooLongError(ValueError):
    """Error for a line with more tokens than the model has positions; `index` is the first such line, from 0."""

    def __init__(self, index: int, tokens: int, limit: int) -> None:
        self.index, self.tokens, self.limit = index, tokens, limit
        super().__init__(
            f"line {index + 1} has {tokens} tokens, the model takes at most {limit}. Split the line, or ask for "
            "truncation (`too_long='truncate'`)."
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """Copied share of a generated token, and its source word.

    Args:
        share: copied share of its probability, from 0 to 1; the rest is generated.
        source_token: number of the source token that is most likely copied, from 0 as the model reads it; None if the
            source does not have the token.
        source_word: number of the line's word, from 0, that `source_token` belongs to; None if it belongs to no word.
        word: number of the generated word, from 0, that the token belongs to; None for a special token.
    """

    share: float
    source_token: int | None
    source_word: int | None
    word: int | None

    @property
    def is_copied(self) -> bool:
        """True if more of the token is copied than generated."""
        return self.share > 0.5


@dataclass(frozen=True, slots=True)
class Generated:
    """Text generated for a line. It has tokens and scores only with `scores`, and not for an empty line.

    Args:
        text: the text on one line, without special tokens.
        tokens: generated tokens, including the end of sentence if the model generated it, or if the text was cut off
            and the model has a `forced_eos_token_id`.
        token_scores: natural logarithm of the probability of each token, given the source and the tokens before it;
            0 for a first token that the model's `forced_bos_token_id` forces.
        score: sum of `token_scores` / number of tokens ** `length_penalty`, by which beam search compares texts.
        cut_from: number of tokens of the line if it was truncated, else None.
        unknown: number of generated unknown tokens (`<unk>`), which are not in the text.
        copies: copied share of each token, with `copied`.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    score: float | None = None
    cut_from: int | None = None
    unknown: int = 0
    copies: tuple[Copy, ...] = ()

    @property
    def links(self) -> tuple[Link, ...]:
        """Sorted links (i, j): a token of the text's word j is copied from the line's word i."""
        copied = [(copy.source_word, copy.word) for copy in self.copies if copy.is_copied]
        return tuple(sorted({(i, j) for i, j in copied if i is not None and j is not None}))


@torch.no_grad()
def generate_lines(
    model,
    tokenizer,
    lines: Sequence[str],
    search: Search,
    *,
    batch_size: int,
    max_tokens: int | None = None,
    too_long: str,
    scores: bool = False,
    copied: bool = False,
    generate: Callable[..., Tensor] | None = None,
    prefix: str = "",
    progress: str | None = None,
) -> list[Generated]:
    """Generate a text for each line, in the order of the input.

    Lines are batched by length, longest first, so a shortage of memory shows at once. An empty line gives an empty
    text. The model runs in evaluation mode and gets its own mode back.

    Args:
        model: encoder-decoder with `generate`, on the device to use.
        tokenizer: its tokenizer.
        lines: source lines.
        search: settings of the search.
        batch_size: maximum number of lines per batch.
        max_tokens: maximum number of source tokens per batch, padding included. Default: None, no limit.
        too_long: "error" or "truncate", for a line with more tokens than `source_limit`.
        scores: True to return also tokens and scores. This takes another pass over the generated text, because
            `generate` has scores of beams only if it keeps the logits of all steps.
        copied: True to return also `copies`, tokens and scores, from the same pass.
        generate: function in place of the model's `generate`. Default: None.
        prefix: text put before each line.
        progress: label of a progress bar over lines. Default: None, no bar.

    Raises:
        LineTooLongError: a line is too long; nothing has been generated.
        ValueError: a setting out of range, `copied` for a model without `copy`, or no language to translate into.
    """
    check_target(tokenizer)
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be >= 1, got {batch_size}.")
    if too_long not in ("error", "truncate"):
        raise ValueError(f"`too_long` must be 'error' or 'truncate', got {too_long!r}.")
    if copied and not getattr(model.config, "copy", False):
        raise ValueError(
            f"`copied=True` needs a model with `copy`, got {type(model).__name__} without it. Leave it out, or train "
            "a model with `model.copy=true`."
        )
    limit = position_limit(model, tokenizer)
    copies = CopyTokenizer.of(tokenizer, model.config)
    sources = _encode(tokenizer, lines, prefix, source_limit(model, tokenizer), too_long, copies)
    vocab_size = sys.maxsize if copies is None else copies.vocab_size
    generated = [Generated("")] * len(lines)
    with evaluating(model), tqdm(total=len(sources), desc=progress, unit="sent", disable=progress is None) as bar:
        for numbers in batches_by_length([len(source.ids) for source in sources], batch_size, max_tokens):
            batch = [sources[number] for number in numbers]
            inputs = _inputs(batch, tokenizer.pad_token_id or 0, model.device)
            output = (generate or model.generate)(**inputs, **search.options(inputs["input_ids"].shape[1], limit))
            if copies is None:
                texts = [target_text(tokenizer, row) for row in _without_special(model, output)]
            else:
                texts = decode_copied(output, [source.words for source in batch], tokenizer, vocab_size)
            texts = [" ".join(text.split("\n")).strip() for text in texts]
            details: Iterable[dict[str, Any]] = [{}] * len(batch)
            if scores or copied:
                forced = search.others.get("forced_bos_token_id", model.generation_config.forced_bos_token_id)
                rows = _score_tokens(model, inputs, output, copied, forced is not None)
                details = _details(tokenizer, batch, texts, rows, search.length_penalty, vocab_size, prefix)
            unknown = _unknown_tokens(tokenizer, output)
            for source, text, count, scored in zip(batch, texts, unknown, details, strict=True):
                generated[source.index] = Generated(text, cut_from=source.cut_from, unknown=count, **scored)
            bar.update(len(numbers))
    return generated


def end_tokens(config) -> list[int]:
    """Return the end-of-sentence tokens of a generation configuration."""
    ends = config.eos_token_id
    return list(ends) if isinstance(ends, list | tuple) else [ends]


def length_to_end(ids: Sequence[int], ends: Sequence[int]) -> int:
    """Return the number of tokens up to and including the first end of sentence; all if there is none."""
    return next((n for n, token in enumerate(ids, start=1) if token in ends), len(ids))


def _without_special(model, output: Tensor) -> list[list[int]]:
    """Return the rows without the model's padding, start and end tokens; the tokenizer may have other special ones."""
    config = model.generation_config
    special = {config.pad_token_id, config.decoder_start_token_id, *end_tokens(config)}
    return [[token for token in row if token not in special] for row in output.tolist()]


def _unknown_tokens(tokenizer, output: Tensor) -> list[int]:
    """Count the unknown tokens of each row; 0 if the tokenizer's unknown token also has another purpose."""
    unknown, *others = (special_target_id(tokenizer, f"{name}_token") for name in ("unk", "pad", "eos", "bos"))
    if unknown is None or unknown in others:
        return [0] * len(output)
    return (output[:, 1:] == unknown).sum(dim=1).tolist()


def source_limit(model, tokenizer) -> int:
    """Return the maximum number of source tokens: `position_limit`, or the tokenizer's `model_max_length` if less."""
    return min(position_limit(model, tokenizer), int(tokenizer.model_max_length))


def longer_than(limit: int, tokenizer, lines: Sequence[str]) -> dict[int, int]:
    """Return the number of tokens of each line that has more than `limit`, by its index."""
    indices, ids = _token_ids(tokenizer, lines)
    return {index: len(source) for index, source in zip(indices, ids, strict=True) if len(source) > limit}


def _token_ids(tokenizer, lines: Sequence[str], prefix: str = "") -> tuple[list[int], list[list[int]]]:
    """Return the indices of the lines with text, and their token ids, end of sentence included."""
    indices = [index for index, line in enumerate(lines) if line.strip()]
    if not indices:
        return [], []
    return indices, encode_sources(tokenizer, [lines[i] for i in indices], prefix)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tokenised line.

    Args:
        index: index of the line among all lines.
        line: text of the line.
        ids: tokens that the model reads.
        extended: tokens with numbers of slots for a model with `copy`; else `ids` itself.
        words: words of the slots.
        cut_from: number of tokens of the whole line, if it was cut.
    """

    index: int
    line: str
    ids: list[int]
    extended: list[int]
    words: Sequence[str]
    cut_from: int | None


def _encode(
    tokenizer, lines: Sequence[str], prefix: str, limit: int, too_long: str, copies: CopyTokenizer | None
) -> list[_Source]:
    """Tokenise the lines with text, truncated to `limit` tokens, or raise LineTooLongError."""
    words: Sequence[Sequence[str]]
    if copies is None:
        indices, full_rows = _token_ids(tokenizer, lines, prefix)
        ids = extended = [beginning(row, limit) for row in full_rows]
        lengths, words = list(map(len, full_rows)), [()] * len(full_rows)
    else:
        indices = [index for index, line in enumerate(lines) if line.strip()]
        columns = copies.sources([prefix + lines[i] for i in indices], limit)
        ids, extended = columns["input_ids"], columns["extended_input_ids"]
        lengths, words = columns["length"], columns["copied_words"]
    sources = []
    for index, length, row, slots, slot_words in zip(indices, lengths, ids, extended, words, strict=True):
        if length > limit and too_long == "error":
            raise LineTooLongError(index, length, limit)
        cut_from = length if length > limit else None
        sources.append(_Source(index, lines[index], row, slots, slot_words, cut_from))
    return sources


def _inputs(batch: Sequence[_Source], padding: int, device: torch.device) -> dict[str, Tensor]:
    """Return the inputs of the model for a batch."""
    ids, mask = padded([source.ids for source in batch], padding)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if batch[0].extended is not batch[0].ids:
        inputs["extended_input_ids"], _ = padded([source.extended for source in batch], padding)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _details(
    tokenizer,
    batch: Sequence[_Source],
    texts: Sequence[str],
    rows: Iterable["_ScoredTokens"],
    length_penalty: float,
    vocab_size: int,
    prefix: str,
) -> Iterator[dict[str, Any]]:
    """Yield tokens, scores and copies of each generated text; arguments as in `generate_lines`."""
    for source, text, row in zip(batch, texts, rows, strict=True):
        names = [
            source.words[token - vocab_size] if token >= vocab_size else token_names(tokenizer, [token])[0]
            for token in row.ids
        ]
        copies: list[Copy] = []
        if row.places:
            source_words = _words_of_source(tokenizer, source, prefix)
            words = words_of_text(tokenizer, row.ids, source.words, vocab_size, text)
            for share, place, word in zip(row.shares, row.places, words, strict=True):
                in_source = place >= 0
                source_word = source_words[place] if in_source else None
                copies.append(Copy(share, place if in_source else None, source_word, word))
        score = sum(row.scores) / len(row.ids) ** length_penalty
        yield {"tokens": tuple(names), "token_scores": tuple(row.scores), "score": score, "copies": tuple(copies)}


@dataclass(frozen=True, slots=True)
class _ScoredTokens:
    """Tokens of a generated text with their log-probabilities, and shares and places from `copy_shares`."""

    ids: list[int]
    scores: list[float]
    shares: Sequence[float] = ()
    places: Sequence[int] = ()


def _score_tokens(
    model, inputs: dict[str, Tensor], output: Tensor, copied: bool, forced: bool
) -> Iterator[_ScoredTokens]:
    """Score a generated batch in one pass; yield each row, from after the decoder's start to the end of sentence.

    Args:
        model: model that generated the batch.
        inputs: inputs of the model.
        output: generated tokens, (batch, 1 + steps).
        copied: True to compute also copied shares.
        forced: True if the first token was forced, so that its score is 0.
    """
    if hasattr(model, "scores"):  # CTranslate2 has no logits
        for ids, scores in model.scores(inputs, output):
            yield _ScoredTokens(ids, [0.0, *scores[1:]] if forced else scores)
        return
    ends = end_tokens(model.generation_config)
    source = inputs.get("extended_input_ids", inputs["input_ids"])
    options = {"output_copy_probabilities": True} if copied else {}
    at_once = max(1, _TOKENS_AT_ONCE // output.shape[1])
    for start in range(0, len(output), at_once):
        part = slice(start, start + at_once)
        part_inputs = {name: tensor[part] for name, tensor in inputs.items()}
        outputs = model(**part_inputs, decoder_input_ids=output[part, :-1], use_cache=False, **options)
        tokens = output[part, 1:]
        scores = torch.stack(
            [
                -cross_entropy(row.to(torch.promote_types(row.dtype, torch.float32)), labels, reduction="none")
                for row, labels in zip(outputs.logits, tokens, strict=True)
            ]
        )
        columns = [scores]
        if copied:
            columns += copy_shares(source[part], outputs.copy_probabilities, tokens, scores)
        if forced:
            scores[:, 0] = 0
        for ids, *columns_of_row in zip(tokens.tolist(), *(column.tolist() for column in columns), strict=True):
            length = length_to_end(ids, ends)
            yield _ScoredTokens(ids[:length], *(column[:length] for column in columns_of_row))


# ---- copied words ----


def copy_shares(ids: Tensor, copied: Tensor, tokens: Tensor, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the copied share of each token y_t, `sum_(s: x_s = y_t) c_s / P(y_t)`, and the s of the largest c_s.

    Args:
        ids: source tokens x, (B, S); a token with a slot has the slot's number.
        copied: probability c of copying each source token, (B, T, S).
        tokens: generated tokens y, (B, T).
        log_probabilities: log P(y), (B, T).

    Returns:
        The shares and the places s, (B, T) each; s is -1 if no source token is y_t.
    """
    same = ids.unsqueeze(1) == tokens.unsqueeze(2)
    total = copied.masked_fill(~same, 0.0).sum(dim=-1)
    share = torch.where(total > 0, total / log_probabilities.to(total.dtype).exp(), 0.0).clamp(max=1.0)
    best = copied.masked_fill(~same, -1.0).argmax(dim=-1)
    return share, best.masked_fill(~same.any(dim=-1), -1)


def _words_of_source(tokenizer, source: _Source, prefix: str) -> list[int | None]:
    """Return the word of each token that the model reads; None for special tokens and the prefix."""
    (tokenized,) = tokenize_words(tokenizer, [source.line], prefix=prefix)
    words = [None if word == NO_WORD else word for word in tokenized.word_ids.tolist()]
    length = source.cut_from or len(source.ids)
    words += [None] * (length - len(words))  # the end of sentence, which `tokenize_words` may not add
    return beginning(words, None if source.cut_from is None else len(source.ids))


def words_of_text(
    tokenizer, ids: Sequence[int], slot_words: Sequence[str], vocab_size: int, text: str
) -> list[int | None]:
    """Return the number of the word that each token of a generated text belongs to.

    Args:
        tokenizer: the model's tokenizer.
        ids: numbers of the tokens; numbers from `vocab_size` on are indices of `slot_words`.
        slot_words: words of the slots of the source.
        vocab_size: `vocab_size` of the model's configuration.
        text: the decoded text, in which spaces before punctuation may have been removed.
    """
    pieces: list[str] = []
    places: list[int | None] = []  # one per token: its index among the pieces
    for in_slots, run in groupby(ids, lambda token: token >= vocab_size):
        tokens, before = list(run), len(pieces)
        if in_slots:
            pieces += [slot_words[token - vocab_size] for token in tokens]
            places += range(before, len(pieces))
        else:
            decoded, word_ids = text_and_word_ids(tokenizer, tokens)
            pieces += decoded.split()
            places += [None if word == NO_WORD else before + word for word in word_ids.tolist()]
    word_of_letter = [number for number, word in enumerate(text.split()) for _ in word]
    words, letters = [], 0
    for piece in pieces:
        letters += len("".join(piece.split()))
        words.append(word_of_letter[letters - 1])
    return [None if place is None else words[place] for place in places]
