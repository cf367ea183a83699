"""Weights between subwords of the word aligners, Mask-Align (Chen et al., ACL 2021) and the statistical aligner."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.data.segmentation import fold
from hf_attncal.data.word_tokens import WordTokenizer
from hf_attncal.data.words import NO_WORD, WordTokens
from hf_attncal.families import FAMILIES

from .count_learner import ONCE, adapt_counts
from .likelihood_ratio import EncoderFactors, joined, spread
from .sources import Adaptation, Weights, WeightSource, Words, word_ids

# Maximum number of pairs, and maximum length of a side, to learn the weight of an encoder from.
_PAIRS_TO_LEARN, _LENGTH_TO_LEARN = 1000, 100
_THRESHOLD_REDUCTION = 0.1  # with an encoder
_SENTENCE_ENDS = ".!?…。！？।؟"  # if they are separate words

# Tokens per window of a statistical aligner, whose time grows with the cube of the length.
_WINDOW = 384
_MAX_CELLS_TO_CUT = 4 * 10**6  # pairs of tokens of a line that is searched for places to cut
# Forward (batch, target, source), backward (batch, source, target), target NULL and source NULL.
Directions = tuple[Tensor, Tensor, Tensor, Tensor]
TokenPair = tuple[WordTokens, WordTokens]  # source and target


class MaskAlignSource(WeightSource):
    """Both directions of a Mask-Align model or a statistical aligner. Needs a fast tokenizer.

    Attributes:
        longest_uncut: Maximum number of tokens of a side before it is cut where no links cross (`cut_pair`) and its
            parts are read separately, as in training. None to never cut. Default: 40.
        longest_sentence: Maximum number of tokens of a line that is only cut between sentences. Cutting sentences
            takes 50 % more time and does not lower AER (docs/log.md). Default: 80.
    """

    kind = "a word aligner"
    accepts_encoder = True
    longest_uncut: int | None = 40
    longest_sentence: int = 80

    def __init__(self, model, tokenizer, settings=None):
        super().__init__(model, tokenizer, settings)
        if not tokenizer.is_fast:
            raise ValueError(
                f"A word aligner needs a fast tokenizer, got {type(tokenizer).__name__}. Save the checkpoint with its "
                "fast tokenizer (`tokenizer.json`)."
            )
        self._tokenize = WordTokenizer(tokenizer)
        ends = [side.ids for side in self._tokenize(list(_SENTENCE_ENDS))]
        self._sentence_ends = [ids[0] for ids in ends if len(ids) == 1 and ids[0] != tokenizer.unk_token_id]
        config = model.config
        self.symmetrization = config.symmetrization
        self.tokenize = config.tokenize
        family = FAMILIES.get(config.model_type)
        self.counts = family is not None and family.counted
        self._window = _WINDOW if self.counts else config.max_position_embeddings

    @property
    def threshold(self) -> float:
        """The model's threshold, reduced with an encoder, because the mean of two scores is rarely as high as one."""
        reduction = 0.0 if self.prior is None else _THRESHOLD_REDUCTION * self.prior.likelihood.trust
        return (1 - reduction) * self.model.config.alignment_threshold

    @classmethod
    def load(cls, name: str | Path, *, dtype, **options: Any) -> tuple:
        from transformers import AutoModel

        from hf_attncal.inference.loading import load_whole

        return load_whole(AutoModel, name, dtype=dtype, **options)

    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield weights as the base class does; long lines are cut, or read in windows."""
        sides = self.tokens_of(pairs)
        encoded = list(zip(sides[::2], sides[1::2], strict=True))
        word_cells = self._encoder_cells(pairs, sides)
        for indices in self._batches(encoded, batch_size, batch_tokens):
            tokens = [encoded[index] for index in indices]
            cells = None if word_cells is None else [spread(word_cells[index], *encoded[index]) for index in indices]
            directions = self._read(tokens, cells)
            sides_of_batch, device = list(zip(*tokens, strict=True)), directions[0].device
            words = [word_ids(side, device) for side in sides_of_batch]
            ids = [padded([one.ids for one in side], 0)[0].to(device) for side in sides_of_batch]
            sizes = [(source.words, target.words) for source, target in tokens]
            yield indices, Weights(*directions, words[0], words[1], sizes, *ids)

    def _batches(self, encoded: Sequence[TokenPair], batch_size: int, batch_tokens: int) -> Iterator[list[int]]:
        """Yield indices of pairs in batches by length; a pair longer than the model's limit is its own batch."""
        limit = self.model.config.max_position_embeddings
        sizes = [(len(source.ids), len(target.ids)) for source, target in encoded]
        present = [n for n, (s, t) in enumerate(encoded) if min(*sizes[n], s.words, t.words)]
        short = [n for n in present if max(sizes[n]) <= limit]
        for batch in batches_by_length([sizes[n] for n in short], batch_size, batch_tokens):
            yield [short[place] for place in batch]
        yield from ([n] for n in present if max(sizes[n]) > limit)

    def _read(self, tokens: Sequence[TokenPair], cells: Sequence[Tensor] | None) -> Directions:
        """Return both directions of a batch, averaged with the encoder; long lines are cut, or read in windows."""
        limit = self.model.config.max_position_embeddings
        sizes = [(len(source.ids), len(target.ids)) for source, target in tokens]
        longest, largest = max(map(max, sizes)), max(s * t for s, t in sizes)
        if longest > limit:
            window = min(limit, self._window)
            directions = self._in_windows(*tokens[0], window, None if cells is None else cells[0])
        else:
            directions = self.directions([(source.ids, target.ids) for source, target in tokens], cells)
        if self.longest_uncut is not None and longest > self.longest_uncut and largest <= _MAX_CELLS_TO_CUT:
            self._cut(directions, tokens, cells)
        return directions if cells is None else self._with_encoder(directions, cells)

    def adapt(self, pairs: Sequence[Words], weight: float | None, passes: int) -> Adaptation:
        if not self.counts:
            return super().adapt(pairs, weight, passes)
        tokens = [side.ids for side in self.tokens_of(pairs)]
        return adapt_counts(self.model, tokens[::2], tokens[1::2], weight, passes)

    def unknown_shares(self, pairs: Sequence[Words]) -> list[float] | None:
        if not self.counts:
            return None
        sides, device, shares = self.tokens_of(pairs), self.model.device, []
        for source, target in zip(sides[::2], sides[1::2], strict=True):
            ids = (torch.from_numpy(side.ids).to(device)[None] for side in (source, target))
            counted = self.model.counts_of(*ids)[0] >= ONCE
            tokens = sum(int(counted.any(dim).sum()) for dim in (0, 1)) if counted.numel() else 0
            shares.append(1 - tokens / sum(counted.shape) if counted.numel() else 0.0)
        return shares

    def tokens_of(self, pairs: Sequence[Words]) -> list[WordTokens]:
        """Tokenise pairs with the model's normalisation; source and target in turn."""
        config = self.model.config
        folded = getattr(config, "fold_words", False)  # older published configurations lack the field
        texts = [" ".join(map(fold, side) if folded else side) for pair in pairs for side in pair]
        if config.lowercase:
            texts = [text.lower() for text in texts]
        return self._tokenize(texts)

    def directions(
        self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], cells: Sequence[Tensor] | None = None
    ) -> Directions:
        """Return both directions and their NULLs of a batch, in float32 or better.

        Args:
            pairs: Source and target ids of each pair.
            cells: Link probabilities of the encoder between tokens, see `spread`. Default: None.

        Raises:
            ValueError: weights that are not finite.
        """
        device, padding = self.model.device, self.model.config.pad_token_id or 0
        batch = [tensor.to(device) for side in zip(*pairs, strict=True) for tensor in padded(side, padding)]
        factor = {}
        if cells is not None and self.prior is not None and self.counts:
            likelihood = self.prior.likelihood
            factor = {"factor": likelihood.factor(likelihood.bins(joined(cells))).to(device)}
        output = self.model.alignments(*batch, **factor)
        dtype = torch.promote_types(output.forward_attention.dtype, torch.float32)
        fields = output.forward_attention, output.backward_attention, output.forward_null, output.backward_null
        # A sum may be rounded up.
        forward, backward, target_null, source_null = (weights.to(dtype).clamp(max=1) for weights in fields)
        check_finite_weights(self.model, forward, backward, target_null, source_null)
        return forward, backward, target_null, source_null

    def _encoder_cells(self, pairs: Sequence[Words], sides: Sequence[WordTokens]) -> list[np.ndarray] | None:
        """Return the encoder's link probabilities of each pair; first learn its weight if necessary."""
        prior = self.prior
        if prior is None:
            return None
        cells = prior.cells(pairs)
        if prior.likelihood.learned or not self.counts:
            return cells
        encoded = list(zip(sides[::2], sides[1::2], strict=True))
        lengths = [tuple(len(side.ids) for side in pair) for pair in encoded]
        sample = [n for n, pair in enumerate(lengths) if min(pair) > 0 and max(pair) <= _LENGTH_TO_LEARN]
        sample = sample[:: -(-len(sample) // _PAIRS_TO_LEARN) or 1]
        encoder_factors = EncoderFactors(prior.likelihood, cells, sides)
        for _ in range(2):
            for batch in batches_by_length([lengths[n] for n in sample], None, 4096):
                rows = [sample[place] for place in batch]
                ids = [(source.ids, target.ids) for source, target in (encoded[row] for row in rows)]
                forward, backward, *_ = self.directions(ids, [spread(cells[row], *encoded[row]) for row in rows])
                encoder_factors.count(rows, (forward * backward.mT).cpu())
            encoder_factors.learn()
        return cells

    def _with_encoder(self, directions: Directions, cells: Sequence[Tensor]) -> Directions:
        """Return the weighted mean of the model's and the encoder's probabilities."""
        share = 0.0 if self.prior is None else self.prior.share
        forward, backward, target_null, source_null = directions
        encoder = joined(cells).to(forward)
        return (
            (1 - share) * forward + share * encoder,
            (1 - share) * backward + share * encoder.mT,
            (1 - share) * target_null + share * (1 - encoder.sum(dim=2)).clamp(min=0),
            (1 - share) * source_null + share * (1 - encoder.sum(dim=1)).clamp(min=0),
        )

    def _cut(self, directions: Directions, pairs: Sequence[TokenPair], cells: Sequence[Tensor] | None) -> None:
        """Replace the weights of long pairs by the weights of their parts, in place."""
        longest, limit = self.longest_uncut, self.model.config.max_position_embeddings
        parts = []
        for row, (source, target) in enumerate(pairs):
            if longest is None or max(len(source.ids), len(target.ids)) <= longest:
                continue
            s, t = slice(len(source.ids)), slice(len(target.ids))
            sentences = max(s.stop, t.stop) <= self.longest_sentence
            starts = [self._starts(side, sentences) for side in (source, target)]
            windows = cut_pair(directions[0][row, t, s], directions[1][row, s, t], *starts)
            if len(windows) > 1 and all(i.stop - i.start <= limit and j.stop - j.start <= limit for i, j in windows):
                parts += [(row, i, j) for i, j in windows]
        if not parts:
            return
        sides = [(_part(pairs[row][0], i), _part(pairs[row][1], j)) for row, i, j in parts]
        inside = None if cells is None else [cells[row][j, i] for row, i, j in parts]
        of_parts = self.directions([(source.ids, target.ids) for source, target in sides], inside)
        self._cut(of_parts, sides, inside)
        forward, backward, target_null, source_null = directions
        for row in {row for row, *_ in parts}:
            forward[row], backward[row] = 0, 0
        for number, (row, i, j) in enumerate(parts):
            s, t = slice(i.stop - i.start), slice(j.stop - j.start)
            forward[row, j, i], backward[row, i, j] = of_parts[0][number, t, s], of_parts[1][number, s, t]
            target_null[row, j], source_null[row, i] = of_parts[2][number, t], of_parts[3][number, s]

    def _starts(self, tokens: WordTokens, sentences: bool = False) -> Tensor:
        """Return True for each token that starts a word, or only for the first word of a sentence, (tokens,) bool."""
        starts = np.diff(tokens.word_ids, prepend=NO_WORD) != 0
        if sentences:
            starts[1:] &= np.isin(tokens.ids[:-1], self._sentence_ends)
        return torch.from_numpy(starts)

    def _in_windows(self, source: WordTokens, target: WordTokens, limit: int, cells: Tensor | None) -> Directions:
        """Return both directions of one pair that exceeds the model's limit, as a batch of one.

        Each window is used up to the point that the fewest links cross, where the next window starts.
        """
        shape = len(target.ids), len(source.ids)
        target_starts, source_starts = self._starts(target), self._starts(source)
        like = {"device": self.model.device, "dtype": torch.promote_types(self.model.dtype, torch.float32)}
        forward, backward = torch.zeros(1, *shape, **like), torch.zeros(1, *shape[::-1], **like)
        target_null, source_null = (torch.ones(1, size, **like) for size in shape)
        row, column = 0, 0  # start of the window
        while row < shape[0] and column < shape[1]:
            left = shape[1] - column, shape[0] - row
            rows, columns = slice(row, row + limit), slice(column, column + limit)
            ids = source.ids[columns], target.ids[rows]
            window = self.directions([ids], None if cells is None else [cells[rows, columns]])
            s, t = left
            if max(left) > limit:
                s, t = end_of_window(window[0][0], window[1][0], source_starts[columns], target_starts[rows], left)
            i, j = slice(column, column + s), slice(row, row + t)
            forward[0, j, i], backward[0, i, j] = window[0][0, :t, :s], window[1][0, :s, :t]
            target_null[0, j], source_null[0, i] = window[2][0, :t], window[3][0, :s]
            row, column = j.stop, i.stop
        return forward, backward, target_null, source_null


def _part(tokens: WordTokens, part: slice) -> WordTokens:
    """Return a part of the tokens; words keep their numbers."""
    return tokens._replace(ids=tokens.ids[part], word_ids=tokens.word_ids[part])


# ---- long lines ----

Window = tuple[slice, slice]

# Chosen on three dev sets, with single and joined lines.
_MIN_PART_TOKENS = 8  # per side
_MAX_CROSSING = 0.5  # links between two parts
_DRIFT_COST = 0.01  # in links per token off the diagonal, to choose between equal cuts


def cut_pair(forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor) -> list[Window]:
    """Split a line into parts (source slice, target slice) without links between them, such as its sentences.

    Parts follow each other on both sides. From the left, each part starts at the first target word where the geometric
    means of both directions' weights that cross the cut sum to less than half a link.

    Args:
        forward: Weights of the whole line, (target, source).
        backward: Weights of the whole line, (source, target).
        source_starts: True for each token that starts a word, (source,).
        target_starts: True for each token that starts a word, (target,).

    Returns:
        The parts; only the whole line if it cannot be cut.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    possible = (crossing[:-1, :-1] < _MAX_CROSSING) & target_starts[:, None] & source_starts
    cuts = [(0, 0)]
    for row in possible.any(dim=1).nonzero()[:, 0].tolist():
        first, last = cuts[-1][1] + _MIN_PART_TOKENS, source - _MIN_PART_TOKENS
        if row - cuts[-1][0] < _MIN_PART_TOKENS or target - row < _MIN_PART_TOKENS or first > last:
            continue
        columns = torch.where(possible[row], crossing[row, :-1], torch.inf)[first : last + 1]
        if columns.min() < _MAX_CROSSING:
            cuts.append((row, first + int(columns.argmin())))
    return [(slice(i, next_i), slice(j, next_j)) for (j, i), (next_j, next_i) in pairwise([*cuts, (target, source)])]


def end_of_window(
    forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor, left: tuple[int, int]
) -> tuple[int, int]:
    """Return the number of source and target tokens of a window to use, up to the start of the next window.

    This is the point that the fewest links cross. The last eighth of a side that continues after the window is not
    used, as its partners may be outside, but at least half of one such side is. A side that ends in the window keeps a
    token for the rest of the other side. Words are only split if necessary.

    Args:
        forward: Weights of the window, (target, source).
        backward: Weights of the window, (source, target).
        source_starts: True for each token that starts a word, (source,).
        target_starts: True for each token that starts a word, (target,).
        left: Numbers of source and target tokens from the start of the window to the end of the line.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    rows, columns = torch.arange(target + 1)[:, None], torch.arange(source + 1)
    crossing += _DRIFT_COST * (rows * left[0] - columns * left[1]).abs() / max(left)
    enough, allowed, whole_words = [], torch.tensor(True), torch.tensor(True)
    for places, size, all_left, starts in (
        (columns, source, left[0], source_starts),
        (rows, target, left[1], target_starts),
    ):
        if size < all_left:
            enough.append(places >= (size + 1) // 2)
            allowed = allowed & (places <= max(1, size * 7 // 8))
        else:
            allowed = allowed & (places < size)
        whole_words = whole_words & F.pad(starts, (0, 1))[places]
    allowed = allowed & (enough[0] if len(enough) == 1 else enough[0] | enough[1])
    if (allowed & whole_words).any():
        allowed = allowed & whole_words
    row, column = divmod(int(torch.where(allowed, crossing, torch.inf).argmin()), source + 1)
    return column, row


def _crossing(forward: Tensor, backward: Tensor) -> Tensor:
    """Return the weight of the links that cross a cut before each row and column, (target + 1, source + 1), on CPU.

    These are links of the first rows with later columns, and of later rows with the first columns.
    """
    before = torch.zeros(*(size + 1 for size in forward.shape), dtype=torch.double)
    before[1:, 1:] = (forward * backward.mT).sqrt().cpu().double().cumsum(0).cumsum(1)
    return (before[:, -1:] - before) + (before[-1:, :] - before)


def check_finite_weights(model, *weights: Tensor) -> None:
    """Raise ValueError unless all weights are finite."""
    if not all(bool(torch.isfinite(tensor.sum())) for tensor in weights):  # sums of probabilities cannot overflow
        raise ValueError(
            f"The weights of the model are not finite in {model.dtype}. Load it with `dtype='float32'`; if they still "
            "are not, the checkpoint is damaged."
        )
