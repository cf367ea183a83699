"""Options of a job that loads a model: device, precision, threads, and limits on input and code."""

from dataclasses import dataclass, field, fields
from typing import Literal

from hf_attncal.io.errors import CommandError

MAX_THREADS = 1024  # the system kills a process that starts many more


@dataclass(frozen=True, repr=False)
class TextLanguages:
    """Languages of a job that starts from a translation model.

    Args:
        languages: languages of the text, such as en-de or English-German, for a multilingual model [default: as saved
            with the model]
    """

    languages: str | tuple[str, str] | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        changed = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"


@dataclass(frozen=True, repr=False)
class Running(TextLanguages):
    """Options of a job that loads a model.

    Args:
        device: device, such as cpu or cuda:0 [default: a GPU if there is one]
        dtype: precision of the weights [default: as saved]
        threads: number of CPU threads of PyTorch [default: PyTorch's own]
        trust_remote_code: run the model code in the checkpoint
        revision: commit, tag or branch of the model on the Hub [default: the newest]
        batch_size: maximum number of lines or pairs per batch [default: 256 to align, 32 to translate or analyse, 16
            to summarise]
        longest_line: maximum length of a line in bytes; a longer line is an error [default: 10000, or 100000 to
            summarise]
        too_long: stop at a line that is longer, or has too many words to be aligned; or write an empty line for it and
            count it
        progress: show the number of finished lines on standard error [default: if it is a terminal]

    Raises:
        CommandError: a number is out of range.
    """

    device: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    threads: int | None = None
    trust_remote_code: bool = False
    revision: str | None = None
    batch_size: int | None = None
    longest_line: int | None = None
    too_long: Literal["stop", "empty"] = "stop"
    progress: bool | None = None

    def __post_init__(self):
        for name, most in (("threads", MAX_THREADS), ("batch_size", (1 << 31) - 1), ("longest_line", (1 << 31) - 1)):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise CommandError(f"--{name.replace('_', '-')} must be from 1 to {most}, got {value}.")

    def takes(self, *names: str) -> None:
        """Raise CommandError for an option that differs from its default and is not in `names`."""
        for field_ in fields(self):
            if field_.name not in names and getattr(self, field_.name) != field_.default:
                option = f"--{field_.name.replace('_', '-')}"
                raise CommandError(f"{option} has no effect on this command. Leave it out.")
