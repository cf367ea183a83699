"""The stack language against all of its short sequences, one by one."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from stack_helpers import log_probability
from stack_sequences import entropy_per_symbol, generate_sequences, true_dependencies

SHAPES = [(1, 1), (4, 1), (5, 2), (6, 4)]  # length, greatest depth


def in_language(symbols, max_depth=4) -> bool:
    depth = 0
    for symbol in symbols:
        depth += {"(": 1, ")": -1}.get(symbol, 0)
        if not 0 <= depth <= max_depth or (symbol.isdigit() and int(symbol) != depth):
            return False
    return depth == 0


def test_every_sequence_is_in_the_language():
    assert all(in_language(sequence.split(" ")) for sequence in generate_sequences(200, seed=1))


@pytest.mark.parametrize(("length", "max_depth"), SHAPES)
def test_symbols_are_uniform_over_those_that_can_be_completed(length, max_depth):
    sequences = [symbols for symbols in itertools.product("01234()", repeat=length) if in_language(symbols, max_depth)]
    following = defaultdict(set)
    for symbols in sequences:
        for i, symbol in enumerate(symbols):
            following[symbols[:i]].add(symbol)
    entropy = 0.0
    for symbols in sequences:
        probability = math.prod(1 / len(following[symbols[:i]]) for i in range(length))
        assert log_probability(" ".join(symbols), max_depth) == pytest.approx(math.log(probability), abs=1e-12)
        entropy -= probability * math.log(probability)
    assert entropy_per_symbol(length, max_depth) == pytest.approx(entropy / length, abs=1e-12)


def test_dependencies_run_from_the_last_number_to_the_previous_token():
    """Inputs `<s> ( 1 ( 2 ) )`: the second `(` is predicted from `1`, the `0` at the end from `2 ) )`."""
    (matrix,) = true_dependencies(["( 1 ( 2 ) ) 0"])
    expected = ["1......", "11.....", "..1....", "..11...", "....1..", "....11.", "....111"]
    assert ["".join("1" if cell else "." for cell in row) for row in np.asarray(matrix)] == expected
