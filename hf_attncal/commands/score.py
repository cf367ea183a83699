"""`attncal score`: score word links, translations or summaries against references."""

from os import PathLike
from typing import TYPE_CHECKING, Literal

from hf_attncal.io.errors import CommandError, check_range

from .kinds import Files, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.metrics.scoring import ScoreTable

GROUPS = {
    "Word links": ("source", "target", "words", "ignore_possible", "without_punctuation"),
    "Translations and summaries": ("references", "tokenize", "stemmer"),
}
# Metric -> the options that it takes.
METRICS = {
    "aer": ("source", "target", "words", "ignore_possible", "without_punctuation"),
    "bleu": ("references",),
    "chrf": ("references",),
    "rouge": ("references", "tokenize", "stemmer"),
}


def score(
    gold: Text,
    /,
    *hypotheses: Text,
    metric: Literal["aer", "bleu", "chrf", "rouge"] = "aer",
    source: Text | None = None,
    target: Text | None = None,
    words: WordLimits | None = None,
    ignore_possible: bool = False,
    without_punctuation: bool = False,
    references: Files = (),
    tokenize: Literal["rouge", "words", "none"] = "rouge",
    stemmer: bool = False,
    bootstrap: int = 1000,
    format: Literal["text", "json"] = "text",
) -> "ScoreTable":
    """Score word links, translations or summaries against references.

    Word links: alignment error rate (AER, lower is better), precision against possible links, recall against sure
    links, and their F1. A line holds the links of a sentence pair: i-j links source word i to target word j; in GOLD
    it is a sure link, and ipj or i?j a possible one. Words may be counted from 0 or from 1, which is detected. Two
    files that count differently, or one of which has source and target exchanged, are refused.

    Summaries, one per line (`--metric rouge`): the mean F1 of ROUGE-1, ROUGE-2, ROUGE-L (the summary as one sentence)
    and ROUGE-Lsum (sentence by sentence; a sentence ends with `.`, `!` or `?`).

    Translations, one per line (`--metric bleu`, `--metric chrf`): BLEU or chrF of the corpus, by sacreBLEU.

    A signature records how scores were computed. Several hypotheses are compared with the first by a paired bootstrap.

    Examples:
        attncal score gold.align links.align
        attncal align run MODEL < pairs.txt | attncal score gold.align -
        attncal score summaries.txt found.txt other.txt --metric rouge
        attncal score first.txt found.txt --metric rouge --references second.txt third.txt

        >>> hf_attncal.score(["0-0 1-1"], ["0-0"]).rows[0].aer

    Args:
        gold: gold alignment, or references; may be compressed (.gz)
        hypotheses: one or more files of predicted links (scores, as in i-j:0.93, are ignored), translations or
            summaries; one may be - for standard input
        metric: word links (aer), translations (bleu, chrf) or summaries (rouge)
        source: tokenised source sentences; a link outside of them is an error [default: not checked]
        target: tokenised target sentences [default: not checked]
        words: word separator of the links: white-space is any Unicode white space; spaces is only spaces and tabs
            [default: the one that fits the links]
        ignore_possible: count only the sure links of GOLD
        without_punctuation: ignore links whose source or target word is only punctuation; needs --source and --target
        references: further references of each line; ROUGE takes the best one per measure [default: none]
        tokenize: words of ROUGE: rouge: runs of a-z and 0-9 in lower case, for English; words: lower case without
            punctuation, for any language; none: separated by white space, for text that is already tokenised
        stemmer: compare the stems of English words (Porter)
        bootstrap: number of bootstrap resamples of the lines for 95 % intervals and comparisons; 0 for none
        format: text: a table with rounded numbers; json: all digits

    Returns:
        `rows`, one for each hypothesis, with its name, its scores and their `signature`. Printed, the table or JSON.

    Raises:
        CommandError: a file that cannot be used, options of another metric, or a number out of range.
    """
    changed = {
        "source": source is not None,
        "target": target is not None,
        "words": words is not None,
        "ignore_possible": ignore_possible,
        "without_punctuation": without_punctuation,
        "references": bool(references),
        "tokenize": tokenize != "rouge",
        "stemmer": stemmer,
    }
    check_range("--bootstrap", bootstrap, 0)
    if wrong := [name for name, is_changed in changed.items() if is_changed and name not in METRICS[metric]]:
        raise CommandError(f"--{wrong[0].replace('_', '-')} is not for --metric {metric}: leave it out.")
    if not hypotheses:
        raise CommandError("HYPOTHESES must be one file or more, got none. Name them behind GOLD.")
    if (source is None) != (target is None):
        raise CommandError("--source and --target belong together: pass both or neither.")
    if without_punctuation and source is None:
        raise CommandError("--without-punctuation needs the words: pass --source and --target.")
    from hf_attncal.data.texts import read_scored
    from hf_attncal.metrics.scoring import score_links, score_summaries, score_translations

    proposed: dict[str, Text] = {f"hypothesis {number}": text for number, text in enumerate(hypotheses, start=1)}
    if metric == "aer":
        sides: dict[str, Text] = {} if source is None or target is None else {"source": source, "target": target}
        texts_of_lines = read_scored({"gold": gold} | sides | proposed, "sentence pair")
        return score_links(
            next(texts_of_lines),
            texts_of_lines,
            [next(texts_of_lines) for _ in sides],
            words=words,
            ignore_possible=ignore_possible,
            punctuation=not without_punctuation,
            bootstrap=bootstrap,
            format=format,
        )
    further = [references] if isinstance(references, str | PathLike) else references
    named = {f"reference {number}": text for number, text in enumerate([gold, *further], start=1)}
    texts = list(read_scored(named | proposed, "summary" if metric == "rouge" else "translation"))
    golds, written = texts[: len(named)], texts[len(named) :]
    if metric == "rouge":
        return score_summaries(golds, written, tokenize=tokenize, stemmer=stemmer, bootstrap=bootstrap, format=format)
    return score_translations(golds, written, metric, bootstrap=bootstrap, format=format)
