"""Find what a translation left out and what it made up, line by line and word by word: `attncal check`.

    checker = Checker.from_pretrained("aligner")
    for verdict in checker.stream(pairs): ...

What it goes by is learned from clean text, once for each aligner (`check_learning.learn_check`), and lies beside it in
`check.json`.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.ready import ready_or_named
from hf_attncal.data.segmentation import Segments
from hf_attncal.inference.files import file_beside
from hf_attncal.inference.opening import fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import ITEMS_AT_ONCE, CommandError, piecewise, user_errors
from hf_attncal.layouts import CHECK_FILE

from .alarms import TextAlarm, alarm_for
from .check_model import REASONS, CheckModel, Judged, judged_together
from .evidence import Both, LinkEvidence, alien_share, both, cut_for, evidence_of_words, has_counts
from .logistic import mean_odds
from .verdicts import MARKED_ABOVE, NOT_KNOWN, NOTES, VERDICTS, FlaggedSpan, PairVerdict

if TYPE_CHECKING:
    from hf_attncal.alignment.encoder_prior import EncoderPrior

    from .encoder_check import EncoderJudge

Marks = Both[tuple[np.ndarray, np.ndarray]]  # of each side, the probability of each word and its place in `REASONS`
_NOTHING = dict.fromkeys(("wrong", *VERDICTS), 0.0)
_SHARES = 0.001, 0.5  # of false alarms
_LONG_ENOUGH = 5  # words of a target that many sources should not share
_MANY = 3
_ALSO = 0.5  # probability of a further cause
_UNUSUAL = 2.0  # standard deviations of length
_WHY = {  # of `REASONS`, with the name of the other side
    "no partner": "nothing in the {} says this",
    **dict.fromkeys(("long number", "short number", "number in words"), "this number is not in the {}"),
    "negation": "the {} denies nothing",
    "name": "this name is not in the {}",
    "said again": "said again",
    "not translated": "not translated",
}
_SUSPECT = 0.51  # probability of the one word that is marked where none is by itself


class SharedTargets:
    """Which targets of a text stand with many different sources; letter case does not count.

    A system that was lost says the same for many sources. Memory: 16 bytes a pair while they are read.

    Args:
        pairs: (source, target), all of the text.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        hashes = array("q")
        for source, target in pairs:
            target = target.strip().casefold()
            if target.count(" ") >= _LONG_ENOUGH - 2:  # no fewer words, once marks are cut off
                hashes.extend((hash(target), hash(source.strip().casefold())))
        both = np.unique(np.frombuffer(hashes, dtype=np.int64).reshape(-1, 2), axis=0)
        targets, counts = np.unique(both[:, 0], return_counts=True)
        many = counts >= _MANY
        self._sources = dict(zip(targets[many].tolist(), counts[many].tolist(), strict=True))

    def sources_of(self, target: str) -> int:
        """Return how many different sources a target has, or 1 if these are fewer than `_MANY`."""
        return self._sources.get(hash(target.strip().casefold()), 1)


class AlignerJudge:
    """Judges pairs by a word aligner.

    Args:
        aligner: of two directions, best one that counts.
        model: what `learn_check` learned for it.

    Raises:
        ValueError: the model looks at counts, and the aligner has none, or the other way round.
    """

    def __init__(self, aligner: WordAligner, model: CheckModel[LinkEvidence] | None):
        if model is None or has_counts(aligner) != (model.facts.field == "known"):
            raise ValueError(f"`facts` of {CHECK_FILE} goes with an aligner that counts: it was learned for another.")
        self.aligner, self.model = aligner, model

    def judge(self, sides: Sequence[Both[Segments]]) -> Judged:
        """Return what is thought of pairs with words on both sides."""
        return self.model.judge(evidence_of_words(self.aligner, sides))

    def known_lines(self, sides: Sequence[Both[Segments]]) -> np.ndarray:
        """Return of which pairs the words of the source are known, (lines,)."""
        return np.array([self.model.knows(source.words) for source, _ in sides])


class Checker:
    """Checks translations by a word aligner, by a pretrained encoder, or by both.

    Args:
        aligner: see `AlignerJudge`; None: the encoder alone.
        model: likewise.
        encoder: see `encoder_check.py`; it learns what is usual from the first text that is checked.

    Raises:
        ValueError: neither is given, or see `AlignerJudge`.
    """

    def __init__(
        self,
        aligner: WordAligner | None,
        model: CheckModel[LinkEvidence] | None = None,
        encoder: "EncoderJudge | None" = None,
    ):
        if aligner is None and encoder is None:
            raise ValueError("`aligner` or `encoder` must be given.")
        self.aligner, self.encoder = aligner, encoder
        self._by_aligner = None if aligner is None else AlignerJudge(aligner, model)

    @property
    def judges(self) -> "list[AlignerJudge | EncoderJudge]":
        """The aligner with its model, and the encoder, as far as there are any."""
        return [judge for judge in (self._by_aligner, self.encoder) if judge is not None]

    @property
    def model(self) -> CheckModel:
        """What was learned for the aligner, or else for the encoder."""
        return self.judges[0].model

    @property
    def alarm(self) -> float:
        """Probability of `PairVerdict.wrong` above which a line is flagged."""
        return float(mean_odds([np.array(judge.model.alarm) for judge in self.judges]))

    def cut(self, text: str) -> Segments:
        """Return the words of a text as the aligner takes them."""
        return cut_for(self.aligner, text)

    @classmethod
    def from_pretrained(
        cls, name: str | Path | None = None, *, encoder: "str | Path | EncoderPrior | None" = None, **options
    ) -> "Checker":
        """Load an aligner with its `check.json`, an encoder, or both.

        Args:
            name: folder or Hub name of the aligner; None: the encoder alone.
            encoder: one, or its folder or Hub name.
            options: those of `WordAligner.from_pretrained`.

        Raises:
            OSError, ValueError: as there; or nothing was learned for it.
        """
        judge = None
        if encoder is not None:
            from .encoder_check import EncoderJudge

            judge = EncoderJudge.from_pretrained(encoder, options.get("device", "cpu"))
        if name is None:
            return cls(None, encoder=judge)
        name = ready_or_named(name)
        model = saved_check(name, options.get("revision"))
        return cls(WordAligner.from_pretrained(name, **options), model, judge)

    def with_false_alarms(self, pairs: Iterable[tuple[str, str]], share: float = 0.01) -> tuple["Checker", TextAlarm]:
        """Set the alarm on a text without labels, which may have faults; see `alarms.py`.

        Args:
            pairs: of the text to check, or a sample of it; some thousands are enough.
            share: of its right lines that may be flagged.

        Returns:
            a checker with that alarm, and what the alarm means on the text.

        Raises:
            ValueError: an encoder judges, too, `share` is not between 0.001 and 0.5, there are too few pairs, or these
                are too unlike the clean text to tell.
        """
        if self._by_aligner is None or self.encoder is not None:
            raise ValueError("`false_alarms` is for an aligner alone: leave out the encoder.")
        if not _SHARES[0] <= share <= _SHARES[1]:
            raise ValueError(
                f"`false_alarms` must be a share from {_SHARES[0]:.1%} to {_SHARES[1]:.0%}, got {share:.4g}."
            )
        sides = [pair for pair in self._cut_all(pairs) if _has_words(pair)]
        scores = [np.zeros(0)]
        for start in range(0, len(sides), ITEMS_AT_ONCE):
            judged = self._by_aligner.judge(sides[start : start + ITEMS_AT_ONCE])
            scores.append(self.model.scores(judged.verdict_features))
        alarm = alarm_for(self.model, np.concatenate(scores), share)
        if alarm.right is None:
            raise ValueError(
                f"`false_alarms` cannot be set on this text: {alarm.why}. Leave it out, or let the check learn from "
                "clean text like this one (attncal check learn)."
            )
        return Checker(self.aligner, replace(self.model, alarm=alarm.alarm)), alarm

    def check(self, pairs: Iterable[tuple[str, str]], *, shared: SharedTargets | None = None) -> list[PairVerdict]:
        """Check sentence pairs, in their order.

        Args:
            pairs: (source, target) texts.
            shared: of the whole text that the pairs are from; None: it is not looked whether one target stands with
                many sources. Of n different sources (three or more, and five words or more in the target) it is held
                to translate one, so that it is unrelated with probability 1 - 1 / n at least.

        Raises:
            ValueError: see `WordAligner.align`.
        """
        sides = self._cut_all(pairs)
        verdicts = iter(self._of_words([pair for pair in sides if _has_words(pair)], shared))
        return [next(verdicts) if _has_words(pair) else self._of_empty(pair) for pair in sides]

    def stream(
        self, pairs: Iterable[tuple[str, str]], *, shared: SharedTargets | None = None, window: int = ITEMS_AT_ONCE
    ) -> Iterator[PairVerdict]:
        """Check pairs as they arrive, `window` of them at once; see `check`.

        Raises:
            LineError: a pair that `check` fails on, when all pairs before it have been given.
        """
        return piecewise(partial(self.check, shared=shared), pairs, window)

    def _cut_all(self, pairs: Iterable[tuple[str, str]]) -> list[Both[Segments]]:
        return [(self.cut(source), self.cut(target)) for source, target in pairs]

    def _of_words(self, sides: Sequence[Both[Segments]], shared: SharedTargets | None) -> list[PairVerdict]:
        """Return the verdicts on pairs with words on both sides."""
        judged: list[tuple[CheckModel, Judged]] = []
        knows: list[np.ndarray] = []
        for judge in self.judges if sides else ():
            if (found := judge.judge(sides)) is not None:
                judged.append((judge.model, found))
                knows.append(judge.known_lines(sides))
        if not judged:
            return [self._made(pair, _NOTHING, _marks(pair, 0.0), [NOT_KNOWN]) for pair in sides]
        causes, words, changes = judged_together(judged, knows, self.alarm)
        of_lines = [dict(zip(causes, row, strict=True)) for row in np.column_stack(list(causes.values())).tolist()]
        return [
            self._verdict(pair, words[n], of_lines[n], changes[n], shared.sources_of(pair[1].text) if shared else 1)
            if known
            else self._made(pair, _NOTHING, _marks(pair, 0.0), [NOT_KNOWN])
            for n, (pair, known) in enumerate(zip(sides, np.any(knows, axis=0), strict=True))
        ]

    def _verdict(
        self,
        sides: Both[Segments],
        words: Marks,
        causes: Mapping[str, float],
        changes: tuple[str, ...],
        sources: int,
    ) -> PairVerdict:
        source, target = sides
        identical = source.text.split() == target.text.split()
        if identical and not any(map(str.isalpha, source.text)):  # a line of numbers
            return self._made(sides, _NOTHING, words, ["identical sides"])
        translated = 1 - causes["untranslated"]
        alone = 1 / sources if sources >= _MANY and len(target.words) >= _LONG_ENOUGH else 1.0
        found = {
            "wrong": 1 - (1 - causes["wrong"]) * alone,
            "omission": causes["omission"],
            "addition": 1 - (1 - causes["addition"]) * (1 - causes["added"]) * translated * alone,
            "repeats": causes["repeats"],
            "unrelated": 1 - (1 - causes["unrelated"]) * translated * alone,
            "changed": causes["changed"],
        }
        alien = alien_share(target.text, self.model.scripts[1]) > 0.5
        untranslated = causes["untranslated"] > 0.5 and found["wrong"] > self.alarm
        copied = _copied(source.words, target.words)
        names = {  # in this order
            "identical sides": identical,
            "alien script": alien,
            "untranslated": untranslated and copied,
            "wrong language": untranslated and not copied,
            f"one target for {sources} sources": alone < 1,
        }
        if alien:
            found |= {"wrong": 1.0, "addition": 1.0, "unrelated": 1.0}
        return self._made(sides, found, words, [name for name, holds in names.items() if holds], changes)

    def _of_empty(self, sides: Both[Segments]) -> PairVerdict:
        """Return the verdict on a pair with a side that has no words."""
        source, target = (bool(side.words) for side in sides)
        names = [name for name, words in (("empty source", source), ("empty target", target)) if not words]
        found = {"omission": float(source), "addition": float(target), "wrong": float(source or target)}
        return self._made(sides, _NOTHING | found, _marks(sides, 1.0), names)

    def _made(
        self,
        sides: Both[Segments],
        found: Mapping[str, float],
        words: Marks,
        names: Sequence[str],
        changes: Sequence[str] = (),
    ) -> PairVerdict:
        """Make the verdict, of which marks and reasons are shown as far as the line is flagged.

        Args:
            found: all probabilities. changes: what was changed, by name.
            words: of each side, the probability of each word and the place of its reason in `REASONS`.
        """
        flagged: tuple[str, ...] = ()
        spans: Both[tuple[FlaggedSpan, ...]] = (), ()
        if found["wrong"] > self.alarm:
            most = max(VERDICTS, key=found.__getitem__)
            flagged = tuple(name for name in VERDICTS if name == most or found[name] > _ALSO)
            names = [*names, *(changes if "changed" in flagged else ())]
            spans = _spans(sides, words)
            if not names and not any(spans):
                names, words = self._reason(sides, most, words)
                spans = _spans(sides, words)
        else:  # no word is more probably wrong than its line
            names = [name for name in names if name in NOTES]
            doubt = MARKED_ABOVE * found["wrong"] / max(self.alarm, found["wrong"], 1e-9)
            words = both((values * doubt, reasons) for values, reasons in words)
        return PairVerdict(
            source=sides[0].text,
            target=sides[1].text,
            wrong=found["wrong"],
            omission=found["omission"],
            addition=found["addition"],
            repeats=found["repeats"],
            unrelated=found["unrelated"],
            changed=found["changed"],
            source_words=tuple(words[0][0].tolist()),
            target_words=tuple(words[1][0].tolist()),
            omission_spans=spans[0],
            addition_spans=spans[1],
            names=tuple(names),
            flagged=flagged,
        )

    def _reason(self, sides: Both[Segments], most: str, words: Marks) -> tuple[list[str], Marks]:
        """Say why a line is flagged in which no word is marked by itself: its length, or its most suspect word."""
        deviation = self.model.length_deviation(sides[0].text, sides[1].text)
        if abs(deviation) > _UNUSUAL:
            return ["longer than usual" if deviation > 0 else "shorter than usual"], words
        suspect = [
            (words[side][0][place], side, place)
            for side, text in enumerate(sides)
            for place, word in enumerate(text.words)
            if any(map(str.isalnum, word))
        ]
        of_cause = {"omission": (0,), "changed": (0, 1)}.get(most, (1,))
        chosen = [one for one in suspect if one[1] in of_cause] or suspect
        if not chosen:
            return ["unlike clean text"], words
        _, side, place = max(chosen)
        marked = both((values.copy(), reasons) for values, reasons in words)
        marked[side][0][place] = _SUSPECT
        return [], marked


def saved_check(name: str | Path, revision: str | None = None) -> CheckModel[LinkEvidence]:
    """Load what was learned for an aligner, beside it in a folder or on the Hub.

    Raises:
        ValueError: there is nothing, or see `CheckModel.load`.
    """
    file = file_beside(name, CHECK_FILE, revision)
    if file is None:
        raise ValueError(
            f"{name} has no {CHECK_FILE}: it must first learn what good pairs look like, from the text it was trained "
            f"on: attncal check learn {name} --source FILE --target FILE."
        )
    return CheckModel.load(file)


def aligner_to_check(model: Any, running: Running) -> tuple[Any, str | None]:
    """Return a `WordAligner`, and the folder or Hub name that it was loaded from; None for one made in memory.

    Args:
        model: that name, or the aligner.
        running: how it runs.

    Raises:
        CommandError: it cannot be loaded.
    """
    from hf_attncal.alignment.aligner_opening import open_aligner

    if isinstance(model, str | os.PathLike):
        name = fetched(model, running)
        return open_aligner(name, running, plain=True), name
    return model, getattr(model.model.config, "name_or_path", None) or None


def open_checker(model: Any, running: Running, encoder: Any = None) -> Checker:
    """Return the `Checker` of a word aligner, an encoder or both.

    Args:
        model: folder or Hub name of an aligner, or one that is loaded; or a `Checker`. None: the encoder alone.
        running: how they run.
        encoder: as for `alignment.aligner_opening.open_encoder`.

    Raises:
        CommandError: one of them cannot be loaded, or nothing was learned for the aligner.
    """
    from hf_attncal.alignment.aligner_opening import check_encoder, open_encoder

    if model is None and encoder is None:
        raise CommandError("There is nothing to check with: give MODEL, a word aligner, or --encoder.")
    check_encoder(encoder)
    if isinstance(model, Checker) and encoder is None:
        return model
    aligner, check = None, None
    if isinstance(model, Checker):
        aligner, check = model.aligner, model.model
    elif model is not None:
        aligner, name = aligner_to_check(model, running)
        if name is None:
            raise CommandError("`model` must be the name of an aligner or a Checker: this aligner was made in memory.")
        with user_errors((OSError, ValueError)):
            check = saved_check(name)
    judge = None
    if encoder is not None:
        from .encoder_check import EncoderJudge

        with user_errors((ValueError,)):
            judge = EncoderJudge(open_encoder(encoder, running, adapted=False))
    with user_errors((ValueError,)):
        return Checker(aligner, check, judge)


def _has_words(sides: Both[Segments]) -> bool:
    return bool(sides[0].words and sides[1].words)


def _marks(sides: Both[Segments], probability: float) -> Marks:
    """Return the marks of words that are all wrong with the same probability, and have no partner."""
    return both((np.full(len(side.words), probability), np.zeros(len(side.words), dtype=int)) for side in sides)


def _spans(sides: Both[Segments], words: Marks) -> Both[tuple[FlaggedSpan, ...]]:
    """Return of each side the runs of words above `MARKED_ABOVE`, less the punctuation at their ends."""
    return _spans_of(sides[0], *words[0], "target"), _spans_of(sides[1], *words[1], "source")


def _spans_of(side: Segments, words: np.ndarray, reasons: np.ndarray, other: str) -> tuple[FlaggedSpan, ...]:
    found = []
    for bad, run in groupby(range(len(words)), key=(words > MARKED_ABOVE).tolist().__getitem__):
        places = [place for place in run if any(map(str.isalnum, side.words[place]))]
        if bad and places:
            begin, end = places[0], places[-1] + 1
            most = max(places, key=words.__getitem__)
            characters = side.spans[begin][0], side.spans[end - 1][1]
            reason = _WHY[REASONS[reasons[most]]].format(other)
            found.append(FlaggedSpan((begin, end), characters, reason, float(words[most])))
    return tuple(found)


def _copied(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether most words of the target stand in the source."""
    known = {word.lower() for word in source}
    return 2 * sum(word.lower() in known for word in target) > len(target)
