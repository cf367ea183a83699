"""The lines of `attncal translate` and `attncal summarize`: the loop over an input, and the forms of an answer."""

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from hf_attncal.data.linked_pairs import SeparatorWatch, write_separator
from hf_attncal.data.pharaoh import format_links
from hf_attncal.io.errors import CommandError, one_line
from hf_attncal.io.streams import (
    BATCHES_PER_WINDOW,
    Readable,
    Text,
    input_lines,
    json_line,
    line_error,
    output_lines,
    progress_bar,
    read_windows,
    write_lines,
)

from .generation import Generated, LineTooLongError, source_limit

_VERBS = {"translation": "translated", "summary": "summarised"}
_NAMED = 10  # lines that a warning names
_NOT_AGAIN = ("source", "target")  # of a verdict: the line says them
_OF_COPIES = {
    "copied_shares": "share",
    "source_tokens": "source_token",
    "source_words": "source_word",
    "summary_words": "word",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Output of a model for a line.

    Args:
        source: the line.
        generated: the text, with its scores and copies where they were asked for.
        verdict: verdict of a checker. Default: None.
        alignment: links of an aligner. Default: None.
        unlinked: the aligner could not read the pair, which is too long for it.
    """

    source: str
    generated: Generated
    verdict: Any = None
    alignment: Any = None
    unlinked: bool = False

    @property
    def text(self) -> str:
        """The translation or summary."""
        return self.generated.text

    @property
    def score(self) -> float | None:
        """Score of the text, by which the search compares texts; None if it was not asked for."""
        return self.generated.score

    def to_dict(self, called: str = "translation", copied: bool = False) -> dict[str, Any]:
        """Return plain data, for JSON; `called` names the text, and with `copied` its copied words are told."""
        of = self.generated
        values: dict[str, Any] = {"source": self.source, called: of.text}
        values |= {name: getattr(of, name) for name in ("score", "tokens", "token_scores")}
        if called == "summary":
            values["cut_from"] = of.cut_from
        if copied:
            values["links"] = of.links
            values |= {name: tuple(getattr(copy, part) for copy in of.copies) for name, part in _OF_COPIES.items()}
        if self.alignment is not None or self.unlinked:
            values["alignment"] = self.alignment and self.alignment.to_dict()
        if self.verdict is not None:
            verdict = self.verdict.to_dict()
            values["check"] = {name: value for name, value in verdict.items() if name not in _NOT_AGAIN}
        return values

    def line(self, scores: bool = False, form: str = "text") -> str:
        """Return the text as a line, with columns before and behind it.

        Args:
            scores: the score with four decimals stands before it.
            form: "marked" puts copied words in brackets, with the numbers of the words that they are copied from;
                "copied" puts links from word i of the line to word j of the text behind it.
        """
        columns = [marked(self.generated) if form == "marked" else self.text]
        if self.verdict is not None:
            columns.insert(0, ",".join(self.verdict.flagged) or "-")
        if scores:
            columns.insert(0, "" if self.score is None else f"{self.score:.4f}")
        if form == "copied":
            columns = [*columns[:-1], columns[-1].replace("\t", " "), format_links(self.generated.links)]
        return "\t".join(columns)


def marked(generated: Generated) -> str:
    """Mark the copied words of a text, with the number of the word that each is copied from."""
    sources = defaultdict(list)
    for i, j in generated.links:
        sources[j].append(str(i))
    words = enumerate(generated.text.split())
    return " ".join(f"[{word}]{','.join(sources[j])}" if j in sources else word for j, word in words)


class Answered(NamedTuple):
    """The answers to the lines of a window up to the first that fails, its error, and what could not be done."""

    rows: list[Answer]
    failure: Exception | None
    problem: str


def answer_windows(
    model,
    tokenizer,
    lines: tuple[Readable, int, str],
    answer: Callable[[Sequence[str]], Answered],
    verb: str,
    *,
    too_long: str,
    longest_line: int,
    progress: bool | None = None,
) -> Generator[list[Answer]]:
    """Answer a window of lines at a time; warn at the end of lines that were cut, or lack words or links.

    Args:
        model: an encoder-decoder.
        tokenizer: its tokenizer.
        lines: the input, the number of lines of a window, and the input's name in messages (`input_lines`).
        answer: answers the lines of a window.
        verb: participle for messages, such as "translated".
        too_long: "truncate" or "error".
        longest_line: most bytes of a line.
        progress: see `progress_bar`.

    Raises:
        CommandError: a line is not UTF-8, is too long, or cannot be answered; the message has its number. All lines
            before it have been answered and given.

    Warns:
        UserWarning: lines were cut, their text lacks words that the vocabulary does not have, or they have no links,
            because their text, split into tokens again, has more tokens than the aligner has positions.
    """
    source, window, name = lines
    done = 0
    cut: set[int] = set()
    unknown: list[int] = []
    unlinked: list[int] = []
    try:
        with progress_bar(verb, progress) as bar:
            truncate = cut.add if too_long == "truncate" else None
            for texts, error in read_windows(source, window, name, longest_line, truncate):
                rows, failure, problem = answer(texts)
                yield rows
                bar.update(len(rows))
                numbered = list(enumerate(rows, start=done + 1))
                cut |= {number for number, row in numbered if row.generated.cut_from is not None}
                unknown += [number for number, row in numbered if row.generated.unknown]
                unlinked += [number for number, row in numbered if row.unlinked]
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
        if shortened := sorted(number for number in cut if number <= done):
            limit = source_limit(model, tokenizer)
            warnings.warn(
                f"of {len(shortened)} of {done} lines of {name} only the beginning was {verb}: {limit} tokens, of at "
                f"most {longest_line} bytes ({_named(shortened)}).",
                stacklevel=2,
            )
        if unknown:
            warnings.warn(
                f"the output for {len(unknown)} of {done} lines of {name} lacks words that are not in the vocabulary "
                f"of the model ({_named(unknown)}).",
                stacklevel=2,
            )
        if unlinked:
            warnings.warn(
                f"{len(unlinked)} of {done} lines of {name} have no links: their translation, split into tokens "
                f"again, has more than the aligner has positions ({_named(unlinked)}).",
                stacklevel=2,
            )


def _named(numbers: Sequence[int]) -> str:
    """List the first line numbers: "lines 1, 4, ..."."""
    first = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    return f"line{'s' if len(numbers) > 1 else ''} {first}"


def try_answers(answer: Callable[[Sequence[str]], Answered], name: str, texts: Sequence[str]) -> None:
    """Answer `texts`, so that settings which do not suit the model `name` are not blamed on the first line.

    Raises:
        CommandError: that fails.
    """
    failure = answer(texts).failure
    if failure is not None:
        raise CommandError(f"{name} cannot be used with these options: {one_line(failure)}") from failure


class Form(NamedTuple):
    """Format of the answers to a text.

    Args:
        called: name of an answer, "translation" or "summary".
        format: "json", or a form of `Answer.line`.
        scores, copied: see `Answer.line` and `Answer.to_dict`.
    """

    called: str
    format: str
    scores: bool = False
    copied: bool = False

    def line(self, row: Answer) -> str:
        """Write an answer as a line."""
        if self.format == "json":
            return json_line(row.to_dict(self.called, self.copied))
        return row.line(self.scores, self.format)


def answer_text(
    loaded: tuple[Any, Any],
    source: Text | None,
    answer: Callable[[Sequence[str]], Answered],
    form: Form,
    *,
    batch_size: int,
    too_long: str,
    longest_line: int,
    progress: bool | None = None,
    output: str | os.PathLike[str] | None = None,
    links: str | os.PathLike[str] | None = None,
) -> list[str] | list[Answer] | None:
    """Answer each line of a text; write the answers as they come, or return them where nothing is written.

    Args:
        loaded: model and tokenizer.
        source: a file, or lines.
        answer: answers the lines of a window.
        form: format of the answers.
        batch_size: lines that make a batch.
        too_long, longest_line, progress: as for `answer_windows`, whose errors are raised and whose warnings are
            given.
        output: file for the answers, `-` for standard output; None: they are returned.
        links: file for the links of each answer; None for none.

    Returns:
        Without `output` the lines, or with "json" the answers.
    """
    answers: list = []
    watch = SeparatorWatch()
    with ExitStack() as stack:
        lines = stack.enter_context(input_lines(source, BATCHES_PER_WINDOW * batch_size, "source"))
        target = None if output is None else stack.enter_context(output_lines(os.fspath(output)))
        beside = None if links is None else stack.enter_context(output_lines(os.fspath(links), "--alignments"))
        reading: dict[str, Any] = {"too_long": too_long, "longest_line": longest_line, "progress": progress}
        windows = answer_windows(*loaded, lines, answer, _VERBS[form.called], **reading)
        for rows in stack.enter_context(closing(windows)):
            if target is not None:
                write_lines(target, map(form.line, rows))
            else:
                answers += rows if form.format == "json" else map(form.line, rows)
            if beside is not None:
                write_lines(beside, ("" if row.alignment is None else row.alignment.pharaoh() for row in rows))
                for row in rows:
                    watch.check(row.source, row.text)
    write_separator(links, watch.separator)
    return answers if output is None else None
