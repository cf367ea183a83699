"""What the numbers of a report come to, in sentences, and what they do not say."""

import math
from collections.abc import Mapping

from hf_attncal.alignment.attributions import ATTENTION, ScoredMethod
from hf_attncal.analysis.observations import Observations
from hf_attncal.metrics.base import Measured
from hf_attncal.metrics.means import means

from .faithfulness import YARDSTICK, JudgedFaithfulness

CONTRIBUTION, CHANCE = "contribution", "random"
CONTROLS = (CHANCE, "diagonal")
_MOVES = 0.005  # of steps: below, a calibration leaves attention where it was, as a probe does
_PEAKED = 0.5  # at most so many of the steps are what is called peaked
_FEW_PAIRS = 20  # resamples of fewer are too much alike


def findings_of(
    found: Observations,
    scored: Mapping[str, ScoredMethod] | None,
    judged: JudgedFaithfulness | None,
    *,
    bootstrap: int,
    seed: int,
) -> list[str]:
    """The findings, the most important first.

    Args:
        found: what was observed over the corpus.
        scored: methods against gold links; None without gold.
        judged: how faithful methods are; None where that was not measured.
        bootstrap, seed: of the intervals.
    """

    def shares(counts) -> list[Measured]:
        return means(counts, bootstrap, seed)

    sentences = _of_reliability(found, shares)
    if judged is not None:
        sentences += _of_faithfulness(judged)
    if scored is not None:
        sentences.append(_of_gold(scored))
    if found.layers["null"]:
        (null,) = shares(found.counts("null", found.top("null")))
        sentences.append(f"NULL gets {_percent(null)} of the attention of layer {found.top('null')}.")
    return [*sentences, _of_entropy(found)]


def _of_reliability(found: Observations, shares) -> list[str]:
    if not found.calibrated:
        return [
            "Whether attention names the token that counts was not asked: this model has no masks, and no probe was "
            "trained for it."
        ]
    top, first = found.top(), min(found.calibrated)
    (reliable,) = shares(found.counts("reliability", top))
    sentence = (
        f"In layer {top} the source token with the most attention is the one that contributes most at "
        f"{_percent(reliable)} of the target tokens"
    )
    if first != top:
        (below,) = shares(found.counts("reliability", first))
        sentence += f", in layer {first} at {_percent(below)}"
    sentences = [f"{sentence}."]
    below, all_steps = shares(found.reliability_up_to(top)), shares(found.steps_up_to(top))
    peaked = [n for n, share in enumerate(all_steps) if 0.05 <= share.value <= _PEAKED]
    if peaked:
        at = max(peaked)
        sentences.append(
            f"Where the attention of layer {top} is peaked (entropy at most {found.thresholds[at]:g} nats, "
            f"{_percent(all_steps[at])} of the target tokens) it is that at {_percent(below[at])}."
        )
    (moved,) = shares(found.counts("moved", top))
    if moved.value > _MOVES:
        sentences.append(f"Calibration gives the most weight to another token at {_percent(moved)} in layer {top}.")
    return sentences


def _of_faithfulness(judged: JudgedFaithfulness) -> list[str]:
    """Which method to read, and whether contributions are worth more than attention."""
    methods = [name for name in judged.ranking() if name not in (YARDSTICK, *CONTROLS)]
    if not methods:
        return []
    best, operator = methods[0], judged.headline
    falls = f"the log-probability of a target word falls by {_nats(judged.found.score(best, operator))}"
    if CHANCE in judged.found.sums:
        falls += f", without random ones by {_nats(judged.found.score(CHANCE, operator))}"
        if not _beats_chance(judged, best):
            return [
                "No method is shown to name the words that the model uses better than chance: without those that "
                f"{best} names, the first of them that do not take words away themselves, {falls}."
            ]
    sentences = [
        f"Of the methods that do not take words away themselves, {best} names the words that matter most: without "
        f"them {falls}."
    ]
    if judged.found.bootstrap:
        verdicts = judged.verdicts(best)
        others = [name for name in methods[1:] if verdicts[name].better is None]
        if others:
            sentences.append(f"By this nobody can tell {best} from {', '.join(others)}.")
    if judged.found.bootstrap and {ATTENTION, CONTRIBUTION} <= judged.found.sums.keys():
        better = judged.found.verdict(CONTRIBUTION, ATTENTION).better
        told = {
            CONTRIBUTION: "Contributions name the words that the model uses better than attention does.",
            ATTENTION: "Attention names the words that the model uses better than contributions do.",
            None: "Whether attention or contributions name better what the model uses cannot be told: there are too "
            "few pairs, or the ways of taking words away disagree.",
        }
        sentences.append(told[better])
    return sentences


def _beats_chance(judged: JudgedFaithfulness, method: str) -> bool:
    """By a verdict; without intervals there are none, and what was measured has to do."""
    if judged.found.bootstrap:
        return judged.found.verdict(method, CHANCE).better == method
    scores = [judged.found.score(name, judged.headline).value for name in (method, CHANCE)]
    return scores[0] > scores[1]


def _of_gold(scored: Mapping[str, ScoredMethod]) -> str:
    errors = {name: method.mean.test for name, method in scored.items()}
    best = min(errors, key=lambda name: errors[name].aer)
    sentence = f"Nearest to the gold links is {best}, with an alignment error rate of {_aer(errors[best])}"
    if ATTENTION in errors and best != ATTENTION:
        sentence += f"; attention, all layers and heads together, has {_aer(errors[ATTENTION])}"
    return f"{sentence}."


def _of_entropy(found: Observations) -> str:
    layers = dict.fromkeys((found.top("entropy"), min(found.layers["entropy"])))
    of_layers = [(layer, found.mean("entropy", layer)) for layer in layers]
    entropies = " and of ".join(f"{entropy:.2f} nats in layer {layer}" for layer, entropy in of_layers)
    tokens = " and ".join(f"{math.exp(entropy):.1f}" for _, entropy in of_layers)
    besides = ", NULL apart," if found.layers["null"] else ""
    return (
        f"The attention of a head{besides} has an entropy of {entropies}, on average: as much as if it were spread "
        f"evenly over {tokens} source tokens."
    )


def caveats_of(
    found: Observations,
    judged: JudgedFaithfulness | None,
    *,
    targets: str,
    pairs: int,
    probe_pairs: int | None,
) -> list[str]:
    """What the findings do not say.

    Args:
        found: what was observed.
        judged: how faithful methods are; None where that was not measured.
        targets: `reference`, or `output` of the model.
        pairs: how many there are, those with an empty side too.
        probe_pairs: how many pairs a probe was trained on for this report; None for a probe that was there, or none.
    """
    given = "that the model itself wrote" if targets == "output" else "of the reference"
    caveats = [
        f"Every prediction is read given the words {given} before it; what would come after others is not asked."
    ]
    if left_out := pairs - len(found.pairs):
        caveats.append(f"Of {_pairs(pairs)} {left_out:,} with a side of no word could not be read.")
    if found.calibrated:
        caveats.append(
            "A contribution says how much the prediction suffers where attention to a token is blurred, as a small "
            "network has learned to tell. It is about attention in one layer, not about everything that the model "
            "knows of a token: the encoder has mixed the tokens before."
        )
    if found.calibrated and not found.is_changed:
        trained = "" if probe_pairs is None else f" that was trained on {probe_pairs:,} sentence pairs for this report"
        caveats.append(
            f"The masks are those of a probe{trained}; what the model writes is unchanged by it. With a few thousand "
            "pairs to learn from, its contributions are a rough guide."
        )
    if judged is not None:
        caveats.append(
            f"Faithfulness is measured on {_pairs(len(judged.found.words))}. A sentence with a word taken away is not "
            "one that the model was trained on, so there is a verdict only where all ways of taking words away agree."
        )
    caveats.append(
        "Intervals are 95 % bootstrap intervals over the sentence pairs of this text. They say nothing about other "
        "texts, nor about the same model trained with another seed."
    )
    if len(found.pairs) < _FEW_PAIRS:
        caveats.append(f"This text has {_pairs(len(found.pairs))}: intervals of so few are too narrow. Take more.")
    return caveats


def _pairs(count: int) -> str:
    return f"{count:,} sentence pair{'' if count == 1 else 's'}"


def _percent(measured: Measured) -> str:
    if measured.interval is None:
        return f"{100 * measured.value:.1f} %"
    return "{:.1f} % ({:.1f} to {:.1f})".format(100 * measured.value, *(100 * bound for bound in measured.interval))


def _nats(measured) -> str:
    interval = "" if measured.interval is None else " ({:.2f} to {:.2f})".format(*measured.interval)
    return f"{measured.value:.2f} nats{interval}"


def _aer(score) -> str:
    interval = "" if score.interval is None else " ({:.1f} to {:.1f})".format(*(100 * b for b in score.interval))
    return f"{100 * score.aer:.1f} %{interval}"
