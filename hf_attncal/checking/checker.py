"""Find omissions, additions and other errors of translations, per line and per word: `attncal check`.

    checker = Checker.from_pretrained("aligner")
    for verdict in checker.stream(pairs): ...

The model is learned from clean text, once per aligner (`check_learning.learn_check`), and stored beside the aligner in
`check.json`.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
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
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import CHECK_FILE

from .alarms import TextAlarms, alarms_of_lines, alarms_of_segments, with_habits
from .check_model import REASONS, CheckModel, Judged, JudgedPair, Marks, combined_judgement, marks
from .evidence import Both, LinkEvidence, alien_share, both, cut_for, evidence_of_words, has_counts
from .logistic import mean_odds
from .rules import NEGATIONS_OF_SIDES, Break
from .tables import TABLES
from .verdicts import MARKED_ABOVE, NOT_KNOWN, NOTES, VERDICTS, Finding, FlaggedSpan, PairVerdict

if TYPE_CHECKING:
    from hf_attncal.alignment.encoder_reader import EncoderLayer

    from .encoder_check import EncoderJudge

_NO_FAULT = dict.fromkeys(("wrong", *VERDICTS), 0.0)
_MIN_WORDS_SHARED = 5  # words in a target that different sources should not share
_MIN_SOURCES = 3
_FURTHER_CAUSE_ABOVE = 0.5  # probability above which a further cause is flagged
_UNUSUAL_LENGTH = 2.0  # standard deviations
_WORDS_AROUND = 2, 3  # words before and after a negation
_MARK_PROBABILITY = 0.51  # probability given to the most suspect word of a flagged line without any mark


class SharedTargets:
    """Targets of a text that have many different sources, ignoring case.

    A failing system often repeats one output for many sources. Memory: 16 bytes per pair while they are read.

    Args:
        pairs: All (source, target) pairs of the text.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]):
        hashes = array("q")
        for source, target in pairs:
            target = target.strip().casefold()
            if target.count(" ") >= _MIN_WORDS_SHARED - 2:  # tokenisation separates punctuation, which adds words
                hashes.extend((hash(target), hash(source.strip().casefold())))
        both = np.unique(np.frombuffer(hashes, dtype=np.int64).reshape(-1, 2), axis=0)
        targets, counts = np.unique(both[:, 0], return_counts=True)
        many = counts >= _MIN_SOURCES
        self._sources = dict(zip(targets[many].tolist(), counts[many].tolist(), strict=True))

    def sources_of(self, target: str) -> int:
        """Return the number of different sources of a target, or 1 if it is below `_MIN_SOURCES`."""
        return self._sources.get(hash(target.strip().casefold()), 1)


class AlignerJudge:
    """Judge of sentence pairs that uses a word aligner.

    Args:
        aligner: Aligner with two directions, preferably a statistical one.
        model: Model that `learn_check` learned for it.

    Raises:
        ValueError: The model needs the counts of a statistical aligner and this is none, or the other way round.
    """

    def __init__(self, aligner: WordAligner, model: CheckModel[LinkEvidence] | None):
        if model is None or has_counts(aligner) != (model.facts.field == "known"):
            raise ValueError(f"`facts` of {CHECK_FILE} does not fit: the file was learned for another aligner.")
        self.aligner, self.model = aligner, model

    def judge(self, sides: Sequence[Both[Segments]]) -> Judged:
        """Judge pairs with words on both sides; those whose source words are unknown are not covered."""
        judgement = self.model.judge(evidence_of_words(self.aligner, sides))
        return Judged(self.model, judgement, np.array([self.model.covers(source.words) for source, _ in sides]))


class Checker:
    """Checker of translations that uses a word aligner, a pretrained encoder, or both.

    Args:
        aligner: Word aligner, see `AlignerJudge`; None to use only the encoder.
        model: Model learned for the aligner. Default: None.
        encoder: Encoder judge, which adapts to the first text that is checked. Default: None.
        alarm: Probability of likeness above which a line is flagged. Default: None, the learned alarm, which a text of
            another kind raises.

    Raises:
        ValueError: `aligner` and `encoder` are both missing, or see `AlignerJudge`.
    """

    def __init__(
        self,
        aligner: WordAligner | None,
        model: CheckModel[LinkEvidence] | None = None,
        encoder: "EncoderJudge | None" = None,
        alarm: float | None = None,
    ):
        if aligner is None and encoder is None:
            raise ValueError("`aligner` or `encoder` must be given.")
        self.aligner, self.encoder, self._alarm = aligner, encoder, alarm
        self._by_aligner = None if aligner is None else AlignerJudge(aligner, model)

    @property
    def judges(self) -> "list[AlignerJudge | EncoderJudge]":
        """The judges in use: the aligner, the encoder, or both."""
        return [judge for judge in (self._by_aligner, self.encoder) if judge is not None]

    @property
    def model(self) -> CheckModel:
        """The model of the aligner, or of the encoder if there is no aligner."""
        return self.judges[0].model

    @property
    def alarm(self) -> float:
        """Probability of likeness above which a line of ordinary text is flagged."""
        return self._learned_alarm if self._alarm is None else self._alarm

    @property
    def _learned_alarm(self) -> float:
        return float(mean_odds([np.array(judge.model.alarm) for judge in self.judges]))

    @property
    def alarms(self) -> TextAlarms:
        """The alarms of ordinary text."""
        return TextAlarms(self.alarm, self.model.rules)

    def cut(self, text: str) -> Segments:
        """Return the words of a text as the aligner takes them."""
        return cut_for(self.aligner, text)

    @classmethod
    def from_pretrained(
        cls, name: str | Path | None = None, *, encoder: "str | Path | EncoderLayer | None" = None, **options
    ) -> "Checker":
        """Load an aligner with its `check.json`, an encoder, or both.

        Args:
            name: Folder or Hub name of the aligner. Default: None, only the encoder.
            encoder: Encoder, or its folder or Hub name. Default: None.
            options: Options of `WordAligner.from_pretrained`.

        Raises:
            OSError, ValueError: See `WordAligner.from_pretrained`; or the aligner has no `check.json`.
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

    def check(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        shared: SharedTargets | None = None,
        alarms: TextAlarms | None = None,
    ) -> list[PairVerdict]:
        """Check sentence pairs, in their order.

        Args:
            pairs: (source, target) texts.
            shared: Shared targets of the whole text. A target of five words or more with n different sources, three
                or more, translates only one of them: it is unrelated with a probability of at least 1 - 1 / n.
                Default: None, no such check.
            alarms: Alarms of the text, from `text_alarms`. Default: None, the alarms of ordinary text.

        Raises:
            ValueError: See `WordAligner.align`.
        """
        return self.verdicts(self.judged(pairs), shared=shared, alarms=alarms)

    def stream(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        shared: SharedTargets | None = None,
        sample: int = 0,
        window: int = ITEMS_AT_ONCE,
    ) -> Iterator[PairVerdict]:
        """Check pairs as they arrive, `window` of them at once; see `check`.

        Args:
            pairs, shared: See `check`.
            sample: Number of the first pairs that are read before the first verdict, to estimate the alarms of the
                text. Default: 0, for the alarms of ordinary text.
            window: Number of pairs that are judged at once.

        Raises:
            LineError: A pair cannot be judged; all verdicts before it have been yielded.
        """
        judged = piecewise(self.judged, pairs, window)
        first: list[JudgedPair] = []
        failure = None
        try:
            first.extend(islice(judged, sample))
        except Exception as error:  # raised after the verdicts on the pairs before it
            failure = error
        alarms = self.alarms
        if first:
            alarms = self.text_alarms(first)
            LOG.info("%s.", alarms)
            yield from self.verdicts(first, shared=shared, alarms=alarms)
        if failure is not None:
            raise failure
        for pair in judged:
            yield from self.verdicts([pair], shared=shared, alarms=alarms)

    def judged(self, pairs: Iterable[tuple[str, str]]) -> list[JudgedPair]:
        """Judge sentence pairs, in their order; `verdicts` turns the result into verdicts.

        Raises:
            ValueError: See `WordAligner.align`.
        """
        sides = [(self.cut(source), self.cut(target)) for source, target in pairs]
        full = [pair for pair in sides if _has_words(pair)]
        judgements = [one for judge in self.judges if full and (one := judge.judge(full)) is not None]
        judged = combined_judgement(judgements, full, self._learned_alarm) if judgements else []
        of_words = iter(judged or [JudgedPair(pair, marks(pair, 0.0)) for pair in full])
        return [next(of_words) if _has_words(pair) else JudgedPair(pair, marks(pair, 1.0)) for pair in sides]

    def text_alarms(self, judged: Iterable[JudgedPair], *, document: bool = False) -> TextAlarms:
        """Estimate the alarms of a text; see `alarms.py`.

        Args:
            judged: All pairs of the text, or some hundreds of them.
            document: True for a translation by people, which is mostly right; False for lines. Default: False.
        """
        covered = [pair for pair in judged if pair.causes]
        alarms = with_habits(self.alarm, self.model.rules, [pair.rules for pair in covered])
        if self._alarm is not None:
            return alarms
        words, causes = [len(pair.sides[0].words) for pair in covered], [pair.causes for pair in covered]
        if document:
            texts = [(pair.sides[0].text, pair.sides[1].text) for pair in covered]
            return alarms_of_segments(alarms, texts, words, causes)
        return alarms_of_lines(alarms, words, [one["likeness"] for one in causes])

    def verdicts(
        self, judged: Iterable[JudgedPair], *, shared: SharedTargets | None = None, alarms: TextAlarms | None = None
    ) -> list[PairVerdict]:
        """Return the verdicts on judged pairs; see `check` for the other arguments."""
        alarms = alarms or self.alarms
        return [
            self._verdict(pair, alarms, shared.sources_of(pair.sides[1].text) if shared else 1)
            if pair.causes
            else _without_causes(pair)
            for pair in judged
        ]

    def _verdict(self, judged: JudgedPair, alarms: TextAlarms, sources: int) -> PairVerdict:
        """Return the verdict on a judged pair, whose target has `sources` different sources in the text."""
        (source, target), causes = judged.sides, judged.causes
        alarm = alarms.alarm(len(source.words))
        own_share = 1 / sources if sources >= _MIN_SOURCES and len(target.words) >= _MIN_WORDS_SHARED else 1.0
        translated = 1 - causes["untranslated"]
        probabilities = {
            "wrong": 1 - (1 - causes["wrong"]) * own_share,
            "omission": causes["omission"],
            "addition": 1 - (1 - causes["addition"]) * (1 - causes["added"]) * translated * own_share,
            "repeats": causes["repeats"],
            "unrelated": 1 - (1 - causes["unrelated"]) * translated * own_share,
            "changed": causes["changed"],
        }
        likeness = 1 - (1 - causes["likeness"]) * own_share
        if alarms.tails:  # a document
            alarm = MARKED_ABOVE
            of_causes = alarms.of_causes(causes, len(source.words), (source.text, target.text))
            of_causes["addition"] = of_causes.pop("added")
            likeness = max(*of_causes.values(), 1 - own_share)
            probabilities |= of_causes | {"repeats": 0.0, "changed": 0.0, "wrong": likeness}
        rules = tuple(_rule_findings(judged, alarms))
        by_rules = max((rule.probability for rule in rules), default=0.0)
        probabilities |= {name: max(probabilities[name], by_rules) for name in ("wrong", "changed")}
        identical = source.text.split() == target.text.split()
        if identical and not any(map(str.isalpha, source.text)):  # a line of numbers
            return _made(judged.sides, _NO_FAULT, judged.words, ["identical sides"])
        alien = alien_share(target.text, self.model.scripts[1]) > 0.5
        if alien:
            likeness = 1.0
            probabilities |= {"wrong": 1.0, "addition": 1.0, "unrelated": 1.0}
        untranslated = causes["untranslated"] > 0.5 and likeness > alarm
        copied = _copied(source.words, target.words)
        names = {  # in this order
            "identical sides": identical,
            "alien script": alien,
            "untranslated": untranslated and copied,
            "wrong language": untranslated and not copied,
            f"one target for {sources} sources": own_share < 1,
        }
        faults = [name for name, holds in names.items() if holds]
        if likeness <= alarm:
            # no word may be more suspect than its line
            doubt = MARKED_ABOVE * likeness / max(alarm, 1e-9)
            unmarked = both((values * doubt, reasons) for values, reasons in judged.words)
            notes = [name for name in faults if name in NOTES]
            return _made(judged.sides, probabilities, unmarked, notes, ("changed",) * bool(rules), rules)
        most = max(VERDICTS, key=probabilities.__getitem__)
        flagged = tuple(name for name in VERDICTS if name == most or probabilities[name] > _FURTHER_CAUSE_ABOVE)
        faults += judged.changes if "changed" in flagged and not rules else ()
        words = judged.words
        if not faults and not any(_spans(judged.sides, words)) and not rules:
            faults, words = self._reason(judged.sides, most, words)
        return _made(judged.sides, probabilities, words, faults, flagged, rules)

    def _reason(self, sides: Both[Segments], most: str, words: Marks) -> tuple[list[str], Marks]:
        """Return a reason for a flagged line without marks: its length, or its most suspect word."""
        deviation = self.model.length_deviation(sides[0].text, sides[1].text)
        if abs(deviation) > _UNUSUAL_LENGTH:
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
        marked[side][0][place] = _MARK_PROBABILITY
        return [], marked


def saved_check(name: str | Path, revision: str | None = None) -> CheckModel[LinkEvidence]:
    """Load the `check.json` of an aligner in a folder or on the Hub.

    Raises:
        ValueError: The file is missing, or see `CheckModel.load`.
    """
    file = file_beside(name, CHECK_FILE, revision)
    if file is None:
        raise ValueError(
            f"{name} has no {CHECK_FILE}. Learn it from the text that the aligner was trained on: "
            f"attncal check learn {name} --source FILE --target FILE."
        )
    return CheckModel.load(file)


def aligner_to_check(model: Any, running: Running) -> tuple[Any, str | None]:
    """Return a `WordAligner` and its folder or Hub name, None for an aligner made in memory.

    Args:
        model: Folder or Hub name, or the aligner.
        running: Device, progress and limits.

    Raises:
        CommandError: It cannot be loaded.
    """
    from hf_attncal.alignment.aligner_opening import open_aligner

    if isinstance(model, str | os.PathLike):
        name = fetched(model, running)
        return open_aligner(name, running, plain=True), name
    return model, getattr(model.model.config, "name_or_path", None) or None


def open_checker(model: Any, running: Running, encoder: Any = None, alarm: float | None = None) -> Checker:
    """Return the `Checker` of a word aligner, an encoder or both.

    Args:
        model: folder or Hub name of an aligner, or one that is loaded; or a `Checker`. None: the encoder alone.
        running: device, batch size and limits.
        encoder: see `alignment.encoder_reader.EncoderLayer.open`.
        alarm: see `Checker`.

    Raises:
        CommandError: One of them cannot be loaded, or the aligner has no `check.json`.
    """
    from hf_attncal.alignment.aligner_opening import check_encoder

    if model is None and encoder is None:
        raise CommandError("MODEL or --encoder must be given: a word aligner, or an encoder.")
    check_encoder(encoder)
    if isinstance(model, Checker) and (encoder, alarm) == (None, None):
        return model
    aligner, check, judge = None, None, None
    if isinstance(model, Checker):
        aligner, judge = model.aligner, model.encoder
        check = None if aligner is None else model.model
    elif model is not None:
        aligner, name = aligner_to_check(model, running)
        if name is None:
            raise CommandError("`model` must be the name of an aligner or a Checker, got an aligner made in memory.")
        with user_errors((OSError, ValueError)):
            check = saved_check(name)
    with user_errors((ValueError,)):
        if encoder is not None:
            from .encoder_check import EncoderJudge, EncoderLayer

            judge = EncoderJudge(EncoderLayer.open(encoder, running))
        return Checker(aligner, check, judge, alarm)


def _rule_findings(judged: JudgedPair, alarms: TextAlarms) -> Iterator[Finding]:
    """Yield a finding for each broken rule that is probably a fault."""
    source, target = judged.sides
    for name, broken in judged.rules.items():
        if broken and alarms.tails and name in NEGATIONS_OF_SIDES and not _is_translated_around(judged, broken):
            continue  # a document may say it in other words, such as "may cause trouble" for "may not work"
        if broken and (probability := alarms.of_rule(name)) > MARKED_ABOVE:
            yield Finding(
                name,
                _spans_of_rule(source, broken.source, broken, probability),
                _spans_of_rule(target, broken.target, broken, probability),
                broken.reason,
                probability,
            )


def _is_translated_around(judged: JudgedPair, broken: Break) -> bool:
    """Return whether the words around a negation have a translation, as if only the negation were lost."""
    side, (begin, end) = int(broken.source is None), broken.source or broken.target or (0, 0)
    words = judged.words[side][0]
    places = [n for n, span in enumerate(judged.sides[side].spans) if span[0] < end and span[1] > begin]
    before, after = words[max(0, places[0] - _WORDS_AROUND[0]) : places[0]], words[places[-1] + 1 :]
    after = after[: _WORDS_AROUND[1]]
    return max([*before, *after], default=0.0) < MARKED_ABOVE


def _without_causes(judged: JudgedPair) -> PairVerdict:
    """Return the verdict on a pair with an empty side, or on one that no judge covers."""
    source, target = (bool(side.words) for side in judged.sides)
    if source and target:
        return _made(judged.sides, _NO_FAULT, judged.words, [NOT_KNOWN])
    names = [name for name, words in (("empty source", source), ("empty target", target)) if not words]
    probabilities = {"omission": float(source), "addition": float(target), "wrong": float(source or target)}
    flagged = tuple(name for name in ("omission", "addition") if probabilities[name])
    return _made(judged.sides, _NO_FAULT | probabilities, judged.words, names, flagged)


def _made(
    sides: Both[Segments],
    probabilities: Mapping[str, Any],
    words: Marks,
    names: Iterable[str],
    flagged: tuple[str, ...] = (),
    rules: tuple[Finding, ...] = (),
) -> PairVerdict:
    """Make a verdict.

    Args:
        sides: Words of the pair.
        probabilities: Probability of each cause.
        words: Marks of both sides.
        names: Names of faults.
        flagged: Causes of a flagged line. Default: ().
        rules: Findings of broken rules. Default: ().
    """
    spans = _spans(sides, words) if flagged else ((), ())
    of_rules = (span for rule in rules for span in rule.source), (span for rule in rules for span in rule.target)
    return PairVerdict(
        source=sides[0].text,
        target=sides[1].text,
        **probabilities,
        source_words=tuple(words[0][0].tolist()),
        target_words=tuple(words[1][0].tolist()),
        omission_spans=_with_rules(of_rules[0], spans[0]),
        addition_spans=_with_rules(of_rules[1], spans[1]),
        names=tuple(dict.fromkeys([*names, *(rule.kind for rule in rules)])),
        flagged=flagged,
        rules=rules,
    )


def _with_rules(of_rules: Iterable[FlaggedSpan], others: Iterable[FlaggedSpan]) -> tuple[FlaggedSpan, ...]:
    """Return the spans of broken rules, and other spans that do not overlap them, in order."""
    spans = list(dict.fromkeys(of_rules))
    spans += [
        one
        for one in others
        if not any(max(one.words[0], rule.words[0]) < min(one.words[1], rule.words[1]) for rule in spans)
    ]
    return tuple(sorted(spans, key=lambda span: span.characters))


def _spans_of_rule(
    side: Segments, characters: tuple[int, int] | None, broken: Break, probability: float
) -> tuple[FlaggedSpan, ...]:
    """Return the words of a side that break a rule; () for no place."""
    if characters is None:
        return ()
    places = [n for n, (begin, end) in enumerate(side.spans) if begin < characters[1] and end > characters[0]]
    words = (places[0], places[-1] + 1) if places else (0, 0)
    return (FlaggedSpan(words, characters, broken.reason, probability),)


def _has_words(sides: Both[Segments]) -> bool:
    return bool(sides[0].words and sides[1].words)


def _spans(sides: Both[Segments], words: Marks) -> Both[tuple[FlaggedSpan, ...]]:
    """Return the runs of words above `MARKED_ABOVE` on each side, without punctuation at their ends."""
    return _spans_of(sides[0], *words[0], "target"), _spans_of(sides[1], *words[1], "source")


def _spans_of(side: Segments, words: np.ndarray, reasons: np.ndarray, other: str) -> tuple[FlaggedSpan, ...]:
    spans = []
    for bad, run in groupby(range(len(words)), key=(words > MARKED_ABOVE).tolist().__getitem__):
        places = [place for place in run if any(map(str.isalnum, side.words[place]))]
        if bad and places:
            begin, end = places[0], places[-1] + 1
            most = max(places, key=words.__getitem__)
            characters = side.spans[begin][0], side.spans[end - 1][1]
            reason = TABLES["reasons"][REASONS[reasons[most]]].format(other)
            spans.append(FlaggedSpan((begin, end), characters, reason, float(words[most])))
    return tuple(spans)


def _copied(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether most words of the target are also in the source."""
    source_words = {word.lower() for word in source}
    return 2 * sum(word.lower() in source_words for word in target) > len(target)
