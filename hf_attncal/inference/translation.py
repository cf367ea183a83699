"""Translate lists of lines, and the lines of `attncal translate` with links."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from torch import Tensor

from hf_attncal.data.languages import leading_code, using_code, without_code
from hf_attncal.io.errors import until_failure

from .answers import Answer, Answered
from .generation import Generated, generate_lines
from .reading import PairTooLongError
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


def translating(
    model, tokenizer, *, batch_size: int, aligner=None, **options: Any
) -> Callable[[Sequence[str]], Answered]:
    """Return a function that translates the lines of a window, for `answers.answer_windows`.

    Args:
        model, tokenizer, batch_size, options: see `translate_lines`.
        aligner: object with `align(pairs, batch_size=...)`, which returns an alignment with `pharaoh()` and
            `to_dict()` for each (source, translation), such as `alignment.aligner.WordAligner`. Default: None, no
            links.
    """

    def answers(texts: Sequence[str]) -> list[Answer]:
        translations = translate_lines(model, tokenizer, texts, batch_size=batch_size, **options)
        return [Answer(text, translation) for text, translation in zip(texts, translations, strict=True)]

    def translated(texts: Sequence[str]) -> Answered:
        rows, failure = until_failure(answers, texts)
        linked: list[Answer] = []
        while aligner is not None and len(linked) < len(rows):
            more, error = _linked(tokenizer, rows[len(linked) :], partial(aligner.align, batch_size=batch_size))
            linked += more
            if error is not None:
                return Answered(linked, error, "aligned with its translation")
        return Answered(list(rows) if aligner is None else linked, failure, "translated")

    return translated


def _linked(tokenizer, rows: Sequence[Answer], align: Callable) -> tuple[list[Answer], Exception | None]:
    """Link the first rows that start with the same language code, up to a row that is too long to link."""
    code = leading_code(tokenizer, rows[0].source)
    rows = list(takewhile(lambda row: leading_code(tokenizer, row.source) == code, rows))
    with using_code(tokenizer, code):  # the code is not a word, and the aligner may read the same model
        pairs = [(without_code(tokenizer, row.source), row.text) for row in rows]
        alignments, error = until_failure(align, pairs)
    linked = [replace(row, alignment=links) for row, links in zip(rows, alignments, strict=False)]
    if isinstance(error, PairTooLongError):
        return [*linked, replace(rows[len(linked)], unlinked=True)], None
    return linked, error
