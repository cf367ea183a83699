"""Summarise lists of texts; the checkpoint's `generation_config` gives the defaults of the search."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hf_attncal.io.errors import until_failure

from .answers import Answer, Answered
from .generation import Generated, generate_lines
from .reading import position_limit
from .search import Search


def summarize_texts(model, tokenizer, texts: Sequence[str], **options: Any) -> list[str]:
    """Summarise texts and return only the summaries; options and errors as in `summarize_lines`."""
    return [summary.text for summary in summarize_lines(model, tokenizer, texts, **options)]


def summarize_lines(
    model,
    tokenizer,
    texts: Sequence[str],
    *,
    batch_size: int = 16,
    too_long: str = "truncate",
    scores: bool = False,
    copied: bool = False,
    prefix: str | None = None,
    **settings: Any,
) -> list[Generated]:
    """Summarise `texts`: one summary per text, on one line, in the order of the input.

    Args:
        too_long: action on a text with more tokens than `generation.source_limit`: "truncate" summarises its beginning
            (see `cut_from` of the summary), and "error" raises LineTooLongError.
        prefix: text put before each text. Default: None, `prefix_of`.
        settings: see `Search`; defaults are in the model's `generation_config`. If that does not limit the length of a
            summary below the model's number of positions, the limit is twice the longest text of the batch plus 10
            tokens.
        model, tokenizer, batch_size, scores, copied: see `generate_lines`, whose errors are raised.

    Raises:
        ValueError: `min_new_tokens` is larger than the longest summary allowed.
    """
    search = _search(model, tokenizer, {name: value for name, value in settings.items() if value is not None})
    prefix = prefix_of(model) if prefix is None else prefix
    options: dict[str, Any] = {"batch_size": batch_size, "too_long": too_long, "scores": scores, "copied": copied}
    return generate_lines(model, tokenizer, texts, search, prefix=prefix, **options)


def summarizing(model, tokenizer, **options: Any) -> Callable[[Sequence[str]], Answered]:
    """Return a function that summarises the texts of a window, for `answers.answer_windows`; see `summarize_lines`."""
    summarize = partial(summarize_lines, model, tokenizer, **options)

    def summarized(texts: Sequence[str]) -> Answered:
        summaries, failure = until_failure(summarize, texts)
        rows = [Answer(text, summary) for text, summary in zip(texts, summaries, strict=False)]
        return Answered(rows, failure, "summarised")

    return summarized


def _search(model, tokenizer, settings: Mapping[str, Any]) -> Search:
    """Return the search with these settings; missing settings are the model's."""
    own, limit = model.generation_config, position_limit(model, tokenizer) - 1
    # `min_length` and `max_length` include the decoder's start token.
    own_longest = own.max_new_tokens or (own.max_length - 1 if own.max_length else None)
    if own_longest is not None and own_longest >= limit:
        own_longest = None  # all positions: no limit
    values = {
        "num_beams": 1 if own.num_beams is None else own.num_beams,
        "length_penalty": 1.0 if own.length_penalty is None else own.length_penalty,
        "min_new_tokens": own.min_new_tokens or (own.min_length - 1 if own.min_length else None),
        "max_new_tokens": own_longest,
        **settings,
    }
    shortest, longest = values["min_new_tokens"], values["max_new_tokens"]
    most = limit if longest is None else min(longest, limit)
    if shortest is not None and shortest > most >= 1:
        whose = "" if "min_new_tokens" in settings else "the model's own "
        raise ValueError(
            f"`min_new_tokens` must be at most {most}, the longest summary allowed, got {whose}{shortest}. Give a "
            "smaller `min_new_tokens`, or a larger `max_new_tokens`."
        )
    return Search.of(values)


def prefix_of(model) -> str:
    """Return a configuration's prefix for texts to summarise, such as "summarize: " for T5."""
    tasks = getattr(model.config, "task_specific_params", None)
    task = tasks.get("summarization") if isinstance(tasks, dict) else None
    prefix = task.get("prefix") if isinstance(task, dict) else None
    prefix = getattr(model.config, "prefix", None) if prefix is None else prefix
    return prefix if isinstance(prefix, str) else ""
