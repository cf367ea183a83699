"""Weights of the word aligners, Mask-Align (Chen et al., ACL 2021) and the one that counts: both directions and NULL,
between subwords.
"""

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
from hf_attncal.data.words import NO_WORD, WordTokenizer, WordTokens
from hf_attncal.families import FAMILIES

from .belief import Witness, joined, spread
from .count_learner import ONCE
from .sources import Weights, WeightSource, Words, check_finite_weights, word_ids

# Pairs that tell how far an encoder is to be believed where nothing is learned, and their longest side.
_LEARNED, _LONGEST_LEARNED = 1000, 100
_LESS = 0.1  # of the threshold, where an encoder is the second judge
_SENTENCE_ENDS = ".!?…。！？।؟"  # as words of their own

# Tokens of a window of a line that counts cannot read at once: they take time with its cube. Pairs of tokens of a line
# that is still looked at as a whole, to find where it can be cut.
_WINDOW, _MOST_CUT = 384, 4 * 10**6
# Forward (batch, target, source), backward (batch, source, target), target NULL and source NULL.
Directions = tuple[Tensor, Tensor, Tensor, Tensor]
TokenPair = tuple[WordTokens, WordTokens]  # source and target


class MaskAlignSource(WeightSource):
    """Both directions of a Mask-Align model, or of one that counts. Needs a fast tokenizer.

    Attributes:
        longest_uncut: a side of more tokens is cut where the weights show that nothing crosses (`cut_pair`), and the
            parts are read once more, each alone: models have learned from lines of one sentence. None: never.
        longest_sentence: up to so many tokens, a line is cut only where a sentence ends on both sides. To cut single
            sentences, too, takes half as long again and gains nothing (docs/log.md).
    """

    kind = "a word aligner"
    may_have_prior = True
    longest_uncut: int | None = 40
    longest_sentence: int = 80

    def __init__(self, model, tokenizer, settings=None):
        super().__init__(model, tokenizer, settings)
        if not tokenizer.is_fast:
            raise ValueError(
                f"A word aligner needs a fast tokenizer, got {type(tokenizer).__name__}: words are found by the "
                "characters that each token covers. Save the checkpoint with its fast tokenizer (`tokenizer.json`)."
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
        """The model's own; less with an encoder, since the mean of two opinions is rarely as sure as one."""
        less = 0.0 if self.prior is None else _LESS * self.prior.belief.trust
        return (1 - less) * self.model.config.alignment_threshold

    @classmethod
    def load(cls, name: str | Path, *, dtype, **options: Any) -> tuple:
        from transformers import AutoModel

        from hf_attncal.inference.loading import load_whole

        return load_whole(AutoModel, name, dtype=dtype, **options)

    def weights(
        self, pairs: Sequence[Words], batch_size: int, batch_tokens: int
    ) -> Iterator[tuple[list[int], Weights]]:
        """Yield weights as the base class does; long lines are cut into parts, and read in windows."""
        sides = self.tokens_of(pairs)
        encoded = list(zip(sides[::2], sides[1::2], strict=True))
        known = self._known(pairs, sides)
        for indices in self._batches(encoded, batch_size, batch_tokens):
            tokens = [encoded[index] for index in indices]
            cells = None if known is None else [spread(known[index], *encoded[index]) for index in indices]
            forward, backward, target_null, source_null = self._read(tokens, cells)
            sources, targets = [source for source, _ in tokens], [target for _, target in tokens]
            device = forward.device
            yield (
                indices,
                Weights(
                    forward,
                    backward,
                    target_null,
                    source_null,
                    word_ids(sources, device),
                    word_ids(targets, device),
                    [(source.words, target.words) for source, target in tokens],
                    padded([source.ids for source in sources], 0)[0].to(device),
                    padded([target.ids for target in targets], 0)[0].to(device),
                ),
            )

    def _batches(self, encoded: Sequence[TokenPair], batch_size: int, batch_tokens: int) -> Iterator[list[int]]:
        """Yield indices of pairs in batches by length; a pair that is too long to be read at once comes alone."""
        limit = self.model.config.max_position_embeddings
        sizes = [(len(source.ids), len(target.ids)) for source, target in encoded]
        present = [n for n, (s, t) in enumerate(encoded) if min(*sizes[n], s.words, t.words)]
        short = [n for n in present if max(sizes[n]) <= limit]
        for batch in batches_by_length([sizes[n] for n in short], batch_size, batch_tokens):
            yield [short[place] for place in batch]
        yield from ([n] for n in present if max(sizes[n]) > limit)

    def _read(self, tokens: Sequence[TokenPair], cells: Sequence[Tensor] | None) -> Directions:
        """Return both directions of a batch: long lines in windows or cut, with the encoder as a second judge."""
        limit = self.model.config.max_position_embeddings
        sizes = [(len(source.ids), len(target.ids)) for source, target in tokens]
        longest, largest = max(map(max, sizes)), max(s * t for s, t in sizes)
        if longest > limit:
            window = min(limit, self._window)
            read = self._in_windows(*tokens[0], window, None if cells is None else cells[0])
        else:
            read = self.directions([(source.ids, target.ids) for source, target in tokens], cells)
        if self.longest_uncut is not None and longest > self.longest_uncut and largest <= _MOST_CUT:
            self._cut(read, tokens, cells)
        return read if cells is None else self._judged(read, cells)

    def unknown_shares(self, pairs: Sequence[Words]) -> list[float] | None:
        if not self.counts:
            return None
        sides, device, shares = self.tokens_of(pairs), self.model.device, []
        for source, target in zip(sides[::2], sides[1::2], strict=True):
            ids = (torch.from_numpy(side.ids).to(device)[None] for side in (source, target))
            known = self.model.counts_of(*ids)[0] >= ONCE
            found = sum(int(known.any(dim).sum()) for dim in (0, 1)) if known.numel() else 0
            shares.append(1 - found / sum(known.shape) if known.numel() else 0.0)
        return shares

    def tokens_of(self, pairs: Sequence[Words]) -> list[WordTokens]:
        """Tokenise words as the model has learned to, the source and the target of each pair in turn."""
        config = self.model.config
        folded = getattr(config, "fold_words", False)  # code that was published before knows no such field
        texts = [" ".join(map(fold, side) if folded else side) for pair in pairs for side in pair]
        if config.lowercase:
            texts = [text.lower() for text in texts]
        return self._tokenize(texts)

    def directions(
        self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], cells: Sequence[Tensor] | None = None
    ) -> Directions:
        """Return both directions and their NULLs of a batch of (source ids, target ids), in float32 or better.

        Args:
            cells: what the encoder of `prior` says of the tokens of each pair, `spread`; None for nothing.

        Raises:
            ValueError: weights that are not finite.
        """
        device, padding = self.model.device, self.model.config.pad_token_id or 0
        (input_ids, mask), (target_ids, target_mask) = (padded(side, padding) for side in zip(*pairs, strict=True))
        factor = {}
        if cells is not None and self.prior is not None and self.counts:
            belief = self.prior.belief
            factor = {"factor": belief.factor(belief.bins(joined(cells))).to(device)}
        output = self.model.alignments(
            input_ids=input_ids.to(device),
            attention_mask=mask.to(device),
            target_input_ids=target_ids.to(device),
            target_attention_mask=target_mask.to(device),
            **factor,
        )
        dtype = torch.promote_types(output.forward_attention.dtype, torch.float32)

        def weights(found: Tensor) -> Tensor:
            return found.to(dtype).clamp(max=1)  # a sum may be rounded up

        found = (
            weights(output.forward_attention),
            weights(output.backward_attention),
            weights(output.forward_null),
            weights(output.backward_null),
        )
        check_finite_weights(self.model, *found)
        return found

    def _known(self, pairs: Sequence[Words], sides: Sequence[WordTokens]) -> list[np.ndarray] | None:
        """Return what the encoder says of each pair, and let it learn from the first ones what that is worth."""
        prior = self.prior
        if prior is None:
            return None
        cells = prior.cells(pairs)
        if prior.belief.learned or not self.counts:
            return cells
        encoded = list(zip(sides[::2], sides[1::2], strict=True))
        lengths = [tuple(len(side.ids) for side in pair) for pair in encoded]
        some = [n for n, pair in enumerate(lengths) if min(pair) > 0 and max(pair) <= _LONGEST_LEARNED]
        some = some[:: -(-len(some) // _LEARNED) or 1]
        witness = Witness(prior.belief, cells, sides)
        for _ in range(2):
            for batch in batches_by_length([lengths[n] for n in some], None, 4096):
                rows = [some[place] for place in batch]
                ids = [(source.ids, target.ids) for source, target in (encoded[row] for row in rows)]
                found = self.directions(ids, [spread(cells[row], *encoded[row]) for row in rows])
                witness.count(rows, (found[0] * found[1].mT).cpu())
            witness.learn()
        return cells

    def _judged(self, found: Directions, cells: Sequence[Tensor]) -> Directions:
        """Return the mean of what the model and what the encoder says, both directions and their NULLs."""
        share = 0.0 if self.prior is None else self.prior.share
        encoder = joined(cells).to(found[0])
        forward, backward, target_null, source_null = found
        return (
            (1 - share) * forward + share * encoder,
            (1 - share) * backward + share * encoder.mT,
            (1 - share) * target_null + share * (1 - encoder.sum(dim=2)).clamp(min=0),
            (1 - share) * source_null + share * (1 - encoder.sum(dim=1)).clamp(min=0),
        )

    def _cut(self, found: Directions, pairs: Sequence[TokenPair], cells: Sequence[Tensor] | None) -> None:
        """Put the weights of their parts in place of those of the pairs that are long and can be cut."""
        longest, limit = self.longest_uncut, self.model.config.max_position_embeddings
        parts = []
        for row, (source, target) in enumerate(pairs):
            if longest is None or max(len(source.ids), len(target.ids)) <= longest:
                continue
            s, t = slice(len(source.ids)), slice(len(target.ids))
            sentences = max(s.stop, t.stop) <= self.longest_sentence
            starts = [self._starts(side, sentences) for side in (source, target)]
            windows = cut_pair(found[0][row, t, s], found[1][row, s, t], *starts)
            if len(windows) > 1 and all(i.stop - i.start <= limit and j.stop - j.start <= limit for i, j in windows):
                parts += [(row, i, j) for i, j in windows]
        if not parts:
            return
        sides = [(_part(pairs[row][0], i), _part(pairs[row][1], j)) for row, i, j in parts]
        inside = None if cells is None else [cells[row][j, i] for row, i, j in parts]
        read = self.directions([(source.ids, target.ids) for source, target in sides], inside)
        self._cut(read, sides, inside)
        for row in {row for row, *_ in parts}:
            found[0][row], found[1][row] = 0, 0
        for number, (row, i, j) in enumerate(parts):
            s, t = slice(i.stop - i.start), slice(j.stop - j.start)
            found[0][row, j, i], found[1][row, i, j] = read[0][number, t, s], read[1][number, s, t]
            found[2][row, j], found[3][row, i] = read[2][number, t], read[3][number, s]

    def _starts(self, tokens: WordTokens, sentences: bool = False) -> Tensor:
        """Return at which tokens a word begins, or only those that follow the end of a sentence, (tokens,) bool."""
        starts = np.diff(tokens.word_ids, prepend=NO_WORD) != 0
        if sentences:
            starts[1:] &= np.isin(tokens.ids[:-1], self._sentence_ends)
        return torch.from_numpy(starts)

    def _in_windows(self, source: WordTokens, target: WordTokens, limit: int, cells: Tensor | None) -> Directions:
        """Return both directions of one pair that is too long to be read at once, as a batch of one.

        It is read in windows, each up to where the fewest links lead out of it; there the next one begins.
        """
        shape = len(target.ids), len(source.ids)
        target_starts, source_starts = self._starts(target), self._starts(source)
        like = {"device": self.model.device, "dtype": torch.promote_types(self.model.dtype, torch.float32)}
        forward, backward = torch.zeros(1, *shape, **like), torch.zeros(1, *shape[::-1], **like)
        target_null, source_null = (torch.ones(1, size, **like) for size in shape)
        row, column = 0, 0  # where the window begins
        while row < shape[0] and column < shape[1]:
            left = shape[1] - column, shape[0] - row
            rows, columns = slice(row, row + limit), slice(column, column + limit)
            ids = source.ids[columns], target.ids[rows]
            read = self.directions([ids], None if cells is None else [cells[rows, columns]])
            s, t = left
            if max(left) > limit:
                s, t = end_of_window(read[0][0], read[1][0], source_starts[columns], target_starts[rows], left)
            i, j = slice(column, column + s), slice(row, row + t)
            forward[0, j, i], backward[0, i, j] = read[0][0, :t, :s], read[1][0, :s, :t]
            target_null[0, j], source_null[0, i] = read[2][0, :t], read[3][0, :s]
            row, column = j.stop, i.stop
        return forward, backward, target_null, source_null


def _part(tokens: WordTokens, which: slice) -> WordTokens:
    """Return some of the tokens; words keep their numbers."""
    return tokens._replace(ids=tokens.ids[which], word_ids=tokens.word_ids[which])


# ---- long lines ----

Window = tuple[slice, slice]

# Chosen on three dev sets, joined and not. A part has so many tokens on each side at least,
_LEAST_TOKENS = 8
# and less than half a link leads out of it.
_MOST_CROSSING = 0.5
# Of cuts that as many links cross, that nearest to the diagonal is taken: a token off it weighs so many links.
_DRIFT = 0.01


def cut_pair(forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor) -> list[Window]:
    """Return the parts (source slice, target slice) of a line that nothing links to each other, such as its sentences.

    Parts follow each other on both sides. From the left, each begins at the first target word where that is possible:
    where the weights that cross, of both directions (their geometric mean), sum to less than half a link.

    Args:
        forward: weights (target, source) of the whole line.
        backward: (source, target).
        source_starts: (source,) bool: a word begins here, so the line may be cut before it.
        target_starts: (target,) bool.

    Returns:
        One part, the whole line, where it cannot be cut.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    possible = (crossing[:-1, :-1] < _MOST_CROSSING) & target_starts[:, None] & source_starts
    cuts = [(0, 0)]
    for row in possible.any(dim=1).nonzero()[:, 0].tolist():
        first, last = cuts[-1][1] + _LEAST_TOKENS, source - _LEAST_TOKENS
        if row - cuts[-1][0] < _LEAST_TOKENS or target - row < _LEAST_TOKENS or first > last:
            continue
        columns = torch.where(possible[row], crossing[row, :-1], torch.inf)[first : last + 1]
        if columns.min() < _MOST_CROSSING:
            cuts.append((row, first + int(columns.argmin())))
    return [(slice(i, next_i), slice(j, next_j)) for (j, i), (next_j, next_i) in pairwise([*cuts, (target, source)])]


def end_of_window(
    forward: Tensor, backward: Tensor, source_starts: Tensor, target_starts: Tensor, left: tuple[int, int]
) -> tuple[int, int]:
    """Return how much of a window is read, as (source, target) tokens: the next window begins there.

    The fewest links cross there. Of a side that goes on behind the window, the last eighth is not read: its partners
    may be outside. Of one such side at least half is read. A side that ends in the window keeps a token for what is
    left of the other. No word is split, unless nothing else can be.

    Args:
        forward: weights (target, source) of the window. backward: (source, target).
        source_starts: (source,) bool: a word begins here. target_starts: (target,) bool.
        left: source and target tokens of the line from the beginning of the window on; more than in the window on one
            side at least.
    """
    target, source = forward.shape
    crossing = _crossing(forward, backward)
    rows, columns = torch.arange(target + 1)[:, None], torch.arange(source + 1)
    crossing += _DRIFT * (rows * left[0] - columns * left[1]).abs() / max(left)
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
    """Return the weight of the links that cross a cut before each row and column, (target + 1, source + 1).

    That is of the first rows with the later columns, and of the later rows with the first columns. It is on the CPU.
    """
    before = torch.zeros(*(size + 1 for size in forward.shape), dtype=torch.double)
    before[1:, 1:] = (forward * backward.mT).sqrt().cpu().double().cumsum(0).cumsum(1)
    return (before[:, -1:] - before) + (before[-1:, :] - before)
