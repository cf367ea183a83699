"""Parts of commands whose models write a line for each line: the loop over lines, warnings of cut lines."""

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import BinaryIO

from hf_attncal.data.streams import line_error, progress_bar, read_windows
from hf_attncal.errors import CommandError

_NAMED = 10  # lines that a warning names


def answer_lines(
    model,
    tokenizer,
    lines: tuple[BinaryIO, int, str],
    options: argparse.Namespace,
    verb: str,
    answer: Callable[[Sequence[str]], tuple[list[tuple], Exception | None, str]],
    write: Callable[[list[tuple]], None],
) -> None:
    """Answer line by line, a window of lines at a time, and warn at the end of lines that were cut or lack words.

    Args:
        model: an encoder-decoder.
        tokenizer: its tokenizer.
        lines: the input, the number of lines of a window, and the input's name in messages (`input_lines`).
        options: options of the command, with `longest_line`, `progress` and `too_long`.
        verb: participle for messages, such as "translated".
        answer: function of the lines of a window. It returns rows (line, `Generated`, ...) up to the first line that
            fails, the error or None, and a participle of what could not be done with that line.
        write: function that writes rows.

    Raises:
        CommandError: a line is not UTF-8, is too long, or cannot be answered; the message has its number. All lines
            before it have been answered and written.
    """
    from hf_attncal.inference.generation import LineTooLongError, source_limit

    source, window, name = lines
    done, cut, unknown = 0, set(), []
    try:
        with progress_bar(verb, options.progress) as bar:
            truncate = cut.add if options.too_long == "truncate" else None
            for texts, error in read_windows(source, window, name, options.longest_line, truncate):
                rows, failure, problem = answer(texts)
                write(rows)
                bar.update(len(rows))
                cut |= {number for number, row in enumerate(rows, start=done + 1) if row[1].cut_from is not None}
                unknown += [number for number, row in enumerate(rows, start=done + 1) if row[1].unknown]
                done += len(rows)
                if isinstance(failure, LineTooLongError):
                    raise CommandError(
                        f"line {done + 1} of {name} has {failure.tokens} tokens, the model takes at most "
                        f"{failure.limit}. Split the line, or pass --too-long truncate."
                    )
                if failure is not None:
                    raise line_error(done + 1, f"of {name} cannot be {problem}", failure) from failure
                if error is not None:
                    raise error
    finally:
        if cut := sorted(number for number in cut if number <= done):
            limit = source_limit(model, tokenizer)
            warnings.warn(
                f"of {len(cut)} of {done} lines of {name} only the beginning was {verb}: {limit} tokens, of at most "
                f"{options.longest_line} bytes ({named_lines(cut)}).",
                stacklevel=2,
            )
        if unknown:
            warnings.warn(
                f"the output for {len(unknown)} of {done} lines of {name} lacks words that are not in the vocabulary "
                f"of the model ({named_lines(unknown)}).",
                stacklevel=2,
            )


def named_lines(numbers: Sequence[int]) -> str:
    """List the first line numbers: "lines 1, 4, ..."."""
    first = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    return f"line{'s' if len(numbers) > 1 else ''} {first}"
