"""Findings and caveats of a report in sentences."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import paired_interval
from hf_attncal.metrics.base import Measured, means
from hf_attncal.metrics.reliability import LEAST_SPREAD, MAX_NORMALIZED_DIVERGENCE, WITHOUT_MASKS
from hf_attncal.metrics.trust import Level
from hf_attncal.report.attribution import CONTROLS, ScoredLinks
from hf_attncal.report.judged_faithfulness import YARDSTICK, JudgedFaithfulness
from hf_attncal.report.observations import ENTROPY_THRESHOLDS, Observations

from .charts import in_words
from .contents import listed, nats, percent, sentence_pairs

ATTENTION, CONTRIBUTION = "attention", "contribution"
_MIN_MOVED = 0.005  # share of steps below which calibration does not move attention, as with a probe
_MAX_PEAKED = 0.5  # largest share of the steps that is called peaked
_MIN_PAIRS_FOR_INTERVALS = 20  # resamples of fewer pairs are too similar
_CONTROLS_WITHOUT_ALIGNER = ("random", "diagonal")


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
        sentences.append(f"NULL gets {percent(null)} of the attention of layer {observed.top('null')}.")
    return [*sentences, _of_entropy(observed)]


def parked_in(observed: Observations, *, bootstrap: int, seed: int) -> str:
    """Return a sentence with the share of attention per layer that goes to special tokens and punctuation."""
    shares = []
    for layer in range(observed.by_group.shape[1]):
        groups = observed.attention_of_groups(layer)
        parked = np.stack([groups[:, 1:, 0].sum(axis=1), groups[:, 0, 1]], axis=1)
        (share,) = means(parked, bootstrap=bootstrap, seed=seed)
        shares.append(f"{percent(share)} in layer {layer}")
    return (
        f"Attention on the end of sentence, other special tokens and punctuation: {listed(shares)} (counted from 0)."
    )


def why_withheld(observed: Observations) -> str | None:
    """Return the reason why results of uninformative masks are left out, with the remedy; None if none is left out."""
    if not observed.idle:
        return None
    layers = f"layer{'' if len(observed.idle) == 1 else 's'} {listed(list(map(str, observed.idle)))}"
    apart = max(observed.mean("informed", layer) for layer in observed.idle)
    return (
        f"The masks of {layers} (counted from 0) are uninformative: they distinguish source tokens (by at least "
        f"{LEAST_SPREAD:.3f}) at no more than {100 * apart:.1f} % of the target tokens, so contributions are rounding "
        f"errors. {WITHOUT_MASKS}; or give a probe more text."
    )


def _of_reliability(observed: Observations, shares, level: Level) -> list[str]:
    reason = why_withheld(observed)
    if reason and not observed.calibrated:
        return [f"Reliability, contributions and changes by calibration are left out. {reason}"]
    if not observed.calibrated:
        return ["Reliability was not measured: this model has no masks, and no probe was trained for it."]
    if level == "do not":
        return ["The agreement of attention and contributions is left out, because the attention is not trusted."]
    top, first = observed.top(), min(observed.calibrated)
    (reliable,) = shares(observed.counts("reliability", top))
    sentence = (
        f"In layer {top} (counted from 0) the source token with the most attention contributes most at "
        f"{percent(reliable)} of the target tokens"
    )
    if first != top:
        (below,) = shares(observed.counts("reliability", first))
        sentence += f", in layer {first} at {percent(below)}"
    sentences = [f"{sentence}."]
    below, all_steps = shares(observed.reliability_up_to(top)), shares(observed.steps_up_to(top))
    peaked = [n for n, share in enumerate(all_steps) if 0.05 <= share.value <= _MAX_PEAKED]
    if peaked:
        at = max(peaked)
        sentences.append(
            f"Where the attention of layer {top} is peaked (entropy at most {ENTROPY_THRESHOLDS[at]:g} nats, "
            f"{percent(all_steps[at])} of the target tokens), it contributes most at {percent(below[at])}."
        )
    (moved,) = shares(observed.counts("moved", top))
    if moved.value > _MIN_MOVED:
        sentences.append(f"Calibration changes the token with the most weight at {percent(moved)} in layer {top}.")
    return [*sentences, f"The other layers are left out. {reason}"] if reason else sentences


def _of_extent(observed: Observations) -> str:
    """Return a sentence about the change of attention by calibration, by layer."""

    def by_layer(measure: str, digits: int) -> str:
        return listed([f"{observed.mean(measure, layer):.{digits}f}" for layer in observed.calibrated])

    gate = f", and the gate is {by_layer('gate', 2)}" if observed.layers["gate"] else ""
    return (
        f"Calibration scales rows of attention by {by_layer('mass', 2)} in layers "
        f"{listed(list(map(str, observed.calibrated)))} (counted from 0): its divergence is "
        f"{by_layer('divergence', 4)} nats as the paper measures it, and "
        f"{by_layer('divergence_normalized', 4)} between rows of sum 1 (at most {MAX_NORMALIZED_DIVERGENCE}). The "
        f"mean mask, weighted by attention, is {by_layer('attended_mask', 2)}{gate}."
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
        return [
            f"No method finds words that the model uses: without the words of the best one, {best}, the "
            f"log-probability of a target word falls by {falls[best]}, which is not clearly above 0."
        ]
    rivals = f", without the words of {listed([f'{name} by {falls[name]}' for name in controls])}" if controls else ""
    sentences = [
        f"Of the methods that read the model and do not remove words themselves, {best} comes first: without the "
        f"words of {best} the log-probability of a target word falls by {falls[best]}{rivals}."
    ]
    if not controls:
        names = listed(_CONTROLS_WITHOUT_ALIGNER)
        sentences.append(f"Controls, which ignore the model, were not measured: add {names} to the methods.")
    if not judged.bootstrap:
        return [*sentences, "Without intervals there is no verdict."]
    compared = [(best, controls[0])] if controls else []
    if CONTRIBUTION in judged.sums:
        compared += [(CONTRIBUTION, name) for name in (ATTENTION, *controls[:1]) if name in judged.sums]
    for first, second in dict.fromkeys(compared):
        verdict = judged.verdict(first, second)
        difference = nats(verdict.by_operator[judged.headline])
        sentences.append(
            f"{first} against {second}: {in_words(verdict, first, second)}. The difference is {difference}."
        )
    return sentences


def _of_gold(scored: Mapping[str, ScoredLinks], gold: Sequence[GoldAlignment], *, bootstrap: int, seed: int) -> str:
    """Return a sentence with the method nearest to the gold links, compared with the controls."""
    scores = {name: method.score for name, method in scored.items()}
    errors = {name: Measured(score.aer, score.interval) for name, score in scores.items()}
    ranking = sorted(errors, key=lambda name: errors[name].value)
    controls = [name for name in ranking if name in CONTROLS]
    methods = [name for name in ranking if name not in CONTROLS]
    if not methods:
        return f"Only controls, which ignore the model, were compared with the gold links: {listed(controls)}."
    best = methods[0]
    sentence = (
        f"Of the methods that read the model, {best} is nearest to the gold links, with an alignment error rate of "
        f"{percent(errors[best])}"
    )
    if ATTENTION in errors and best != ATTENTION:
        sentence += f"; attention (mean over layers and heads) has {percent(errors[ATTENTION])}"
    if controls:
        sentence += f"; of the controls, {listed([f'{name} has {percent(errors[name])}' for name in controls])}"
    if not controls or not bootstrap:
        return f"{sentence}."
    strongest = controls[0]
    links = (scored[name].links for name in (best, strongest))
    low, high = paired_interval(gold, *links, bootstrap=bootstrap, seed=seed) or (0.0, 0.0)
    verdict = "nearer than" if low > 0 else "farther than" if high < 0 else "not clearly nearer than"
    points = 100 * (errors[strongest].value - errors[best].value)
    return (
        f"{sentence}. {best} is {verdict} {strongest}, by {points:.1f} points ({100 * low:.1f} to {100 * high:.1f})."
    )


def _of_entropy(observed: Observations) -> str:
    layers = dict.fromkeys((observed.top("entropy"), min(observed.layers["entropy"])))
    of_layers = [(layer, observed.mean("entropy", layer)) for layer in layers]
    entropies = " and of ".join(f"{entropy:.2f} nats in layer {layer}" for layer, entropy in of_layers)
    tokens = " and ".join(f"{math.exp(entropy):.1f}" for _, entropy in of_layers)
    most = (observed.steps * np.log(observed.group_tokens.sum(axis=1))).sum() / observed.steps.sum()
    without_null = " without NULL" if observed.layers["null"] else ""
    return (
        f"The attention of a head{without_null} has a mean entropy of {entropies} (layers counted from 0), as if it "
        f"were spread evenly over {tokens} of {math.exp(most):.1f} source tokens."
    )


def caveats_of(
    observed: Observations,
    judged: JudgedFaithfulness | None,
    *,
    targets: str,
    pairs: int,
    probe_pairs: int | None,
) -> list[str]:
    """Return the limits of the findings.

    Args:
        observed: observations over the corpus.
        judged: faithfulness of methods; None if not measured.
        targets: kind of the targets: `reference`, or `output` of the model.
        pairs: number of pairs, including pairs with an empty side.
        probe_pairs: number of training pairs of the probe of this report; None without such a probe.
    """
    prefix = "its own translation" if targets == "output" else "the reference"
    caveats = [f"Each word is predicted after the words of {prefix} (teacher forcing), not after other words."]
    if empty := pairs - len(observed.pairs):
        caveats.append(f"{empty:,} of {sentence_pairs(pairs)} were left out, because one side is empty.")
    if observed.calibrated:
        caveats.append(
            "A contribution is the loss of the prediction if attention to a token is blurred, estimated by a small "
            "network. It concerns attention in one layer, not all information about a token: the encoder mixes tokens."
        )
    if probe_pairs is not None:
        rough = " With a few thousand training pairs, its contributions are only a rough guide."
        caveats.append(
            f"The masks belong to a probe trained on {probe_pairs:,} sentence pairs for this report, which does not "
            f"change translations.{rough if observed.calibrated else ''}"
        )
    elif observed.calibrated and not observed.is_changed:
        caveats.append("The masks do not change the attention of this model.")
    if judged is not None:
        caveats.append(
            f"Faithfulness is measured on {sentence_pairs(len(judged.words))}. The model was not trained on sentences "
            "with removed words, so there is a verdict only if all operators agree."
        )
    caveats.append(
        "Intervals are 95 % bootstrap intervals over the sentence pairs of this text. They do not cover other texts "
        "or trainings with other seeds."
    )
    if len(observed.pairs) < _MIN_PAIRS_FOR_INTERVALS:
        caveats.append(
            f"This text has only {sentence_pairs(len(observed.pairs))}, so intervals are too narrow. Use more text."
        )
    return caveats
