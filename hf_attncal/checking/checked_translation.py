"""Translate with a verdict on each translation: `attncal translate --check`."""

from collections.abc import Sequence
from typing import Any

from hf_attncal.inference.generation import Generated
from hf_attncal.inference.translation import translate_lines

from .checker import Checker, PairVerdict


def translate_checked(
    model, tokenizer, lines: Sequence[str], checker: Checker, *, candidates: int = 1, **options: Any
) -> list[tuple[Generated, PairVerdict]]:
    """Translate lines and check each translation; one that is flagged gives way to another candidate of the search.

    The candidates are those that beam search ends with, so that they cost no other search. A translation that no
    verdict flags stays. Instead of a flagged one, the candidate with the least `PairVerdict.worst` is taken, of equals
    the one of better score.

    Args:
        model, tokenizer, lines, options: as for `translate_lines`, whose errors are raised, too.
        checker: of the languages of the model.
        candidates: how many translations of each line are checked, at most `num_beams`.

    Raises:
        ValueError: see `Checker.check`.
    """
    translations = translate_lines(model, tokenizer, lines, num_return_sequences=candidates, **options)
    sources = [line for line in lines for _ in range(candidates)]
    verdicts = checker.check(zip(sources, (translation.text for translation in translations), strict=True))
    chosen = []
    for first in range(0, len(verdicts), candidates):
        place = first
        if verdicts[first].flagged:
            place = min(range(first, first + candidates), key=lambda one: verdicts[one].worst)
        chosen.append((translations[place], verdicts[place]))
    return chosen
