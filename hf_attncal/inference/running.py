"""How a job runs that loads a model: device, precision, threads, and what it may read and execute."""

from dataclasses import dataclass, field, fields
from typing import Literal

from hf_attncal.io.errors import CommandError

MAX_THREADS = 1024  # the system kills a process that starts many more


@dataclass(frozen=True)
class Spoken:
    """The languages of a job that begins with a translation model.

    Args:
        languages: SOURCE-TARGET, such as en-de or English-German, for a model of many; without it, as it was saved
    """

    languages: str | tuple[str, str] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Running(Spoken):
    """How a job runs that loads a model.

    Args:
        device: such as cpu or cuda:0; without it, a GPU if there is one
        dtype: precision of the weights; without it, as they are saved
        threads: threads of PyTorch on the CPU; without it, as PyTorch chooses
        trust_remote_code: run the model code that comes with the checkpoint
        revision: commit, tag or branch of the model on the Hub; without it, the newest
        batch_size: lines or pairs that the model reads at once; without it, what suits the job
        longest_line: most bytes of a line; a longer one is an error or truncated; without it, what suits the job
        progress: count lines on standard error; without it, if that is a terminal

    Raises:
        CommandError: a number that is out of range.
    """

    device: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    threads: int | None = None
    trust_remote_code: bool = False
    revision: str | None = None
    batch_size: int | None = None
    longest_line: int | None = None
    progress: bool | None = None

    def __post_init__(self):
        for name, most in (("threads", MAX_THREADS), ("batch_size", (1 << 31) - 1), ("longest_line", (1 << 31) - 1)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise CommandError(f"--{name.replace('_', '-')} must be from 1 to {most}, got {value}.")

    def takes(self, *names: str) -> None:
        """Raise CommandError if a field is given that is none of these: the job has no use for it."""
        for one in fields(self):
            if one.name not in names and getattr(self, one.name) != one.default:
                option = f"--{one.name.replace('_', '-')}"
                raise CommandError(f"{option} is for what loads a model, and no model is loaded here: leave it out.")
