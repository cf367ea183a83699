"""Annotated sentence pairs: what an aligner is scored on, and what its rule for links is chosen on."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_attncal.data.corpora import load_parallel, lowercased
from hf_attncal.data.pharaoh import GoldAlignment, Link, check_index_base, displacement_warning, parse_alignments
from hf_attncal.data.text import read_lines
from hf_attncal.metrics.aer import AlignmentScore, alignment_error_rate

from .aligner import WordAligner

# What is tried on dev gold where no symmetrisation is asked for.
TUNED = ("harmonic", "intersection", "grow-diag", "grow-diag-final-and")
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))


@dataclass(frozen=True)
class Gold:
    """Sentence pairs with annotated links."""

    pairs: Sequence[tuple[str, str]]
    links: Sequence[GoldAlignment]

    @classmethod
    def load(cls, corpus: dict[str, Any], gold: str | Path, lowercase: bool = False) -> "Gold":
        """Read text, in lower case if so, and links; the number of lines and every index are checked.

        Warns:
            UserWarning: indices that are probably displaced (`displaced_pairs`).
        """
        text = lowercased(load_parallel(corpus)) if lowercase else load_parallel(corpus)
        pairs = list(zip(text["source"], text["target"], strict=True))
        return cls(pairs, gold_links(gold, pairs))


def gold_links(path: str | Path, pairs: Sequence[tuple[str, str]]) -> list[GoldAlignment]:
    """The links of sentence pairs that people have drawn, from a file in Pharaoh format, checked.

    Raises:
        ValueError: another number of lines than pairs, or links of words that there are not; it names the file.

    Warns:
        UserWarning: indices that are probably displaced (`displaced_pairs`).
    """
    links = read_links(path, pairs)
    words = [(source.split(), target.split()) for source, target in pairs]
    try:
        check_index_base(links, [tuple(map(len, pair)) for pair in words], "take 1 from each index")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if problem := displacement_warning(links, words):
        warnings.warn(f"{path}: {problem}", stacklevel=2)
    return links


def read_links(path: str | Path, text: Sized) -> list[GoldAlignment]:
    """The links of every sentence pair of a text, from a file in Pharaoh format.

    Raises:
        ValueError: another number of lines than pairs, or a line that is no links; it names the file.
    """
    try:
        links = parse_alignments(read_lines(path))
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    if len(links) != len(text):
        raise ValueError(f"{path} has {len(links)} lines of links for {len(text)} sentence pairs.")
    return links


def score_aligner(
    aligner: WordAligner,
    gold: Gold,
    threshold: float | None = None,
    symmetrization: str | None = None,
    bootstrap: int = 0,
) -> AlignmentScore:
    """AER of an aligner on annotated pairs, with a 95 % interval from `bootstrap` resamples of them."""
    aligned = aligner.align(gold.pairs, threshold=threshold, symmetrize=symmetrization)
    return _score(gold, [a.links for a in aligned], aligned[0].symmetrization, bootstrap)


def _score(gold: Gold, links: Sequence[Collection[Link]], symmetrization: str, bootstrap: int = 0) -> AlignmentScore:
    # No check of indices: they come from our own words, and an early model may link anything.
    return alignment_error_rate(
        gold.links, links, symmetrization=symmetrization, bootstrap=bootstrap, check_indices=False
    )


def tune_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    gold: Gold,
    symmetrizations: Iterable[str] | None = None,
    thresholds: Iterable[float] = THRESHOLDS,
) -> tuple[str, float, AlignmentScore]:
    """The symmetrisation and threshold with the lowest AER, the earlier of equals, and that score.

    Args:
        model, tokenizer: the aligner; `model` keeps its mode.
        gold: annotated pairs. Use other pairs than those that are reported on.
        symmetrizations: names to try; None for the model's own alone.
        thresholds: thresholds to try.
    """
    scores = []
    with evaluating(model):
        aligner = WordAligner(model, tokenizer)
        for name in symmetrizations or (model.config.symmetrization,):
            # What grows from links depends on the threshold; of the others a higher one only takes links away.
            whole = None if name.startswith("grow") else aligner.align(gold.pairs, threshold=0.0, symmetrize=name)
            for tau in thresholds:
                aligned = whole or aligner.align(gold.pairs, threshold=tau, symmetrize=name)
                links = [
                    [link for link, score in zip(a.links, a.scores, strict=True) if whole is None or score > tau]
                    for a in aligned
                ]
                scores.append((name, tau, _score(gold, links, name)))
    return min(scores, key=lambda entry: entry[2].aer)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """The model in evaluation mode, then in the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
