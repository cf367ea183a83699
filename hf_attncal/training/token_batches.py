"""Trainer with batches by tokens and named losses, and the training arguments of our Trainers."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.utils.data import DataLoader
from transformers import Seq2SeqTrainingArguments, TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import nested_gather
from transformers.training_args import OptimizerNames

from hf_attncal.data.batching import TokenBatchSampler

from .checkpoints import WholeCheckpointsTrainer


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
