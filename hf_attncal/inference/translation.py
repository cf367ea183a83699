"""Translate lists of lines."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .generation import Generated, generate_lines
from .search import Search


def translate_texts(model, tokenizer, lines: Sequence[str], **options: Any) -> list[str]:
    """Translate lines and return only the translations; options and errors as in `translate_lines`."""
    return [translation.text for translation in translate_lines(model, tokenizer, lines, **options)]


def translate_lines(
    model,
    tokenizer,
    lines: Sequence[str],
    *,
    batch_size: int = 64,
    max_tokens: int | None = None,
    prefix: str = "",
    too_long: str = "error",
    scores: bool = False,
    num_beams: int = 4,
    length_penalty: float = 1.0,
    generate: Callable[..., Tensor] | None = None,
    **settings: Any,
) -> list[Generated]:
    """Translate `lines`, in the order of the input.

    Args:
        num_beams, length_penalty, settings: see `Search`.
        model, tokenizer, lines, batch_size, max_tokens, prefix, too_long, scores, generate: see `generate_lines`, also
            for errors.
    """
    search = Search.of({"num_beams": num_beams, "length_penalty": length_penalty, **settings})
    options: dict[str, Any] = {"max_tokens": max_tokens, "prefix": prefix, "too_long": too_long, "scores": scores}
    return generate_lines(model, tokenizer, lines, search, batch_size=batch_size, generate=generate, **options)
