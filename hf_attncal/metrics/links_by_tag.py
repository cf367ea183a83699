"""The alignment error rate of target words of one kind, such as a part of speech (Lu et al., TASLP 2022, Fig. 5)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base, check_inside_sentences

from .aer import AlignmentScore, WordPair, alignment_error_rate, paired_interval
from .base import Measured

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class TagErrors:
    """What becomes of the target words with one tag.

    Args:
        tag: None for all words.
        words: how many.
        scores: name -> AER and the like, of the links of these words alone, gold and proposed.
        differences: names (a, b) -> AER of a less that of b, with the paired 95 % interval; None without `bootstrap`.
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
    """AER by the tag of the target word.

    Args:
        gold: annotated links of every pair.
        links: name -> proposed links of every pair.
        tags: of the target words of every pair.
        sentences: source and target words of every pair.
        bootstrap: resamples of the pairs for each interval; 0 for none.
        seed: of the resamples.

    Returns:
        All words first, then each tag, the most frequent first. The first name is compared with each other one.

    Raises:
        ValueError: no links; numbers of pairs or tags that do not fit; a link outside of its pair; an annotation that
            looks 1-based; negative `bootstrap`.
    """
    if not links:
        raise ValueError("`links` must have those of one name at least, got none.")
    if len(tags) != len(gold):
        raise ValueError(f"`tags` must be those of {len(gold)} pairs, got {len(tags)}.")
    check_inside_sentences(gold, [(len(source), len(target)) for source, target in sentences])
    check_index_base(gold)
    for number, (of_pair, (_, target)) in enumerate(zip(tags, sentences, strict=True), start=1):
        if len(of_pair) != len(target):
            raise ValueError(f"line {number}: {len(of_pair)} tags for {len(target)} target words: give one for each.")
    frequencies = Counter(tag for of_pair in tags for tag in of_pair)
    options = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed}
    errors = [_errors(None, frequencies.total(), gold, links, **options)]
    for tag, words in sorted(frequencies.items(), key=lambda item: (-item[1], item[0])):
        of_gold = [
            GoldAlignment(_of_tag(pair.sure, own, tag), _of_tag(pair.possible, own, tag))
            for pair, own in zip(gold, tags, strict=True)
        ]
        of_links = {
            name: [_of_tag(of, own, tag) for of, own in zip(of_name, tags, strict=True)]
            for name, of_name in links.items()
        }
        errors.append(_errors(tag, words, of_gold, of_links, **options))
    return errors


def _of_tag(links: Collection[Link], tags: Sequence[str], tag: str) -> frozenset[Link]:
    return frozenset((i, j) for i, j in links if tags[j] == tag)


def _errors(tag, words, gold, links, *, sentences: Sequence[WordPair], bootstrap: int, seed: int) -> TagErrors:
    # Whether indices are displaced is not for the links of a model, nor for those of one kind of words, to tell.
    options = {"sentences": sentences, "bootstrap": bootstrap, "seed": seed, "check_indices": False}
    scores = {name: alignment_error_rate(gold, of, **options) for name, of in links.items()}
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
