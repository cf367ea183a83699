"""What a model makes of sentences that somebody types, and what changes when source words are taken away."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.opening import open_aligner
from hf_attncal.checking.checker import VERDICTS, Checker, PairVerdict, saved_check
from hf_attncal.hub.cards import read_model_card
from hf_attncal.inference.files import file_beside
from hf_attncal.inference.opening import load_errors, load_model
from hf_attncal.inference.running import Running
from hf_attncal.inference.source_use import source_use
from hf_attncal.inference.translation import translate_texts
from hf_attncal.layouts import CHECK_FILE
from hf_attncal.metrics.base import FEWEST_SENTENCES
from hf_attncal.metrics.trust import AttentionVerdict, verdict_of
from hf_attncal.report.attribution import CONTROLS, word_scores, works_on
from hf_attncal.report.figures.contents import Report
from hf_attncal.report.figures.page import write_page
from hf_attncal.report.figures.pair_view import PairView

from .pairs import BROWSED, pair_views

MOST_LINES = 200
_PERTURBED = "occlusion"
# What the page opens with, by the language of the source.
EXAMPLES = {
    "en": "The old man sold his small house last year.",
    "de": "Der alte Mann hat letztes Jahr sein kleines Haus verkauft.",
    "fr": "Le vieil homme a vendu sa petite maison l'année dernière.",
    "es": "El anciano vendió su pequeña casa el año pasado.",
    "it": "L'anno scorso il vecchio ha venduto la sua piccola casa.",
    "pt": "O velho vendeu a sua pequena casa no ano passado.",
    "nl": "De oude man heeft vorig jaar zijn kleine huis verkocht.",
}
_SEPARATOR = re.compile(r"\t| \|\|\| ")


@dataclass(frozen=True)
class ChangedWord:
    """A word of a translation, beside the translation of what is left of the source.

    Args:
        text: the word, as white space parts it.
        changed: whether the other translation lacks it.
        loss: by how many nats its log-probability falls when the encoder does not see the words taken away, one
            word at a time and summed; 0 where that is not known.
    """

    text: str
    changed: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class Without:
    """What changes when source words are taken away.

    Args:
        target: the words of the translation that is looked at, and what each loses.
        before, after: the words that the model writes for the whole source, and for what is left of it.
    """

    target: Sequence[ChangedWord]
    before: Sequence[ChangedWord]
    after: Sequence[ChangedWord]


class LiveModel:
    """A model to try out: it translates, is looked into, and gets source words taken away.

    A line is a source text, or one with a translation to look at, after a tab or `|||`.

    Args:
        model, tokenizer: an encoder-decoder in evaluation mode, on its device, and its tokenizer.
        name: how the page calls it.
        checker: of the languages of the model; None for no check.
        beams: beam size of the search.
        aligner: draws links; None for none.
        example: a source sentence that the page opens with; "" for none.
    """

    def __init__(
        self,
        model,
        tokenizer,
        name: str,
        checker: Checker | None = None,
        beams: int = 4,
        aligner: WordAligner | None = None,
        example: str = "",
    ):
        self.example = example
        self.model, self.tokenizer, self.name, self.beams = model, tokenizer, name, beams
        self.checker, self.aligner = checker, aligner
        usable = works_on(model)
        self.methods = [
            method for method in usable if method not in (*CONTROLS, "posterior")
        ]  # which needs an aligner
        self._perturbs = _PERTURBED in usable

    def views(self, lines: Sequence[str], methods: Collection[str] = (), first: int = 0) -> Iterator[PairView]:
        """Yield what is to be seen of each line: attention and contributions, links, and what the check says.

        Args:
            lines: at most `MOST_LINES`.
            methods: of attribution, besides.
            first: the number of the first line, from 0.

        Raises:
            ValueError: too many lines, a line that is longer than the model can read, or see `attribute`.
        """
        pairs = self._pairs(lines)
        sides = [list(side) for side in zip(*pairs, strict=True)] or [[], []]
        seen = pair_views(self.model, self.tokenizer, *sides, {name: {} for name in methods})
        views = {view.index: view for view in seen}
        links = [None] * len(pairs) if self.aligner is None else [found.links for found in self.aligner.align(pairs)]
        verdicts = [None] * len(pairs) if self.checker is None else self.checker.check(pairs)
        for index, (pair, drawn, verdict) in enumerate(zip(pairs, links, verdicts, strict=True)):
            view = views.get(index) or PairView(index, *pair, (), (), (), (), {})  # a side of it has no word
            view = replace(view, index=first + index, links=drawn, link_kind="link of the aligner")
            yield view if verdict is None else _with_verdict(view, verdict)

    def way(self, line: str, method: str) -> PairView:
        """Return one line by one more way of looking, alone.

        Raises:
            ValueError: a side of it has no word, or see `views`.
        """
        if method not in self.methods:
            raise ValueError(f"`method` must be one of {', '.join(self.methods)}, got {method!r}.")
        sides = [[side] for side in self._pairs([line])[0]]
        for view in pair_views(self.model, self.tokenizer, *sides, {method: {}}):
            return replace(view, weights={method: view.weights[method]})
        raise ValueError(f"A pair must have words on both sides, got {line!r}.")

    def without(self, line: str, taken: Collection[int]) -> Without:
        """Say what changes when the encoder does not see some words of a line, counted from 0.

        Raises:
            ValueError: the line is longer than the model can read.
        """
        ((source, target),) = self._pairs([line])
        words = source.split()
        taken = sorted(word for word in set(taken) if 0 <= word < len(words))
        cut = " ".join(word for place, word in enumerate(words) if place not in taken)
        before, after = (text.split() for text in self.translations([source, cut]))
        targets = target.split()
        losses = [0.0] * len(targets)
        if taken and targets and self._perturbs:
            (scores,) = word_scores(self.model, self.tokenizer, [source], [target], _PERTURBED)
            losses = scores[:, taken].sum(axis=1).tolist()
        blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        kept = {block.a + n for block in blocks for n in range(block.size)}
        new = {block.b + n for block in blocks for n in range(block.size)}
        of_before = losses if before == targets else [0.0] * len(before)
        return Without(
            [ChangedWord(word, loss=loss) for word, loss in zip(targets, losses, strict=True)],
            [
                ChangedWord(word, n not in kept, loss)
                for n, (word, loss) in enumerate(zip(before, of_before, strict=True))
            ],
            [ChangedWord(word, n not in new) for n, word in enumerate(after)],
        )

    def translations(self, lines: Sequence[str]) -> list[str]:
        """Translate lines."""
        return translate_texts(self.model, self.tokenizer, lines, num_beams=self.beams)

    def write_report(self, lines: Sequence[str], path: str | Path) -> None:
        """Write the page of `attncal analyze` for lines: a sentence browser, nothing else.

        Raises:
            OSError, ValueError: see `write_page` and `views`.
        """
        methods = [method for method in BROWSED if method in self.methods]
        lines = [f"{source}\t{target}" for source, target in self._pairs(lines)]
        write_page(Report(self.name, [str(self.verdict(lines))], (), (), self.views(lines, methods), {}, {}), path)

    def verdict(self, lines: Sequence[str] = ()) -> AttentionVerdict:
        """Say whether to trust the attention of the model, by what it does with lines.

        Of fewer than `FEWEST_SENTENCES` nothing can be shown, and the model is not asked.

        Raises:
            ValueError: too many lines.
        """
        if len(lines) < FEWEST_SENTENCES:
            return verdict_of(None)
        return verdict_of(source_use(self.model, self.tokenizer, *zip(*self._pairs(lines), strict=True)))

    def _pairs(self, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Return source and target of each line; the model writes the targets that are not given."""
        if len(lines) > MOST_LINES:
            raise ValueError(f"`lines` must be at most {MOST_LINES}, got {len(lines)}.")
        pairs = [given_target(line) for line in lines]
        written = iter(self.translations([source for source, target in pairs if target is None]))
        return [(source, next(written) if target is None else target) for source, target in pairs]


def open_live_model(name: str, running: Running, aligner: str | None = None, beams: int = 4) -> LiveModel:
    """Load a model to try out, and what draws links and checks its translations.

    Args:
        name: folder or Hub name of an encoder-decoder, or of an adapter.
        running: how both run.
        aligner: word aligner; it checks, too, if that was learned for it. None: there are neither links nor checks.
        beams: beam size of the search.

    Raises:
        CommandError: one of them cannot be loaded.
    """
    model, tokenizer = load_model(name, running, beams)
    links = checker = None
    if aligner is not None:
        links = open_aligner(aligner, replace(running, revision=None, languages=None))
        if file_beside(aligner, CHECK_FILE) is not None:
            with load_errors(aligner):
                checker = Checker(links, saved_check(aligner))
    card = read_model_card(name)
    title = card.name or Path(name).resolve().name
    named = re.search(r"-([a-z]{2})-[a-z]{2,3}$", title)  # opus-mt-de-en
    language = card.facts.get("Languages", named[1] if named else "")[:2]
    return LiveModel(model, tokenizer, title, checker, beams, links, EXAMPLES.get(language, EXAMPLES["en"]))


def given_target(line: str) -> tuple[str, str | None]:
    """Return the source of a line and the target that stands behind it, after a tab or `|||`; None for none."""
    source, *rest = _SEPARATOR.split(line, maxsplit=1)
    return source.strip(), rest[0].strip() if rest else None


def _with_verdict(view: PairView, verdict: PairVerdict) -> PairView:
    scores = {name.replace("_", " "): getattr(verdict, name) for name in ("wrong", *VERDICTS)}
    told = [name.replace("_", " ") for name in (*verdict.flagged, *verdict.names)]
    return replace(
        view,
        left_out=_marked(verdict, "source"),
        made_up=_marked(verdict, "target"),
        notes={**view.notes, **scores},
        told=[f"the check says: {', '.join(told)}" if told else "the check finds nothing"],
    )


def _marked(verdict: PairVerdict, side: str) -> list[int]:
    """Return the words, as white space parts them, that a span of the check touches."""
    spans = verdict.left_out_spans if side == "source" else verdict.made_up_spans
    text, marked, end = getattr(verdict, side), [], 0
    for place, word in enumerate(text.split()):
        start = text.index(word, end)
        end = start + len(word)
        if any(span.characters[0] < end and start < span.characters[1] for span in spans):
            marked.append(place)
    return marked
