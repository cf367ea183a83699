"""Translation of lists of lines, and its score: what the training script, the command line and the demo share."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.copying import CopyTokenizer, decode_copied

_SCORED_AT_ONCE = 512  # tokens: their logits take 120 MB with a vocabulary of 60,000


class LineTooLongError(ValueError):
    """A line of more tokens than the model has positions: the first such line, at `index` from 0."""

    def __init__(self, index: int, tokens: int, limit: int) -> None:
        self.index, self.tokens, self.limit = index, tokens, limit
        super().__init__(
            f"line {index + 1} has {tokens} tokens, the model takes at most {limit}. Split the line, or ask for "
            "truncation (`too_long='truncate'`)."
        )


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of a line. Without `scores=True`, and for a line without text, it is its text alone.

    Args:
        text: on one line, without special tokens.
        tokens: as they were generated, the end of sentence included where it was reached.
        token_scores: of each token, the natural logarithm of its probability given the source and the tokens before
            it; 0 for a first token that the model's `forced_bos_token_id` leaves no choice.
        score: their sum / number of tokens ** `length_penalty`, what beam search compares translations by.
    """

    text: str
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    score: float | None = None


def translate(model, tokenizer, lines: Sequence[str], **options: Any) -> list[str]:
    """The texts of `translate_lines`, with its options and errors."""
    return [translation.text for translation in translate_lines(model, tokenizer, lines, **options)]


@torch.no_grad()
def translate_lines(
    model,
    tokenizer,
    lines: Sequence[str],
    *,
    batch_size: int = 64,
    max_tokens: int | None = None,
    num_beams: int = 4,
    length_penalty: float = 1.0,
    max_new_tokens: int | None = None,
    too_long: str = "error",
    scores: bool = False,
    progress: bool = False,
) -> list[Translation]:
    """Translate `lines`: one translation for each line, in the order of the input.

    Lines are batched by length, longest first, so a shortage of memory shows at once. A line without text gives an
    empty translation. The model is put into evaluation mode and back.

    Args:
        model: an encoder-decoder with `generate`, on the device to use.
        tokenizer: its tokenizer.
        lines: source text.
        batch_size: most sentences in a batch.
        max_tokens: most source tokens in a batch, padding included; None for no such limit.
        num_beams: beam size; 1 is greedy.
        length_penalty: the beam score is log-probability / length ** `length_penalty` (`generate`'s definition).
        max_new_tokens: longest translation, in tokens. None: twice the longest source of the batch plus 10.
        too_long: what happens to a line of more tokens than `source_limit` allows: "error" or "truncate".
        scores: tell tokens and scores, too: one more pass of the model, which is given the translation. (`generate`
            has scores of beams only where it keeps the logits of all steps.)
        progress: show a progress bar over sentences.

    Raises:
        LineTooLongError: a line is too long; nothing has been translated.
        ValueError: a setting out of range.
    """
    for name, value in (("batch_size", batch_size), ("num_beams", num_beams)):
        if value < 1:
            raise ValueError(f"`{name}` must be >= 1, got {value}.")
    if too_long not in ("error", "truncate"):
        raise ValueError(f"`too_long` must be 'error' or 'truncate', got {too_long!r}.")
    limit = position_limit(model, tokenizer)
    copies = CopyTokenizer.of(tokenizer, model.config)
    sources = _encode(tokenizer, lines, source_limit(model, tokenizer), too_long, copies)
    translations = [Translation("")] * len(lines)
    numbers = list(sources)
    training = model.training
    bar = tqdm(total=len(sources), desc="translating", unit="sent", disable=not progress)
    try:
        model.eval()
        lengths = [len(source.ids) for source in sources.values()]
        for chosen in batches_by_length(lengths, batch_size, max_tokens):
            batch = [numbers[i] for i in chosen]
            words = [sources[n].words for n in batch]
            inputs = _inputs([sources[n] for n in batch], tokenizer.pad_token_id or 0, model.device)
            longest = 2 * inputs["input_ids"].shape[1] + 10 if max_new_tokens is None else max_new_tokens
            output = model.generate(
                **inputs,
                num_beams=num_beams,
                length_penalty=length_penalty if num_beams > 1 else None,
                do_sample=False,
                max_new_tokens=min(longest, limit - 1),
                max_length=None,
            )
            if copies is None:
                texts = tokenizer.batch_decode(output, skip_special_tokens=True)
            else:
                texts = decode_copied(output, words, tokenizer, copies.vocab_size)
            found = [Translation(" ".join(text.split("\n")).strip()) for text in texts]
            if scores:
                names = partial(_names, tokenizer, math.inf if copies is None else copies.vocab_size)
                found = _scored(model, map(names, output, words), inputs, output, found, length_penalty)
            for n, translation in zip(batch, found, strict=True):
                translations[n] = translation
            bar.update(len(batch))
    finally:
        bar.close()
        model.train(training)
    return translations


def position_limit(model, tokenizer) -> int:
    """Most tokens in a sequence: the model's number of positions, or else the tokenizer's `model_max_length`."""
    return int(getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length)


def source_limit(model, tokenizer) -> int:
    """Most tokens in a source: fewer than the model has positions where the tokenizer says that it was trained so."""
    return min(position_limit(model, tokenizer), int(tokenizer.model_max_length))


def longer_than(limit: int, tokenizer, lines: Sequence[str]) -> dict[int, int]:
    """The number of tokens of each line that has more than `limit`, by its index."""
    indices, ids = _token_ids(tokenizer, lines)
    return {index: len(source) for index, source in zip(indices, ids, strict=True) if len(source) > limit}


def _token_ids(tokenizer, lines: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    """Indices of the lines with text, and their token ids, end of sentence included."""
    indices = _with_text(lines)
    if not indices:
        return [], []
    return indices, tokenizer([lines[i] for i in indices], truncation=False, verbose=False)["input_ids"]


def _with_text(lines: Sequence[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if line.strip()]


@dataclass(frozen=True, slots=True)
class _Source:
    """A line as numbers; of a model with slots also with them, and their words."""

    ids: list[int]
    extended: list[int] | None = None
    words: Sequence[str] = ()


def _encode(
    tokenizer, lines: Sequence[str], limit: int, too_long: str, copies: CopyTokenizer | None
) -> dict[int, _Source]:
    """The lines with text by their index, none with more than `limit` tokens."""
    if copies is None:
        indices, ids = _token_ids(tokenizer, lines)
        lengths = list(map(len, ids))
        # The end of sentence stays.
        sources = [_Source(row if len(row) <= limit else [*row[: limit - 1], row[-1]]) for row in ids]
    else:
        indices = _with_text(lines)
        read = copies.sources([lines[i] for i in indices], limit) if indices else {}
        lengths = read.get("length", [])
        columns = (read.get(name, []) for name in ("input_ids", "extended_input_ids", "copied_words"))
        sources = [_Source(*row) for row in zip(*columns, strict=True)]
    if too_long == "error":
        for index, length in zip(indices, lengths, strict=True):
            if length > limit:
                raise LineTooLongError(index, length, limit)
    return dict(zip(indices, sources, strict=True))


def _inputs(batch: Sequence[_Source], padding: int, device: torch.device) -> dict[str, Tensor]:
    """What the model takes of a batch."""
    ids, mask = padded([source.ids for source in batch], padding)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if batch[0].extended is not None:
        inputs["extended_input_ids"], _ = padded([source.extended for source in batch], padding)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def _names(tokenizer, vocab_size: float, row: Tensor, words: Sequence[str]) -> list[str]:
    """The tokens of a row, of which those from `vocab_size` on are words of the source."""
    return [
        words[token - vocab_size] if token >= vocab_size else tokenizer.convert_ids_to_tokens(token)
        for token in row.tolist()
    ]


def _scored(
    model,
    names: Iterable[list[str]],
    inputs: dict[str, Tensor],
    output: Tensor,
    translations: list[Translation],
    length_penalty: float,
) -> list[Translation]:
    """The translations of a batch with tokens and scores.

    Args:
        names: of the tokens of each row of `output`.
        inputs: of the model.
        output: (batch, 1 + steps), what was generated.
    """
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list | tuple) else [ends]
    found = []
    rows = zip(translations, output, names, _token_scores(model, inputs, output), strict=True)
    for translation, row, tokens, scores in rows:
        length = next((n for n, token in enumerate(row[1:].tolist(), start=1) if token in ends), len(row) - 1)
        scores = tuple(scores[:length])
        found.append(
            Translation(translation.text, tuple(tokens[1 : 1 + length]), scores, sum(scores) / length**length_penalty)
        )
    return found


def _token_scores(model, inputs: dict[str, Tensor], output: Tensor) -> Iterator[list[float]]:
    """For each sequence the log-probability of each token but the first, which only starts the decoder."""
    rows = max(1, _SCORED_AT_ONCE // output.shape[1])
    for start in range(0, len(output), rows):
        part = slice(start, start + rows)
        given = {name: tensor[part] for name, tensor in inputs.items()}
        logits = model(**given, decoder_input_ids=output[part, :-1], use_cache=False).logits
        for row, tokens in zip(logits, output[part, 1:], strict=True):
            scores = -cross_entropy(row.to(torch.promote_types(row.dtype, torch.float32)), tokens, reduction="none")
            if model.generation_config.forced_bos_token_id is not None:
                scores[0] = 0
            yield scores.tolist()
