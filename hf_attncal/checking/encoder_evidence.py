"""What the states of a pretrained encoder say of each word of a pair: evidence for `attncal check`.

A word has a state of one layer, the mean over its tokens, less the mean of its language. Beside the cosine of a word
with its best partner on the other side stand: how much better it is than the next, whether the partner prefers this
word, too, where the partners of its neighbours stand, how rare the word is (the tokenizer's unigram model knows a
hundred languages), and what is usual in the text at hand. `Network` makes of these the log-odds that the word has
no partner.

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

from hf_attncal.alignment.encoder_prior import EncoderPrior
from hf_attncal.data.segmentation import Segments
from hf_attncal.data.words import is_punctuation

from .evidence import NO_WORDS, Both, LinkEvidence, both, said_again, script_shares
from .logistic import Network
from .number_values import Languages, language_of

TEMPERATURE = 0.07  # the network has learned with this one, whatever aligners take
_SAMPLE = 512  # pairs that tell what is usual in a text
_TOKENS = 4096  # of a batch of texts
_BORROWED = 10.0  # words that the mean of a language begins with
_MORE = 1.25  # so many times as many pairs, and it is learned anew
_FEWEST = 8  # pairs, below which nothing is told of what the encoder knows
_FAR = 6.0  # words
_RAREST, _LONGEST, _PIECES = 25.0, 12, 6
_RARE_PIECE = 20.0  # nats: of a piece of which the tokenizer does not know how frequent it is
_AROUND = (-2, -1, 1, 2)
_LANGUAGE = 6.0  # log-odds from one mean of a language to the other
_MOST_LANGUAGE = 3.0
_LEAST_APART = 1e-3
_MEAN_BEST, _SPREAD_BEST = 0.6, 0.15  # best cosines of any text
Pair = Both[Segments]


@dataclass(frozen=True, slots=True)
class EncoderEvidence(LinkEvidence):
    """Evidence of an encoder on the words of one pair; `best` is the largest harmonic mean of both softmaxes.

    Args:
        against: of each source word (S,), and of each target word (T,), the log-odds that it has no partner.
        language: the log-odds of each word to be in the language of the source.
        surprisal: of each word by the tokenizer's unigram model, in nats.
    """

    against: Both[np.ndarray] = NO_WORDS
    language: Both[np.ndarray] = NO_WORDS
    surprisal: Both[np.ndarray] = NO_WORDS


@dataclass(frozen=True)
class Usual:
    """What is usual in a text, learned from its first pairs.

    Args:
        means: mean state of the words of each side.
        best: mean and standard deviation of the best cosine of the words of each side.
        length: median of the logarithm of target to source characters.
        scripts: of each side, script -> share of its letters.
        known: how much closer words are to those of their translation than to those of another one, in standard
            deviations; None for too few pairs.
        languages: of both sides, as far as number words tell.
    """

    means: Both[np.ndarray]
    best: Both[tuple[float, float]]
    length: float
    scripts: Both[dict[str, float]]
    known: float | None
    languages: Languages = (None, None)

    def cosines(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return the cosines of the states of both sides without the means, (S, T)."""
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
        told = np.array([word.isalpha() for word in side.words], dtype=bool) & states.any(axis=1)
        return np.clip(_LANGUAGE * odds, -_MOST_LANGUAGE, _MOST_LANGUAGE) * told


class Read(NamedTuple):
    """What was read of a text: states of its words (words, size), their surprisal and their number of tokens."""

    states: np.ndarray
    surprisal: np.ndarray
    tokens: np.ndarray


Met = Sequence[tuple[Pair, Both[Read]]]


class EncoderEye:
    """Reads the evidence of an encoder, and what is usual in the text that it reads.

    Args:
        encoder: of the kind that `network` was learned for; its tokenizer has a unigram model.
        network: see `Network`; None while it is learned: `EncoderEvidence.against` is 0.
        common: mean state of words of many languages, (size,), which stands for a language of which little was read.

    Attributes:
        usual: see `Usual`.
        learns: whether it goes on learning what is usual from what it reads.
    """

    def __init__(self, encoder: EncoderPrior, network: Network | None, common: np.ndarray):
        self.encoder, self.network, self.common = encoder, network, common
        self.usual = usual_of([], common)
        self.learns = True
        self._met: list[tuple[Pair, Both[Read]]] = []
        self._counted = 0  # of these, when it was last learned what is usual

    def read(self, sides: Sequence[Pair]) -> list[EncoderEvidence]:
        """Read the evidence of pairs, in their order."""
        return [self.evidence(*pair) for pair in zip(sides, self.look(sides), strict=True)]

    def look(self, sides: Sequence[Pair]) -> list[Both[Read]]:
        """Read the states of pairs, and learn what is usual from the first."""
        texts = self.states_of([text for pair in sides for text in pair])
        reads = [(texts[n], texts[n + 1]) for n in range(0, len(texts), 2)]
        self._meet(sides, reads)
        return reads

    def features(self, sides: Pair, read: Both[Read]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return e (S, T), and the features of the words of both sides, (S, F) and (T, F)."""
        cosines = self.usual.cosines(read[0].states, read[1].states)
        return word_features(cosines, sides, read, self.usual)

    def evidence(self, sides: Pair, read: Both[Read]) -> EncoderEvidence:
        """Return the evidence on a pair whose states were read."""
        together = np.zeros(both(len(side.words) for side in sides))
        best = against = language = both(np.zeros(len(side.words)) for side in sides)
        if together.size:
            together, *features = self.features(sides, read)
            best = together.max(axis=1), together.max(axis=0)
            if self.network is not None:
                against = both(map(self.network, features))
            language = both(self.usual.language(side, one.states) for side, one in zip(sides, read, strict=True))
        again = said_again(sides[1].words, together)
        surprisal = both(one.surprisal for one in read)
        return EncoderEvidence(*sides, best, None, again, against=against, language=language, surprisal=surprisal)

    def _meet(self, sides: Sequence[Pair], reads: Sequence[Both[Read]]) -> None:
        """Learn what is usual from the first pairs of a text, evenly spread over what is read at once."""
        left = _SAMPLE - len(self._met)
        full = [pair for pair in zip(sides, reads, strict=True) if pair[0][0].words and pair[0][1].words]
        if left > 0 and full and self.learns:
            self._met = self._met + full[:: -(-len(full) // left)]  # a new list, not that of a copy
            if len(self._met) >= _MORE * self._counted:
                self._counted = len(self._met)
                self.usual = usual_of(self._met, self.common)

    @torch.no_grad()
    def states_of(self, texts: Sequence[Segments]) -> list[Read]:
        """Read each different text once, longest first."""
        reader, layer = self.encoder.reader, self.encoder.layer
        different = list(dict.fromkeys(texts))
        encoded = reader.tokenizer(
            [text.text for text in different], add_special_tokens=False, return_offsets_mapping=True
        )
        ids = [np.array(found, dtype=np.int64) for found in encoded["input_ids"]]
        order = sorted(range(len(ids)), key=lambda n: -len(ids[n]))
        found: dict[Segments, Read] = {}
        while order:
            number = max(1, _TOKENS // (len(ids[order[0]]) + 2))
            batch, order = order[:number], order[number:]
            full = [n for n in batch if len(ids[n])]
            rows = dict.fromkeys(batch, torch.zeros(0, len(self.common)))
            if full:
                states = reader.states([ids[n] for n in full], 0)[layer].cpu()
                rows |= {n: states[row, : len(ids[n])] for row, n in enumerate(full)}
            for n, of_text in rows.items():
                found[different[n]] = self._of_words(different[n], ids[n], encoded["offset_mapping"][n], of_text)
        return [found[text] for text in texts]

    def _of_words(self, text: Segments, ids: np.ndarray, offsets, states: torch.Tensor) -> Read:
        """Return the mean states of the words; a token over several words (of Chinese) is one of each."""
        if not bool(states.isfinite().all()):
            raise ValueError("The states of the encoder are not finite: its checkpoint is damaged.")
        words, tokens = _words_of_tokens(text, offsets)
        number = np.bincount(words, minlength=len(text.words))
        total = torch.zeros(len(text.words), states.shape[1])
        total.index_add_(0, torch.from_numpy(words), states[torch.from_numpy(tokens)].float())
        shared = np.bincount(tokens, minlength=len(ids))
        surprisal = np.bincount(words, self.piece_surprisal[ids[tokens]] / shared[tokens], minlength=len(text.words))
        return Read(total.numpy() / np.maximum(number, 1)[:, None], surprisal, number)

    @property
    def piece_surprisal(self) -> np.ndarray:
        """Surprisal of each token by the unigram model of the tokenizer, in nats, (vocabulary,)."""
        if self._surprisal is None:
            tokenizer = self.encoder.reader.tokenizer
            model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
            found = np.full(len(tokenizer), _RARE_PIECE)
            found[: len(model["vocab"])] = [-score for _, score in model["vocab"]]
            self._surprisal = found
        return self._surprisal

    _surprisal: np.ndarray | None = None


def _words_of_tokens(text: Segments, offsets: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of words and of tokens that cover a letter of them, side by side."""
    owner = np.full(len(text.text) + 1, -1)
    for word, (start, end) in enumerate(text.spans):
        owner[start:end] = word
    pairs = [
        (word, token)
        for token, (start, end) in enumerate(offsets)
        for word in dict.fromkeys(owner[start:end].tolist())
        if word >= 0
    ]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


# ---- what is usual in a text ----


def usual_of(met: Met, common: np.ndarray) -> Usual:
    """Return what is usual in pairs with words on both sides; `common` as of `EncoderEye`."""
    means = both(
        (sum((read[side].states.sum(axis=0) for _, read in met), _BORROWED * common))
        / (_BORROWED + sum(len(read[side].states) for _, read in met))
        for side in (0, 1)
    )
    lengths = [math.log((len(pair[1].text) + 1) / (len(pair[0].text) + 1)) for pair, _ in met]
    # A line or two do not tell: they are as long as in any text.
    usual = Usual(means, ((0.0, 1.0),) * 2, float(np.median([*lengths, *[0.0] * _FEWEST])), ({}, {}), None)
    found = [usual.cosines(read[0].states, read[1].states) for _, read in met]
    best = []
    for side in (0, 1):
        values = [
            value
            for (pair, _), cosines in zip(met, found, strict=True)
            for word, value in zip(pair[side].words, cosines.max(axis=1 - side).tolist(), strict=True)
            if not is_punctuation(word)
        ]
        # As of a few words in any text: a line or two are no text.
        number = len(values)
        mean = (sum(values) + 20 * _MEAN_BEST) / (number + 20)
        spread = (sum((value - mean) ** 2 for value in values) + 20 * _SPREAD_BEST**2) / (number + 20)
        best.append((mean, math.sqrt(spread)))
    sides = [[pair[side] for pair, _ in met] for side in (0, 1)]
    scripts = both(script_shares(text.text for text in side) for side in sides)
    languages = both(language_of(Counter(word.lower() for text in side for word in text.words)) for side in sides)
    return Usual(means, both(best), usual.length, scripts, _known(met, usual), languages)


def _known(met: Met, usual: Usual) -> float | None:
    """Return how much closer the words of a pair are to each other than to those of another of about its length.

    Words count that are letters, and that the other side does not have: names and numbers are alike in languages that
    nobody knows.

    Returns:
        the difference of the mean best cosines in standard deviations; None for too few pairs.
    """
    order = sorted(range(len(met)), key=lambda n: [len(one.states) for one in met[n][1]])
    own: list[np.ndarray] = []
    others: list[np.ndarray] = []
    for n, other in pairwise(order):
        (source, target), (read, _) = met[n]
        if met[other][0][1].text == target.text:  # a line that the text has twice
            continue
        for found, (text, of_text) in ((own, (target, met[n][1][1])), (others, (met[other][0][1], met[other][1][1]))):
            cosines = usual.cosines(read.states, of_text.states)
            rows, columns = _told_apart(source.words, text.words), _told_apart(text.words, source.words)
            if rows and columns:
                cosines = cosines[np.ix_(rows, columns)]
                found += [cosines.max(axis=1), cosines.max(axis=0)]
    if min(len(own), len(others)) < 2 * _FEWEST:
        return None
    near, far = np.concatenate(own), np.concatenate(others)
    return float((near.mean() - far.mean()) / math.sqrt((near.var() + far.var()) / 2 + 1e-9))


def _told_apart(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return the places of the words of letters that are not among others."""
    known = {word.lower() for word in others}
    return [place for place, word in enumerate(words) if word.isalpha() and word.lower() not in known]


def both_ways(cosines: np.ndarray) -> np.ndarray:
    """Return e of `encoder_prior.py`, (S, T)."""
    found = np.exp((cosines - cosines.max()) / TEMPERATURE)
    forward = found / np.maximum(found.sum(axis=1, keepdims=True), 1e-30)
    backward = found / np.maximum(found.sum(axis=0, keepdims=True), 1e-30)
    return 2 * forward * backward / np.maximum(forward + backward, 1e-30)


# ---- features of words ----

WORD_FEATURES = (
    *("best", "best for this text", "before the next", "together", "preferred", "claimed", "moved", "near"),
    *("jump before", "jump after"),
    *(f"{name} {place:+d}" for name in ("best", "together") for place in _AROUND),
    *("around", "surprisal", "tokens", "punctuation", "number", "capital", "letters", "same", "with punctuation"),
    *("surprisal of the partner", "surprisal -1", "surprisal +1", "side", "other side", "words", "other words"),
    *("longer", "best of the text", "spread of the text", "target"),
)  # fmt: skip


def word_features(
    cosines: np.ndarray, sides: Pair, read: Both[Read], usual: Usual
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return e (S, T), and `WORD_FEATURES` of the words of both sides, (S, F) and (T, F).

    Args:
        cosines: of the words, (S, T), at least one on each side.
        sides, read: the pair.
        usual: in its text.
    """
    together = both_ways(cosines)
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
    found = []
    for side in (0, 1):
        of, probable = (cosines, together) if side == 0 else (cosines.T, together.T)
        number, others = of.shape
        places, partner, best = np.arange(number), of.argmax(axis=1), bests[side]
        rest = of.copy()
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
        near = np.maximum(*(of[places, there] for there in expected))
        surprisal, partners = read[side].surprisal, read[1 - side].surprisal[partner]
        here = [
            *(supports[side], supports[1 - side], math.log(number), math.log((others + 1) / (number + 1))),
            *(longer if side else -longer, *usual.best[side], side),
        ]
        columns = [
            *(best, relative, best - rest.max(axis=1), surest, of.max(axis=0)[partner] - best),
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
        found.append(np.stack(columns, axis=1))
    return together, found[0], found[1]


def _forms(words: Sequence[str]) -> np.ndarray:
    """Return whether words are punctuation, have a digit, are capitalised, and how long they are, (words, 4)."""
    return np.array(
        [
            (is_punctuation(word), any(map(str.isdigit, word)), word[0].isupper(), min(len(word), _LONGEST))
            for word in words
        ],
        dtype=float,
    )


def _shifted(values: np.ndarray, step: int, edge: float) -> np.ndarray:
    """Return at each place the value `step` places behind it, or `edge`."""
    found = np.full(len(values), edge, dtype=float)
    if abs(step) < len(values):
        found[max(0, -step) : len(values) - max(0, step)] = values[max(0, step) : len(values) + min(0, step)]
    return found
