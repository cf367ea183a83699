"""From the weights of a batch to word alignments: pooling over subwords, symmetrisation, links and scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from hf_attncal.data.pharaoh import Link, format_links
from hf_attncal.data.segmentation import Segments, raw_links, raw_means
from hf_attncal.models.functional_mask_align import harmonic_mean

from .links import argmax_links, largest_over_words, links_of_batch, mean_over_words, symmetrize_batch
from .sources import Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pair = tuple[tuple[str, ...], tuple[str, ...]]  # source and target words


@dataclass(frozen=True, slots=True)
class WordAlignment:
    """Word links of one sentence pair, all indices counted from 0.

    Args:
        source: the source words.
        target: the target words.
        links: (i source, j target), sorted.
        scores: one for each link, from 0 to 1: the probability that the link is right if `calibrated`; else see
            `symmetrize` for what they are; with an encoder-decoder, the attention of the target word to the source
            word.
        source_null: for each source word the probability that it has no partner, the mean over its subwords (1 for a
            word of which the tokenizer leaves nothing, and where the other side is empty). None for an
            encoder-decoder, which has no NULL.
        target_null: the same for each target word.
        score: how well the pair is aligned, from 0 to 1: the mean, over the words of both sides, of the best score
            that the word has with any word of the other side, linked or not. None if a side has no word.
        symmetrization: how the two directions were merged; "forward" for an encoder-decoder.
        threshold: what the score of a link had to exceed, before it was made a probability; None where each target
            word got its best source word.
        source_spans: where each source word stands in its text: its first character and the one after its last,
            counted from 0 in Unicode code points. None unless asked for.
        target_spans: the same of the target words.
        calibrated: whether `scores` are probabilities (`attncal align calibrate`); `score` is as the model has it.
        shift: how far the pair is from those that the probabilities were learned from, by what the model does not know
            and by its score: from 0, like them, to 1, unlike, where no probability is above the model's score.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]
    scores: tuple[float, ...]
    source_null: tuple[float, ...] | None
    target_null: tuple[float, ...] | None
    score: float | None
    symmetrization: str
    threshold: float | None
    source_spans: tuple[tuple[int, int], ...] | None = None
    target_spans: tuple[tuple[int, int], ...] | None = None
    calibrated: bool = False
    shift: float = 0.0

    def pharaoh(self, scores: bool = False) -> str:
        """Return the links as `i-j i-j ...`, or as `i-j:score` with four decimals."""
        return format_links(self.links, self.scores if scores else None)

    def offsets(self, scores: bool = False) -> str:
        """Return the links as characters, `start:end-start:end`, or `start:end-start:end:score`; needs spans.

        Raises:
            ValueError: there are none.
        """
        if self.source_spans is None or self.target_spans is None:
            raise ValueError("there are no spans: align with `spans=True`.")
        sides = [[f"{start}:{end}" for start, end in spans] for spans in (self.source_spans, self.target_spans)]
        pairs = [f"{sides[0][i]}-{sides[1][j]}" for i, j in self.links]
        return self._joined(pairs, scores)

    def words(self, scores: bool = False) -> str:
        r"""Return the words of each link as `house=maison`, or `house=maison:0.9312` with the score last.

        In words `=` is written `\=`, and `\` is `\\`.
        """
        pairs = [f"{_escaped(self.source[i])}={_escaped(self.target[j])}" for i, j in self.links]
        return self._joined(pairs, scores)

    def _joined(self, links: list[str], scores: bool) -> str:
        if scores:
            links = [f"{link}:{score:.4f}" for link, score in zip(links, self.scores, strict=True)]
        return " ".join(links)

    def to_dict(self) -> dict:
        """Return the fields by name, ready for JSON; spans where there are some, the shift if calibrated."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.calibrated:
            del values["shift"]
        return {name: value for name, value in values.items() if value is not None or not name.endswith("_spans")}

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draw the pair: words in two rows, links with their scores, words without a partner.

        Args:
            path: a file to write, of the type that its name ends in (.png, .pdf, .svg).

        Returns:
            A figure of matplotlib, which a notebook shows; `figure.axes[0]` is where it is drawn, in em.

        Warns:
            UserWarning: no installed font has some characters of the words.
        """
        from .pictures import pair_plot  # for those who look at it

        figure = pair_plot(self)
        if path is not None:
            most = 65_000  # pixels of a side that matplotlib can draw
            figure.savefig(path, dpi=min(200, most / figure.get_figwidth()))
        return figure

    def _repr_html_(self) -> str:
        from .pictures import NULL_MARK, pair_html, short

        rule = "the best source word of each" if self.threshold is None else f"above {self.threshold:g}"
        rule += ", with the probability to be right" if self.calibrated else ""
        score = "" if self.score is None else f"score of the pair {short(self.score)}; "
        return pair_html(self, f"{score}links: {self.symmetrization}, {rule}; {NULL_MARK}: no partner")


def merge(weights: Weights, pairs: Sequence[Pair], method: str, threshold: float | None) -> list[WordAlignment]:
    """Return one alignment for each pair of a batch.

    "harmonic" links two words if the harmonic mean of the two directions is above the threshold for any two of their
    subwords, and that maximum is their score. The other methods work on the weights of each direction between words,
    the maximum over their subwords.

    Args:
        weights: of the batch.
        pairs: source and target words of each pair.
        method: one of `SYMMETRIZATIONS`; "forward" where there is one direction.
        threshold: what a score must exceed; None to link each target word to its best source word ("forward" only).
    """
    source_side, target_side = weights.source_words, weights.target_words
    if method == "harmonic" and weights.backward is not None and threshold is not None:
        both = harmonic_mean(weights.forward, weights.backward)
        scores = largest_over_words(both, source_side, target_side).cpu()
        order_repeats([scores], pairs)
        links = links_of_batch(scores, threshold)
    else:
        forward, backward = largest_over_words(weights.forward, target_side, source_side).cpu(), None
        if weights.backward is not None:
            backward = largest_over_words(weights.backward, source_side, target_side).cpu()
            order_repeats([forward.mT, backward], pairs)
        if threshold is None:
            links = [argmax_links(forward[row, :t, :s]) for row, (s, t) in enumerate(weights.words)]
            scores = forward.transpose(1, 2)
        else:
            links, scores = symmetrize_batch(forward, backward, method, threshold)
    scores = scores.clamp(max=1)  # a sum over subwords may be rounded up
    rows = [row for row, of_pair in enumerate(links) for _ in of_pair]
    i, j = torch.tensor([link for of_pair in links for link in of_pair], dtype=torch.long).reshape(-1, 2).T
    values = iter(scores[torch.tensor(rows, dtype=torch.long), i, j].tolist())
    best = scores.amax(dim=2).sum(dim=1) + scores.amax(dim=1).sum(dim=1)
    means = (best / torch.tensor([len(s) + len(t) for s, t in pairs])).tolist()
    nulls = zip(
        _nulls(weights.source_null, source_side, [source for source, _ in weights.words]),
        _nulls(weights.target_null, target_side, [target for _, target in weights.words]),
        strict=True,
    )
    alignments = []
    for (source, target), of_pair, mean, (source_null, target_null) in zip(pairs, links, means, nulls, strict=True):
        own = tuple(islice(values, len(of_pair)))
        alignments.append(
            WordAlignment(source, target, of_pair, own, source_null, target_null, mean, method, threshold)
        )
    return alignments


def _nulls(
    null: Tensor | None, words: tuple[Tensor, int], lengths: Sequence[int]
) -> Iterable[tuple[float, ...] | None]:
    """Return the NULL probabilities of the words of each pair; None where there is no NULL."""
    if null is None:
        return [None] * len(lengths)
    return (tuple(side[:length]) for side, length in zip(mean_over_words(null, *words).tolist(), lengths, strict=True))


def unaligned(pair: Pair, has_null: bool, method: str, threshold: float | None) -> WordAlignment:
    """Return the alignment of a pair with a side that has no token."""
    source_null, target_null = ((1.0,) * len(side) if has_null else None for side in pair)
    score = 0.0 if all(pair) else None
    return WordAlignment(*pair, (), (), source_null, target_null, score, method, threshold)


def of_raw_words(alignment: WordAlignment, raw: Pair, source: Segments, target: Segments) -> WordAlignment:
    """Return the alignment of segmented text between the words that white space parts; see `segmentation.raw_links`.

    Args:
        alignment: of the words of `source` and `target`.
        raw: the words that white space parts.
    """
    links, scores = raw_links(alignment.links, alignment.scores, source, target)
    source_null, target_null = alignment.source_null, alignment.target_null
    return replace(
        alignment,
        source=raw[0],
        target=raw[1],
        links=links,
        scores=scores,
        source_null=None if source_null is None else raw_means(source_null, source),
        target_null=None if target_null is None else raw_means(target_null, target),
    )


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("=", "\\=")


# ---- repeated words ----

# How much larger than the sum of the pairs in order that of the largest weights may be, for each of these pairs. On
# dev, AER with 0 to 0.3 is level with that of no order (docs/log.md); from 0.5 on it is worse.
_MARGIN = 0.2
_LEAST = 0.1  # a block with a smaller sum is of two words that have nothing to do with each other
_SPREAD = 0.05  # of a block: with less outside the largest of each word, it says by itself what belongs together
_NEAR = 1e-4  # what distance from the diagonal costs: only ties are decided by it


def order_repeats(weights: Sequence[Tensor], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    """Link repeated words in order, in place.

    Args:
        weights: scores, or the weights of each direction, all (batch, source, target) of words, on the CPU.
        pairs: source and target words of each pair; words that differ in case alone count as one.
    """
    arrays = [one.numpy() for one in weights]  # of one element at a time, ten times as fast
    for row, sides in enumerate(pairs):
        source, target = map(_repeated, sides)
        if not source or not target:
            continue
        values = [one[row] for one in arrays]
        both = (values[0] if len(values) == 1 else np.minimum(*values)).tolist()
        for i in source:
            rows = [both[place] for place in i]
            for j in target:
                block = [[of_row[place] for place in j] for of_row in rows]
                total = sum(map(sum, block))
                if total > _LEAST and (matched := _in_order(block, total, _adjacent(i) and _adjacent(j))):
                    for one in values:
                        _move(one, i, j, matched)


def _repeated(words: Sequence[str]) -> list[list[int]]:
    """Return the places of each word that is there more than once."""
    folded = " ".join(words).casefold().split(" ")
    places: dict[str, list[int]] = {}
    if len(set(folded)) < len(words):
        for place, word in enumerate(folded):
            places.setdefault(word, []).append(place)
    return [found for found in places.values() if len(found) > 1]


def _adjacent(places: Sequence[int]) -> bool:
    return places[-1] - places[0] == len(places) - 1


def _in_order(block: list[list[float]], total: float, surely: bool) -> Sequence[tuple[int, int]] | None:
    """Return the cells in order, one for each row or column.

    None if there is nothing to move, or, unless `surely`, if the weights are against it.
    """
    columns = list(zip(*block, strict=True))
    free = [sum(map(max, side)) for side in (block, columns)]
    if not surely and total - min(free) < _SPREAD:
        return None
    matched = list(enumerate(range(len(block)))) if len(block) == len(columns) else _best(np.array(block))
    inside = sum([block[i][j] for i, j in matched])
    return matched if surely or max(free) - inside <= _MARGIN * len(matched) else None


def _best(block: np.ndarray) -> list[tuple[int, int]]:
    """Return the cells of the monotone matching with the largest sum, one for each row or each column."""
    if block.shape[0] > block.shape[1]:
        return [(i, j) for j, i in _best(block.T)]
    rows, columns = block.shape
    near = np.abs(np.arange(rows)[:, None] / rows - np.arange(columns) / columns)
    block = block - _NEAR * near
    sums = np.zeros(columns + 1)  # the largest with the rows so far, all in columns before each
    values = []
    for row in block:
        values.append(sums[:-1] + row)
        sums = np.concatenate([[-np.inf], np.maximum.accumulate(values[-1])])
    matched, stop = [], columns
    for i in range(rows - 1, -1, -1):
        stop = int(values[i][:stop].argmax())
        matched.append((i, stop))
    return matched[::-1]


def _move(weights: np.ndarray, i: list[int], j: list[int], matched: Sequence[tuple[int, int]]) -> None:
    """Give the matched cells all that their block of rows `i` and columns `j` has."""
    block = [[float(weights[a, b]) for b in j] for a in i]
    of_rows, of_columns = list(map(sum, block)), list(map(sum, zip(*block, strict=True)))
    for a in i:
        for b in j:
            weights[a, b] = 0
    for a, b in matched:
        weights[i[a], j[b]] = min(of_rows[a], of_columns[b], 1)
