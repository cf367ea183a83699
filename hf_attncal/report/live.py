"""What a model makes of sentences that somebody types, and what changes when source words are taken away."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from hf_attncal.alignment.check import Checker, PairVerdict
from hf_attncal.analysis.attribution import word_scores, works_on
from hf_attncal.figures.contents import Report
from hf_attncal.figures.page import write_page
from hf_attncal.inference.translation import translate_lines

from .analyze import SHOWN
from .pairs import pair_views

MOST_LINES = 200
_PERTURBED = "occlusion"


@dataclass(frozen=True)
class Word:
    """A word of a sentence.

    Args:
        text: the word, as white space parts it.
        marked: whether the check says that it was left out (of a source word) or made up (of a target word).
        taken: whether it was taken away from the source.
        new: of a translation without the words taken away: whether the translation of everything lacks it.
        loss: by how many nats its log-probability falls when the encoder does not see the words taken away; 0 without.
    """

    text: str
    marked: bool = False
    taken: bool = False
    new: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class Answer:
    """What the page shows of one sentence.

    Args:
        source, target: words of the text and of its translation.
        without: words of the translation of what is left of the source; None if nothing was taken away.
        verdict: that of the check; None without an aligner that has learned to check.
    """

    source: Sequence[Word]
    target: Sequence[Word]
    without: Sequence[Word] | None = None
    verdict: PairVerdict | None = None
    flagged: Sequence[str] = field(default=())


class LiveModel:
    """A model to try out: it translates, checks, and takes source words away.

    Args:
        model, tokenizer: an encoder-decoder in evaluation mode, on its device, and its tokenizer.
        name: how the page calls it.
        checker: of the languages of the model; None for none.
        beams: beam size of the search.
    """

    def __init__(self, model, tokenizer, name: str, checker: Checker | None = None, beams: int = 4):
        self.model, self.tokenizer, self.name, self.checker, self.beams = model, tokenizer, name, checker, beams
        usable = works_on(model)
        self._methods = {method: {} for method in SHOWN if method in usable}
        self._perturbs = _PERTURBED in usable

    def answer(self, lines: Sequence[str], taken: Mapping[int, Collection[int]] | None = None) -> list[Answer]:
        """Translate lines, check them, and say what changes without some of their words.

        Args:
            lines: source texts, at most `MOST_LINES`.
            taken: line, from 0 -> its words, from 0, that the encoder shall not see.

        Raises:
            ValueError: too many lines, or a line is longer than the model can read.
        """
        if len(lines) > MOST_LINES:
            raise ValueError(f"`lines` must be at most {MOST_LINES}, got {len(lines)}.")
        taken = {line: sorted(words) for line, words in (taken or {}).items() if words}
        targets = self.translations(lines)
        words = [line.split() for line in lines]
        cut = {
            line: " ".join(word for place, word in enumerate(words[line]) if place not in places)
            for line, places in taken.items()
        }
        without = dict(zip(cut, self.translations(list(cut.values())), strict=True))
        losses = self._losses(lines, targets, taken)
        verdicts = [None] * len(lines)
        if self.checker is not None:
            verdicts = self.checker.check(list(zip(lines, targets, strict=True)))
        return [
            _answer(words[line], targets[line], taken.get(line, ()), without.get(line), losses.get(line), verdict)
            for line, verdict in enumerate(verdicts)
        ]

    def translations(self, lines: Sequence[str]) -> list[str]:
        """Translate lines."""
        return [found.text for found in translate_lines(self.model, self.tokenizer, lines, num_beams=self.beams)]

    def write_report(self, lines: Sequence[str], path: str | Path) -> None:
        """Write the page of `attncal analyze` for lines and their translations: a sentence browser, nothing else.

        Raises:
            OSError, ValueError: see `write_page`.
        """
        targets = self.translations(lines)
        pairs = pair_views(self.model, self.tokenizer, list(lines), targets, self._methods)
        write_page(Report(self.name, (), (), (), pairs, {}, {}), path)

    def _losses(
        self, lines: Sequence[str], targets: Sequence[str], taken: Mapping[int, Sequence[int]]
    ) -> dict[int, np.ndarray]:
        """By how much each word of a translation becomes less likely, for each line that lacks words."""
        chosen = [line for line in taken if lines[line].split() and targets[line].split()]
        if not chosen or not self._perturbs:
            return {}
        texts = [lines[line] for line in chosen], [targets[line] for line in chosen]
        scores = word_scores(self.model, self.tokenizer, *texts, _PERTURBED)
        return {line: of[:, list(taken[line])].sum(axis=1) for line, of in zip(chosen, scores, strict=True)}


def _answer(
    source: Sequence[str],
    target: str,
    taken: Sequence[int],
    without: str | None,
    losses: np.ndarray | None,
    verdict: PairVerdict | None,
) -> Answer:
    targets = target.split()
    left_out = _marked(verdict, "source", source)
    made_up = _marked(verdict, "target", targets)
    losses = np.zeros(len(targets)) if losses is None else losses
    return Answer(
        source=[Word(word, marked=left_out[n], taken=n in taken) for n, word in enumerate(source)],
        target=[Word(word, marked=made_up[n], loss=float(losses[n])) for n, word in enumerate(targets)],
        without=None if without is None else _new_words(targets, without.split()),
        verdict=verdict,
        flagged=() if verdict is None else (*verdict.flagged, *verdict.names),
    )


def _marked(verdict: PairVerdict | None, side: str, words: Sequence[str]) -> list[bool]:
    """Say for each word, as white space parts them, whether a span of the check touches it."""
    if verdict is None:
        return [False] * len(words)
    spans = verdict.left_out_spans if side == "source" else verdict.made_up_spans
    text, marked, end = getattr(verdict, side), [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        marked.append(any(span.characters[0] < end and start < span.characters[1] for span in spans))
    return marked


def _new_words(before: Sequence[str], after: Sequence[str]) -> list[Word]:
    """Return the words of `after`; those that are not at their place in `before` are new."""
    matched = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = {place for block in matched for place in range(block.b, block.b + block.size)}
    return [Word(word, new=place not in kept) for place, word in enumerate(after)]
