"""Break down errors of word links: by the tag of the target word, and against errors of prediction.

Sources: Lu et al., TASLP 2022, Fig. 5; Mask-Align (Chen et al., ACL 2021), section 3.7, Fig. 7.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base, check_inside_sentences

from .aer import AER, AlignmentScore, WordPair, alignment_error_rate, paired_counts
from .base import Measured, means


@dataclass(frozen=True)
class TagErrors:
    """Link scores of the target words with one tag.

    Args:
        tag: tag of the words; None for all words.
        words: number of target words with it.
        scores: name -> AER, precision and recall of the links of these words, gold and proposed.
        differences: names (a, b) -> AER of a minus AER of b, with the paired 95 % interval; None without `bootstrap`.
    """

    tag: str | None
    words: int
    scores: dict[str, AlignmentScore]
    differences: dict[tuple[str, str], Measured] | None


def aer_by_tag(
    gold: Sequence[GoldAlignment],
    links: Mapping[str, Sequence[Collection[Link]]],
    tags: Sequence[Sequence[str]],
    sentences: Sequence[WordPair],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> list[TagErrors]:
    """Compute AER by the tag of the target word.

    Args:
        gold: annotated links of each pair.
        links: name -> proposed links of each pair.
        tags: tags of the target words of each pair.
        sentences: source and target words of each pair.
        bootstrap: number of resamples of the pairs for each interval; 0 for none.
        seed: seed of the resamples.

    Returns:
        Errors over all words, then per tag, the most frequent tag first. The first name is compared with every other.

    Raises:
        ValueError: no links, numbers of pairs or tags that do not match, a link outside its pair, an annotation that
            looks 1-based, or negative `bootstrap`.
    """
    if not links:
        raise ValueError("`links` must have at least one name, got none.")
    if len(tags) != len(gold):
        raise ValueError(f"`tags` must have {len(gold)} pairs, as `gold`, got {len(tags)}.")
    check_inside_sentences(gold, [(len(source), len(target)) for source, target in sentences])
    check_index_base(gold)
    for number, (pair_tags, (_, target)) in enumerate(zip(tags, sentences, strict=True), start=1):
        if len(pair_tags) != len(target):
            raise ValueError(
                f"line {number}: {len(pair_tags)} tags for {len(target)} target words. Give one tag per word."
            )
    frequencies = Counter(tag for pair_tags in tags for tag in pair_tags)
    options: dict[str, Any] = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed}
    errors = [_errors(None, frequencies.total(), gold, links, **options)]
    for tag, words in sorted(frequencies.items(), key=lambda item: (-item[1], item[0])):
        tagged_gold = [
            GoldAlignment(_with_tag(pair.sure, pair_tags, tag), _with_tag(pair.possible, pair_tags, tag))
            for pair, pair_tags in zip(gold, tags, strict=True)
        ]
        tagged_links = {
            name: [_with_tag(*pair, tag) for pair in zip(proposed, tags, strict=True)]
            for name, proposed in links.items()
        }
        errors.append(_errors(tag, words, tagged_gold, tagged_links, **options))
    return errors


def _with_tag(links: Collection[Link], tags: Sequence[str], tag: str) -> frozenset[Link]:
    return frozenset((i, j) for i, j in links if tags[j] == tag)


def _errors(tag, words, gold, links, *, sentences: Sequence[WordPair], bootstrap: int, seed: int) -> TagErrors:
    # Links of a model, or of one tag, do not show whether indices are shifted.
    options: dict[str, Any] = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed, "check_indices": False}
    scores = {name: alignment_error_rate(gold, proposed, **options) for name, proposed in links.items()}
    differences = None
    if bootstrap:
        first, *others = links
        differences = {
            (first, name): AER.difference(*paired_counts(gold, links[first], links[name]), bootstrap, seed)
            for name in others
        }
    return TagErrors(tag, words, scores, differences)


# Correct or wrong (c, w) prediction (P) and alignment (A).
CATEGORIES = ("cPcA", "wPcA", "cPwA", "wPwA")


@dataclass(frozen=True)
class PredictionAndAlignment:
    """Shares of the target words that are predicted or aligned correctly.

    Args:
        shares: category of `CATEGORIES` -> share of the words, with the 95 % interval over pairs. They add up to 1.
        words: number of words with a gold link, which are counted.
        unlinked: number of words without a gold link. They are left out, because no alignment of them can be right.
    """

    shares: dict[str, Measured]
    words: int
    unlinked: int


def prediction_and_alignment(
    gold: Sequence[GoldAlignment],
    links: Sequence[Collection[Link]],
    predicted: Sequence[Sequence[bool] | np.ndarray],
    source_lengths: Sequence[int],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> PredictionAndAlignment:
    """Return the shares of target words that are predicted and aligned correctly or wrongly.

    A word is aligned correctly if one of its links is possible (sure links are also possible).

    Args:
        gold: annotated links of each pair.
        links: proposed links of each pair.
        predicted: True for each target word that is predicted correctly, (target words,) per pair, as in
            `Observations.predicted`.
        source_lengths: number of source words of each pair.
        bootstrap: number of resamples of the pairs for the intervals; 0 for none.
        seed: seed of the resamples.

    Raises:
        ValueError: unequal numbers of pairs, a link outside its pair, or no word with a gold link.
    """
    if not len(gold) == len(links) == len(predicted) == len(source_lengths):
        raise ValueError(
            f"All arguments must have the same pairs, got {len(gold)} in `gold`, {len(links)} in `links`, "
            f"{len(predicted)} in `predicted` and {len(source_lengths)} in `source_lengths`."
        )
    lengths = [(length, len(words)) for length, words in zip(source_lengths, predicted, strict=True)]
    for alignments in (gold, links):
        check_inside_sentences(alignments, lengths)
    counts = np.zeros((len(gold), len(CATEGORIES), 2))
    total = 0
    for row, (annotated, proposed, right) in enumerate(zip(gold, links, predicted, strict=True)):
        aligned = {j for _, j in annotated.possible & frozenset(proposed)}
        linked = {j for _, j in annotated.possible}
        for j in linked:
            counts[row, CATEGORIES.index(f"{'c' if right[j] else 'w'}P{'c' if j in aligned else 'w'}A"), 0] += 1
        counts[row, :, 1] = len(linked)
        total += len(right)
    words = int(counts[:, 0, 1].sum())
    if not words:
        raise ValueError("`gold` must link at least one target word, got no link.")
    shares = dict(zip(CATEGORIES, means(counts, bootstrap, seed), strict=True))
    return PredictionAndAlignment(shares, words, total - words)
