"""Which of several encoders knows two languages best, by a text of both and no links.

An encoder knows a pair of words if both directions find it: e of `encoder_prior.py` is the harmonic mean of the two.
Its agreement is the mean of the largest e of every word, beyond that on sentences that are no translations of each
other, as Cohen's kappa has it, and of both sides. All encoders are asked about the same pairs and words, however they
cut them into tokens, so the pairs that are drawn again and again (bootstrap) are the same, too.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hf_attncal.inference.opening import choose_device, load_errors
from hf_attncal.inference.running import Running

from .encoder import EncoderStates
from .encoder_prior import PAIRS_MET, EncoderPrior, recognised
from .sources import Words

_SAMPLES, _SEED = 1000, 0
_LEAST = 0.02  # of an agreement, below which nothing is known


@dataclass(frozen=True)
class EncoderAgreement:
    """How far an encoder knows the languages of a text.

    Args:
        name: folder or Hub name.
        settings: how it was read.
        agreement: the mean of `source` and `target`.
        interval: the middle 95 % of the bootstrap samples.
        source, target: share of the words of each side whose partner it recognises beyond chance.
    """

    name: str
    settings: EncoderStates
    agreement: float
    interval: tuple[float, float]
    source: float
    target: float


class ComparedEncoders(list[EncoderAgreement]):
    """Encoders, the one that knows most first; printed, a line for each, and what to do.

    Attributes:
        sure: share of the samples of the pairs in which the first stays ahead of all others.
        pairs: how many pairs were read.
    """

    sure: float = 1.0
    pairs: int = 0

    def __str__(self) -> str:
        first = self[0]
        lines = [
            f"{100 * one.agreement:5.1f} ({100 * one.interval[0]:.1f} to {100 * one.interval[1]:.1f})  {one.name}: "
            f"recognises {one.source:.0%} of the source words and {one.target:.0%} of the target words, beyond chance"
            for one in self
        ]
        told = f"{first.name} stays ahead in {self.sure:.0%} of the samples of these {self.pairs} pairs."
        return "\n".join([*lines, f"{told} Use it: --encoder {first.name}"])


def compare_encoders(
    names: Sequence[str], sources: Sequence[str], targets: Sequence[str], running: Running = Running()
) -> ComparedEncoders:
    """Rank encoders by how far both directions of each agree beyond chance: `attncal align select ENCODER ENCODER`.

    Args:
        names: folders or Hub names, two or more.
        sources, targets: sentences and their translations, of which at most 512, evenly spread, are read.
        running: how they run; `languages` are set in those that have codes of languages.

    Raises:
        CommandError: an encoder cannot be loaded or read.
        ValueError: fewer than two pairs with words.

    Warns:
        UserWarning: none of them knows the languages.
    """
    pairs = [(tuple(s.split()), tuple(t.split())) for s, t in zip(sources, targets, strict=True)]
    pairs = [pair for pair in pairs if all(pair)]
    if len(pairs) < 2:
        raise ValueError(f"`sources` and `targets` must have two pairs with words, got {len(pairs)}.")
    pairs = pairs[:: -(-len(pairs) // PAIRS_MET)]
    settings, met = zip(*(_meeting(name, pairs, running) for name in names), strict=True)
    found = ranked_encoders(names, settings, met)
    if found[0].agreement < _LEAST:
        warnings.warn(
            "none of these encoders knows both languages, or the lines do not belong together: `attncal align quick` "
            "without an encoder is as good.",
            stacklevel=2,
        )
    return found


def ranked_encoders(
    names: Sequence[str], settings: Sequence[EncoderStates], met: Sequence[np.ndarray]
) -> ComparedEncoders:
    """Rank encoders that have met the same pairs: their names, how they were read, and `EncoderPrior.met` of each."""
    pairs = met[0].shape[-1]
    # Pairs are drawn with those that they were mixed with, which are their neighbours.
    drawn = np.random.default_rng(_SEED).multinomial(pairs, np.full(pairs, 1 / pairs), size=_SAMPLES)
    sampled = np.array([recognised(one @ drawn.T).mean(axis=0) for one in met])  # (encoders, samples)
    known = [recognised(one.sum(axis=-1)).tolist() for one in met]
    ranked = [
        EncoderAgreement(name, how, float(np.mean(sides)), tuple(np.percentile(row, (2.5, 97.5)).tolist()), *sides)
        for name, how, sides, row in zip(names, settings, known, sampled, strict=True)
    ]
    order = sorted(range(len(ranked)), key=lambda n: -ranked[n].agreement)
    found = ComparedEncoders(ranked[n] for n in order)
    found.sure, found.pairs = float((sampled.argmax(axis=0) == order[0]).mean()), pairs
    return found


def _meeting(name: str, pairs: Sequence[Words], running: Running) -> tuple[EncoderStates, np.ndarray]:
    """Let one encoder read the pairs; return how it was read, and `EncoderPrior.met`."""
    with load_errors(name):
        encoder = EncoderPrior.from_pretrained(
            name,
            device=choose_device(running),
            trust_remote_code=running.trust_remote_code,
            languages=running.languages,
        )
        encoder.cells(pairs)
    return encoder.settings, encoder.met
