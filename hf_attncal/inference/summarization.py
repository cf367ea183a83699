"""Summarise lists and streams of texts; the checkpoint's `generation_config` gives the defaults of the search."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from hf_attncal.data.piecewise import until_failure

from .answers import Answer, Answered
from .generation import Generated, LineTooLongError, Search, generate_lines, position_limit


def summarize_texts(model, tokenizer, texts: Sequence[str], **options: Any) -> list[str]:
    """Summarise texts and return only the summaries; options and errors are those of `summarize_lines`."""
    return [summary.text for summary in summarize_lines(model, tokenizer, texts, **options)]


def summarize_lines(
    model,
    tokenizer,
    texts: Sequence[str],
    *,
    batch_size: int = 16,
    max_tokens: int | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    no_repeat_ngram_size: int | None = None,
    min_new_tokens: int | None = None,
    max_new_tokens: int | None = None,
    too_long: str = "truncate",
    scores: bool = False,
    copied: bool = False,
    prefix: str | None = None,
    progress: bool = False,
    **others: Any,
) -> list[Generated]:
    """Summarise `texts`: one summary for each, on one line, in the order of the input.

    Args:
        num_beams, length_penalty, no_repeat_ngram_size, min_new_tokens, max_new_tokens: as for `generation.Search`;
            None takes the value of the model's `generation_config`. If that does not limit the length of a summary
            either, or only to all positions of the model, it is twice the longest text of the batch plus 10 tokens.
        others: further settings, as for `generation.Search`.
        too_long: for a text of more tokens than `generation.source_limit` allows, "truncate" summarises its beginning
            (see `cut_from` of the summary), and "error" raises LineTooLongError.
        prefix: text put before each text; None for that of `prefix_of`.
        progress: show a progress bar over texts.
        model, tokenizer, batch_size, max_tokens, scores, copied: as for `generate_lines`; its errors, too.

    Raises:
        ValueError: `min_new_tokens` is larger than the longest summary allowed.
    """
    return generate_lines(
        model,
        tokenizer,
        texts,
        _search(
            model, tokenizer, num_beams, length_penalty, max_new_tokens, min_new_tokens, no_repeat_ngram_size, others
        ),
        batch_size=batch_size,
        max_tokens=max_tokens,
        too_long=too_long,
        scores=scores,
        copied=copied,
        prefix=prefix_of(model) if prefix is None else prefix,
        progress="summarising" if progress else None,
    )


def summarize_stream(
    model, tokenizer, texts: Iterable[str], *, window: int = 256, **options: Any
) -> Iterator[Generated]:
    """Summarise a stream of texts, a window at a time.

    Args:
        model, tokenizer: as for `summarize_lines`.
        texts: texts, possibly without end.
        window: number of texts that are read, and batched by length, at a time.
        options: options of `summarize_lines`. Its errors are raised after the summaries of all windows before.
    """
    texts, before = iter(texts), 0
    while group := list(islice(texts, window)):
        try:
            yield from summarize_lines(model, tokenizer, group, **options)
        except LineTooLongError as error:
            raise LineTooLongError(before + error.index, error.tokens, error.limit) from None
        before += len(group)


def summarizing(model, tokenizer, **options: Any) -> Callable[[Sequence[str]], Answered]:
    """Return a function that summarises the texts of a window, for `answers.answer_windows`; see `summarize_lines`."""
    summarize = partial(summarize_lines, model, tokenizer, **options)

    def summarized(texts: Sequence[str]) -> Answered:
        found, failure = until_failure(summarize, texts)
        rows = [Answer(text, summary) for text, summary in zip(texts, found, strict=False)]
        return Answered(rows, failure, "summarised")

    return summarized


def _search(
    model,
    tokenizer,
    num_beams: int | None,
    length_penalty: float | None,
    max_new_tokens: int | None,
    min_new_tokens: int | None,
    no_repeat_ngram_size: int | None,
    others: Mapping[str, Any],
) -> Search:
    own, limit = model.generation_config, position_limit(model, tokenizer) - 1
    # The decoder's start counts in `min_length` and `max_length`.
    own_shortest = own.min_new_tokens or (own.min_length - 1 if own.min_length else None)
    own_longest = own.max_new_tokens or (own.max_length - 1 if own.max_length else None)
    if own_longest is not None and own_longest >= limit:
        own_longest = None  # all positions: no limit
    shortest, longest = _first(min_new_tokens, own_shortest), _first(max_new_tokens, own_longest)
    most = min(_first(longest, limit), limit)
    if shortest is not None and shortest > most >= 1:
        whose = "the model's own " if min_new_tokens is None else ""
        raise ValueError(
            f"`min_new_tokens` must be at most {most}, the longest summary allowed, got {whose}{shortest}. Give a "
            "smaller `min_new_tokens`, or a larger `max_new_tokens`."
        )
    return Search(
        _first(num_beams, own.num_beams, 1),
        _first(length_penalty, own.length_penalty, 1.0),
        longest,
        shortest,
        no_repeat_ngram_size,
        others=others,
    )


def _first(*values):
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def prefix_of(model) -> str:
    """Return the prefix that a configuration asks for before a text to summarise, such as "summarize: " for T5."""
    tasks = getattr(model.config, "task_specific_params", None)
    task = tasks.get("summarization") if isinstance(tasks, dict) else None
    prefix = task.get("prefix") if isinstance(task, dict) else None
    prefix = _first(prefix, getattr(model.config, "prefix", None))
    return prefix if isinstance(prefix, str) else ""
