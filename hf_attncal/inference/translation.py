"""Translate lists of lines."""

from collections.abc import Sequence
from typing import Any

from .generation import Generated, Search, generate_lines


def translate(model, tokenizer, lines: Sequence[str], **options: Any) -> list[str]:
    """Translate lines and return only the translations; options and errors are those of `translate_lines`."""
    return [translation.text for translation in translate_lines(model, tokenizer, lines, **options)]


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
    num_return_sequences: int = 1,
    too_long: str = "error",
    scores: bool = False,
    progress: bool = False,
) -> list[Generated]:
    """Translate `lines`, in the order of the input: `num_return_sequences` translations of each, the best first.

    Args:
        num_beams, length_penalty, max_new_tokens, num_return_sequences: as for `Search`.
        progress: show a progress bar over sentences.
        model, tokenizer, lines, batch_size, max_tokens, too_long, scores: as for `generate_lines`, whose errors are
            raised, too.
    """
    return generate_lines(
        model,
        tokenizer,
        lines,
        Search(num_beams, length_penalty, max_new_tokens, num_return_sequences=num_return_sequences),
        batch_size=batch_size,
        max_tokens=max_tokens,
        too_long=too_long,
        scores=scores,
        progress="translating" if progress else None,
    )
