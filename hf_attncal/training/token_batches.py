"""Trainer with batches by tokens and named losses, and the training arguments of our Trainers."""

import heapq
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler
from transformers import Seq2SeqTrainingArguments, TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import nested_gather
from transformers.training_args import OptimizerNames

from .checkpoints import WholeCheckpointsTrainer


class TokenBatchSampler(Sampler[list[int]]):
    """Sampler that draws every example once per epoch, in batches of at most `max_tokens` tokens with padding.

    The cost of a batch is its number of examples times the longest side of any of them: the size of the larger of its
    two padded tensors. Examples are sorted by that length, equal lengths in a new random order every epoch. They are
    cut greedily into batches, and the batches are shuffled. The sorted lengths, and so the cuts, are the same in every
    epoch. So `len()` never changes, as a Trainer expects that computes its number of steps once.

    Batches depend only on `seed` and the epoch, so all processes draw the same ones.

    It works as `DataLoader(batch_sampler=...)` under accelerate: `batch_size` is None, so its `BatchSamplerShard`
    allows varying sizes, and accelerate's `set_epoch` passes through that wrapper by `sampler`. After a resume in
    several processes the wrapping is too deep for that (`SkipBatchSampler` over `BatchSamplerShard`): add
    `training.token_batches.SetEpochCallback`.

    Args:
        lengths: number of tokens of the longer side, (N,), or of source and target, (N, 2).
        max_tokens: maximum cost of a batch.
        seed: seed of the order of examples and batches. Default: 0.
        shuffle: True to shuffle. False: the same batches every epoch, short examples first. Default: True.
        multiple_of: divisor of the number of batches (processes times accumulation steps). The batches with most
            examples are halved until it divides, so no example is lost or repeated. Default: 1.

    Raises:
        ValueError: no examples, a length below 1, an example longer than `max_tokens`, or fewer examples than
            batches.
    """

    batch_size = None
    drop_last = False

    def __init__(
        self,
        lengths: Sequence[int] | Sequence[tuple[int, int]] | np.ndarray,
        max_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        multiple_of: int = 1,
    ) -> None:
        longest = np.asarray(lengths, dtype=np.int64)
        if longest.ndim == 2:
            longest = longest.max(axis=1)
        if not longest.size:
            raise ValueError("`lengths` must not be empty: there are no examples to put into batches.")
        if longest.min() < 1:
            raise ValueError(f"`lengths` must be >= 1, got {longest.min()} for example {longest.argmin()}.")
        if longest.max() > max_tokens:
            raise ValueError(
                f"`max_tokens` must be at least the longest example, got {max_tokens} but example {longest.argmax()} "
                f"has {longest.max()} tokens. Raise `max_tokens` or lower the `max_length` of tokenisation."
            )
        if multiple_of < 1:
            raise ValueError(f"`multiple_of` must be >= 1, got {multiple_of}.")
        self.longest, self.max_tokens, self.seed, self.shuffle = longest, max_tokens, seed, shuffle
        self.multiple_of, self.epoch = multiple_of, 0
        self.spans = _split_to_multiple(_cut(np.sort(longest), max_tokens), multiple_of)

    @property
    def sampler(self) -> "TokenBatchSampler":
        """Return itself: accelerate looks for `set_epoch` on the `sampler` of a wrapped batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[list[int]]:
        if not self.shuffle:
            order = np.argsort(self.longest, kind="stable")
            yield from (order[start:end].tolist() for start, end in self.spans)
            return
        random = np.random.default_rng([self.seed, self.epoch])
        order = np.lexsort((random.permutation(len(self.longest)), self.longest))
        for index in random.permutation(len(self.spans)):
            start, end = self.spans[index]
            yield order[start:end].tolist()


def _cut(lengths: np.ndarray, max_tokens: int) -> list[tuple[int, int]]:
    """Cut ascending lengths greedily into [start, end) spans whose size times last length is at most `max_tokens`."""
    spans, start = [], 0
    for end, length in enumerate(lengths.tolist()):
        if (end + 1 - start) * length > max_tokens:
            spans.append((start, end))
            start = end
    return [*spans, (start, len(lengths))]


def _split_to_multiple(spans: list[tuple[int, int]], multiple_of: int) -> list[tuple[int, int]]:
    """Halve the spans with most examples until the number of spans is a multiple of `multiple_of`."""
    missing = -len(spans) % multiple_of
    heap = [(start - end, start, end) for start, end in spans]
    heapq.heapify(heap)
    for _ in range(missing):
        negative_size, start, end = heap[0]
        if negative_size == -1:
            raise ValueError(
                f"`multiple_of` is {multiple_of}, but there are only {len(heap)} examples: give more examples, or use "
                "fewer processes and accumulation steps."
            )
        middle = (start + end) // 2
        heapq.heapreplace(heap, (start - middle, start, middle))
        heapq.heappush(heap, (middle - end, middle, end))
    return sorted((start, end) for _, start, end in heap)


@dataclass
class TokenBatchArguments(TrainingArguments):
    """`TrainingArguments` with the additional settings of all our Trainers."""

    tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Length-bucketed training batches of at most this many tokens (sentences x longest side), per "
            "process and micro-batch; replaces `per_device_train_batch_size`. Default: batches of sentences."
        },
    )

    def __post_init__(self):
        tokens = self.tokens_per_batch
        if tokens is not None:
            if tokens < 1:
                raise ValueError(f"`tokens_per_batch` must be >= 1, got {tokens}. Leave it out for no limit.")
            if self.train_sampling_strategy != "random":
                raise ValueError(
                    "`train_sampling_strategy` must be 'random' with `tokens_per_batch`, got "
                    f"{self.train_sampling_strategy!r}. Leave one of the two out."
                )
            if self.auto_find_batch_size:
                raise ValueError(
                    "`auto_find_batch_size` has no effect with `tokens_per_batch`. Leave one of the two out."
                )
        super().__post_init__()


@dataclass
class AttnCalTrainingArguments(TokenBatchArguments, Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with the additional settings of `AttnCalTrainer`."""

    adagrad_initial_accumulator: float | None = field(
        default=None,
        metadata={
            "help": "Initial sum of squared gradients of `optim: adagrad`, also for the mask network. Default: 0."
        },
    )

    def __post_init__(self):
        accumulator = self.adagrad_initial_accumulator
        if accumulator is not None and not 0 <= accumulator < math.inf:
            raise ValueError(
                f"`adagrad_initial_accumulator` must be >= 0 and finite, got {accumulator}. Leave it out for 0."
            )
        super().__post_init__()
        if accumulator is not None and self.optim != OptimizerNames.ADAGRAD:
            raise ValueError(
                f"`adagrad_initial_accumulator` needs `optim: adagrad`, got {accumulator} with `optim` "
                f"{self.optim.value!r}. Leave it out, or change `optim`."
            )


class SetEpochCallback(TrainerCallback):
    """Sets the epoch of a batch sampler, however deep the Trainer's data loader has wrapped it.

    Several processes need this to resume inside an epoch. Transformers 5.23 and accelerate 1.15 do not reach the
    sampler then, so the resumed epoch would skip batches in the order of epoch 0.
    """

    def __init__(self, sampler: TokenBatchSampler) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))


class TokenBatchTrainer(WholeCheckpointsTrainer):
    """Trainer with batches by tokens, named losses, and complete checkpoints.

    A subclass overrides `compute_loss`, which calls `start_totals` first and then `add_batch`. All totals are divided
    by the total "steps"; "tokens" becomes `tokens_name`.
    """

    args: TokenBatchArguments
    tokens_name = "target_tokens_per_second"
    _totals_since = 0.0

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._totals: dict[str, torch.Tensor] = {}  # since the last log

    # ---- named losses ----

    def start_totals(self) -> None:
        """Start the clock of a new average; not in `log`, because evaluations and saving come after it."""
        if not self._totals:
            self._totals_since = time.monotonic()

    def add_total(self, name: str, value: torch.Tensor) -> None:
        """Add to a running total, which the next log divides by the number of optimiser steps."""
        # Stays on the device: reading it would wait for the device at every step.
        value = value.detach().float().mean()
        self._totals[name] = self._totals[name] + value if name in self._totals else value

    @property
    def share_of_step(self) -> float:
        """Share of a micro-batch in an optimiser step."""
        return 1 / getattr(self, "current_gradient_accumulation_steps", self.args.gradient_accumulation_steps)

    def add_batch(self, tokens: torch.Tensor, means: Mapping[str, torch.Tensor | None]) -> None:
        """Add a micro-batch to the running totals.

        Args:
            tokens: number of tokens in the batch.
            means: means over the batch by name in the log; None is left out.
        """
        share = self.share_of_step
        for name, value in means.items():
            if value is not None:
                self.add_total(name, value.float() * share)
        self.add_total("steps", torch.tensor(share, device=tokens.device))
        self.add_total("tokens", tokens)

    def report_evaluation(self, metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Log the metrics of an evaluation as PREFIX_NAME, call the callbacks, and return them."""
        metrics = {f"{prefix}_{name}": float(value) for name, value in metrics.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def extra_logs(self) -> dict[str, float]:
        """Return further values to log with the averages."""
        return {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self._totals:
            logs = {**logs, **self._named_losses()}
        super().log(logs, start_time)

    def _named_losses(self) -> dict[str, float]:
        """Return means over optimiser steps and processes since the last call, and reset the totals."""
        names = sorted(self._totals)
        totals = torch.stack([self._totals[name] for name in names])[None]
        means = dict(zip(names, nested_gather(totals, self.args.parallel_mode).mean(0).tolist(), strict=True))
        self._totals = {}
        steps = means.pop("steps")
        seconds = time.monotonic() - self._totals_since
        tokens = means.pop("tokens", 0.0) * self.args.world_size
        named = {name: value / steps for name, value in means.items()}
        return {**named, **self.extra_logs(), self.tokens_name: tokens / seconds}

    # ---- data ----

    def get_train_dataloader(self) -> DataLoader:
        """Return length-bucketed batches of at most `tokens_per_batch` tokens, or the stock loader.

        The batches of an epoch are a multiple of the batches of an optimiser step (processes x accumulation steps), so
        that p processes with accumulation k / p see the same examples per step as one process with k.
        """
        tokens = getattr(self.args, "tokens_per_batch", None)  # plain arguments lack it
        if tokens is None or self.train_dataset is None:  # the stock Trainer refuses None
            return super().get_train_dataloader()
        if not hasattr(self.train_dataset, "column_names"):
            raise ValueError(
                "`train_dataset` must be a `datasets.Dataset` with `tokens_per_batch`, got "
                f"{type(self.train_dataset).__name__}. Make one (`Dataset.from_list`), or leave the option out."
            )
        lengths = _lengths(self.train_dataset)
        if max(lengths, default=0) > tokens:
            raise ValueError(
                f"`tokens_per_batch` must be at least the longest training example, got {tokens} but one has "
                f"{max(lengths)} tokens. Raise `tokens_per_batch`, or lower `max_length`."
            )
        dataset = self._remove_unused_columns(self.train_dataset, description="Training")
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        sampler = TokenBatchSampler(
            lengths, tokens, seed=seed, multiple_of=self.args.world_size * self.args.gradient_accumulation_steps
        )
        self.pop_callback(SetEpochCallback)  # remove the sampler of an earlier call of `train`
        self.add_callback(SetEpochCallback(sampler))
        loader = DataLoader(
            dataset,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return self.accelerator.prepare(loader)


def _lengths(dataset) -> list[int]:
    """Return the tokens of the longer side of each example, from the column `length` if there is one."""
    if "length" in dataset.column_names:
        return list(dataset["length"])
    target = "labels" if "labels" in dataset.column_names else "target_input_ids"
    return [max(map(len, pair)) for pair in zip(dataset["input_ids"], dataset[target], strict=True)]
