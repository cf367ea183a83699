"""Methods of attribution as word aligners: how near each of them comes to annotated links, and where it is to be read.

Every target word is linked to its best source word, in one direction. A method that looks at layers and heads is read
twice: the mean over them, and the layer and head that have the lowest error on other annotated pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hf_attncal.alignment.links import best_links
from hf_attncal.data.annotated_pairs import Gold
from hf_attncal.data.pharaoh import Link
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate, paired_interval
from hf_attncal.models.calibration import calibrated_layers
from hf_attncal.models.functional import token_rows
from hf_attncal.report.attribution import METHODS, attribute, works_on
from hf_attncal.report.attribution.method import OfHeads

Links = list[frozenset[Link]]
ATTENTION = "attention"  # what the others are compared with
SHIFTED = "_shifted"


@dataclass(frozen=True)
class WayOfReading:
    """A method with some of its options.

    Args:
        method: one of `METHODS`.
        options: of it, as for `attribute`.
        shift: read the weights of the step after the one that predicts a word, where the word is the input (Shift-Att
            of Chen et al. 2020); for methods that look at heads.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    shift: bool = False


@dataclass(frozen=True)
class ScoredReading:
    """One way of reading, with what it came to.

    Args:
        options: all that differ from the method's defaults.
        dev, test: the error rates on both sets of annotated pairs; `dev` is None without such pairs.
        links: of the test pairs.
        minus_attention: by how much the error rate on test is above that of attention read in the same way (the mean,
            or the chosen head), with its 95 % interval; None for attention itself and without a bootstrap.
    """

    options: dict[str, Any]
    dev: AlignmentScore | None
    test: AlignmentScore
    links: Links
    minus_attention: tuple[float, tuple[float, float] | None] | None = None


@dataclass(frozen=True)
class ScoredMethod:
    """A method read in two ways: all layers and heads together, and what was chosen on dev (None without dev)."""

    mean: ScoredReading
    chosen: ScoredReading | None


def ways_of_reading(model) -> dict[str, WayOfReading]:
    """Return all methods that work on a model without anything else given, by name.

    Besides, under names of their own: what looks at heads, `_shifted`; of a calibrated model `attention_uncalibrated`,
    the weights before its calibration.
    """
    names = [name for name in works_on(model) if name != "posterior"]  # which needs an aligner
    ways = {name: WayOfReading(name) for name in names}
    if calibrated_layers(model) and ATTENTION in ways:
        ways["attention_uncalibrated"] = WayOfReading(ATTENTION, {"calibrated": False})
    shifted = {f"{name}{SHIFTED}": replace(way, shift=True) for name, way in ways.items() if _looks_at_heads(way)}
    return ways | shifted


def _looks_at_heads(way: WayOfReading) -> bool:
    return issubclass(METHODS[way.method], OfHeads)


def attribution_links(
    model,
    tokenizer,
    pairs: Sequence[tuple[str, str]],
    way: WayOfReading,
    *,
    batch_size: int = 32,
    source_prefix: str = "",
) -> Links:
    """Return the best source word of each target word of every pair; none for a pair with a side of no word.

    Nothing but links is kept of a batch.

    Args:
        model, tokenizer, batch_size, source_prefix: see `attribute`.
        pairs: (source, target).
        way: how the links are found.

    Raises:
        ValueError: a `shift` of a method that does not look at heads; and see `attribute`.
    """
    if way.shift and not _looks_at_heads(way):
        raise ValueError(f"`shift` is for methods that look at heads of the cross-attention, got {way.method!r}.")
    links: Links = [frozenset()] * len(pairs)
    texts = ([pair[side] for pair in pairs] for side in (0, 1))
    reading = {"batch_size": batch_size, "source_prefix": source_prefix}
    for found in attribute(model, tokenizer, *texts, way.method, **reading, **way.options):
        if way.shift:
            found = replace(found, scores=token_rows(found.scores, True))
        links[found.index] = best_links(found.words())
    return links


def choose_options(
    model, tokenizer, gold: Gold, way: WayOfReading, **reading
) -> tuple[dict[str, Any], AlignmentScore, AlignmentScore]:
    """Return the options of a method with the lowest alignment error rate, the earlier of equals.

    Args:
        model, tokenizer: see `attribute`.
        gold: annotated pairs. Use other pairs than those that are reported on.
        way: its `options` stay, those that it leaves open are tried: see `Method.choices`.
        **reading: `batch_size` and `source_prefix` of `attribution_links`.

    Returns:
        All options, their error rate, and that of the options of `way` alone.
    """
    tried: list[dict[str, Any]] = []
    for choice in METHODS[way.method].choices(model):  # the first is empty
        options = {**choice, **way.options}
        if options not in tried:
            tried.append(options)
    found = (attribution_links(model, tokenizer, gold.pairs, replace(way, options=one), **reading) for one in tried)
    scores = [_score(gold, links) for links in found]
    best = min(range(len(tried)), key=lambda number: scores[number].aer)
    return tried[best], scores[best], scores[0]


def score_attributions(
    model,
    tokenizer,
    test: Gold,
    dev: Gold | None = None,
    ways: Mapping[str, WayOfReading] | None = None,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    finished: Callable[[str, ScoredMethod], None] = lambda name, scored: None,
    **reading,
) -> dict[str, ScoredMethod]:
    """Score methods of attribution by their alignment error rates.

    Args:
        model, tokenizer: see `attribute`.
        test: annotated pairs that are scored.
        dev: other annotated pairs, on which layers and heads are chosen; None: only means are scored.
        ways: by name; `"attention"`, if it is among them, is what all are compared with. None for `ways_of_reading`.
        bootstrap: resamples of the pairs for the 95 % intervals; 0 for none.
        seed: of the resamples.
        finished: called with each name and its scores as soon as they are there.
        **reading: `batch_size` and `source_prefix` of `attribution_links`.

    Raises:
        ValueError: no annotated pair, no way of reading, and see `attribution_links`.
    """
    ways = ways_of_reading(model) if ways is None else ways
    for name, given in (("test", test), ("dev", dev)):
        if given is not None and not given.pairs:
            raise ValueError(f"`{name}` must have an annotated pair at least, got none.")
    if not ways:
        raise ValueError("`ways` must have one way of reading at least, got none.")
    resampled = {"bootstrap": bootstrap, "seed": seed}
    found: dict[str, ScoredMethod] = {}
    for name in sorted(ways, key=lambda name: name != ATTENTION):  # with which the others are compared
        way = ways[name]

        def scored(options: dict[str, Any], on_dev: AlignmentScore | None, way=way) -> ScoredReading:
            links = attribution_links(model, tokenizer, test.pairs, replace(way, options=options), **reading)
            return ScoredReading(options, on_dev, _score(test, links, **resampled), links)

        if dev is None:
            result = ScoredMethod(scored(dict(way.options), None), None)
        else:
            options, on_dev, of_mean = choose_options(model, tokenizer, dev, way, **reading)
            mean = scored(dict(way.options), of_mean)
            result = ScoredMethod(mean, mean if options == mean.options else scored(options, on_dev))
        found[name] = _compared(result, found.get(ATTENTION), test, resampled)
        finished(name, found[name])
    return {name: found[name] for name in ways}


def _compared(
    scored: ScoredMethod, attention: ScoredMethod | None, test: Gold, resampled: Mapping[str, int]
) -> ScoredMethod:
    """Add the differences to attention that is read in the same way."""
    if attention is None or not resampled["bootstrap"]:
        return scored

    def against(reading: ScoredReading | None, other: ScoredReading | None) -> ScoredReading | None:
        if reading is None or other is None:
            return reading
        interval = paired_interval(test.links, other.links, reading.links, **resampled)
        return replace(reading, minus_attention=(reading.test.aer - other.test.aer, interval))

    return ScoredMethod(against(scored.mean, attention.mean), against(scored.chosen, attention.chosen))


def _score(gold: Gold, links: Links, **resampled) -> AlignmentScore:
    # No check of indices: they come from our own words, and what is scored may well be chance.
    return alignment_error_rate(gold.links, links, check_indices=False, **resampled)
