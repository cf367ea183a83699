"""Batches by tokens: every example once, the bound kept, the same on every process, and right after a resume."""

from collections import Counter

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from accelerate.state import PartialState
from torch.utils.data import DataLoader, Dataset
from transformers import TrainerState

from hf_attncal.data.batching import batches_by_length, padded
from hf_attncal.training.token_batches import SetEpochCallback, TokenBatchSampler

MAX_TOKENS = 200


@pytest.fixture
def lengths():
    """(N, 2): source and target lengths as in real text, with a long tail."""
    random = np.random.default_rng(0)
    return np.minimum(random.geometric(0.08, size=(1003, 2)) + 2, 90)


def check_batches(batches, lengths, max_tokens):
    """Every example exactly once, and no batch above the bound."""
    counts = Counter(index for batch in batches for index in batch)
    assert counts == Counter(range(len(lengths)))
    longest = np.asarray(lengths).reshape(len(lengths), -1).max(axis=1)
    assert max(len(batch) * longest[batch].max() for batch in batches) <= max_tokens


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("multiple_of", [1, 7, 64])
def test_every_example_once_within_the_bound(lengths, shuffle, multiple_of):
    sampler = TokenBatchSampler(lengths, MAX_TOKENS, shuffle=shuffle, multiple_of=multiple_of)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        check_batches(batches, lengths, MAX_TOKENS)
        assert len(batches) == len(sampler)
        assert len(batches) % multiple_of == 0


def test_little_padding(lengths):
    longest = lengths.max(axis=1)
    batches = list(TokenBatchSampler(lengths, MAX_TOKENS))
    padded = sum(len(batch) * longest[batch].max() for batch in batches)
    assert longest.sum() / padded > 0.95
    assert padded / (len(batches) * MAX_TOKENS) > 0.85


def test_order_depends_on_seed_and_epoch_only(lengths):
    def draw(seed, epoch):
        sampler = TokenBatchSampler(lengths, MAX_TOKENS, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    np.random.seed(1)
    first = draw(0, 0)
    np.random.seed(2)
    assert draw(0, 0) == first
    others = [draw(0, 1), draw(1, 0), draw(1, 1)]
    assert all(other != first for other in others)
    # not the same batches in another order either
    assert {tuple(sorted(batch)) for batch in first} != {tuple(sorted(batch)) for batch in others[0]}


def test_multiple_of_splits_as_little_as_needed():
    """Ten examples of length 10 make two batches of five; three batches come from halving one of them."""
    sizes = sorted(len(batch) for batch in TokenBatchSampler([10] * 10, 50, multiple_of=3))
    assert sizes == [2, 3, 5]


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "multiple_of", "message"),
    [
        ([], 10, 1, "`lengths` must not be empty"),
        ([3, 0, 2], 10, 1, "`lengths` must be >= 1, got 0 for example 1"),
        ([3, 11, 2], 10, 1, r"`max_tokens` .*got 10 but example 1 has 11 tokens. Raise `max_tokens`"),
        ([(3, 2), (1, 12)], 10, 1, "example 1 has 12 tokens"),
        ([3], 10, 0, "`multiple_of` must be >= 1, got 0"),
        ([3, 3, 3], 10, 4, "`multiple_of` is 4, but there are only 3 examples"),
    ],
)
def test_bad_arguments(lengths, max_tokens, multiple_of, message):
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler(lengths, max_tokens, multiple_of=multiple_of)


class Numbers(Dataset):
    """Example i is the number i."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": torch.tensor(float(index))}


def prepared(sampler, size, rank, processes):
    """The data loader that accelerate gives to one of several processes."""
    PartialState()
    loader = DataLoader(Numbers(size), batch_sampler=sampler, collate_fn=lambda rows: [int(row["x"]) for row in rows])
    return prepare_data_loader(
        loader, num_processes=processes, process_index=rank, even_batches=False, put_on_device=False
    )


@pytest.mark.parametrize("processes", [1, 3])
def test_accelerate_shares_out_all_batches_and_sets_the_epoch(lengths, processes):
    reference = TokenBatchSampler(lengths, MAX_TOKENS, multiple_of=processes)
    loaders = [
        prepared(TokenBatchSampler(lengths, MAX_TOKENS, multiple_of=processes), len(lengths), rank, processes)
        for rank in range(processes)
    ]
    for epoch in (0, 3):
        reference.set_epoch(epoch)
        for loader in loaders:
            loader.set_epoch(epoch)
        parts = [list(loader) for loader in loaders]
        assert {len(part) for part in parts} == {len(loaders[0])} == {len(reference) // processes}
        assert [batch for step in zip(*parts, strict=True) for batch in step] == list(reference)


@pytest.mark.parametrize("processes", [1, 2])
def test_resume_inside_an_epoch_needs_the_callback_with_several_processes(lengths, processes):
    def resumed(use_callback):
        sampler = TokenBatchSampler(lengths, MAX_TOKENS, multiple_of=processes)
        loader = skip_first_batches(prepared(sampler, len(lengths), 0, processes), 5)
        if use_callback:
            SetEpochCallback(sampler).on_epoch_begin(None, TrainerState(epoch=1.25), None)
        loader.set_epoch(1)
        return list(loader)

    reference = TokenBatchSampler(lengths, MAX_TOKENS, multiple_of=processes)
    reference.set_epoch(1)
    expected = list(reference)[::processes][5:]
    assert resumed(use_callback=True) == expected
    if processes > 1:  # when this fails, accelerate reaches the sampler by itself and the callback can go
        assert resumed(use_callback=False) != expected


# ---- padding ----


def test_padded_rows_and_what_is_real():
    ids, mask = padded([[5, 6, 7], np.array([8]), []], -100)
    assert (ids.dtype, mask.dtype) == (torch.int64, torch.int64)
    assert ids.tolist() == [[5, 6, 7], [8, -100, -100], [-100] * 3]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]


# ---- batches by length ----


def test_longest_first_and_every_example_once():
    lengths = [3, 9, 1, 9, 4]
    assert list(batches_by_length(lengths)) == [[1, 3, 4, 0, 2]]
    assert list(batches_by_length(lengths, batch_size=2)) == [[1, 3], [4, 0], [2]]
    assert list(batches_by_length([])) == []


def test_tokens_of_a_batch_are_counted_with_padding():
    assert list(batches_by_length([3, 9, 1, 9, 4], max_tokens=12)) == [[1], [3], [4, 0, 2]]
    # The longest of each side: 2 x (5 + 4) = 18, though no pair has more than 6 tokens.
    pairs = [(5, 1), (1, 4), (2, 2)]
    assert list(batches_by_length(pairs, max_tokens=17)) == [[0], [1, 2]]
    assert list(batches_by_length(pairs, max_tokens=18)) == [[0, 1], [2]]
    # What exceeds the limit alone is alone.
    assert list(batches_by_length([50, 2, 2], max_tokens=4)) == [[0], [1, 2]]


def test_batches_within_both_limits():
    random = np.random.default_rng(0)
    lengths = [tuple(pair) for pair in random.integers(1, 40, (500, 2)).tolist()]
    batches = list(batches_by_length(lengths, batch_size=7, max_tokens=300))
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    for batch in batches:
        cost = len(batch) * sum(max(lengths[index][side] for index in batch) for side in (0, 1))
        assert len(batch) <= 7
        assert cost <= 300
    totals = [max(sum(lengths[index]) for index in batch) for batch in batches]
    assert totals == sorted(totals, reverse=True)
