"""Output of `attncal translate` and `attncal summarize`: the loop over an input, and the formats of an answer."""

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from hf_attncal.data.languages import leading_code, using_code, without_code
from hf_attncal.data.pharaoh import format_links
from hf_attncal.io.errors import CommandError, one_line, until_failure
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
from .reading import PairTooLongError
from .translation import translate_lines

_VERBS = {"translation": "translated", "summary": "summarised"}
_NAMED = 10  # number of lines that a warning lists
_COPY_FIELDS = {
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
        generated: the text, with scores and copies if they were requested.
        alignment: links of an aligner. Default: None.
        unlinked: True if the pair is too long for the aligner.
    """

    source: str
    generated: Generated
    alignment: Any = None
    unlinked: bool = False

    @property
    def text(self) -> str:
        """The translation or summary."""
        return self.generated.text

    @property
    def score(self) -> float | None:
        """Score of the text, by which the search compares texts; None if it was not requested."""
        return self.generated.score

    def to_dict(self, called: str = "translation", copied: bool = False) -> dict[str, Any]:
        """Return plain data for JSON.

        Args:
            called: name of the text, "translation" or "summary".
            copied: True to add the copied words.
        """
        generated = self.generated
        values: dict[str, Any] = {"source": self.source, called: generated.text}
        values |= {name: getattr(generated, name) for name in ("score", "tokens", "token_scores")}
        if called == "summary":
            values["cut_from"] = generated.cut_from
        if copied:
            values["links"] = generated.links
            for name, field in _COPY_FIELDS.items():
                values[name] = tuple(getattr(copy, field) for copy in generated.copies)
        if self.alignment is not None or self.unlinked:
            values["alignment"] = self.alignment and self.alignment.to_dict()
        return values

    def line(self, scores: bool = False, form: str = "text") -> str:
        """Return the text as a line, with columns before and after it.

        Args:
            scores: True to put the score with four decimals before the text.
            form: "marked" puts copied words in brackets, followed by the numbers of their source words; "copied" adds
                links from word i of the line to word j of the text after the text.
        """
        columns = [marked(self.generated) if form == "marked" else self.text]
        if scores:
            columns.insert(0, "" if self.score is None else f"{self.score:.4f}")
        if form == "copied":
            columns = [*columns[:-1], columns[-1].replace("\t", " "), format_links(self.generated.links)]
        return "\t".join(columns)


def marked(generated: Generated) -> str:
    """Mark the copied words of a text, with the number of the source word of each."""
    sources = defaultdict(list)
    for i, j in generated.links:
        sources[j].append(str(i))
    words = enumerate(generated.text.split())
    return " ".join(f"[{word}]{','.join(sources[j])}" if j in sources else word for j, word in words)


class Answered(NamedTuple):
    """Answers to the lines of a window up to the first failure; its error; and a verb for it, such as "translated"."""

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
    """Answer a window of lines at a time. At the end, warn if lines were cut, or lack words or links.

    Args:
        model: an encoder-decoder.
        tokenizer: its tokenizer.
        lines: input, number of lines per window, and name of the input in messages (`input_lines`).
        answer: function that answers the lines of a window.
        verb: participle for messages, such as "translated".
        too_long: "truncate" or "error".
        longest_line: maximum number of bytes of a line.
        progress: see `progress_bar`.

    Raises:
        CommandError: a line is not UTF-8, is too long, or cannot be answered; the message has its number. The answers
            to all lines before it have been yielded.

    Warns:
        UserWarning: lines were truncated; their text lacks words that are not in the vocabulary; or they have no
            links, because their text, tokenised again, has more tokens than the aligner has positions.
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
                f"{len(shortened)} of {done} lines of {name} were truncated: only the first {limit} tokens of at most "
                f"{longest_line} bytes were {verb} ({_line_numbers(shortened)}).",
                stacklevel=2,
            )
        for numbers, problem in (
            (unknown, "their output lacks words that are not in the vocabulary of the model"),
            (unlinked, "they have no links, as their translation has more tokens than the aligner has positions"),
        ):
            if numbers:
                warnings.warn(
                    f"{len(numbers)} of {done} lines of {name}: {problem} ({_line_numbers(numbers)}).", stacklevel=2
                )


def _line_numbers(numbers: Sequence[int]) -> str:
    """List the first line numbers: "lines 1, 4, ..."."""
    first = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
    return f"line{'s' if len(numbers) > 1 else ''} {first}"


def try_answers(answer: Callable[[Sequence[str]], Answered], name: str, texts: Sequence[str]) -> None:
    """Answer `texts` as a trial, so that a message about unsuitable settings does not name the first line.

    Raises:
        CommandError: the trial fails; the message names the model.
    """
    failure = answer(texts).failure
    if failure is not None:
        raise CommandError(f"{name} cannot be used with these options: {one_line(failure)}") from failure


class Form(NamedTuple):
    """Format of the answers to a text.

    Args:
        called: name of the text, "translation" or "summary".
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
    """Answer each line of a text; write the answers one after the other, or return them.

    Args:
        loaded: model and tokenizer.
        source: file, or lines.
        answer: function that answers the lines of a window.
        form: format of the answers.
        batch_size: number of lines per batch.
        too_long, longest_line, progress: see `answer_windows`, also for errors and warnings.
        output: file for the answers, `-` for standard output. Default: None, the answers are returned.
        links: file for the links of each answer. Default: None, no links.

    Returns:
        None with `output`; else the lines, or with the format "json" the answers.
    """
    answers: list = []
    with ExitStack() as stack:
        lines = stack.enter_context(input_lines(source, BATCHES_PER_WINDOW * batch_size, "source"))
        target = None if output is None else stack.enter_context(output_lines(os.fspath(output)))
        link_file = None if links is None else stack.enter_context(output_lines(os.fspath(links), "--alignments"))
        options: dict[str, Any] = {"too_long": too_long, "longest_line": longest_line, "progress": progress}
        windows = answer_windows(*loaded, lines, answer, _VERBS[form.called], **options)
        for rows in stack.enter_context(closing(windows)):
            if target is not None:
                write_lines(target, map(form.line, rows))
            else:
                answers += rows if form.format == "json" else map(form.line, rows)
            if link_file is not None:
                write_lines(link_file, ("" if row.alignment is None else row.alignment.pharaoh() for row in rows))
    return answers if output is None else None


# ---- translations with links ----


def translating(
    model, tokenizer, *, batch_size: int, aligner=None, **options: Any
) -> Callable[[Sequence[str]], Answered]:
    """Return a function that translates the lines of a window, for `answer_windows`.

    Args:
        model, tokenizer, batch_size, options: see `translate_lines`.
        aligner: object with `align(pairs, batch_size=...)`, which returns an alignment with `pharaoh()` and
            `to_dict()` for each (source, translation), such as `alignment.aligner.WordAligner`. Default: None, no
            links.
    """

    def answers(texts: Sequence[str]) -> list[Answer]:
        translations = translate_lines(model, tokenizer, texts, batch_size=batch_size, **options)
        return [Answer(text, translation) for text, translation in zip(texts, translations, strict=True)]

    def translated(texts: Sequence[str]) -> Answered:
        rows, failure = until_failure(answers, texts)
        linked: list[Answer] = []
        while aligner is not None and len(linked) < len(rows):
            more, error = _linked(tokenizer, rows[len(linked) :], partial(aligner.align, batch_size=batch_size))
            linked += more
            if error is not None:
                return Answered(linked, error, "aligned with its translation")
        return Answered(list(rows) if aligner is None else linked, failure, "translated")

    return translated


def _linked(tokenizer, rows: Sequence[Answer], align: Callable) -> tuple[list[Answer], Exception | None]:
    """Link the first rows that start with the same language code, up to a row that is too long to link."""
    code = leading_code(tokenizer, rows[0].source)
    rows = list(takewhile(lambda row: leading_code(tokenizer, row.source) == code, rows))
    with using_code(tokenizer, code):  # the code is not a word, and the aligner may read the same model
        pairs = [(without_code(tokenizer, row.source), row.text) for row in rows]
        alignments, error = until_failure(align, pairs)
    linked = [replace(row, alignment=links) for row, links in zip(rows, alignments, strict=False)]
    if isinstance(error, PairTooLongError):
        return [*linked, replace(rows[len(linked)], unlinked=True)], None
    return linked, error
