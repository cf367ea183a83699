"""The number of CPU threads of a training, chosen by the time that its steps take."""

from dataclasses import dataclass, field

import torch
from transformers import TrainerCallback, TrainingArguments

from hf_attncal.io.process import ThreadChoice, is_fixed_by_user


@dataclass
class ChooseThreads(TrainerCallback):
    """Trains with the number of threads whose steps are the fastest at the moment, and says which that is.

    It acts on a CPU, in one process, where neither the environment (`OMP_NUM_THREADS`) nor `threads` says the number.
    The last choice stays in force after the training.

    Args:
        threads: a number to use throughout; None: choose.

    Attributes:
        history: one entry for each choice that differs from the one before: `step`, `threads`, `seconds_per_step`
            (number of threads -> seconds).
    """

    threads: int | None = None
    history: list[dict] = field(default_factory=list)
    _choice: ThreadChoice | None = None

    def on_train_begin(self, args: TrainingArguments, state, control, **kwargs):
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        elif args.device.type == "cpu" and args.world_size == 1 and not is_fixed_by_user():
            most = torch.get_num_threads()
            self._choice = ThreadChoice(most, torch.set_num_threads) if most > 1 else None

    def on_step_begin(self, args, state, control, **kwargs):
        if self._choice is not None:
            self._choice.begin()

    def on_step_end(self, args, state, control, **kwargs):
        if self._choice is None or not self._choice.end():
            return
        chosen = self._choice
        if not self.history or self.history[-1]["threads"] != chosen.threads:
            seconds = {str(count): round(value, 4) for count, value in chosen.seconds.items()}
            self.history.append({"step": state.global_step, "threads": chosen.threads, "seconds_per_step": seconds})
            print(f"Training on {chosen}, from step {state.global_step} on")
