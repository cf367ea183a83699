"""Learn the weight of an encoder's link probabilities in a statistical aligner.

`r(e) = p(e | linked) / p(e | not linked)` is estimated in bins of e after every iteration, from the links of the
counts and of r. It starts at 1, so that the first links come from the counts. The emission of a word pair is
multiplied by `1 - d + d min(r(e), MOST)`: with an encoder that does not cover the languages, r stays near 1.
`encoder_prior.py` defines e and d.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.words import WordTokens

from .sources import largest_over_words, word_ids
from .token_vectors import TokenVectors

# The bins of e are evenly spaced in log e between these values.
_BINS, _LOWEST_EDGE, _HIGHEST_EDGE = 24, 1e-4, 0.9
# The prior of r is (e + 0.02) / 0.06, with the weight of this number of links.
_PRIOR_LINKS = 30.0
# The upper limit of r, which treats the cells of a sentence as independent: in a language that the encoder has never
# read (Romansh), its most probable links are often words that only look alike. Chosen on the dev sets of wpt-roen,
# bicici-deen and dermit-derm.
MOST = 20.0


class LikelihoodRatio:
    """Likelihood ratio r(e) of an encoder's link probabilities, and the counts that it is learned from.

    Attributes:
        ratios: Value of r in each bin.
        strength: Weight d of the encoder, from 0 to 1.
        learned: True once r was learned from a text.
    """

    def __init__(self):
        self.edges = torch.logspace(np.log10(_LOWEST_EDGE), np.log10(_HIGHEST_EDGE), _BINS - 1)
        middle = torch.cat([self.edges[:1] / 2, (self.edges[1:] * self.edges[:-1]).sqrt(), torch.tensor([0.97])])
        self._prior = (middle + 0.02) / 0.06
        self.ratios = torch.ones(_BINS)
        self.strength = 1.0
        self.learned = False
        self._counts = torch.zeros(2, _BINS, dtype=torch.double)  # linked, not linked

    @property
    def trust(self) -> float:
        """Weight of the encoder as a second opinion: d, reduced if its most probable links are rarely linked."""
        return self.strength * (min(1.0, max(0.0, float(self.ratios[-1] - 1) / (MOST - 1))) if self.learned else 1.0)

    def bins(self, cells: Tensor) -> Tensor:
        """Return the bin of each e, int32."""
        return torch.bucketize(cells.float(), self.edges, out_int32=True)

    def factor(self, bins: Tensor) -> Tensor:
        """Return the emission factor of each bin, float32."""
        table = 1 - self.strength + self.strength * self.ratios.clamp(max=MOST)
        return table[bins]

    def count(self, bins: Tensor, linked: Tensor) -> None:
        """Add cells to the counts, by their bin and their probability of a link, both (cells,)."""
        linked = linked.double()
        self._counts += torch.stack([bins.bincount(weights, _BINS) for weights in (linked, 1 - linked)])

    def learn(self) -> None:
        """Estimate r from the counts, and reset them."""
        linked, apart = self._counts
        by_chance = (apart + 1) / (apart.sum() + _BINS)
        expected = self._prior * by_chance
        by_link = (linked + _PRIOR_LINKS * expected / expected.sum()) / (linked.sum() + _PRIOR_LINKS)
        self.ratios = (by_link / by_chance).float()
        self._counts, self.learned = torch.zeros_like(self._counts), True


class EncoderFactors:
    """Emission factors from an encoder for the pairs of a text, relearned after each iteration.

    Args:
        likelihood: Likelihood ratio to learn.
        cells: e of each pair, (source words, target words).
        sides: Tokens of each pair, source and target in turn.
        vectors: `TokenVectors` of the text, for a network that learns from the links.
    """

    def __init__(
        self,
        likelihood: LikelihoodRatio,
        cells: Sequence[np.ndarray],
        sides: Sequence[WordTokens],
        vectors: TokenVectors | None = None,
    ):
        self.likelihood, self.vectors, self._sides = likelihood, vectors, sides
        self._bins = [likelihood.bins(torch.from_numpy(of_pair)).numpy().astype(np.int8) for of_pair in cells]

    def factor(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """Return the emission factors between the tokens of some pairs, (B, T, S); 1 at padding."""
        bins, (sources, _), (targets, _) = self._batch(rows)
        table = self.likelihood.factor(bins)
        batch = torch.arange(len(table))[:, None, None]
        table = F.pad(table, (0, 1, 0, 1), value=1.0)
        return table[batch, targets[:, :, None], sources[:, None, :]]

    def count(self, rows: Sequence[int] | np.ndarray, shares: Tensor) -> None:
        """Count the link probabilities between the tokens of some pairs, (B, T, S)."""
        bins, sources, targets = self._batch(rows)
        linked = largest_over_words(shares, targets, sources)
        real = bins >= 0
        self.likelihood.count(bins[real], linked[real].clamp(max=1))

    def learn(self) -> None:
        """Estimate the likelihood ratio from the counts."""
        self.likelihood.learn()

    def _batch(self, rows: Sequence[int] | np.ndarray) -> tuple[Tensor, tuple[Tensor, int], tuple[Tensor, int]]:
        """Return the bins of some pairs, (B, target words, source words), -1 at padding, and the words of tokens."""
        sources, targets = (word_ids([self._sides[2 * row + side] for row in rows]) for side in (0, 1))
        bins = np.full((len(rows), targets[1], sources[1]), -1, np.int32)
        for place, row in enumerate(rows):
            width, height = self._bins[row].shape
            bins[place, :height, :width] = self._bins[row].T
        return torch.from_numpy(bins), sources, targets


def spread(cells: np.ndarray, source: WordTokens, target: WordTokens) -> Tensor:
    """Return e between tokens, (target tokens, source tokens) float32; 0 for tokens outside words."""
    wider = np.pad(cells, ((0, 1), (0, 1)))  # NO_WORD indexes the last row and column
    return torch.from_numpy(wider[source.word_ids][:, target.word_ids].T.astype(np.float32))


def joined(cells: Sequence[Tensor]) -> Tensor:
    """Stack matrices into a batch, (B, most rows, most columns), 0 at padding."""
    sizes = [max(sizes) for sizes in zip(*(matrix.shape for matrix in cells), strict=True)]
    batch = cells[0].new_zeros(len(cells), *sizes)
    for row, matrix in zip(batch, cells, strict=True):
        row[: matrix.shape[0], : matrix.shape[1]] = matrix
    return batch
