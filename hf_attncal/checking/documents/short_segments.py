"""Evidence on short segments, of one to four words, from the other short segments of their document.

The verdict learned from sentences says little of so few words. A short translation is compared with the sources of all
other short segments instead. It is unrelated to its own source if another source is far more similar to it, by the
words of an aligner or by an encoder. A translation that is the text of another segment is more suspect, and one that
differs from another translation of the same source, too. Similarity is relative to the nearest neighbours of each text
(Lample et al., 2018, https://arxiv.org/abs/1710.04087), and to what is usual in the document.

The constants come from catalogues of software in German, French and Spanish with planted texts
(`experiments/check_catalogues.py`, the half to choose on).
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby

import numpy as np

from hf_attncal.data.segmentation import Segments, segment

from ..alarms import TextAlarms, sentence_ends
from ..checker import Checker, JudgedPair
from ..evidence import Both
from ..facts import shared_letters
from ..logistic import log_odds, sigmoid
from ..placeholders import masked
from .findings import MOST_SURE, DocumentFinding, SegmentSide
from .pairing import EncoderSimilarity, LexicalSimilarity, similarities

_MOST_WORDS, _WINDOW = 4, 1000  # words of a segment, and segments that are compared
_NEIGHBOURS = 10
# Median and spread of the lead of the best other source, for documents of few segments, and their weight in segments.
_USUAL_LEAD, _USUAL_WEIGHT = {EncoderSimilarity: (-0.5, 0.4), LexicalSimilarity: (-2.0, 4.0)}, 50
# Log-odds that a translation is wrong, from its lead in standard deviations and the logarithm of the segments.
_BIAS, _SLOPE, _OF_SEGMENTS = -8.0, 2.2, -0.4
_PRIOR = float(log_odds(np.array(0.02)))
# Log-ratios of wrong to right translations. Half of the wrong ones may be copied from another segment, and 7 % of the
# right ones are the text of another source. Of the sources that occur again, 21 % have another translation.
_OF_ANOTHER, _OF_NO_OTHER = np.log(0.5 / 0.07), np.log(0.5 / 0.93)
_AGAIN_OTHERWISE, _AGAIN_ALIKE = np.log(0.98 / 0.21), np.log(0.02 / 0.79)
# Share of right segments that lose a mark of the source, and the share of segments that may be wrong in this way.
_RIGHT_WITHOUT, _WRONG_WITHOUT = {":": 0.02, "…": 0.01, "accelerator": 0.03}, 0.05
_ONE_MESSAGE, _TWO_MESSAGES = 0.5, 0.25  # shared letters of two plural forms
_ACCELERATOR = re.compile(r"(?:_|&(?!#?\w+;))(?=[^\W_])")
_IDENTIFIER = re.compile(r"(?<!\w)[a-z]+_\w+")
_UNKNOWN_SENTENCE = 0.5
_AROUND = " \t\u00a0\u202f\"'”“’‘»«›‹)]）}」』"


Units = Mapping[int, Both[SegmentSide]]  # number of each unit -> its sides


def is_short(source: str) -> bool:
    """Return whether a source has one to four words; single ASCII letters are not counted, as they may be code."""
    words = (word for word in segment(source).words if len(word) > 1 or not word.isascii())
    return 1 <= sum(any(map(str.isalpha, word)) for word in words) <= _MOST_WORDS


def sentence_findings(units: Units, alarms: TextAlarms, judged: Mapping[int, JudgedPair]) -> Iterator[DocumentFinding]:
    """Yield the findings on segments of any length that have a sentence more or fewer than their source.

    The other side must hardly have words for that sentence: one that became two has them.
    """
    for number, (source, target) in units.items():
        if target.segments and (more := alarms.sentences_added(source.text, target.text)):
            side = int(more > 0)
            if _least_known(judged[number].sides[side], judged[number].words[side][0]) < _UNKNOWN_SENTENCE:
                continue
            kind, word = ("addition", "more") if more > 0 else ("omission", "fewer")
            reason = f"the translation has {word} sentences"
            yield _finding(units, number, kind, reason, MOST_SURE)


def _least_known(side: Segments, probabilities: np.ndarray) -> float:
    """Return the mean probability, over the words of the least known sentence, that they have no partner."""
    ends, of_sentences = sentence_ends(side.text), defaultdict(list)
    for (begin, _), word, probability in zip(side.spans, side.words, probabilities, strict=True):
        if len(word) > 1:
            of_sentences[bisect_right(ends, begin)].append(probability)
    return max((float(np.mean(values)) for values in of_sentences.values()), default=0.0)


def _finding(units: Units, number: int, kind: str, reason: str, probability: float) -> DocumentFinding:
    source, target = units[number]
    return DocumentFinding(kind, reason, probability, source, target, target.segments[0], number)


def short_findings(checker: Checker, units: Units) -> list[DocumentFinding]:
    """Return the findings on the short segments of a document, in their order.

    Args:
        checker: Checker of the languages, after it has judged the text.
        units: All units of the document. Long ones, copies, and those with an empty side have no finding.
    """
    short = {
        number: (source.text, target.text)
        for number, (source, target) in units.items()
        if is_short(source.text) and target.segments and _form(source.text) != _form(target.text) != ""
    }
    findings = [*_lost_marks(units, short), *_copied_forms(units)]
    for _, window in groupby(enumerate(short), key=lambda item: item[0] // _WINDOW):
        of_window = {number: short[number] for _, number in window}
        findings += [_finding(units, unit, "unrelated", *why) for unit, why in _unrelated(checker, of_window)]
    return sorted(findings, key=lambda finding: finding.unit)


def _form(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _unrelated(checker: Checker, short: dict[int, Both[str]]) -> Iterator[tuple[int, tuple[str, float]]]:
    """Yield the unit of each translation that fits another source better, with reason and probability."""
    sources, targets = ([pair[side] for pair in short.values()] for side in (0, 1))
    forms = [[_form(text) for text in side] for side in (sources, targets)]
    others = np.array(forms[0])[:, None] != np.array(forms[0])[None]
    leads, best = [], np.zeros(0, dtype=int)
    for similarity in similarities(checker, sources, targets) if others.any(axis=0).all() else ():
        lead, best = _leads(similarity.pairs, others, *_USUAL_LEAD[type(similarity)])
        leads.append(lead)
    if not leads:
        return
    odds = _BIAS + _SLOPE * np.mean(leads, axis=0) + _OF_SEGMENTS * np.log(len(short))
    sources_of, targets_of = defaultdict(set), defaultdict(set)
    for source, target in zip(*forms, strict=True):
        sources_of[target].add(source)
        targets_of[source].add(target)
    for place, (source, target) in enumerate(zip(*forms, strict=True)):
        odds[place] += _OF_ANOTHER if len(sources_of[target]) > 1 else _OF_NO_OTHER
        if forms[0].count(source) > 1:
            odds[place] += _AGAIN_OTHERWISE if len(targets_of[source]) > 1 else _AGAIN_ALIKE
    # Two segments with each other's text confirm each other, but synonyms with one text do not.
    exchanged = (best[best] == np.arange(len(best))) & (np.array(forms[1]) != np.array(forms[1])[best])
    odds += np.where(exchanged, np.maximum(odds[best] - _PRIOR, 0), 0)
    for place in np.flatnonzero(odds > 0).tolist():
        reason = f"the translation fits “{sources[best[place]]}” better"
        yield list(short)[place], (reason, min(MOST_SURE, float(sigmoid(odds[place]))))


def _leads(pairs: np.ndarray, others: np.ndarray, middle: float, spread: float) -> Both[np.ndarray]:
    """Return the lead of the best other source over the own one for each target, and that source.

    Args:
        pairs: Similarity of each source and target, (segments, segments).
        others: True for a source that differs from the one of the target.
        middle, spread: Usual lead and its spread, in similarity.
    """
    number = min(_NEIGHBOURS, len(pairs))
    rows, columns = (np.partition(side, -number, axis=1)[:, -number:].mean(axis=1) for side in (pairs, pairs.T))
    relative = 2 * pairs - rows[:, None] - columns[None]
    rivals = np.where(others, relative, -np.inf)
    lead = rivals.max(axis=0) - relative.diagonal()
    apart = 1.4826 * np.median(np.abs(lead - np.median(lead)))
    middle, spread = (
        (len(lead) * own + _USUAL_WEIGHT * usual) / (len(lead) + _USUAL_WEIGHT)
        for own, usual in ((np.median(lead), middle), (apart, spread))
    )
    relative = (lead - middle) / spread
    return np.where(lead > 0, relative, np.minimum(relative, 0)), rivals.argmax(axis=0)


def _copied_forms(units: Units) -> Iterator[DocumentFinding]:
    """Yield the findings on plural forms that are copies of their source, or that share no words with other forms."""
    forms = defaultdict(list)
    for number, (source, target) in units.items():
        if target.segments and "msgstr[" in target.segments[0].key:
            forms[target.segments[0].line].append((number, source.text, target.text))
    for of_entry in forms.values():
        copies = [  # a form that begins with the copy is a plural of the same word
            number
            for number, source_text, text in of_entry
            if source_text == text and not all(other.startswith(text) or one == other for _, one, other in of_entry)
        ]
        for number in copies:
            yield _finding(units, number, "untranslated", "other plural forms of this entry are translated", 0.95)
        first, last = of_entry[0], of_entry[-1]
        of_source, of_target = (
            shared_letters(*(_form(masked(one[side])) for one in (first, last))) for side in (1, 2)
        )
        if not copies and of_source > _ONE_MESSAGE and of_target < _TWO_MESSAGES:
            yield _finding(units, first[0], "unrelated", "the plural forms of this entry differ", MOST_SURE)


def _lost_marks(units: Units, short: dict[int, Both[str]]) -> Iterator[DocumentFinding]:
    """Yield the findings on lost end marks and accelerators that a text usually keeps."""
    with_mark: dict[str, list[int]] = defaultdict(list)
    lost: dict[str, list[int]] = defaultdict(list)
    for number in short:
        of_source, of_target = map(_marks, units[number])
        if any(_IDENTIFIER.search(segment.raw) for segment in units[number][0].segments):
            of_source.discard("accelerator")
        for mark in of_source:
            with_mark[mark].append(number)
            if mark not in of_target:
                lost[mark].append(number)
    for mark, numbers in lost.items():
        share = max(_RIGHT_WITHOUT[mark], (len(numbers) - 2) / len(with_mark[mark]))
        probability = _WRONG_WITHOUT / (_WRONG_WITHOUT + share)
        for number in numbers if probability > 0.5 else ():
            kind, reason = "wrong end mark", f"“{mark}” at the end is lost"
            if mark == "accelerator":
                raw = " ".join(segment.raw for segment in units[number][0].segments)
                kind, reason = "changed", f"the accelerator of “{raw}” is lost"
            yield _finding(units, number, kind, reason, probability)


def _marks(side: SegmentSide) -> set[str]:
    text, raw = side.text.rstrip(_AROUND), " ".join(one.raw for one in side.segments if one.kind == "entry")
    accelerators = len(_ACCELERATOR.findall(raw))
    marks = {":": text.endswith((":", "：")), "…": text.endswith(("...", "…")), "accelerator": accelerators == 1}
    return {mark for mark, is_there in marks.items() if is_there}
