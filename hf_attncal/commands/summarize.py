"""`attncal summarize`: one summary for each text, with scores and what was copied from where."""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import BinaryIO

from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import BATCHES_PER_WINDOW, check_files, input_lines, json_line, output_lines, write_lines
from hf_attncal.errors import CommandError, one_line
from hf_attncal.inference.answers import answer_lines
from hf_attncal.inference.opening import load_model

from .common import add_file_options, add_model_options, at_least, between, positive

_LONGEST_TEXT = 100_000  # bytes: some 20,000 words, more than most models read


def add_summarize(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `summarize`."""
    parser = commands.add_parser(
        "summarize",
        help="summarise texts, one in a line",
        description="Summarise standard input to standard output, or files: a text is one line, and so is its "
        "summary; exactly one line out for each line in, in the same order, written as the input arrives. An empty "
        "line gives an empty line. Of a text that is longer than MODEL reads the beginning is summarised, and in the "
        "end a warning says in which lines.",
        epilog="examples:\n  attncal summarize MODEL < texts.txt > summaries.txt\n"
        "  attncal summarize MODEL --input texts.txt --output summaries.txt --too-long error\n"
        "  attncal summarize MODEL --format marked < texts.txt",
    )
    files = add_file_options(parser, "texts, one a line")
    files.add_argument(
        "--format",
        choices=("text", "marked", "json"),
        default="text",
        help="marked: copied words in brackets, with the number, from 0, of the word of the text that each is copied "
        "from: `[Oslo]4 wins`; json: one object a line, with source, summary, score, tokens, their scores, and with "
        "--copied how far each is a copy, and of what",
    )
    files.add_argument(
        "--scores",
        action="store_true",
        help="text and marked: write `score TAB summary`; the score is the log-probability / length ** PENALTY, with "
        "four decimals",
    )
    files.add_argument(
        "--copied",
        action="store_true",
        help="text: write `summary TAB i-j i-j`: word j of the summary is copied from word i of the text, counted "
        "from 0; for a MODEL that copies",
    )
    search = parser.add_argument_group("search (without an option, as generation_config.json of MODEL says)")
    search.add_argument("--beams", type=positive, help="beam size; 1 is greedy")
    search.add_argument(
        "--length-penalty",
        type=between(-5, 5),  # as of `attncal translate`
        help="beam score = log-probability / length ** X; larger values favour longer summaries",
    )
    search.add_argument(
        "--no-repeat-ngrams", type=at_least(0), help="no N tokens in a row come twice in a summary; 0: they may"
    )
    search.add_argument("--min-new-tokens", type=at_least(0), help="shortest summary in tokens")
    search.add_argument(
        "--max-new-tokens",
        type=positive,
        help="longest summary in tokens; if MODEL does not say it either, twice the longest text of a batch plus 10",
    )
    search.add_argument(
        "--prefix",
        metavar="TEXT",
        help="put in front of each text; without it, what config.json of MODEL says, such as `summarize: ` of T5",
    )
    search.add_argument(
        "--too-long",
        choices=("truncate", "error"),
        default="truncate",
        help="what to do with a text of more tokens than MODEL reads, or longer than --longest-line",
    )
    model = "folder or Hub name of an encoder-decoder, or of an adapter"
    running = add_model_options(parser, model, lines=True, longest_line=_LONGEST_TEXT)
    running.add_argument("--batch-size", type=positive, default=16, help="texts summarised at once")
    parser.set_defaults(run=_run_summarize)


def _run_summarize(options: argparse.Namespace) -> None:
    check_files([] if options.input is None else [options.input], {"--output": options.output})
    model, tokenizer = load_model(options.model, running_of(options), getattr(options, "beams", None) or 2)
    with ExitStack() as stack:
        lines = stack.enter_context(input_lines(options.input, BATCHES_PER_WINDOW * options.batch_size))
        target = stack.enter_context(output_lines(options.output))
        write_summaries(model, tokenizer, lines, target, options)


def write_summaries(
    model, tokenizer, lines: tuple[BinaryIO, int, str], target: BinaryIO, options: argparse.Namespace
) -> None:
    """Summarise line by line, a window of lines at a time.

    Args:
        model, tokenizer, lines: as for `answer_lines`.
        target: output with a line for each line, flushed after every window.
        options: options of `attncal summarize`.

    Raises:
        CommandError: options that do not suit the model, or a line that `answer_lines` refuses.
    """
    from hf_attncal.data.piecewise import until_failure
    from hf_attncal.inference.summarization import summarize_lines

    summarize = partial(
        summarize_lines,
        model,
        tokenizer,
        batch_size=options.batch_size,
        num_beams=options.beams,
        length_penalty=options.length_penalty,
        no_repeat_ngram_size=options.no_repeat_ngrams,
        min_new_tokens=options.min_new_tokens,
        max_new_tokens=options.max_new_tokens,
        prefix=options.prefix,
        too_long=options.too_long,
        scores=options.scores or options.format == "json",
        copied=options.copied or options.format == "marked",
    )
    try:
        summarize([])  # else an error would blame the first line
    except ValueError as error:
        raise CommandError(f"{options.model} cannot be used with these options: {one_line(error)}") from error

    def answer(texts: Sequence[str]):
        summaries, failure = until_failure(summarize, texts)
        return list(zip(texts, summaries, strict=False)), failure, "summarised"

    def write(rows) -> None:
        write_lines(target, (_line(*row, options) for row in rows))

    answer_lines(model, tokenizer, lines, options, "summarised", answer, write)


def _line(source: str, summary, options: argparse.Namespace) -> str:
    """Format the output line for a source line and its `Generated` summary."""
    if options.format == "json":
        return json_line(_values(source, summary, options.copied))
    columns = [_marked(summary) if options.format == "marked" else summary.text]
    if options.scores:
        columns.insert(0, "" if summary.score is None else f"{summary.score:.4f}")
    if options.copied and options.format == "text":
        from hf_attncal.data.pharaoh import format_links

        columns = [*columns[:-1], columns[-1].replace("\t", " "), format_links(summary.links)]
    return "\t".join(columns)


def _marked(summary) -> str:
    """Mark the copied words of a summary, with the number of the word that each is copied from."""
    sources = defaultdict(list)
    for i, j in summary.links:
        sources[j].append(str(i))
    words = enumerate(summary.text.split())
    return " ".join(f"[{word}]{','.join(sources[j])}" if j in sources else word for j, word in words)


def _values(source: str, summary, copied: bool) -> dict:
    """Return the JSON fields of a line."""
    values = {
        "source": source,
        "summary": summary.text,
        "score": summary.score,
        "tokens": summary.tokens,
        "token_scores": summary.token_scores,
        "cut_from": summary.cut_from,
    }
    if copied:
        values["links"] = summary.links
        for field, name in (
            ("copied_shares", "share"),
            ("source_tokens", "source_token"),
            ("source_words", "source_word"),
            ("summary_words", "word"),
        ):
            values[field] = tuple(getattr(copy, name) for copy in summary.copies)
    return values
