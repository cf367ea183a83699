"""Summary of a check over a text, and comparison of two translations of the same sources."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hf_attncal.drawing.page import text_table
from hf_attncal.metrics.base import Measured, Metric, mean_difference, means, ratio

from .checker import Checker
from .verdicts import MARKED_ABOVE, VERDICTS, PairVerdict

SHARES = (
    "lines flagged",
    *(f"lines flagged: {name}" for name in VERDICTS),
    "source words omitted",
    "target words added",
)
_METRIC = Metric("Check", ratio, lower_is_better=True)


@dataclass(frozen=True)
class Summary:
    """Summary of a check over a text.

    Args:
        lines: Number of lines.
        shares: Share of each of `SHARES`, with its 95 % interval over lines.
        signature: Signature of the computation.
        alarm: Probability of likeness above which a line of ordinary text is flagged.
    """

    lines: int
    shares: dict[str, Measured]
    signature: str
    alarm: float

    def __str__(self) -> str:
        shares = [_percent(share) for share in self.shares.values()]
        return "\n".join(
            [*text_table({"": list(self.shares), "per cent": shares}), "", self.lines_and_alarm(), self.signature]
        )

    def lines_and_alarm(self) -> str:
        """Return the number of lines and the alarm."""
        return f"{self.lines} lines; the alarm is {self.alarm:.2g} on ordinary text."


@dataclass(frozen=True)
class Comparison:
    """Differences between the faults of two translations of the same sources.

    Args:
        differences: First minus second share for each of `SHARES`, with its 95 % interval.
        p_values: Two-sided p-values of the paired bootstrap; None for too few lines (`FEWEST_SENTENCES`).
        signature: Signature of the computation.
        first, second: Summary of each translation.
        names: Names of the translations. Default: ("first", "second").
    """

    differences: dict[str, Measured]
    p_values: dict[str, float | None]
    signature: str
    first: Summary
    second: Summary
    names: tuple[str, str] = ("first", "second")

    def __str__(self) -> str:
        columns = {"per cent": list(self.differences)}
        for heading, summary in (("target", self.first), ("compared with", self.second)):
            columns[heading] = [_percent(share) for share in summary.shares.values()]
        columns["difference"] = [_percent(share, "+") for share in self.differences.values()]
        columns["p"] = ["-" if p is None else f"{p:.3f}" for p in self.p_values.values()]
        names = "target: {}; compared with: {}".format(*self.names)
        return "\n".join([*text_table(columns), "", names, self.first.lines_and_alarm(), self.signature])


def _percent(share: Measured, sign: str = "") -> str:
    ends = share.interval and f" ({' to '.join(f'{100 * end:{sign}.2f}' for end in share.interval)})"
    return f"{100 * share.value:{sign}.2f}{ends or ''}"


def count_faults(verdicts: Iterable[PairVerdict]) -> np.ndarray:
    """Return the numerator and denominator of each of `SHARES` per line, (lines, shares, 2).

    Memory: 64 bytes per line.
    """
    rows = []
    for verdict in verdicts:
        flags = [bool(verdict.flagged), *(name in verdict.flagged for name in VERDICTS)]
        sides = verdict.source_words, verdict.target_words
        words = [(sum(value > MARKED_ABOVE for value in side), len(side)) for side in sides]
        rows.append(np.array([*((flag, 1) for flag in flags), *words], dtype=np.float32))
    return np.stack(rows) if rows else np.zeros((0, len(SHARES), 2), dtype=np.float32)


def summarize_counts(checker: Checker, counts: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> Summary:
    """Summarize the counts of `count_faults`.

    Raises:
        ValueError: There are no lines, or `bootstrap` is negative.
    """
    shares = dict(zip(SHARES, means(counts.astype(float), bootstrap, seed), strict=True))
    return Summary(len(counts), shares, _signature(checker, len(counts)), checker.alarm)


def compare_counts(
    checker: Checker,
    first: np.ndarray,
    second: np.ndarray,
    bootstrap: int = 1000,
    seed: int = 0,
    names: tuple[str, str] = ("first", "second"),
) -> Comparison:
    """Compare the faults of two translations of the same sources, by a paired bootstrap over lines.

    Args:
        checker: Checker of both translations.
        first, second: Counts of `count_faults`, (lines, shares, 2) each.
        bootstrap: Number of bootstrap resamples, at least 1. Default: 1000.
        seed: Seed of the resamples. Default: 0.
        names: Names of the translations. Default: ("first", "second").

    Raises:
        ValueError: There are no lines, the numbers of lines differ, or `bootstrap` is below 1.
    """
    differences, p_values = {}, {}
    for place, name in enumerate(SHARES):
        of_first, of_second = first[:, place].astype(float), second[:, place].astype(float)
        differences[name] = mean_difference(of_first, of_second, bootstrap, seed)
        p_values[name] = _METRIC.paired_p_value(of_second, of_first, bootstrap, seed)
    signature = _signature(checker, len(first), bs=str(bootstrap), seed=str(seed))
    sums = [summarize_counts(checker, counts, bootstrap, seed) for counts in (first, second)]
    return Comparison(differences, p_values, signature, sums[0], sums[1], names)


def _signature(checker: Checker, lines: int, **fields: str) -> str:
    learned = checker.model.learned
    aligner, encoder = checker.aligner, checker.encoder
    return _METRIC.signature(
        **({"aligner": aligner.model.config.model_type} if aligner else {}),
        **({"encoder": encoder.name} if encoder else {}),
        learned=f"{learned['pairs']} pairs, seed {learned['seed']}",
        alarm=f"{checker.alarm:.3f}",
        n=str(lines),
        **fields,
    )
