"""Findings and caveats of a report in sentences, whose texts are in `charts.yaml`."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import AER, paired_counts
from hf_attncal.metrics.base import Measured, means
from hf_attncal.metrics.reliability import LEAST_SPREAD, MAX_NORMALIZED_DIVERGENCE, WITHOUT_MASKS
from hf_attncal.metrics.trust import Level
from hf_attncal.report.attribution import CONTROLS, ScoredLinks
from hf_attncal.report.judged_faithfulness import YARDSTICK, JudgedFaithfulness
from hf_attncal.report.observations import ENTROPY_THRESHOLDS, Observations

from .charts import in_words, sentence
from .contents import listed, nats, percent, sentence_pairs

ATTENTION, CONTRIBUTION = "attention", "contribution"
_MIN_MOVED = 0.005  # share of steps below which calibration does not move attention, as with a probe
_MAX_PEAKED = 0.5  # largest share of the steps that is called peaked
_MIN_PAIRS_FOR_INTERVALS = 20  # resamples of fewer pairs are too similar


def findings_of(
    observed: Observations,
    scored: Mapping[str, ScoredLinks] | None,
    judged: JudgedFaithfulness | None,
    *,
    gold: Sequence[GoldAlignment] = (),
    level: Level = "trust",
    bootstrap: int,
    seed: int,
) -> list[str]:
    """Return the findings, the most important first.

    Args:
        observed: observations over the corpus.
        scored: method -> links and AER; None without gold links.
        judged: faithfulness of methods; None if not measured.
        gold: gold links of `scored`. Default: none.
        level: level of the verdict on the attention; "do not" leaves out the reliability. Default: "trust".
        bootstrap, seed: number and seed of the resamples of the intervals.
    """
    shares = partial(means, bootstrap=bootstrap, seed=seed)
    sentences = _of_reliability(observed, shares, level)
    if judged is not None:
        sentences += _of_faithfulness(judged)
    if scored is not None:
        sentences.append(_of_gold(scored, gold, bootstrap=bootstrap, seed=seed))
    if observed.calibrated and observed.is_changed:
        sentences.append(_of_extent(observed))
    if observed.layers["null"]:
        (null,) = shares(observed.counts("null", observed.top("null")))
        sentences.append(sentence("share of null", share=percent(null), layer=observed.top("null")))
    return [*sentences, _of_entropy(observed)]


def parked_in(observed: Observations, *, bootstrap: int, seed: int) -> str:
    """Return a sentence with the share of attention per layer that goes to special tokens and punctuation."""
    shares = []
    for layer in range(observed.by_group.shape[1]):
        groups = observed.attention_of_groups(layer)
        parked = np.stack([groups[:, 1:, 0].sum(axis=1), groups[:, 0, 1]], axis=1)
        (share,) = means(parked, bootstrap=bootstrap, seed=seed)
        shares.append(f"{percent(share)} in layer {layer}")
    return sentence("parked", shares=listed(shares))


def why_withheld(observed: Observations) -> str | None:
    """Return the reason why results of uninformative masks are left out, with the remedy; None if none is left out."""
    if not observed.idle:
        return None
    layers = f"layer{'' if len(observed.idle) == 1 else 's'} {listed(list(map(str, observed.idle)))}"
    apart = 100 * max(observed.mean("informed", layer) for layer in observed.idle)
    return sentence("withheld", layers=layers, spread=LEAST_SPREAD, apart=apart, remedy=WITHOUT_MASKS)


def _of_reliability(observed: Observations, shares, level: Level) -> list[str]:
    reason = why_withheld(observed)
    if reason and not observed.calibrated:
        return [sentence("all withheld", reason=reason)]
    if not observed.calibrated:
        return [sentence("without masks")]
    if level == "do not":
        return [sentence("not trusted")]
    top, first = observed.top(), min(observed.calibrated)
    reliable, lowest = (percent(shares(observed.counts("reliability", layer))[0]) for layer in (top, first))
    others = "" if first == top else f", in layer {first} at {lowest}"
    sentences = [sentence("reliability", top=top, reliable=reliable, others=others)]
    below, all_steps = shares(observed.reliability_up_to(top)), shares(observed.steps_up_to(top))
    peaked = [n for n, share in enumerate(all_steps) if 0.05 <= share.value <= _MAX_PEAKED]
    if peaked:
        at = max(peaked)
        words = {"most": ENTROPY_THRESHOLDS[at], "share": percent(all_steps[at]), "reliable": percent(below[at])}
        sentences.append(sentence("peaked", top=top, **words))
    (moved,) = shares(observed.counts("moved", top))
    if moved.value > _MIN_MOVED:
        sentences.append(sentence("moved", moved=percent(moved), top=top))
    return [*sentences, sentence("others withheld", reason=reason)] if reason else sentences


def _of_extent(observed: Observations) -> str:
    """Return a sentence about the change of attention by calibration, by layer."""

    def by_layer(measure: str, digits: int) -> str:
        return listed([f"{observed.mean(measure, layer):.{digits}f}" for layer in observed.calibrated])

    digits = {"mass": 2, "divergence": 4, "divergence_normalized": 4, "attended_mask": 2}
    return sentence(
        "extent",
        layers=listed(list(map(str, observed.calibrated))),
        most=MAX_NORMALIZED_DIVERGENCE,
        gate=f", and the gate is {by_layer('gate', 2)}" if observed.layers["gate"] else "",
        **{name: by_layer(name, number) for name, number in digits.items()},
    )


def _of_faithfulness(judged: JudgedFaithfulness) -> list[str]:
    """Return the best method with the controls, and the verdicts on it and on contributions."""
    controls = judged.controls()
    methods = [name for name in judged.ranking() if name not in (YARDSTICK, *controls)]
    if not methods:
        return []
    best = methods[0]
    falls = {name: nats(judged.score(name, judged.headline)) for name in (best, *controls)}
    if not judged.names_words(best):
        return [sentence("no method", best=best, fall=falls[best])]
    rivals = f", without the words of {listed([f'{name} by {falls[name]}' for name in controls])}" if controls else ""
    sentences = [sentence("best method", best=best, fall=falls[best], rivals=rivals)]
    if not controls:
        sentences.append(sentence("no controls", names=listed(CONTROLS)))
    if not judged.bootstrap:
        return [*sentences, sentence("no intervals")]
    compared = [(best, controls[0])] if controls else []
    if CONTRIBUTION in judged.sums:
        compared += [(CONTRIBUTION, name) for name in (ATTENTION, *controls[:1]) if name in judged.sums]
    for first, second in dict.fromkeys(compared):
        verdict = judged.verdict(first, second)
        words = {"verdict": in_words(verdict, first, second), "difference": nats(verdict.by_operator[judged.headline])}
        sentences.append(sentence("comparison", first=first, second=second, **words))
    return sentences


def _of_gold(scored: Mapping[str, ScoredLinks], gold: Sequence[GoldAlignment], *, bootstrap: int, seed: int) -> str:
    """Return a sentence with the method nearest to the gold links, compared with the controls."""
    scores = {name: method.score for name, method in scored.items()}
    errors = {name: Measured(score.aer, score.interval) for name, score in scores.items()}
    ranking = sorted(errors, key=lambda name: errors[name].value)
    controls = [name for name in ranking if name in CONTROLS]
    methods = [name for name in ranking if name not in CONTROLS]
    if not methods:
        return sentence("only controls", names=listed(controls))
    best = methods[0]
    nearest = sentence("nearest", best=best, aer=percent(errors[best]))
    if ATTENTION in errors and best != ATTENTION:
        nearest += f"; attention (mean over layers and heads) has {percent(errors[ATTENTION])}"
    if controls:
        nearest += f"; of the controls, {listed([f'{name} has {percent(errors[name])}' for name in controls])}"
    if not controls or not bootstrap:
        return f"{nearest}."
    strongest = controls[0]
    links = (scored[name].links for name in (best, strongest))
    if (interval := AER.paired_interval(*paired_counts(gold, *links), bootstrap, seed)) is None:
        return f"{nearest}."
    low, high = interval
    verdict = "nearer than" if low > 0 else "farther than" if high < 0 else "not clearly nearer than"
    points = 100 * (errors[strongest].value - errors[best].value)
    return f"{nearest}. {best} is {verdict} {strongest}, by {points:.1f} points ({100 * low:.1f} to {100 * high:.1f})."


def _of_entropy(observed: Observations) -> str:
    layers = dict.fromkeys((observed.top("entropy"), min(observed.layers["entropy"])))
    of_layers = [(layer, observed.mean("entropy", layer)) for layer in layers]
    entropies = " and of ".join(f"{entropy:.2f} nats in layer {layer}" for layer, entropy in of_layers)
    tokens = " and ".join(f"{math.exp(entropy):.1f}" for _, entropy in of_layers)
    most = (observed.steps * np.log(observed.group_tokens.sum(axis=1))).sum() / observed.steps.sum()
    without_null = " without NULL" if observed.layers["null"] else ""
    return sentence("entropy", without_null=without_null, entropies=entropies, tokens=tokens, most=math.exp(most))


def caveats_of(
    observed: Observations, judged: JudgedFaithfulness | None, *, targets: str, pairs: int, probe_pairs: int | None
) -> list[str]:
    """Return the limits of the findings.

    Args:
        observed: observations over the corpus.
        judged: faithfulness of methods; None if not measured.
        targets: kind of the targets: `reference`, or `output` of the model.
        pairs: number of pairs, including pairs with an empty side.
        probe_pairs: number of training pairs of the probe of this report; None without such a probe.
    """
    caveats = [sentence("forced", prefix="its own translation" if targets == "output" else "the reference")]
    if empty := pairs - len(observed.pairs):
        caveats.append(sentence("empty", empty=empty, pairs=sentence_pairs(pairs)))
    if observed.calibrated:
        caveats.append(sentence("contribution"))
    if probe_pairs is not None:
        caveats.append(sentence("probe", pairs=probe_pairs, rough=sentence("rough") if observed.calibrated else ""))
    elif observed.calibrated and not observed.is_changed:
        caveats.append(sentence("unchanged"))
    if judged is not None:
        caveats.append(sentence("faithfulness", pairs=sentence_pairs(len(judged.words))))
    caveats.append(sentence("intervals"))
    if len(observed.pairs) < _MIN_PAIRS_FOR_INTERVALS:
        caveats.append(sentence("few", pairs=sentence_pairs(len(observed.pairs))))
    return caveats
