"""Judge which methods name the source words that a model uses, by taking the words away that they name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from hf_attncal.metrics.faithfulness import (
    CIRCULAR,
    HEADLINE,
    Faithfulness,
    MeasuredFaithfulness,
    Verdict,
    faithfulness,
    metric_of,
    operator_agreement,
)

from .attribution import CONTROLS
from .faithfulness import CUTS, Scores, faithfulness_falls, measures, word_effects
from .perturbations import OPERATORS

# It takes words away one by one, which is nearly what is measured: what it comes to is what can be reached.
YARDSTICK = "occlusion"
AREAS = ("comprehensiveness", "sufficiency")  # the measures that are looked at first


@dataclass(frozen=True)
class JudgedFaithfulness:
    """The measured faithfulness of methods to a model.

    Args:
        found: means, intervals and verdicts, the pairs in their order.
        agreement: two operators -> Kendall's tau between their rankings of source words; none of a single operator.
    """

    found: Faithfulness
    agreement: dict[tuple[str, str], MeasuredFaithfulness]

    @property
    def headline(self) -> str:
        """Return the operator that is looked at first."""
        return HEADLINE if HEADLINE in self.found.operators else self.found.operators[0]

    def ranking(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods by a measure under the headline operator, the best first."""
        operator, without = self.headline, replace(self.found, bootstrap=0)  # the order needs no intervals
        sign = 1 if metric_of(measure).lower_is_better else -1
        return sorted(without.sums, key=lambda name: sign * without.score(name, operator, measure).value)

    def controls(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that never look at the model, the strongest first, as in `ranking`."""
        return [name for name in self.ranking(measure) if name.partition("@")[0] in CONTROLS]

    def verdicts(self, method: str, measure: str = "comprehensiveness") -> dict[str, Verdict]:
        """Return the verdict on a method against each other one. Errors are those of `Faithfulness.verdict`."""
        return {other: self.found.verdict(method, other, measure) for other in self.found.sums if other != method}

    def unbeaten(self, measure: str = "comprehensiveness") -> list[str]:
        """Return the methods that no other one is better than by a verdict: among them is the one to read.

        One without whose words the text becomes no less likely is never among them.
        """
        beaten = set()
        for first, second in combinations(self.found.sums, 2):
            better = self.found.verdict(first, second, measure).better
            if better is not None:
                beaten.add(second if better == first else first)
        return [name for name in self.ranking(measure) if name not in beaten and self.found.names_words(name)]

    def against_best(
        self, method: str, measure: str = "comprehensiveness", without: Collection[str] = (YARDSTICK,)
    ) -> tuple[str, Verdict] | None:
        """Compare a method with the best of all others.

        The best is found on the pairs with an even number and compared on those with an odd one, so that it gains
        nothing by being chosen.

        Args:
            method: one of those that were judged.
            measure: see `analysis.faithfulness.measures`.
            without: methods that are not meant.

        Returns:
            Name and verdict; None without another method, a bootstrap, or two pairs.
        """
        pairs = len(self.found.words)
        others = [name for name in self.found.sums if name != method and name not in without]
        if not others or pairs < 2 or not self.found.bootstrap:
            return None
        even, odd = (
            replace(
                self.found,
                sums={name: falls[start::2] for name, falls in self.found.sums.items()},
                words=self.found.words[start::2],
            )
            for start in (0, 1)
        )
        best = next(name for name in replace(self, found=even).ranking(measure) if name in others)
        return best, odd.verdict(method, best, measure)

    def to_dict(self, method: str | None = None) -> dict[str, Any]:
        """Return everything as plain data, for JSON.

        Args:
            method: method to compare with the others; None to compare none.
        """
        found = self.found
        told: dict[str, Any] = {
            "signature": found.signature,
            "methods": found.table(),
            "unbeaten": {measure: self.unbeaten(measure) for measure in AREAS} if found.bootstrap else {},
            "operator_agreement": {"+".join(both): asdict(tau) for both, tau in self.agreement.items()},
        }
        if method is not None and found.bootstrap:
            told["verdicts"] = {
                measure: {other: asdict(one) for other, one in self.verdicts(method, measure).items()}
                for measure in found.measures
            }
            told["against_best"] = {
                measure: best and {"method": best[0], **asdict(best[1])}
                for measure in found.measures
                for best in [self.against_best(method, measure)]
            }
        return told


def judge_faithfulness(
    model,
    tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    scores: Mapping[str, Scores],
    *,
    kind: str,
    bootstrap: int = 1000,
    operators: Sequence[str] = OPERATORS,
    cuts: Sequence[float] = CUTS,
    soft: bool = True,
    seed: int = 0,
    **reading,
) -> JudgedFaithfulness:
    """Measure how faithful scores are, and whether the operators agree.

    Args:
        model, tokenizer: an encoder-decoder, on the device to use.
        sources, targets: sentences.
        scores: name -> for each pair (target words, source words), as `word_scores` gives them. A method that is
            circular under an operator is known by its name, also before an `@` (`contribution@layer1`).
        kind: what the targets are, `reference` or `output` (of the model).
        bootstrap: resamples of the pairs for each interval; 0 for none, and then no verdicts.
        operators, cuts, soft: see `faithfulness_falls`.
        seed: of draws and resamples.
        **reading: `draws`, `frequencies`, `batch_size` and `source_prefix` of `faithfulness_falls`.

    Raises:
        ValueError: see `faithfulness_falls`, `word_effects` and `metrics.faithfulness.faithfulness`.
    """
    reading |= {"operators": operators, "seed": seed}
    texts = (model, tokenizer, sources, targets)
    resampled = {"bootstrap": bootstrap, "seed": seed}
    falls = sorted(
        faithfulness_falls(*texts, scores, cuts=cuts, soft=soft, **reading), key=lambda by_pair: by_pair.index
    )
    circular = {name: CIRCULAR.get(name.partition("@")[0], ()) for name in scores}
    found = faithfulness(
        (by_pair.falls for by_pair in falls),
        operators,
        measures(cuts, soft),
        targets=kind,
        circular=circular,
        **resampled,
    )
    agreement = {}
    if len(operators) > 1:
        effects = (one.effects for one in word_effects(*texts, **reading))
        agreement = operator_agreement(effects, operators, **resampled)
    return JudgedFaithfulness(found, agreement)
