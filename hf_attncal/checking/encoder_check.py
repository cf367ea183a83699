"""Check with a pretrained encoder: one model of good pairs for all languages that the encoder covers.

The model is in `encoder_check.json` beside this module. `experiments/encoder_check.py` made it for the encoder of
`layouts.DEFAULT_ENCODER`, from clean text of several languages with planted errors; the file lists the texts.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hf_attncal.alignment.encoder_reader import EncoderLayer
from hf_attncal.data.words import is_punctuation
from hf_attncal.io.messages import LOG
from hf_attncal.layouts import DEFAULT_ENCODER

from .check_model import CheckModel, Judged, Judgement, ModelInputs
from .encoder_evidence import EncoderEvidence, EvidenceReader, Pair, TextStatistics
from .evidence import Both, both
from .facts import FactModel
from .features import CLASSES, Sides, Vocabulary
from .logistic import Network, log_odds, sigmoid
from .number_values import Languages
from .rules import DEFAULT_SHARES

FILE = Path(__file__).with_name("encoder_check.json")
# Lowest `TextStatistics.known` at which a language counts as covered, in standard deviations. Chosen on HalOmi dev and
# the training text: Kashmiri, Manipuri and Yoruba have 0.3 to 1.0, Japanese 1.3 to 2.1, captions (all alike) 1.3,
# and other text of languages that an encoder was trained on 1.7 to 3.4. Romansh has 1.1 to 1.4, as it resembles
# Italian and German, and planted errors are found there (docs/experiments/checking.md).
MIN_COVERAGE = 1.15
# The mean over the n words of a side is more reliable for longer lines: its log-odds are multiplied by `_MOST_OF_MEAN`
# times `n^2 / (n^2 + _HALF^2)`, after adding `_USUAL_WORDS` usual words. Chosen on errors planted into languages
# outside the training text, and on annotated German-English lines.
_MOST_OF_MEAN, _HALF, _USUAL_WORDS, _USUAL_MEAN = 2.0, 15.0, 20.0, 0.02
_PUNCTUATION_WEIGHT = 0.1  # weight of punctuation, relative to a word
# Parts of the verdict: (part, bar, weight). Each part adds its rarity, minus the logarithm of the share of clean lines
# with a value as high (`tail`), above the bar, times the weight. A cause learned from planted errors is strong
# evidence only if it is nearly certain. Chosen like the numbers above (docs/log.md).
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
    """`CheckModel` with the evidence against a word, its surprisal and its language from an encoder.

    Args:
        tails: Levels of `tail` for each part.
        added: Bias and slope from `rarity` to log-odds. Default: (0, 1).
    """

    tails: dict[str, np.ndarray] = field(default_factory=dict)
    added: tuple[float, float] = (0.0, 1.0)

    def seen(self, evidence: EncoderEvidence) -> Sides:
        """Return the classes of the words of a pair: number, punctuation, or other."""
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

    def judge(self, lines: Sequence[EncoderEvidence], inputs: ModelInputs | None = None) -> Judgement:
        """Judge lines; the features of the verdict are its log-odds and the log-odds of the rules.

        Causes learned from planted errors find runs of words; the mean over all words finds loose translations.
        """
        inputs = inputs or self.inputs(lines)
        judgement = super().judge(lines, inputs)
        parts = self.line_parts(inputs, judgement.causes)
        for cause, name in (("omission", "source mean"), ("addition", "target mean")):
            judgement.causes[cause] = sigmoid(parts[cause] + parts[name])
        of_likeness = parts | {"changed": parts["facts"]}
        bases = ((parts, judgement.verdict_features), (of_likeness, judgement.likeness_features))
        features = [(self.added[0] + self.added[1] * self.rarity(one), base[:, -1]) for one, base in bases]
        verdict, likeness = map(np.column_stack, features)
        return judgement._replace(verdict_features=verdict, likeness_features=likeness)

    @staticmethod
    def line_parts(inputs: ModelInputs, causes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the log-odds of causes, and the means of both sides, (lines,) each."""
        parts = {cause: log_odds(values) for cause, values in causes.items()}
        for side, name in enumerate(("source mean", "target mean")):
            parts[name] = np.array(list(map(_mean, inputs.against[side], (one.classes[side] for one in inputs.sides))))
        return parts

    def rarity(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        """Return the weighted sum of the rarities of `line_parts`, by `PARTS_OF_VERDICT`, (lines,)."""
        tails = {part: tail(parts[part], levels) for part, levels in self.tails.items()}
        total = np.zeros(len(tails[PARTS_OF_VERDICT[0][0]]))
        for part, bar, weight in PARTS_OF_VERDICT:
            total += weight * np.maximum(0, tails[part] - bar)
        return total

    def line_odds(self, verdict_features: np.ndarray) -> np.ndarray:
        return verdict_features[:, 0]


def tail(values: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return minus the logarithm of the share of clean lines with a value as high, (lines,).

    Args:
        values: Values of a part, (lines,).
        levels: Levels that shares `exp(-k _STEP)` of the clean lines reach, k from 1, (STEPS,). Beyond the last level
            the curve is extrapolated from the middle level and the last.
    """
    shares = _STEP * np.arange(1, STEPS + 1)
    falling = max((levels[-1] - levels[STEPS // 2 - 1]) / (_STEP * STEPS / 2), 1e-3)
    return np.interp(values, levels, shares) + np.maximum(0, values - levels[-1]) / falling


def levels_of(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the levels of `tail` from the weighted values of clean lines, (STEPS,)."""
    order = values.argsort()
    below = weights[order].cumsum() / weights.sum()
    levels = np.interp(1 - np.exp(-_STEP * np.arange(1, STEPS + 1)), below, values[order])
    return np.maximum.accumulate(levels + 1e-6 * np.arange(STEPS))


def _mean(against: np.ndarray, classes: np.ndarray) -> float:
    """Return the log-odds from the mean probability of words to have no partner; 0 for a usual line."""
    weights = np.where(classes == _PUNCTUATION, _PUNCTUATION_WEIGHT, 1.0)
    number = weights.sum()
    mean = np.array([(sigmoid(against) @ weights + _USUAL_WORDS * _USUAL_MEAN) / (number + _USUAL_WORDS), _USUAL_MEAN])
    more, usual = log_odds(mean)
    return float(_MOST_OF_MEAN * number**2 / (number**2 + _HALF**2) * (more - usual))


def _class_of(word: str) -> int:
    return _PUNCTUATION if is_punctuation(word) else _NUMBER if any(map(str.isdigit, word)) else 0


class EncoderJudge:
    """Judge of sentence pairs that uses an encoder.

    Statistics of the text (means of the languages, similarity of partners, lengths) come from its first pairs. Use a
    new judge for another pair of languages.

    Args:
        encoder: Encoder of the kind that the file was made for.

    Raises:
        ValueError: The encoder is of another kind, or adapted to word alignment.

    Attributes:
        languages: Languages of both sides, of `number_values.LANGUAGES`. Default: unknown, by the number words of the
            text.
    """

    languages: Languages = (None, None)

    def __init__(self, encoder: EncoderLayer):
        if encoder.adapted:
            raise ValueError("`encoder` is adapted to word alignment. For a check, load it with `adapted=False`.")
        self._model, network, common, expected_kind = saved_encoder_check()
        kind = encoder_kind(encoder)
        if kind != expected_kind:
            differences = ", ".join(f"{name} {value}" for name, value in kind.items() if value != expected_kind[name])
            raise ValueError(
                f"`encoder` must be {DEFAULT_ENCODER[0]} or tuned from it, got {differences}. Give that encoder, "
                "or an aligner that was trained with yours."
            )
        self.evidence_reader = EvidenceReader(encoder, network, common)
        self._usual: TextStatistics | None = None  # statistics in `_model`
        self._reported: tuple | None = None

    @classmethod
    def from_pretrained(cls, encoder: str | Path | EncoderLayer, device: str = "cpu") -> "EncoderJudge":
        """Load an encoder from a folder or the Hub; a loaded one is used as it is."""
        if isinstance(encoder, str | Path):
            encoder = EncoderLayer.from_pretrained(encoder, device=device)
        return cls(encoder)

    @property
    def name(self) -> str:
        """The name of the encoder, for signatures."""
        config = self.evidence_reader.encoder.reader.model.config
        return config.name_or_path or config.model_type

    @property
    def model(self) -> EncoderCheckModel:
        """The model, with the statistics of the text read so far."""
        usual = self.evidence_reader.statistics
        if usual is not self._usual:
            languages = both(named or seen for named, seen in zip(self.languages, usual.languages, strict=True))
            vocabulary = Vocabulary(({}, {}), (0, 0), languages)
            lengths = usual.length, *self._model.lengths[1:]
            self._model = replace(self._model, lengths=lengths, scripts=usual.scripts, vocabulary=vocabulary)
            self._usual = usual
        return self._model

    @property
    def covers_languages(self) -> bool:
        """True if the encoder covers the languages of the text read so far, or too little was read."""
        distance = self.evidence_reader.statistics.known
        return distance is None or distance >= MIN_COVERAGE

    def judge(self, pairs: Sequence[Pair]) -> Judged | None:
        """Judge pairs; return None if the encoder does not cover their languages."""
        evidence = self.evidence_reader.read(pairs)
        coverage = self.evidence_reader.statistics.known is None, self.covers_languages
        if coverage != self._reported:
            self._reported = coverage
            LOG.log(logging.INFO if coverage == (False, True) else logging.WARNING, "%s", self.coverage_message())
        if not self.covers_languages:
            return None
        return Judged(self.model, self.model.judge(evidence), np.full(len(pairs), True))

    def coverage_message(self) -> str:
        """Return a message on the encoder's coverage of the languages of the text read so far."""
        distance = self.evidence_reader.statistics.known
        if distance is None:
            return (
                "too few lines to test whether the encoder covers the languages; if it does not, the verdicts are "
                "meaningless"
            )
        message = f"words are {distance:.1f} standard deviations closer to their translation than to another line: "
        if self.covers_languages:
            return f"{message}the encoder covers both languages"
        return (
            f"{message}the encoder does not cover one of the languages, or the lines are not translations of each "
            "other, so it gives no verdicts"
        )


def encoder_kind(encoder: EncoderLayer) -> dict:
    """Return the kind of an encoder: its architecture, layer and tokenizer, which fine-tuning keeps."""
    config, tokenizer = encoder.reader.model.config, encoder.reader.tokenizer
    kind = {name: getattr(config, name, None) for name in ("model_type", "hidden_size", "vocab_size")}
    return kind | {"layer": encoder.layer, "tokenizer": _tokenizer_kind(tokenizer)}


def _tokenizer_kind(tokenizer) -> str:
    return type(tokenizer.backend_tokenizer.model).__name__ if tokenizer.is_fast else "slow"


@lru_cache(maxsize=1)
def saved_encoder_check() -> tuple[EncoderCheckModel, Network, np.ndarray, dict]:
    """Load the model, the network of words, the common mean state, and the kind of the encoder from the file."""
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
        rules={name: min(share, values["rules"].get(name, share)) for name, share in DEFAULT_SHARES.items()},
        tails={part: np.array(levels) for part, levels in values["tails"].items()},
        added=tuple(values["added"]),
    )
    return model, network, np.array(values["common"], dtype=np.float32), values["encoder"]
