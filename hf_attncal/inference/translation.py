"""Translation of lists of lines, and its score: what the training script, the command line and the demo share."""

from collections.abc import Sequence

import torch
from tqdm.auto import tqdm

from hf_attncal.data.batching import batches_by_length, padded


class LineTooLongError(ValueError):
    """A line of more tokens than the model has positions: the first such line, at `index` from 0."""

    def __init__(self, index: int, tokens: int, limit: int) -> None:
        self.index, self.tokens, self.limit = index, tokens, limit
        super().__init__(
            f"line {index + 1} has {tokens} tokens, the model takes at most {limit}. Split the line, or ask for "
            "truncation (`too_long='truncate'`)."
        )


@torch.no_grad()
def translate(
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
    progress: bool = False,
) -> list[str]:
    """Translate `lines`: one output line per input line, in the order of the input.

    Lines are batched by length, longest first, so a shortage of memory shows at once. A line without text gives an
    empty line. The model is put into evaluation mode and back.

    Args:
        model: an encoder-decoder with `generate`, on the device to use.
        tokenizer: its tokenizer.
        lines: source text.
        batch_size: most sentences in a batch.
        max_tokens: most source tokens in a batch, padding included; None for no such limit.
        num_beams: beam size; 1 is greedy.
        length_penalty: the beam score is log-probability / length ** `length_penalty` (`generate`'s definition).
        max_new_tokens: longest translation, in tokens. None: twice the longest source of the batch plus 10.
        too_long: what happens to a line of more tokens than the model has positions: "error" or "truncate".
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
    sources = _encode(tokenizer, lines, limit, too_long)
    translations = [""] * len(lines)
    numbers = list(sources)
    training = model.training
    bar = tqdm(total=len(sources), desc="translating", unit="sent", disable=not progress)
    try:
        model.eval()
        for chosen in batches_by_length([len(ids) for ids in sources.values()], batch_size, max_tokens):
            batch = [numbers[i] for i in chosen]
            input_ids, attention_mask = padded([sources[n] for n in batch], tokenizer.pad_token_id or 0)
            longest = 2 * input_ids.shape[1] + 10 if max_new_tokens is None else max_new_tokens
            output = model.generate(
                input_ids=input_ids.to(model.device),
                attention_mask=attention_mask.to(model.device),
                num_beams=num_beams,
                length_penalty=length_penalty if num_beams > 1 else None,
                do_sample=False,
                max_new_tokens=min(longest, limit - 1),
                max_length=None,
            )
            for n, text in zip(batch, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                translations[n] = " ".join(text.split("\n")).strip()
            bar.update(len(batch))
    finally:
        bar.close()
        model.train(training)
    return translations


def position_limit(model, tokenizer) -> int:
    """Most tokens in a sequence: the model's number of positions, or else the tokenizer's `model_max_length`."""
    return int(getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length)


def _encode(tokenizer, lines: Sequence[str], limit: int, too_long: str) -> dict[int, list[int]]:
    """Token ids by line index, end of sentence included; lines without text are left out."""
    indices = [i for i, line in enumerate(lines) if line.strip()]
    if not indices:
        return {}
    ids = tokenizer([lines[i] for i in indices], truncation=False, verbose=False)["input_ids"]
    sources = dict(zip(indices, ids, strict=True))
    for index, source in sources.items():
        if len(source) > limit:
            if too_long == "error":
                raise LineTooLongError(index, len(source), limit)
            sources[index] = [*source[: limit - 1], source[-1]]  # the end of sentence stays
    return sources
