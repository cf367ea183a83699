"""BLEU by sacreBLEU, with the signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest


@dataclass(frozen=True)
class BleuScore:
    """Corpus BLEU (0 to 100, not rounded) and the sacreBLEU signature that says how it was computed."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> BleuScore:
    """Corpus BLEU of one reference per line, by sacreBLEU.

    `tokenize` is sacreBLEU's: "13a" for plain text, "none" for text that is already split into tokens.

    Raises:
        ValueError: no lines, or not as many hypotheses as references.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(
            "`hypotheses` and `references` must have the same number of lines, at least one, got "
            f"{len(hypotheses)} and {len(references)}. Give one translation per reference."
        )
    # `force` only silences sacreBLEU's remark that the text looks tokenised; the signature says how it was scored.
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return BleuScore(score.score, str(metric.get_signature()))


@dataclass(frozen=True)
class PairedBleu:
    """How a system compares with a baseline on the same lines.

    Args:
        score: of the system.
        minus_baseline: the score less that of the baseline.
        p_value: of the null hypothesis that the two are equally good (Koehn, 2004; sacreBLEU's paired bootstrap).
        signature: of the score, with the number and seed of the resamples.
    """

    score: float
    minus_baseline: float
    p_value: float
    signature: str


def paired_bleu(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    bootstrap: int = 1000,
) -> PairedBleu:
    """Compare with a baseline by sacreBLEU's paired bootstrap over lines; else as `bleu`.

    Raises:
        ValueError: see `bleu`; `bootstrap` below 1.
    """
    if bootstrap < 1:
        raise ValueError(f"`bootstrap` must be at least 1 (a number of resamples), got {bootstrap}.")
    for lines in (hypotheses, baseline):
        bleu(lines, references, tokenize)
    test = PairedTest(
        [("baseline", list(baseline)), ("system", list(hypotheses))],
        {"BLEU": BLEU(tokenize=tokenize, force=True)},
        [list(references)],
        test_type="bs",
        n_samples=bootstrap,
    )
    signatures, scores = test()
    before, after = scores["BLEU"]
    return PairedBleu(after.score, after.score - before.score, float(after.p_value), str(signatures["BLEU"]))
