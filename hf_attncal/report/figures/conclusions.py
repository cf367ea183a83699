"""Write what the numbers of a report say, and what they do not say, in sentences."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.metrics.aer import paired_interval
from hf_attncal.metrics.base import FEWEST_SENTENCES, Measured, means
from hf_attncal.metrics.reliability import LEAST_SPREAD, WITHOUT_MASKS
from hf_attncal.metrics.trust import Level
from hf_attncal.report.attribution import CONTROLS, ScoredLinks
from hf_attncal.report.judged_faithfulness import YARDSTICK, JudgedFaithfulness
from hf_attncal.report.observations import ENTROPY_THRESHOLDS, Observations

from .templates import listed, nats, percent, sentence_pairs

ATTENTION, CONTRIBUTION = "attention", "contribution"
_MOVES = 0.005  # of steps: below, a calibration leaves attention where it was, as a probe does
_PEAKED = 0.5  # at most so many of the steps are what is called peaked
_FEW_PAIRS = 20  # resamples of fewer are too much alike
_MEASURABLE = ("random", "diagonal")  # the controls that need nothing but the model


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
    """Write the findings, the most important first.

    Args:
        observed: what was observed over the corpus.
        scored: methods against gold links; None without gold.
        judged: how faithful methods are; None where that was not measured.
        gold: the links that `scored` is about.
        level: of the verdict on the attention; of one that is not to be trusted no reliability is told.
        bootstrap, seed: of the intervals.
    """
    shares = partial(means, bootstrap=bootstrap, seed=seed)
    sentences = _of_reliability(observed, shares, level)
    if judged is not None:
        sentences += _of_faithfulness(judged)
    if scored is not None:
        sentences.append(_of_gold(scored, gold, bootstrap=bootstrap, seed=seed))
    if observed.layers["null"]:
        (null,) = shares(observed.counts("null", observed.top("null")))
        sentences.append(f"NULL gets {percent(null)} of the attention of layer {observed.top('null')}.")
    return [*sentences, _of_entropy(observed)]


def parked_in(observed: Observations, *, bootstrap: int, seed: int) -> str:
    """Write what share of the attention of each layer goes to source tokens that are no words."""
    shares = []
    for layer in range(observed.by_group.shape[1]):
        groups = observed.attention_of_groups(layer)
        parked = np.stack([groups[:, 1:, 0].sum(axis=1), groups[:, 0, 1]], axis=1)
        (share,) = means(parked, bootstrap=bootstrap, seed=seed)
        shares.append(f"{percent(share)} in layer {layer}")
    return f"Attention parked on the end of sentence, other special tokens and punctuation: {listed(shares)}."


def why_withheld(observed: Observations) -> str | None:
    """Write why results that need the masks of some layers are left out, and what to do; None if none is left out."""
    if not observed.idle:
        return None
    layers = f"layer{'' if len(observed.idle) == 1 else 's'} {listed(list(map(str, observed.idle)))}"
    apart = max(observed.mean("informed", layer) for layer in observed.idle)
    return (
        f"The masks of {layers} carry no information: they tell source tokens apart (by {LEAST_SPREAD:.3f} or more, "
        f"of 1) at {100 * apart:.1f} % of the target tokens at most, so that contributions are rounding errors. "
        f"{WITHOUT_MASKS}; or give a probe more text."
    )


def _of_reliability(observed: Observations, shares, level: Level) -> list[str]:
    reason = why_withheld(observed)
    if reason and not observed.calibrated:
        return [
            "Whether attention names the token that counts cannot be told: reliability, contributions and what "
            f"calibration changes are left out. {reason}"
        ]
    if not observed.calibrated:
        return [
            "Whether attention names the token that counts was not asked: this model has no masks, and no probe was "
            "trained for it."
        ]
    if level == "do not":
        return [
            "How often attention and contributions agree is left out: two that are not to be trusted may well agree."
        ]
    top, first = observed.top(), min(observed.calibrated)
    (reliable,) = shares(observed.counts("reliability", top))
    sentence = (
        f"In layer {top} the source token with the most attention is the one that contributes most at "
        f"{percent(reliable)} of the target tokens"
    )
    if first != top:
        (below,) = shares(observed.counts("reliability", first))
        sentence += f", in layer {first} at {percent(below)}"
    sentences = [f"{sentence}."]
    below, all_steps = shares(observed.reliability_up_to(top)), shares(observed.steps_up_to(top))
    peaked = [n for n, share in enumerate(all_steps) if 0.05 <= share.value <= _PEAKED]
    if peaked:
        at = max(peaked)
        sentences.append(
            f"Where the attention of layer {top} is peaked (entropy at most {ENTROPY_THRESHOLDS[at]:g} nats, "
            f"{percent(all_steps[at])} of the target tokens) it is that at {percent(below[at])}."
        )
    (moved,) = shares(observed.counts("moved", top))
    if moved.value > _MOVES:
        sentences.append(f"Calibration gives the most weight to another token at {percent(moved)} in layer {top}.")
    return [*sentences, f"The other layers are left out. {reason}"] if reason else sentences


def _of_faithfulness(judged: JudgedFaithfulness) -> list[str]:
    """Write which method to read, if any beats the controls, and how contributions compare with attention."""
    controls = judged.controls()
    methods = [name for name in judged.ranking() if name not in (YARDSTICK, *controls)]
    if not methods:
        return []
    best = methods[0]
    falls_by = {name: nats(judged.score(name, judged.headline)) for name in (best, *controls)}
    if not judged.names_words(best):
        return [
            "No method that looks at the model names words that it uses: without the words that the first of them, "
            f"{best}, names, the log-probability of a target word falls by {falls_by[best]}, which is not shown to "
            "be a fall at all."
        ]
    leads = f"Of the methods that look at the model and do not take words away themselves, {best}"
    falls = f"without the words that {best} names the log-probability of a target word falls by {falls_by[best]}"
    if not controls:
        return [
            f"{leads} names the words that matter most: {falls}. Whether a method that never looks at the model does "
            f"as well was not measured: take {listed(_MEASURABLE)} among the methods.",
            *_of_contributions(judged),
        ]
    falls += f", without those of {listed([f'{name} by {falls_by[name]}' for name in controls])}"
    strongest = controls[0]
    if not judged.bootstrap:
        return [
            f"{leads} comes first, and of those that never look at it {strongest}: {falls}. Without intervals there "
            "is no verdict."
        ]
    verdict = judged.verdict(best, strongest)
    difference = nats(verdict.by_operator[judged.headline])
    agree = f"all ways of taking words away{' that are not circular' if verdict.circular else ''} agree"
    if verdict.better == best:
        sentences = [
            f"{leads} names the words that matter most: {falls}. By {difference} it is better than {strongest}, the "
            f"strongest of those that never look at the model, and {agree}."
        ]
        against = judged.verdicts(best)
        if others := [name for name in methods[1:] if against[name].better is None]:
            sentences.append(f"By this nobody can tell {best} from {', '.join(others)}.")
        return sentences + _of_contributions(judged)
    better = [name for name in methods if judged.verdict(name, strongest).better == name]
    shown = f"Of all methods only {listed(better)} can" if better else "No method can"
    few = len(judged.words) < FEWEST_SENTENCES
    why = (
        f"there are fewer than {FEWEST_SENTENCES} pairs"
        if few
        else "the ways of taking words away disagree, or cannot tell"
    )
    told = agree if verdict.better else f"no verdict, for {why}"
    return [
        f"{shown} be shown to name the words that the model uses better than {strongest}, which never looks at the "
        f"model. {leads} comes first: {falls}. The difference to {strongest} is {difference}: {told}.",
        *_of_contributions(judged),
    ]


def _of_contributions(judged: JudgedFaithfulness) -> list[str]:
    """Compare contributions with attention, and with the strongest control."""
    if not judged.bootstrap or CONTRIBUTION not in judged.sums:
        return []
    sentences = []
    if ATTENTION in judged.sums:
        better = judged.verdict(CONTRIBUTION, ATTENTION).better
        told = {
            CONTRIBUTION: "Contributions name the words that the model uses better than attention does.",
            ATTENTION: "Attention names the words that the model uses better than contributions do.",
            None: "Whether attention or contributions name better what the model uses cannot be told: there are too "
            "few pairs, or the ways of taking words away disagree.",
        }
        sentences.append(told[better])
    for control in judged.controls()[:1]:
        if judged.verdict(CONTRIBUTION, control).better != CONTRIBUTION:
            sentences.append(
                f"Contributions are not shown to name them better than {control} does, which never looked at the "
                "model: whether attention agrees with contributions then says little of what the model uses."
            )
    return sentences


def _of_gold(scored: Mapping[str, ScoredLinks], gold: Sequence[GoldAlignment], *, bootstrap: int, seed: int) -> str:
    """Write which method is nearest to gold links, and whether it beats those that never look at the model."""
    scores = {name: method.score for name, method in scored.items()}
    errors = {name: Measured(score.aer, score.interval) for name, score in scores.items()}
    ranking = sorted(errors, key=lambda name: errors[name].value)
    controls = [name for name in ranking if name in CONTROLS]
    methods = [name for name in ranking if name not in CONTROLS]
    if not methods:
        return f"Only controls, which never look at the model, were held against the gold links: {listed(controls)}."
    best = methods[0]
    sentence = (
        f"Of the methods that look at the model {best} is the nearest to the gold links, with an alignment error rate "
        f"of {percent(errors[best])}"
    )
    if ATTENTION in errors and best != ATTENTION:
        sentence += f"; attention, all layers and heads together, has {percent(errors[ATTENTION])}"
    if not controls:
        return f"{sentence}."
    rates = listed([f"{name} has {percent(errors[name])}" for name in controls])
    sentence += f"; of those that never look at it {rates}."
    if not bootstrap:
        return sentence
    strongest = controls[0]
    links = (scored[name].links for name in (best, strongest))
    interval = paired_interval(gold, *links, bootstrap=bootstrap, seed=seed)
    difference = Measured(errors[strongest].value - errors[best].value, interval)
    return f"{sentence} {compared(best, strongest, difference, 'nearer', 'farther')}"


def compared(best: str, other: str, difference: Measured, better: str, worse: str) -> str:
    """Write a sentence that compares two methods: "a is nearer than b, by 2.0 points (1.0 to 3.0)."

    Args:
        best: the method that the sentence is about.
        other: what it is compared with.
        difference: of shares, positive where `best` is better; without an interval nothing is shown.
        better: how the sentence calls `best` where the whole interval is above 0, such as "nearer".
        worse: the same below 0.
    """
    low, high = difference.interval or (0.0, 0.0)
    verdict = (
        f"is {better} than" if low > 0 else f"is {worse} than" if high < 0 else f"is not shown to be {better} than"
    )
    ends = f" ({100 * low:.1f} to {100 * high:.1f})" if difference.interval else ", on too few pairs for an interval"
    return f"{best} {verdict} {other}, by {100 * difference.value:.1f} points{ends}."


def _of_entropy(observed: Observations) -> str:
    layers = dict.fromkeys((observed.top("entropy"), min(observed.layers["entropy"])))
    of_layers = [(layer, observed.mean("entropy", layer)) for layer in layers]
    entropies = " and of ".join(f"{entropy:.2f} nats in layer {layer}" for layer, entropy in of_layers)
    tokens = " and ".join(f"{math.exp(entropy):.1f}" for _, entropy in of_layers)
    most = (observed.steps * np.log(observed.group_tokens.sum(axis=1))).sum() / observed.steps.sum()
    besides = ", NULL apart," if observed.layers["null"] else ""
    return (
        f"The attention of a head{besides} has an entropy of {entropies}, on average: as much as if it were spread "
        f"evenly over {tokens} source tokens, of {math.exp(most):.1f} that there are."
    )


def caveats_of(
    observed: Observations,
    judged: JudgedFaithfulness | None,
    *,
    targets: str,
    pairs: int,
    probe_pairs: int | None,
) -> list[str]:
    """Write what the findings do not say.

    Args:
        observed: what was observed.
        judged: how faithful methods are; None where that was not measured.
        targets: `reference`, or `output` of the model.
        pairs: how many there are, those with an empty side too.
        probe_pairs: how many pairs a probe was trained on for this report; None for a probe that was there, or none.
    """
    given = "that the model itself wrote" if targets == "output" else "of the reference"
    caveats = [
        f"Every prediction is read given the words {given} before it; what would come after others is not asked."
    ]
    if left_out := pairs - len(observed.pairs):
        caveats.append(f"Of {sentence_pairs(pairs)} {left_out:,} with a side of no word could not be read.")
    if observed.calibrated:
        caveats.append(
            "A contribution says how much the prediction suffers where attention to a token is blurred, as a small "
            "network has learned to tell. It is about attention in one layer, not about everything that the model "
            "knows of a token: the encoder has mixed the tokens before."
        )
    if probe_pairs is not None:
        rough = " With a few thousand pairs to learn from, its contributions are a rough guide."
        caveats.append(
            f"The masks are those of a probe that was trained on {probe_pairs:,} sentence pairs for this report; what "
            f"the model writes is unchanged by it.{rough if observed.calibrated else ''}"
        )
    elif observed.calibrated and not observed.is_changed:
        caveats.append("The masks leave the attention of this model as it is: there is no change to tell of.")
    if judged is not None:
        caveats.append(
            f"Faithfulness is measured on {sentence_pairs(len(judged.words))}. A sentence with a word taken "
            "away is not one that the model was trained on, so there is a verdict only where all ways of taking words "
            "away agree."
        )
    caveats.append(
        "Intervals are 95 % bootstrap intervals over the sentence pairs of this text. They say nothing about other "
        "texts, nor about the same model trained with another seed."
    )
    if len(observed.pairs) < _FEW_PAIRS:
        few = sentence_pairs(len(observed.pairs))
        caveats.append(f"This text has {few}: intervals of so few are too narrow. Take more.")
    return caveats
