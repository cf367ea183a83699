"""The stack language against all of its short sequences, one by one."""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stack_helpers import log_probability, next_symbol_probabilities, write_sequences
from stack_sequences import (
    VOCABULARY,
    check_sequence,
    entropy_per_symbol,
    generate_sequences,
    generate_stack_split,
    main,
    true_dependencies,
)

SHAPES = [(1, 1), (2, 1), (4, 1), (5, 2), (6, 4)]  # length, greatest depth


def in_language(symbols, max_depth=4) -> bool:
    depth = 0
    for symbol in symbols:
        depth += {"(": 1, ")": -1}.get(symbol, 0)
        if not 0 <= depth <= max_depth or (symbol.isdigit() and int(symbol) != depth):
            return False
    return depth == 0


def language(length, max_depth) -> list[tuple[str, ...]]:
    """All sequences of the language."""
    return [symbols for symbols in itertools.product("01234()", repeat=length) if in_language(symbols, max_depth)]


def next_symbols(sequences) -> dict[tuple[str, ...], set[str]]:
    """The symbols that may follow each prefix, if the sequence shall become one of these."""
    found = defaultdict(set)
    for sequence in sequences:
        for i, symbol in enumerate(sequence):
            found[sequence[:i]].add(symbol)
    return found


def spans(sequence) -> list[list[int]]:
    """Of each prediction, the columns that it depends on: one by one backwards, to the last number."""
    read = ("<s>", *sequence[:-1])
    found = []
    for last in range(len(read)):
        columns = [last]
        while read[columns[0]] in "()":
            columns.insert(0, columns[0] - 1)
        found.append(columns)
    return found


# ---- drawing ----


@given(st.integers(0, 99), st.integers(1, 40), st.integers(1, 4))
def test_every_sequence_is_in_the_language(seed, length, max_depth):
    for sequence in generate_sequences(3, seed, length, max_depth):
        symbols = sequence.split(" ")
        assert len(symbols) == length
        assert in_language(symbols, max_depth), sequence
        assert check_sequence(sequence, max_depth) == tuple(symbols)


def test_a_seed_gives_the_same_sequences_and_a_larger_number_more_of_them():
    sequences = generate_sequences(50, seed=3)
    assert sequences == generate_sequences(50, seed=3) == generate_sequences(80, seed=3)[:50]
    assert sequences != generate_sequences(50, seed=4)
    assert generate_sequences(0) == []


@pytest.mark.parametrize(("length", "max_depth"), SHAPES)
def test_sequences_are_as_frequent_as_their_probabilities(length, max_depth):
    """Pearson's statistic over all sequences, at most five standard deviations above its mean."""
    n = 20_000
    found = Counter(generate_sequences(n, seed=1, length=length, max_depth=max_depth))
    names = [" ".join(symbols) for symbols in language(length, max_depth)]
    assert set(found) <= set(names)
    expected = {name: n * math.exp(log_probability(name, max_depth)) for name in names}
    statistic = sum((found[name] - expected[name]) ** 2 / expected[name] for name in names)
    freedom = len(names) - 1
    assert statistic <= freedom + 5 * math.sqrt(2 * freedom) + 1e-9


def test_a_split_shares_no_sequence():
    split = generate_stack_split(250, 100, 50, seed=7, length=9)
    assert [len(part) for part in split] == [250, 100, 50]
    together = [*split.train, *split.dev, *split.test]
    drawn = generate_sequences(2000, seed=7, length=9)
    assert together == list(dict.fromkeys(drawn))[:400]
    assert len(set(drawn[:400])) < 400  # so some were left out
    assert generate_stack_split(250, 100, 50, seed=7, length=9) == split


def test_the_sizes_of_a_split_have_a_limit():
    """9 sequences of four symbols there are."""
    assert len({*itertools.chain(*generate_stack_split(2, 1, 1, length=4))}) == 4
    with pytest.raises(ValueError, match=r"5 .*9 of length 4"):
        generate_stack_split(3, 1, 1, length=4)
    with pytest.raises(ValueError, match="got 3, -1 and 1"):
        generate_stack_split(3, -1, 1)
    for length, max_depth in SHAPES[1:]:
        there_are = len(language(length, max_depth))
        assert (
            len(generate_stack_split(there_are // 2, 0, 0, length=length, max_depth=max_depth).train) == there_are // 2
        )
        with pytest.raises(ValueError, match=f"half of the {there_are} "):
            generate_stack_split(there_are // 2 + 1, 0, 0, length=length, max_depth=max_depth)


def test_sequences_are_written_one_a_line(tmp_path):
    sequences = generate_sequences(5)
    write_sequences(sequences, tmp_path / "train.txt")
    assert (tmp_path / "train.txt").read_bytes() == "".join(f"{sequence}\n" for sequence in sequences).encode()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate_sequences(-1), r"`n` must be >= 0 .*got -1"),
        (lambda: generate_sequences(1, length=0), r"`length` must be >= 1 .*got 0"),
        (lambda: generate_sequences(1, max_depth=5), r"`max_depth` must be from 1 to 4.*got 5"),
        (lambda: entropy_per_symbol(max_depth=0), r"`max_depth` must be from 1 to 4.*got 0"),
        (lambda: entropy_per_symbol(length=-3), r"`length` must be >= 1 .*got -3"),
        (lambda: generate_stack_split(length=0), r"`length` must be >= 1 .*got 0"),
        (lambda: check_sequence("0", max_depth=9), r"`max_depth` must be from 1 to 4.*got 9"),
    ],
)
def test_settings_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- probabilities ----


@pytest.mark.parametrize(("length", "max_depth"), SHAPES)
def test_symbols_are_uniform_over_those_that_can_be_completed(length, max_depth):
    sequences = language(length, max_depth)
    following = next_symbols(sequences)
    entropy = total = 0.0
    for symbols in sequences:
        rows = next_symbol_probabilities(" ".join(symbols), max_depth)
        expected = np.zeros((length, len(VOCABULARY)))
        for i in range(length):
            for symbol in following[symbols[:i]]:
                expected[i, VOCABULARY.index(symbol)] = 1 / len(following[symbols[:i]])
        np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-15)
        probability = math.prod(1 / len(following[symbols[:i]]) for i in range(length))
        assert log_probability(" ".join(symbols), max_depth) == pytest.approx(math.log(probability), abs=1e-12)
        total += probability
        entropy -= probability * math.log(probability)
    assert total == pytest.approx(1, abs=1e-12)
    assert entropy_per_symbol(length, max_depth) == pytest.approx(entropy / length, abs=1e-12)


def test_the_entropy_is_the_mean_information_of_samples():
    """Within four standard errors."""
    information = np.array([-log_probability(sequence) / 30 for sequence in generate_sequences(4000, seed=2)])
    error = information.std(ddof=1) / math.sqrt(len(information))
    assert error < 0.002
    assert abs(information.mean() - entropy_per_symbol()) < 4 * error


# ---- reading ----


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12), st.integers(1, 4))
def test_exactly_what_is_not_in_the_language_is_refused(symbols, max_depth):
    if in_language(symbols, max_depth):
        assert check_sequence(" ".join(symbols), max_depth) == tuple(symbols)
    else:
        with pytest.raises(ValueError, match=r"^Symbol \d+ of "):
            check_sequence(" ".join(symbols), max_depth)


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (" ", "needs at least one symbol, got none"),
        ("( 1 x )", r"^Symbol 3 of `\( 1 x \)` is 'x'\. Symbols are 0 1 2 3 4 \( \), with spaces"),
        ("(1)", r"^Symbol 1 of `\(1\)` is '\(1\)'\. .*with spaces between them"),
        ("5", "^Symbol 1 of `5` is '5'"),
        ("( 1 ( 1 ) )", r"^Symbol 4 of .* is 1, but the depth, which a number must state, is 2 there"),
        ("( ) 0 )", "^Symbol 4 of .* closes a parenthesis, but none is open"),
        ("( ( ) 1", "^Symbol 1 of .* opens a parenthesis that nothing closes"),
        ("( ) ( ( )", "^Symbol 3 of .* opens a parenthesis that nothing closes"),
        ("( ( ( ( ( ) ) ) ) )", "^Symbol 5 of .* opens parenthesis 5, but at most 4 may be open"),
        ("9" * 5000, "^Symbol 1 of `9{80} ...` is '9{20}'"),
    ],
)
def test_malformed_sequences_are_refused(sequence, message):
    readers = (check_sequence, next_symbol_probabilities, log_probability)
    for read in readers:
        with pytest.raises(ValueError, match=message):
            read(sequence)
    with pytest.raises(
        ValueError, match=f"^Sequence 2: {message.removeprefix('^')}" if message[0] == "^" else message
    ):
        true_dependencies(["0", sequence])


def test_dependencies_run_from_the_last_number_to_the_previous_token():
    sequences = generate_sequences(40, seed=5)
    found = true_dependencies(sequences)
    assert found.shape == (40, 30, 30)
    assert found.dtype == bool
    for matrix, sequence in zip(found, sequences, strict=True):
        assert [np.flatnonzero(row).tolist() for row in matrix] == spans(sequence.split())


def test_the_paper_s_kind_of_example():
    """Inputs `<s> ( 1 ( 2 ) )`: the second `(` is predicted from `1`, the `0` at the end from `2 ) )`."""
    (matrix,) = true_dependencies(["( 1 ( 2 ) ) 0"])
    expected = ["1......", "11.....", "..1....", "..11...", "....1..", "....11.", "....111"]
    assert ["".join("1" if cell else "." for cell in row) for row in matrix] == expected


def test_dependencies_and_the_position_are_enough_to_predict_and_less_is_not():
    sequences = language(6, 4)
    following = next_symbols(sequences)
    for shortened, enough in ((0, True), (1, False)):
        known = defaultdict(set)
        for symbols in sequences:
            read = ("<s>", *symbols)
            for i, columns in enumerate(spans(symbols)):
                span = tuple("0" if read[j] == "<s>" else read[j] for j in columns[shortened:])
                known[i, span].add(frozenset(following[symbols[:i]]))
        assert all(len(choices) == 1 for choices in known.values()) == enough


def test_a_batch_has_one_length():
    with pytest.raises(ValueError, match=r"Sequence 2.*2 symbols.*1"):
        true_dependencies(["0", "0 0"])
    with pytest.raises(ValueError, match="`sequences` is empty"):
        true_dependencies([])


@pytest.mark.slow
def test_the_script_writes_the_three_files_and_overwrites_none(tmp_path, capsys):
    main(["--output", str(tmp_path / "data")])
    sizes = {"train": 50_000, "dev": 5_000, "test": 5_000}
    told = capsys.readouterr().out.splitlines()
    assert told == [f"{tmp_path}/data/{name}.txt: {lines:,} lines" for name, lines in sizes.items()]
    files = {name: (tmp_path / "data" / f"{name}.txt").read_text().splitlines() for name in sizes}
    assert files == generate_stack_split()._asdict()
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path / "data")])
    assert f"{tmp_path}/data/train.txt is there already" in capsys.readouterr().err
