"""How far an aligner that counts believes what an encoder says of a pair of words at its place.

`r(e) = p(e | linked) / p(e | not linked)` is counted in bins of e, after every iteration anew, with what the counts
(and r) have linked. It begins as 1, so that the counts speak first. The emission of a word by another is multiplied by
`1 - d + d min(r(e), MOST)` at this place: with an encoder that knows nothing, r stays near 1. e and d are those of
`encoder_prior.py`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.words import WordTokens

from .links import largest_over_words
from .sources import word_ids

# Bins of e, evenly spaced in its logarithm between these.
_BINS, _LEAST, _MOST = 24, 1e-4, 0.9
# Before a bin was seen, it is believed (e + 0.02) / 0.06, at the weight of so many links.
_SEEN = 30.0
# The cells of a sentence are not independent, as r takes them to be: where an encoder has never seen a language
# (Romansh), what it takes for sure is too often a mere likeness. Chosen on the dev sets of wpt-roen, bicici-deen and
# dermit-derm.
MOST = 20.0


class Belief:
    """The factor of each e, and what it is learned from.

    Attributes:
        ratio: r of each bin.
        strength: d, from 0 to 1.
        learned: whether r was learned from a text.
    """

    def __init__(self):
        self.edges = torch.logspace(np.log10(_LEAST), np.log10(_MOST), _BINS - 1)
        middle = torch.cat([self.edges[:1] / 2, (self.edges[1:] * self.edges[:-1]).sqrt(), torch.tensor([0.97])])
        self._expected = (middle + 0.02) / 0.06
        self.ratio = torch.ones(_BINS)
        self.strength = 1.0  # d
        self.learned = False
        self._seen = torch.zeros(2, _BINS, dtype=torch.double)

    @property
    def trust(self) -> float:
        """How far the encoder is a second judge: d, and less if what it takes for sure is hardly linked."""
        return self.strength * (min(1.0, max(0.0, float(self.ratio[-1] - 1) / (MOST - 1))) if self.learned else 1.0)

    def bins(self, cells: Tensor) -> Tensor:
        """Return the bin of every e, int32."""
        return torch.bucketize(cells.float(), self.edges, out_int32=True)

    def factor(self, bins: Tensor) -> Tensor:
        """Return the factor of the emission for every e by its bin, float32."""
        table = 1 - self.strength + self.strength * self.ratio.clamp(max=MOST)
        return table[bins]

    def count(self, bins: Tensor, linked: Tensor) -> None:
        """Add what was linked; both (cells,), the bin of e and the probability of a link."""
        linked = linked.double()
        self._seen += torch.stack([bins.bincount(weights, _BINS) for weights in (linked, 1 - linked)])

    def learn(self) -> None:
        """Make the next table of what was counted, and forget that."""
        linked, apart = self._seen
        by_chance = (apart + 1) / (apart.sum() + _BINS)
        expected = self._expected * by_chance
        found = (linked + _SEEN * expected / expected.sum()) / (linked.sum() + _SEEN)
        self.ratio = (found / by_chance).float()
        self._seen, self.learned = torch.zeros_like(self._seen), True


class Witness:
    """What an encoder says of the pairs of a text that counts learn from: the factor of each place, which learns, too.

    Args:
        belief: how far the encoder is believed, which learns.
        cells: e of each pair, (source words, target words).
        sides: tokens of the source and the target of each pair in turn.
    """

    def __init__(self, belief: Belief, cells: Sequence[np.ndarray], sides: Sequence[WordTokens]):
        self.belief, self._sides = belief, sides
        self._bins = [belief.bins(torch.from_numpy(one)).numpy() for one in cells]

    def factor(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Return the factor of the emission of the tokens of some pairs, (B, T, S); 1 at padding."""
        bins, (sources, _), (targets, _) = self._batch(rows)
        table = self.belief.factor(bins)
        batch = torch.arange(len(table))[:, None, None]
        table = F.pad(table, (0, 1, 0, 1), value=1.0)
        return table[batch, targets[:, :, None], sources[:, None, :]]

    def count(self, rows: Sequence[int] | np.ndarray, shares: Tensor) -> None:
        """Learn from shares of alignment between the tokens of some pairs, (B, T, S)."""
        bins, sources, targets = self._batch(rows)
        linked = largest_over_words(shares, targets, sources)
        real = bins >= 0
        self.belief.count(bins[real], linked[real].clamp(max=1))

    def learn(self) -> None:
        self.belief.learn()

    def _batch(self, rows: Sequence[int] | np.ndarray) -> tuple[Tensor, tuple[Tensor, int], tuple[Tensor, int]]:
        """Return the bins of some pairs, (B, target words, source words), and the word of each token of both sides.

        The bin of padding is -1.
        """
        sources, targets = (word_ids([self._sides[2 * row + side] for row in rows]) for side in (0, 1))
        bins = np.full((len(rows), targets[1], sources[1]), -1, np.int32)
        for place, row in enumerate(rows):
            width, height = self._bins[row].shape
            bins[place, :height, :width] = self._bins[row].T
        return torch.from_numpy(bins), sources, targets


def spread(cells: np.ndarray, source: WordTokens, target: WordTokens) -> Tensor:
    """Return e of the words between their tokens, (target tokens, source tokens) float32; 0 for tokens of no word."""
    wider = np.pad(cells, ((0, 1), (0, 1)))  # NO_WORD is the last
    return torch.from_numpy(wider[source.word_ids][:, target.word_ids].T.astype(np.float32))


def joined(cells: Sequence[Tensor]) -> Tensor:
    """Return matrices as a batch, (B, longest rows, longest columns), 0 at padding."""
    sizes = [max(sizes) for sizes in zip(*(one.shape for one in cells), strict=True)]
    batch = cells[0].new_zeros(len(cells), *sizes)
    for row, one in zip(batch, cells, strict=True):
        row[: one.shape[0], : one.shape[1]] = one
    return batch
