"""Compute the alignment error rate by the tag of the target word (Lu et al., TASLP 2022, Fig. 5)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base, check_inside_sentences

from .aer import AlignmentScore, WordPair, alignment_error_rate, paired_interval
from .base import Measured

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class TagErrors:
    """Scores of the links of target words with one tag.

    Args:
        tag: the tag; None for all words.
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
    tags: Tags,
    sentences: Sequence[WordPair],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> list[TagErrors]:
    """Compute AER by the tag of the target word.

    Args:
        gold: annotated links of every pair.
        links: name -> proposed links of every pair.
        tags: tags of the target words of every pair.
        sentences: source and target words of every pair.
        bootstrap: number of resamples of the pairs for each interval; 0 for none.
        seed: seed of the resamples.

    Returns:
        Errors over all words, then over each tag, the most frequent first. The first name is compared with each other.

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
                f"line {number}: {len(pair_tags)} tags for {len(target)} target words: give one for each."
            )
    frequencies = Counter(tag for pair_tags in tags for tag in pair_tags)
    options = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed}
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
    # Links of a model, or of one kind of words, are no evidence that indices are displaced.
    options = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed, "check_indices": False}
    scores = {name: alignment_error_rate(gold, proposed, **options) for name, proposed in links.items()}
    differences = None
    if bootstrap:
        first, *others = links
        differences = {
            (first, other): Measured(
                scores[first].aer - scores[other].aer,
                paired_interval(gold, links[other], links[first], bootstrap=bootstrap, seed=seed),
            )
            for other in others
        }
    return TagErrors(tag, words, scores, differences)
