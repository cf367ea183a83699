"""Generate the stack language: matching parentheses, numbers that state their depth, and the true dependencies.

    python experiments/stack_sequences.py --output DIR

writes train.txt (50,000 sequences), dev.txt and test.txt (5,000 each), always the same; no file is overwritten.

In `( 1 ( 2 ) ) 0` a number is the count of open parentheses at its place. The language is that of the Discrete
Transformer (sec. 7.1), which does not say how its sequences were drawn. Here every symbol is drawn uniformly from
those allowed at its place: the number of the depth, `(` below the greatest depth, `)` above depth 0, each only if all
open parentheses can still be closed. So a sequence has exactly its length and ends at depth 0, and its probability is
known.

To predict a symbol, the last number and all symbols after it are enough. (A model knows from its positions how much
room is left to close parentheses.)
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hf_attncal.io.files import write_text

MAX_DEPTH = 4
NUMBERS = tuple(map(str, range(MAX_DEPTH + 1)))
VOCABULARY = (*NUMBERS, "(", ")")
LENGTH = 30

_DEPTH_CHANGE = np.array([*[0] * len(NUMBERS), 1, -1])


class StackSplit(NamedTuple):
    train: list[str]
    dev: list[str]
    test: list[str]


# ---- drawing ----


def generate_sequences(n: int, seed: int = 0, length: int = LENGTH, max_depth: int = MAX_DEPTH) -> list[str]:
    """Generate `n` sequences with spaces between symbols. A seed always gives the same ones; a larger `n` adds more.

    Raises:
        ValueError: negative `n`, `length` below 1, or `max_depth` not from 1 to 4.
    """
    if n < 0:
        raise ValueError(f"`n` must be >= 0 (a number of sequences), got {n}.")
    return _draw(np.random.default_rng(seed), n, _allowed(length, max_depth))


def generate_stack_split(
    train: int = 50_000,
    dev: int = 5_000,
    test: int = 5_000,
    seed: int = 0,
    length: int = LENGTH,
    max_depth: int = MAX_DEPTH,
) -> StackSplit:
    """Generate three sets in which no sequence appears twice.

    Raises:
        ValueError: a negative size, more than half of all sequences that exist, or a `length` or `max_depth` that
            `generate_sequences` refuses.
    """
    if min(train, dev, test) < 0:
        raise ValueError(f"The sizes of a split must be >= 0, got {train}, {dev} and {test}.")
    allowed, total = _allowed(length, max_depth), train + dev + test
    if total > (existing := _count(allowed)) / 2:
        raise ValueError(
            f"{total} different sequences are more than half of the {existing} of length {length} and depth "
            f"{max_depth}. Ask for fewer or longer ones."
        )
    generator, unique = np.random.default_rng(seed), {}
    while len(unique) < total:
        unique |= dict.fromkeys(_draw(generator, total, allowed))
    sequences = list(unique)
    return StackSplit(sequences[:train], sequences[train : train + dev], sequences[train + dev : total])


def _allowed(length: int, max_depth: int) -> np.ndarray:
    """Return which symbols are allowed at each position and depth: booleans (length, max_depth + 1, symbols)."""
    if length < 1:
        raise ValueError(f"`length` must be >= 1 (symbols of a sequence), got {length}.")
    _check_max_depth(max_depth)
    before = np.arange(max_depth + 1)[:, None]
    after = before + _DEPTH_CHANGE
    in_language = (after >= 0) & (after <= max_depth)
    in_language[:, : len(NUMBERS)] = before == np.arange(len(NUMBERS))
    symbols_left = np.arange(length)[::-1, None, None]
    return in_language & (after <= symbols_left)


def _draw(generator: np.random.Generator, n: int, allowed: np.ndarray) -> list[str]:
    """Draw `n` sequences; each takes one random number per symbol."""
    random = generator.random((n, len(allowed)))
    symbols = np.empty(random.shape, dtype=np.int64)
    depth = np.zeros(n, dtype=np.int64)
    for i, table in enumerate(allowed):
        choices = table[depth]  # (n, symbols)
        chosen = np.floor(random[:, i] * choices.sum(axis=1))
        symbols[:, i] = (choices.cumsum(axis=1) > chosen[:, None]).argmax(axis=1)
        depth += _DEPTH_CHANGE[symbols[:, i]]
    return [" ".join(row) for row in np.array(VOCABULARY)[symbols].tolist()]


def _count(allowed: np.ndarray) -> int:
    """Count the sequences of the language."""
    ways = [1] * allowed.shape[1]  # ways to go on from each depth; integers of Python do not overflow
    for table in allowed[::-1]:
        ways = [sum(ways[depth + _DEPTH_CHANGE[s]] for s in np.flatnonzero(row)) for depth, row in enumerate(table)]
    return ways[0]


# ---- entropy ----


def entropy_per_symbol(length: int = LENGTH, max_depth: int = MAX_DEPTH) -> float:
    """Return the entropy per symbol, in nats, of sequences of a length: the lowest cross-entropy a model can reach.

    Its `exp` is the lowest perplexity over symbols; the end of a sequence, which is certain, is not counted.

    Raises:
        ValueError: `length` below 1, or `max_depth` not from 1 to 4.
    """
    allowed = _allowed(length, max_depth)
    at_depth = np.eye(allowed.shape[1])[0]  # probability of each depth before symbol i
    total = 0.0
    for table in allowed:
        number = np.maximum(table.sum(axis=1), 1)  # no choice at a depth that cannot be closed, where nothing comes
        total += at_depth @ np.log(number)
        mass = (at_depth / number)[:, None] * table
        stay, up, down = mass[:, : len(NUMBERS)].sum(axis=1), mass[:, -2], mass[:, -1]
        at_depth = stay + np.roll(up, 1) + np.roll(down, -1)  # neither goes up from the last nor down from the first
    return float(total / length)


# ---- reading ----


def check_sequence(sequence: str, max_depth: int = MAX_DEPTH) -> tuple[str, ...]:
    """Check a sequence of any length, and return its symbols.

    Raises:
        ValueError: no symbol, one that is unknown, a number that is not the depth, a `)` that nothing opened, a `(`
            that nothing closes, too many of them open at once, or `max_depth` not from 1 to 4.
    """
    _check_max_depth(max_depth)
    symbols = tuple(sequence.split())
    if not symbols:
        raise ValueError("A sequence of the stack language needs at least one symbol, got none.")
    opened: list[int] = []  # positions
    for position, symbol in enumerate(symbols):
        place = f"Symbol {position + 1} of {_shown(symbols)}"
        if symbol not in VOCABULARY:
            raise ValueError(
                f"{place} is {symbol[:20]!r}. Symbols are {' '.join(VOCABULARY)}, with spaces between them."
            )
        if symbol == "(":
            opened.append(position)
            if len(opened) > max_depth:
                raise ValueError(f"{place} opens parenthesis {len(opened)}, but at most {max_depth} may be open.")
        elif symbol == ")":
            if not opened:
                raise ValueError(f"{place} closes a parenthesis, but none is open.")
            opened.pop()
        elif symbol != str(len(opened)):
            raise ValueError(f"{place} is {symbol}, but the depth, which a number must state, is {len(opened)} there.")
    if opened:
        raise ValueError(f"Symbol {opened[-1] + 1} of {_shown(symbols)} opens a parenthesis that nothing closes.")
    return symbols


def true_dependencies(sequences: Sequence[str], max_depth: int = MAX_DEPTH) -> np.ndarray:
    """Return which inputs the prediction of each symbol depends on: the last number, and all symbols after it.

    A model has read `<s> x_0 ... x_(i-1)` when it predicts x_i. If there is no number among them, the span begins with
    `<s>`, which stands for depth 0.

    Args:
        sequences: sequences that all have the same length n.

    Returns:
        Booleans (batch, n, n), (target, source): row i is the prediction of symbol i, column 0 is `<s>`, column j
        symbol j - 1, as in the inputs `<s> x_0 ... x_(n-2)` of a causal language model.

    Raises:
        ValueError: no sequence, sequences of different lengths, or one that `check_sequence` refuses.
    """
    encoded = []
    for number, sequence in enumerate(sequences, start=1):
        try:
            encoded.append(_encode(sequence, max_depth))
        except ValueError as error:
            raise ValueError(f"Sequence {number}: {error}") from error
        if len(encoded[-1]) != len(encoded[0]):
            raise ValueError(
                f"Sequence {number} has {len(encoded[-1])} symbols and the first one {len(encoded[0])}: all sequences "
                "of a batch must have the same length."
            )
    if not encoded:
        raise ValueError("`sequences` is empty: give at least one.")
    is_number = np.stack(encoded)[:, :-1] < len(NUMBERS)
    is_number = np.pad(is_number, ((0, 0), (1, 0)), constant_values=True)  # <s>
    position = np.arange(is_number.shape[1])
    last_number = np.maximum.accumulate(np.where(is_number, position, 0), axis=1)
    return (last_number[:, :, None] <= position) & (position <= position[:, None])


def _encode(sequence: str, max_depth: int) -> np.ndarray:
    """Check a sequence, and return the indices of its symbols in `VOCABULARY`, (n,)."""
    return np.array([VOCABULARY.index(symbol) for symbol in check_sequence(sequence, max_depth)])


def _check_max_depth(max_depth: int) -> None:
    if not 1 <= max_depth <= MAX_DEPTH:
        raise ValueError(f"`max_depth` must be from 1 to {MAX_DEPTH}, the greatest number, got {max_depth}.")


def _shown(symbols: Sequence[str]) -> str:
    """Quote a sequence for an error message, cutting a long one."""
    text = " ".join(symbols)
    return f"`{text if len(text) <= 80 else f'{text[:80]} ...'}`"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for train.txt, dev.txt and test.txt")
    folder = parser.parse_args(arguments).output
    files = {folder / f"{name}.txt": sequences for name, sequences in generate_stack_split()._asdict().items()}
    for path in files:
        if path.exists():
            parser.error(f"{path} is there already. Give another --output, or remove the file.")
    for path, sequences in files.items():
        write_text("".join(f"{sequence}\n" for sequence in sequences), path)
        print(f"{path}: {len(sequences):,} lines")


if __name__ == "__main__":
    main()
