"""Probabilities of sequences of the stack language, and files of them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from stack_sequences import _DEPTH_CHANGE, MAX_DEPTH, _allowed, _encode


def write_sequences(sequences: Iterable[str], path: str | Path) -> None:
    """Write sequences, one per line."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{sequence}\n" for sequence in sequences)


def next_symbol_probabilities(sequence: str, max_depth: int = MAX_DEPTH) -> np.ndarray:
    """Return the distribution that each symbol of a sequence is drawn from, (n, symbols), in `VOCABULARY`'s order.

    Row i is the distribution of symbol i, given the symbols before it and the length of the sequence.

    Raises:
        ValueError: a sequence that `check_sequence` refuses.
    """
    symbols = _encode(sequence, max_depth)
    depth = np.cumsum(_DEPTH_CHANGE[symbols]) - _DEPTH_CHANGE[symbols]
    choices = _allowed(len(symbols), max_depth)[np.arange(len(symbols)), depth]
    return choices / choices.sum(axis=1, keepdims=True)


def log_probability(sequence: str, max_depth: int = MAX_DEPTH) -> float:
    """Return the log-probability, in nats, of drawing a sequence among all sequences of its length.

    Raises:
        ValueError: a sequence that `check_sequence` refuses.
    """
    probabilities = next_symbol_probabilities(sequence, max_depth)
    return float(np.log(probabilities[np.arange(len(probabilities)), _encode(sequence, max_depth)]).sum())
