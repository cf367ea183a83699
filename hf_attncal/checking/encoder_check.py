"""The check of a pretrained encoder: a model of good pairs that was learned once, for the languages it knows.

`encoder_check.json` lies beside this module. `experiments/encoder_check.py` made it, from clean text of several
languages and errors planted into it, for the encoder of `layouts.DEFAULT_ENCODER`; it says from which text.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.data.words import is_punctuation
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import DEFAULT_ENCODER

from .check_model import CheckModel, Judged, Looked
from .encoder_evidence import EncoderEvidence, EncoderEye, Pair, Usual
from .evidence import Both, both
from .facts import FactModel
from .features import CLASSES, Sides, Vocabulary
from .logistic import Network, log_odds, sigmoid
from .rules import USUAL

FILE = Path(__file__).with_name("encoder_check.json")
# Standard deviations by which words are closer to their translation than to another one (`Usual.known`). Chosen on
# HalOmi dev and the text that was learned from: Kashmiri, Manipuri and Yoruba have 0.3 to 1.0, Japanese 1.3 to 2.1,
# captions, which are all alike, 1.3, and other text of languages that an encoder has read 1.7 to 3.4. Romansh has 1.1
# to 1.4 by its likeness to Italian and German, and errors planted there are found (docs/experiments/checking.md).
LEAST_KNOWN = 1.15
# The mean over the n words of a side says the more, the more there are: its log-odds count `_MOST_OF_MEAN` times
# `n^2 / (n^2 + _HALF^2)`, with `_BESIDE` usual words beside those of the line. Chosen on errors planted into languages
# that nothing was learned from, and on annotated German-English lines.
_MOST_OF_MEAN, _HALF, _BESIDE, _USUALLY = 2.0, 15.0, 20.0, 0.02
_OF_A_MARK = 0.1  # of a word
# What is known of a line in parts. Each counts as far as it is rare: minus the logarithm of the share of clean lines
# in which it is as high (`tail`), above a bar, by a weight: (part, bar, weight). A cause that is learned from planted
# errors says much where it is near certain, and little below. Chosen as the numbers above (docs/log.md).
_STEP, STEPS = 0.25, 20  # nats
_BAR, _SURE = 1.6, 4.6
PARTS_OF_VERDICT = (
    *(("source mean", 0.0, 1.0), ("target mean", 0.0, 1.0)),
    *((cause, _BAR, 2.0) for cause in ("omission", "addition", "added", "repeats", "changed")),
    *(("changed", _SURE, 6.0), ("untranslated", _BAR, 1.0), ("untranslated", _SURE, 2.0)),
)
_NUMBER, _PUNCTUATION = CLASSES.index("number"), CLASSES.index("punctuation")


@dataclass
class EncoderCheckModel(CheckModel[EncoderEvidence]):
    """A `CheckModel` that takes the evidence against a word, its surprisal and its language from an encoder.

    Args:
        tails: of each part, the levels of `tail`.
        added: bias and slope of the log-odds that `rarity` stands for.
    """

    tails: dict[str, np.ndarray] = field(default_factory=dict)
    added: tuple[float, float] = (0.0, 1.0)

    def seen(self, evidence: EncoderEvidence) -> Sides:
        """Return the classes of the words of a pair: numbers, punctuation, and all others."""
        pair = evidence.source.words, evidence.target.words
        odds = [side.copy() for side in evidence.language]
        for side, words in enumerate(pair):  # a name is the same in both languages
            for place, word in enumerate(words):
                if word[0].isupper() and word in pair[1 - side]:
                    odds[side][place] = 0.0
        classes = both(np.array([_class_of(word) for word in words], dtype=np.int64) for words in pair)
        return Sides(classes, evidence.surprisal, both(odds))

    def against(self, lines: Sequence[EncoderEvidence], sides: Sequence[Sides]) -> Both[list[np.ndarray]]:
        return both([line.against[side] for line in lines] for side in (0, 1))

    def judge(self, lines: Sequence[EncoderEvidence], looked: Looked | None = None) -> Judged:
        """Return what is thought of lines; the features of the verdict are its log-odds and those by rules.

        Causes that are learned from planted errors look for runs of words; what a translation says a little beside
        its source is seen in the mean.
        """
        looked = looked or self.look(lines)
        found = super().judge(lines, looked)
        parts = self.line_parts(looked, found.causes)
        for cause, name in (("omission", "source mean"), ("addition", "target mean")):
            found.causes[cause] = sigmoid(parts[cause] + parts[name])
        bias, slope = self.added
        odds = bias + slope * self.rarity(parts)
        return found._replace(verdict_features=np.column_stack([odds, found.verdict_features[:, -1]]))

    @staticmethod
    def line_parts(looked: Looked, causes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the log-odds of causes, and the means of both sides, (lines,) each."""
        parts = {cause: log_odds(values) for cause, values in causes.items()}
        for side, name in enumerate(("source mean", "target mean")):
            parts[name] = np.array(list(map(_mean, looked.against[side], (one.classes[side] for one in looked.sides))))
        return parts

    def rarity(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        """Return how rare `line_parts` are, added by `PARTS_OF_VERDICT`, (lines,)."""
        tails = {part: tail(parts[part], levels) for part, levels in self.tails.items()}
        total = np.zeros(len(tails[PARTS_OF_VERDICT[0][0]]))
        for part, bar, weight in PARTS_OF_VERDICT:
            total += weight * np.maximum(0, tails[part] - bar)
        return total

    def line_odds(self, verdict_features: np.ndarray) -> np.ndarray:
        return verdict_features[:, 0]


def tail(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return minus the logarithm of the share of clean lines in which a part is as high, (lines,).

    Args:
        values: of a part, (lines,).
        levels: that shares `exp(-k _STEP)` of the clean lines reach, (STEPS,), k from 1; beyond the last it goes on as
            between the middle one and that.
    """
    shares = _STEP * np.arange(1, STEPS + 1)
    falling = max((levels[-1] - levels[STEPS // 2 - 1]) / (_STEP * STEPS / 2), 1e-3)
    return np.interp(values, levels, shares) + np.maximum(0, values - levels[-1]) / falling


def levels_of(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the levels of `tail` of a part of clean lines, (STEPS,), each line with its weight."""
    order = values.argsort()
    below = weights[order].cumsum() / weights.sum()
    found = np.interp(1 - np.exp(-_STEP * np.arange(1, STEPS + 1)), below, values[order])
    return np.maximum.accumulate(found + 1e-6 * np.arange(STEPS))


def _mean(against: np.ndarray, classes: np.ndarray) -> float:
    """Return what the mean probability of words to have no partner adds to log-odds, 0 for a usual line."""
    weights = np.where(classes == _PUNCTUATION, _OF_A_MARK, 1.0)
    number = weights.sum()
    mean = np.array([(sigmoid(against) @ weights + _BESIDE * _USUALLY) / (number + _BESIDE), _USUALLY])
    more, usual = log_odds(mean)
    return float(_MOST_OF_MEAN * number**2 / (number**2 + _HALF**2) * (more - usual))


def _class_of(word: str) -> int:
    return _PUNCTUATION if is_punctuation(word) else _NUMBER if any(map(str.isdigit, word)) else 0


class EncoderJudge:
    """Judges pairs by an encoder alone.

    What is usual in a text (the means of the languages, how similar partners are, lengths) is learned from its first
    pairs: take another one for another pair of languages.

    Args:
        encoder: of the kind that the file was learned for.

    Raises:
        ValueError: it is of another kind, or adapted to aligning.
    """

    def __init__(self, encoder: EncoderPrior):
        if encoder.adapted:
            raise ValueError("`encoder` is adapted to aligning: for a check, load it with `adapted=False`.")
        self._model, network, common, of = saved_encoder_check()
        found = encoder_kind(encoder)
        if found != of:
            told = ", ".join(f"{name} {value}" for name, value in found.items() if value != of[name])
            raise ValueError(
                f"What good pairs look like to an encoder was learned for {DEFAULT_ENCODER[0]} alone, and this one is "
                f"another ({told}). Give that one, or an aligner that was trained with yours."
            )
        self.eye = EncoderEye(encoder, network, common)
        self._usual: Usual | None = None  # in the model
        self._told: tuple | None = None

    @classmethod
    def from_pretrained(cls, encoder: str | Path | EncoderPrior, device: str = "cpu") -> "EncoderJudge":
        """Load an encoder from a folder or the Hub, if it is not loaded; errors are those of the class and of it."""
        if isinstance(encoder, str | Path):
            encoder = EncoderPrior.from_pretrained(encoder, device=device, adapted=False)
        return cls(encoder)

    @property
    def name(self) -> str:
        """The encoder, for signatures."""
        return self.eye.encoder.reader.model.config.name_or_path or self.eye.encoder.reader.model.config.model_type

    @property
    def model(self) -> EncoderCheckModel:
        """The model, with what is usual in the text that was read."""
        usual = self.eye.usual
        if usual is not self._usual:
            vocabulary = Vocabulary(({}, {}), (0, 0), usual.languages)
            lengths = usual.length, *self._model.lengths[1:]
            self._model = replace(self._model, lengths=lengths, scripts=usual.scripts, vocabulary=vocabulary)
            self._usual = usual
        return self._model

    @property
    def knows(self) -> bool:
        """Whether the encoder recognises partners in the text that was read; True where that is too little to tell."""
        known = self.eye.usual.known
        return known is None or known >= LEAST_KNOWN

    def judge(self, pairs: Sequence[Pair]) -> Judged | None:
        """Return what is thought of pairs; None where the encoder does not know their languages."""
        evidence = self.eye.read(pairs)
        told = self.eye.usual.known is None, self.knows
        if told != self._told:
            self._told = told
            LOG.log(logging.INFO if told == (False, True) else logging.WARNING, "%s", self.told())
        return self.model.judge(evidence) if self.knows else None

    def known_lines(self, sides: Sequence[Pair]) -> np.ndarray:
        """Return of which pairs the languages are known, (lines,): of all, or of none."""
        return np.full(len(sides), self.knows)

    def told(self) -> str:
        """Return in one line how well the encoder knows the languages of the text that was read."""
        known = self.eye.usual.known
        if known is None:
            return (
                "these are too few lines to tell whether the encoder knows the languages: where it does not, a "
                "verdict says nothing"
            )
        told = f"words are {known:.1f} standard deviations closer to their translation than to another one: "
        return told + (
            "the encoder knows both languages"
            if self.knows
            else "the encoder does not know one of the languages, or the lines are no translations of each other, "
            "and it does not judge"
        )


def encoder_kind(encoder: EncoderPrior) -> dict:
    """Return what tells one kind of encoder from another; one that was tuned is of the same kind."""
    config, tokenizer = encoder.reader.model.config, encoder.reader.tokenizer
    found = {name: getattr(config, name, None) for name in ("model_type", "hidden_size", "vocab_size")}
    return found | {"layer": encoder.layer, "tokenizer": _tokenizer_kind(tokenizer)}


def _tokenizer_kind(tokenizer) -> str:
    return type(tokenizer.backend_tokenizer.model).__name__ if tokenizer.is_fast else "slow"


@lru_cache(maxsize=1)
def saved_encoder_check() -> tuple[EncoderCheckModel, Network, np.ndarray, dict]:
    """Load the file: the model, the network of words, the mean state of all languages, and the kind of its encoder."""
    values = json.loads(FILE.read_text(encoding="utf-8"))
    network = Network.from_dict(values["network"])
    model = EncoderCheckModel(
        Vocabulary(({}, {}), (0, 0)),
        ({}, {}),
        tuple(values["lengths"]),
        values["alarm"],
        values["learned"],
        scale=np.array(values["scale"]),
        heads={name: np.array(weights) for name, weights in values["heads"].items()},
        facts=FactModel.from_dict(values["facts"]),
        rules=USUAL | values["rules"],
        tails={part: np.array(levels) for part, levels in values["tails"].items()},
        added=tuple(values["added"]),
    )
    return model, network, np.array(values["common"], dtype=np.float32), values["encoder"]
