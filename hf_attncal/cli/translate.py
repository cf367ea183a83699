"""`attncal translate`: standard input to standard output, one line for each line."""

import argparse
from functools import partial
from typing import BinaryIO

from .common import CommandError, add_model_options, between, choose_device, load_errors, positive, tell_model
from .streams import (
    BATCHES_PER_WINDOW,
    line_error,
    progress_bar,
    read_windows,
    standard_input,
    standard_output,
    until_failure,
    write_lines,
)


def add_translate(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `translate`."""
    parser = commands.add_parser(
        "translate",
        help="translate lines from standard input to standard output",
        description="Translate standard input to standard output: exactly one line out for each line in, in the same "
        "order, written as the input arrives. An empty line gives an empty line.",
        epilog="example:\n  attncal translate MODEL < source.txt > translations.txt",
    )
    add_model_options(parser, "folder or Hub name of an encoder-decoder, or of an adapter", lines=True)
    parser.add_argument("--batch-size", type=positive, default=32, help="sentences translated at once")
    parser.add_argument("--beams", type=positive, default=4, help="beam size; 1 is greedy")
    parser.add_argument(
        "--length-penalty",
        type=between(-5, 5),  # beyond, powers of lengths are no numbers that a score can be divided by
        default=1.0,
        help="beam score = log-probability / length ** X; larger values favour longer translations",
    )
    parser.add_argument(
        "--max-new-tokens",
        type=positive,
        help="longest translation in tokens; without it, twice the longest source of a batch plus 10",
    )
    parser.add_argument(
        "--too-long",
        choices=("error", "truncate"),
        default="error",
        help="what to do with a line of more tokens than the model has positions, or longer than --longest-line",
    )
    parser.set_defaults(run=_run_translate)


def _run_translate(options: argparse.Namespace) -> None:
    source = standard_input()
    model, tokenizer = load_model(options.model, options.device, options.trust_remote_code)
    with standard_output() as output:
        translate_stream(model, tokenizer, source, output.buffer, options)


def load_model(name: str, device: str | None, trust_remote_code: bool):
    """Model and tokenizer of an encoder-decoder checkpoint, on `device` (a GPU if there is one, where it is `None`).

    Raises:
        CommandError: there is no such checkpoint, it is of another kind, or the device cannot be used.
    """
    with load_errors(name):
        from hf_attncal.inference.files import blamed
        from hf_attncal.inference.loading import load_config, load_seq2seq
        from hf_attncal.inference.translation import translate

        # False and not None: asked with None, transformers would read the answer from standard input, our data.
        config = load_config(name, trust_remote_code=trust_remote_code)
        if not config.is_encoder_decoder:
            raise CommandError(
                f"{name} holds a model of type {config.model_type!r}, which is no encoder-decoder by its config.json. "
                "Translation needs a sequence-to-sequence checkpoint (Marian, BART, T5, ... or one of ours)."
            )
        model, tokenizer = load_seq2seq(name, trust_remote_code=trust_remote_code)
    model = model.to(choose_device(device)).eval()
    with load_errors(name), blamed(f"config.json, generation_config.json or tokenizer_config.json in {name}"):
        translate(model, tokenizer, ["1"], num_beams=2, max_new_tokens=2)  # else the first line would have the blame
    tell_model(name, model)
    return model, tokenizer


def translate_stream(model, tokenizer, source: BinaryIO, target: BinaryIO, options: argparse.Namespace) -> None:
    """Translate `source` line by line into `target`, a window of lines at a time.

    Args:
        model: an encoder-decoder, on its device.
        tokenizer: its tokenizer.
        source: UTF-8 bytes; a line ends with a newline and nowhere else.
        target: gets UTF-8 bytes, flushed after every window.
        options: the options of `attncal translate`.

    Raises:
        CommandError: a line that is not UTF-8, is too long, or cannot be translated; the message names the number of
            the line. All lines before it have been translated and written.
    """
    from hf_attncal.inference.translation import LineTooLongError, translate

    # Someone who types wants each line answered; a pipe wants full batches.
    window = 1 if source.isatty() else BATCHES_PER_WINDOW * options.batch_size
    cut = options.too_long == "truncate"
    translated = partial(
        translate,
        model,
        tokenizer,
        batch_size=options.batch_size,
        num_beams=options.beams,
        length_penalty=options.length_penalty,
        max_new_tokens=options.max_new_tokens,
        too_long=options.too_long,
    )
    with progress_bar("translated", options.progress) as bar:
        done = 0
        for lines, error in read_windows(source, window, longest=options.longest_line, cut=cut):
            translations, failure = until_failure(translated, lines)
            write_lines(target, translations)
            bar.update(len(translations))
            done += len(translations)
            if isinstance(failure, LineTooLongError):
                raise CommandError(
                    f"line {done + 1} of the input has {failure.tokens} tokens, the model takes at most "
                    f"{failure.limit}. Split the line, or pass --too-long truncate."
                )
            if failure is not None:
                raise line_error(done + 1, "of the input cannot be translated", failure) from failure
            if error is not None:
                raise error
