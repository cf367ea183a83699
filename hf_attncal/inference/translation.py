"""Translate lists of lines, and the lines of `attncal translate` with links and verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from hf_attncal.data.languages import leading_code, speaking, without_code
from hf_attncal.data.piecewise import until_failure

from .answers import Answer, Answered
from .generation import Generated, Search, generate_lines
from .reading import PairTooLongError


def translate_texts(model, tokenizer, lines: Sequence[str], **options: Any) -> list[str]:
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
    min_new_tokens: int | None = None,
    no_repeat_ngram_size: int | None = None,
    num_return_sequences: int = 1,
    prefix: str = "",
    too_long: str = "error",
    scores: bool = False,
    progress: bool = False,
    **others: Any,
) -> list[Generated]:
    """Translate `lines`, in the order of the input: `num_return_sequences` translations of each, the best first.

    Args:
        num_beams, length_penalty, max_new_tokens, min_new_tokens, no_repeat_ngram_size, num_return_sequences, others:
            as for `Search`.
        progress: show a progress bar over sentences.
        model, tokenizer, lines, batch_size, max_tokens, prefix, too_long, scores: as for `generate_lines`, whose
            errors are raised, too.
    """
    return generate_lines(
        model,
        tokenizer,
        lines,
        Search(
            num_beams,
            length_penalty,
            max_new_tokens,
            min_new_tokens,
            no_repeat_ngram_size,
            num_return_sequences,
            others,
        ),
        batch_size=batch_size,
        max_tokens=max_tokens,
        prefix=prefix,
        too_long=too_long,
        scores=scores,
        progress="translating" if progress else None,
    )


def translate_checked(
    model, tokenizer, lines: Sequence[str], checker, *, candidates: int = 1, **options: Any
) -> list[tuple[Generated, Any]]:
    """Translate lines and check each translation; one that is flagged gives way to another candidate of the search.

    The candidates are those that beam search ends with, so that they cost no other search. A translation that no
    verdict flags stays. Instead of a flagged one, the candidate with the least `wrong` is taken, of equals the one of
    better score.

    Args:
        model, tokenizer, lines, options: as for `translate_lines`, whose errors are raised, too.
        checker: has `check(pairs)`, which returns for each (source, translation) a verdict: `flagged`, what is wrong,
            and `wrong`, how probable it is that anything is (`checking.checker.Checker`).
        candidates: how many translations of each line are checked, at most `num_beams`.

    Returns:
        For each line its translation and the verdict on it.

    Raises:
        ValueError: see the checker.
    """
    translations = translate_lines(model, tokenizer, lines, num_return_sequences=candidates, **options)
    sources = [without_code(tokenizer, line) for line in lines for _ in range(candidates)]
    verdicts = checker.check(zip(sources, (translation.text for translation in translations), strict=True))
    chosen = []
    for first in range(0, len(verdicts), candidates):
        place = first
        if verdicts[first].flagged:
            place = min(range(first, first + candidates), key=lambda one: verdicts[one].wrong)
        chosen.append((translations[place], verdicts[place]))
    return chosen


def translating(
    model, tokenizer, *, batch_size: int, aligner=None, checker=None, candidates: int = 1, **options: Any
) -> Callable[[Sequence[str]], Answered]:
    """Return a function that translates the lines of a window, for `answers.answer_windows`.

    Args:
        model, tokenizer, batch_size, options: as for `translate_lines`.
        aligner: has `align(pairs, batch_size=...)`, which returns for each (source, translation) an alignment with
            `pharaoh()` and `to_dict()` (`alignment.aligner.WordAligner`); None for no links.
        checker, candidates: as for `translate_checked`; None for no verdicts.
    """
    options["batch_size"] = batch_size
    problem = "translated" if checker is None else "translated and checked"
    if checker is not None:
        options |= {"checker": checker, "candidates": candidates}
    translate = partial(translate_lines if checker is None else translate_checked, model, tokenizer, **options)

    def translated(texts: Sequence[str]) -> Answered:
        found, failure = until_failure(translate, texts)
        if checker is None:
            found = [(translation, None) for translation in found]
        rows = [Answer(text, *of_text) for text, of_text in zip(texts, found, strict=False)]
        linked: list[Answer] = []
        while aligner is not None and len(linked) < len(rows):
            rest = rows[len(linked) :]
            code = leading_code(tokenizer, rest[0].source)
            rest = list(takewhile(lambda row, code=code: leading_code(tokenizer, row.source) == code, rest))
            align = partial(aligner.align, batch_size=batch_size)
            with speaking(tokenizer, code):  # the code is no word, and the aligner may read the model
                pairs = [(without_code(tokenizer, row.source), row.text) for row in rest]
                alignments, error = until_failure(align, pairs)
            linked += [replace(row, alignment=links) for row, links in zip(rest, alignments, strict=False)]
            if isinstance(error, PairTooLongError):
                linked.append(replace(rest[len(alignments)], unlinked=True))
            elif error is not None:
                return Answered(linked, error, "aligned with its translation")
        return Answered(rows if aligner is None else linked, failure, problem)

    return translated
