"""Training arguments: those of transformers, and what our Trainers add."""

import math
from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments
from transformers.training_args import OptimizerNames

from hf_attncal.io.process import check_threads


@dataclass
class TokenBatchArguments:
    """Settings that all our Trainers add; goes before the stock arguments in the bases."""

    tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Length-bucketed training batches of at most this many tokens (sentences x longest side), per "
            "process and micro-batch; takes the place of `per_device_train_batch_size`. None: batches of sentences."
        },
    )

    threads: int | None = field(
        default=None,
        metadata={
            "help": "CPU threads of PyTorch. None: `OMP_NUM_THREADS`, else PyTorch's own choice. The same number "
            "repeats a training to the bit."
        },
    )

    def __post_init__(self):
        tokens = self.tokens_per_batch
        if self.threads is not None:
            check_threads(self.threads, "`threads`")
        if tokens is not None:
            if tokens < 1:
                raise ValueError(f"`tokens_per_batch` must be >= 1, got {tokens}. Leave it out for no limit.")
            if self.train_sampling_strategy != "random":
                raise ValueError(
                    "`train_sampling_strategy` must be 'random' with `tokens_per_batch`, which orders the examples "
                    f"itself, got {self.train_sampling_strategy!r}. Leave one of the two out."
                )
            if self.auto_find_batch_size:
                raise ValueError(
                    "`auto_find_batch_size` has no effect on batches of `tokens_per_batch`, got both. Leave one out."
                )
        super().__post_init__()


@dataclass
class AttnCalTrainingArguments(TokenBatchArguments, Seq2SeqTrainingArguments):
    """`Seq2SeqTrainingArguments` with the settings of `AttnCalTrainer`."""

    mask_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of the mask network; follows the same schedule. None: `learning_rate`."},
    )
    adagrad_initial_accumulator: float | None = field(
        default=None,
        metadata={
            "help": "What the sums of squared gradients of `optim: adagrad` begin with, the mask network too. None: "
            "0, as PyTorch's."
        },
    )

    def __post_init__(self):
        if self.mask_learning_rate is not None and self.mask_learning_rate <= 0:
            raise ValueError(
                f"`mask_learning_rate` must be > 0, got {self.mask_learning_rate}. Leave it out to use "
                "`learning_rate`; to keep the mask network fixed set `requires_grad_(False)` on it."
            )
        accumulator = self.adagrad_initial_accumulator
        if accumulator is not None and not 0 <= accumulator < math.inf:
            raise ValueError(
                f"`adagrad_initial_accumulator` must be >= 0 and finite, got {accumulator}. Leave it out for 0."
            )
        super().__post_init__()
        if accumulator is not None and self.optim != OptimizerNames.ADAGRAD:
            raise ValueError(
                "`adagrad_initial_accumulator` must be left out with another optimizer than `optim: adagrad`, got "
                f"{accumulator} with `optim` {self.optim.value!r}."
            )
