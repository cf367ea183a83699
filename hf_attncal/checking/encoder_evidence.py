"""Evidence for `attncal check` from the states of a pretrained encoder.

The state of a word is the mean over its tokens in one layer, minus the mean of its language. Features of a word are
its cosine with the best partner on the other side, the margin to the next one, whether the preference is mutual, the
partners of its neighbours, its rarity (by the tokenizer's unigram model of a hundred languages), and statistics of the
text. `Network` turns them into the log-odds that the word has no partner.

Shapes use S = source words and T = target words of a pair, F = features of a word.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from hf_attncal.alignment.encoder_reader import EncoderLayer
from hf_attncal.data.segmentation import Segments, segment
from hf_attncal.data.words import is_punctuation

from .evidence import NO_WORDS, Both, LinkEvidence, both, said_again, script_shares
from .logistic import Network
from .number_values import Languages, language_of

TEMPERATURE = 0.07  # the network was trained with it; aligners may use another one
_SAMPLE = 512  # pairs that the statistics of a text come from
_TOKENS = 4096  # tokens per batch of texts
_PRIOR_WORDS = 10.0  # weight of the common mean in the mean of a language, in words
_GROWTH = 1.25  # growth of the sample after which the statistics are computed again
_FEWEST = 8  # pairs below which the coverage of the languages is unknown
_FAR = 6.0  # words
_RAREST, _LONGEST, _PIECES = 25.0, 12, 6
_UNKNOWN_SURPRISAL = 20.0  # nats, for a piece without a frequency in the tokenizer
_AROUND = (-2, -1, 1, 2)
_LANGUAGE = 6.0  # log-odds between the means of the two languages
_MOST_LANGUAGE = 3.0
_LEAST_APART = 1e-3
_PUNCTUATION_WEIGHT = 0.05  # relative to a word, in the vector of a text
_MEAN_BEST, _SPREAD_BEST = 0.6, 0.15  # prior mean and standard deviation of the best cosines
Pair = Both[Segments]


@dataclass(frozen=True, slots=True)
class EncoderEvidence(LinkEvidence):
    """Evidence of an encoder on the words of one pair; `best` is the largest harmonic mean of both softmaxes.

    Args:
        against: Log-odds of each word to have no partner, (S,) and (T,).
        language: Log-odds of each word to be in the language of the source.
        surprisal: Surprisal of each word by the tokenizer's unigram model, in nats.
    """

    against: Both[np.ndarray] = NO_WORDS
    language: Both[np.ndarray] = NO_WORDS
    surprisal: Both[np.ndarray] = NO_WORDS


@dataclass(frozen=True)
class TextStatistics:
    """Statistics of a text, computed from its first pairs.

    Args:
        means: Mean state of the words of each side.
        best: Mean and standard deviation of the best cosine of the words of each side.
        length: Median log-ratio of target to source characters.
        scripts: Share of the letters in each script, per side.
        known: Distance between the cosines with the translation and with another line, in standard deviations; None
            for too few pairs.
        languages: Languages of both sides by their number words. Default: unknown.
    """

    means: Both[np.ndarray]
    best: Both[tuple[float, float]]
    length: float
    scripts: Both[dict[str, float]]
    known: float | None
    languages: Languages = (None, None)

    def cosines(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the cosines of centred states, (S, T)."""
        sides = [
            (states - mean) * states.any(axis=1, keepdims=True)
            for states, mean in zip((source, target), self.means, strict=True)
        ]
        source, target = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-6) for side in sides)
        return source @ target.T

    def language(self, side: Segments, states: np.ndarray) -> np.ndarray:
        """Return the log-odds of words to be in the language of the source; 0 for punctuation and numbers."""
        apart = self.means[0] - self.means[1]
        odds = (states - (self.means[0] + self.means[1]) / 2) @ apart / max(float(apart @ apart), _LEAST_APART)
        is_word = np.array([word.isalpha() for word in side.words], dtype=bool) & states.any(axis=1)
        return np.clip(_LANGUAGE * odds, -_MOST_LANGUAGE, _MOST_LANGUAGE) * is_word


class WordStates(NamedTuple):
    """Words of a text as read by an encoder: states (words, size), surprisal, and number of tokens."""

    states: np.ndarray
    surprisal: np.ndarray
    tokens: np.ndarray


ReadPairs = Sequence[tuple[Pair, Both[WordStates]]]


class EvidenceReader:
    """Reader of the evidence of an encoder, with statistics of the text that it reads.

    Args:
        encoder: Encoder of the kind that `network` was trained for; its tokenizer has a unigram model.
        network: Network for `EncoderEvidence.against`; None during its training, for evidence of 0.
        common: Mean state of words of many languages, (size,), a prior for the mean of a language.

    Attributes:
        statistics: Statistics of the text.
        learns: True while the statistics adapt to the pairs that are read.
    """

    def __init__(self, encoder: EncoderLayer, network: Network | None, common: np.ndarray):
        self.encoder, self.network, self.common = encoder, network, common
        self.statistics = text_statistics([], common)
        self.learns = True
        self._sample: list[tuple[Pair, Both[WordStates]]] = []
        self._counted = 0  # pairs in the current statistics

    def read(self, sides: Sequence[Pair]) -> list[EncoderEvidence]:
        """Read the evidence of pairs, in their order."""
        return [self.evidence(*pair) for pair in zip(sides, self.read_states(sides), strict=True)]

    def read_states(self, sides: Sequence[Pair]) -> list[Both[WordStates]]:
        """Read the states of pairs, and update the statistics of the text."""
        texts = self.states_of([text for pair in sides for text in pair])
        reads = [(texts[n], texts[n + 1]) for n in range(0, len(texts), 2)]
        self._update(sides, reads)
        return reads

    def features(self, sides: Pair, read: Both[WordStates]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return e (S, T), and the features of the words of both sides, (S, F) and (T, F)."""
        cosines = self.statistics.cosines(read[0].states, read[1].states)
        return word_features(cosines, sides, read, self.statistics)

    def evidence(self, sides: Pair, read: Both[WordStates]) -> EncoderEvidence:
        """Return the evidence on a pair with words on both sides, from its states."""
        together, *features = self.features(sides, read)
        best = together.max(axis=1), together.max(axis=0)
        against = both(self.network(one) if self.network else np.zeros(len(one)) for one in features)
        language = both(self.statistics.language(side, one.states) for side, one in zip(sides, read, strict=True))
        again = said_again(sides[1].words, together)
        surprisal = both(one.surprisal for one in read)
        return EncoderEvidence(*sides, best, None, again, against=against, language=language, surprisal=surprisal)

    def _update(self, sides: Sequence[Pair], reads: Sequence[Both[WordStates]]) -> None:
        """Update the statistics with the first pairs of a text, spread evenly over each batch."""
        left = _SAMPLE - len(self._sample)
        full = [pair for pair in zip(sides, reads, strict=True) if pair[0][0].words and pair[0][1].words]
        if left > 0 and full and self.learns:
            # A new list, as copies of this object share the old one.
            self._sample = self._sample + full[:: -(-len(full) // left)]
            if len(self._sample) >= _GROWTH * self._counted:
                self._counted = len(self._sample)
                self.statistics = text_statistics(self._sample, self.common)

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return a vector for each text of one language: the sum of its centred unit states, (texts, size)."""
        sides = list(map(segment, texts))
        texts_read = self.states_of(sides)
        mean = _mean_state(texts_read, self.common)
        vectors = np.zeros((len(texts), len(self.common)), dtype=np.float32)
        for number, (side, one) in enumerate(zip(sides, texts_read, strict=True)):
            if len(one.states):
                states = one.states - mean
                weights = np.where(_forms(side.words)[:, 0] > 0, _PUNCTUATION_WEIGHT, 1.0)
                vectors[number] = weights @ (states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-6))
        return vectors

    @torch.no_grad()
    def states_of(self, texts: Sequence[Segments]) -> list[WordStates]:
        """Read each different text once, longest first."""
        reader, layer = self.encoder.reader, self.encoder.layer
        different = list(dict.fromkeys(texts))
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        encoded = reader.tokenizer([text.text for text in different], **options)
        ids = [np.array(tokens, dtype=np.int64) for tokens in encoded["input_ids"]]
        reads: dict[Segments, WordStates] = {}
        for n, of_text in reader.states_by_length(ids, layer, _TOKENS):
            states = of_text if len(ids[n]) else torch.zeros(0, len(self.common))
            reads[different[n]] = self._of_words(different[n], ids[n], encoded["offset_mapping"][n], states)
        return [reads[text] for text in texts]

    def _of_words(self, text: Segments, ids: np.ndarray, offsets, states: torch.Tensor) -> WordStates:
        """Return the mean states of the words; a token that spans several words (in Chinese) counts for each."""
        if not bool(states.isfinite().all()):
            raise ValueError("The states of the encoder are not finite: its checkpoint is damaged.")
        words, tokens = _words_of_tokens(text, offsets)
        number = np.bincount(words, minlength=len(text.words))
        total = torch.zeros(len(text.words), states.shape[1])
        total.index_add_(0, torch.from_numpy(words), states[torch.from_numpy(tokens)].float())
        shared = np.bincount(tokens, minlength=len(ids))
        surprisal = np.bincount(words, self.piece_surprisal[ids[tokens]] / shared[tokens], minlength=len(text.words))
        return WordStates(total.numpy() / np.maximum(number, 1)[:, None], surprisal, number)

    @property
    def piece_surprisal(self) -> np.ndarray:
        """Surprisal of each token by the unigram model of the tokenizer, in nats, (vocabulary,)."""
        if self._surprisal is None:
            tokenizer = self.encoder.reader.tokenizer
            model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
            surprisal = np.full(len(tokenizer), _UNKNOWN_SURPRISAL)
            surprisal[: len(model["vocab"])] = [-score for _, score in model["vocab"]]
            self._surprisal = surprisal
        return self._surprisal

    _surprisal: np.ndarray | None = None


def _words_of_tokens(text: Segments, offsets: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all overlapping pairs of a word and a token, as two arrays."""
    owner = np.full(len(text.text) + 1, -1)
    for word, (start, end) in enumerate(text.spans):
        owner[start:end] = word
    pairs = [
        (word, token)
        for token, (start, end) in enumerate(offsets)
        for word in dict.fromkeys(owner[start:end].tolist())
        if word >= 0
    ]
    indices = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return indices[:, 0], indices[:, 1]


# ---- statistics of a text ----


def text_statistics(met: ReadPairs, common: np.ndarray) -> TextStatistics:
    """Return the statistics of pairs with words on both sides; `common` as in `EvidenceReader`."""
    means = both(_mean_state([read[side] for _, read in met], common) for side in (0, 1))
    lengths = [math.log((len(pair[1].text) + 1) / (len(pair[0].text) + 1)) for pair, _ in met]
    # The zeros are a prior for texts of one or two lines.
    usual = TextStatistics(means, ((0.0, 1.0),) * 2, float(np.median([*lengths, *[0.0] * _FEWEST])), ({}, {}), None)
    cosines_of_pairs = [usual.cosines(read[0].states, read[1].states) for _, read in met]
    best = []
    for side in (0, 1):
        values = [
            value
            for (pair, _), cosines in zip(met, cosines_of_pairs, strict=True)
            for word, value in zip(pair[side].words, cosines.max(axis=1 - side).tolist(), strict=True)
            if not is_punctuation(word)
        ]
        # Twenty words with the prior mean and deviation are added, for texts of one or two lines.
        number = len(values)
        mean = (sum(values) + 20 * _MEAN_BEST) / (number + 20)
        spread = (sum((value - mean) ** 2 for value in values) + 20 * _SPREAD_BEST**2) / (number + 20)
        best.append((mean, math.sqrt(spread)))
    sides = [[pair[side] for pair, _ in met] for side in (0, 1)]
    scripts = both(script_shares(text.text for text in side) for side in sides)
    languages = both(language_of(Counter(word.lower() for text in side for word in text.words)) for side in sides)
    return TextStatistics(means, both(best), usual.length, scripts, _known(met, usual), languages)


def _mean_state(texts: Sequence[WordStates], common: np.ndarray) -> np.ndarray:
    states = [_PRIOR_WORDS * common, *(one.states.sum(axis=0) for one in texts)]
    return sum(states) / (_PRIOR_WORDS + sum(len(one.states) for one in texts))


def _known(met: ReadPairs, usual: TextStatistics) -> float | None:
    """Return the distance between best cosines within a pair and with another pair of similar length.

    Only words of letters that are not on the other side count: names and numbers are alike in unknown languages.

    Returns:
        Difference of the means in standard deviations; None for too few pairs.
    """
    order = sorted(range(len(met)), key=lambda n: [len(one.states) for one in met[n][1]])
    own: list[np.ndarray] = []
    foreign: list[np.ndarray] = []
    for n, neighbour in pairwise(order):
        (source, target), (read, _) = met[n]
        if met[neighbour][0][1].text == target.text:  # a repeated line
            continue
        for cosines_of, (text, of_text) in (
            (own, (target, met[n][1][1])),
            (foreign, (met[neighbour][0][1], met[neighbour][1][1])),
        ):
            cosines = usual.cosines(read.states, of_text.states)
            rows, columns = _own_words(source.words, text.words), _own_words(text.words, source.words)
            if rows and columns:
                cosines = cosines[np.ix_(rows, columns)]
                cosines_of += [cosines.max(axis=1), cosines.max(axis=0)]
    if min(len(own), len(foreign)) < 2 * _FEWEST:
        return None
    near, far = np.concatenate(own), np.concatenate(foreign)
    return float((near.mean() - far.mean()) / math.sqrt((near.var() + far.var()) / 2 + 1e-9))


def _own_words(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return the indices of the words of letters that are not among others."""
    on_other_side = {word.lower() for word in others}
    return [place for place, word in enumerate(words) if word.isalpha() and word.lower() not in on_other_side]


def harmonic_softmax(cosines: np.ndarray) -> np.ndarray:
    """Return the harmonic mean of both softmaxes, e in `encoder_prior.py`, (S, T)."""
    exponentials = np.exp((cosines - cosines.max()) / TEMPERATURE)
    forward = exponentials / np.maximum(exponentials.sum(axis=1, keepdims=True), 1e-30)
    backward = exponentials / np.maximum(exponentials.sum(axis=0, keepdims=True), 1e-30)
    return 2 * forward * backward / np.maximum(forward + backward, 1e-30)


# ---- features of words ----


def word_features(
    cosines: np.ndarray, sides: Pair, read: Both[WordStates], usual: TextStatistics
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return e (S, T), and the features of the words of both sides, (S, F) and (T, F).

    Their order: best, best for this text, before the next, together, preferred, claimed, moved, near, jump before,
    jump after; best for this text and together of the neighbours (`_AROUND`), around; surprisal, tokens; punctuation,
    number, capital, letters (`_forms`), same, with punctuation; surprisal relative to the partner, surprisal before
    and after; support of both sides, words, other words, longer, mean and spread of the best of the text, target.

    Args:
        cosines: Cosines of the words, (S, T), at least one word on each side.
        sides, read: Words of the pair, and their states.
        usual: Statistics of its text.
    """
    together = harmonic_softmax(cosines)
    forms = [_forms(side.words) for side in sides]
    lower = [[word.lower() for word in side.words] for side in sides]
    weights = [
        np.where(form[:, 0] > 0, 0.1, 1.0) * np.minimum(one.surprisal, _RAREST) + 1e-3
        for form, one in zip(forms, read, strict=True)
    ]
    bests = cosines.max(axis=1), cosines.max(axis=0)
    supports = [
        (float((best * weight).sum() / weight.sum()) - mean) / spread
        for best, weight, (mean, spread) in zip(bests, weights, usual.best, strict=True)
    ]
    longer = math.log((len(sides[1].text) + 1) / (len(sides[0].text) + 1)) - usual.length
    features = []
    for side in (0, 1):
        scores, probable = (cosines, together) if side == 0 else (cosines.T, together.T)
        number, others = scores.shape
        places, partner, best = np.arange(number), scores.argmax(axis=1), bests[side]
        rest = scores.copy()
        rest[places, partner] = -1
        relative = (best - usual.best[side][0]) / usual.best[side][1]
        surest = probable.max(axis=1)
        jumps = []
        for step in (-1, 1):
            there = _shifted(partner, step, np.nan)
            jumps.append(np.nan_to_num(np.minimum(np.abs(there - partner - step), _FAR), nan=_FAR))
        expected = [
            np.clip(_shifted(partner, step, edge) - step, 0, others - 1).astype(int)
            for step, edge in ((-1, -1), (1, others))
        ]
        near = np.maximum(*(scores[places, there] for there in expected))
        surprisal, partners = read[side].surprisal, read[1 - side].surprisal[partner]
        here = [
            *(supports[side], supports[1 - side], math.log(number), math.log((others + 1) / (number + 1))),
            *(longer if side else -longer, *usual.best[side], side),
        ]
        columns = [
            *(best, relative, best - rest.max(axis=1), surest, scores.max(axis=0)[partner] - best),
            probable.sum(axis=0)[partner] - probable[places, partner],
            np.abs((partner + 0.5) / others - (places + 0.5) / number),
            *(near - best, *jumps),
            *(_shifted(relative, step, 0.0) for step in _AROUND),
            *(_shifted(surest, step, 0.5) for step in _AROUND),
            np.array([relative[max(0, place - 3) : place + 4].mean() for place in range(number)]),
            *(np.minimum(surprisal, _RAREST), np.minimum(read[side].tokens, _PIECES), *forms[side].T),
            np.array([word in lower[1 - side] for word in lower[side]], dtype=float),
            *(forms[1 - side][partner, 0], partners - surprisal),
            *(_shifted(surprisal, step, 5.0) for step in (-1, 1)),
            *(np.full(number, value) for value in here),
        ]
        features.append(np.stack(columns, axis=1))
    return together, features[0], features[1]


def _forms(words: Sequence[str]) -> np.ndarray:
    """Return the form of words: punctuation, has a digit, capitalised, length, (words, 4)."""
    forms = [
        (is_punctuation(word), any(map(str.isdigit, word)), word[0].isupper(), min(len(word), _LONGEST))
        for word in words
    ]
    return np.array(forms, dtype=float)


def _shifted(values: np.ndarray, step: int, edge: float) -> np.ndarray:
    """Return the values shifted by `step`: element n is `values[n + step]`, or `edge` outside."""
    shifted = np.full(len(values), edge, dtype=float)
    if abs(step) < len(values):
        shifted[max(0, -step) : len(values) - max(0, step)] = values[max(0, step) : len(values) + min(0, step)]
    return shifted
