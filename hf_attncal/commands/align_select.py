"""`attncal align select`: which attention of an encoder-decoder, or which states of an encoder, align best."""

import argparse
import json

from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import check_readable
from hf_attncal.errors import user_errors
from hf_attncal.inference.files import folder_beside
from hf_attncal.inference.opening import choose_device, load_errors, tell_model

from .common import (
    TEXT_OPTIONS,
    add_folder_beside,
    add_longest_line,
    add_model_options,
    add_pair_files,
    add_text_options,
    check_longest_lines,
    positive,
)


def add_select(actions: argparse._SubParsersAction) -> None:
    """Add the action `select`."""
    parser = actions.add_parser(
        "select",
        help="find the attention of an encoder-decoder, or the states of an encoder, that align best",
        description="Try every layer of a Marian- or BART-style checkpoint, with all heads, single heads and sets of "
        "heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att), and the "
        "states of every layer of its encoder with several thresholds, on annotated pairs; print the best with their "
        "AER and write the first to alignment.json, which `attncal align run` reads. An encoder alone (BERT, "
        "XLM-R, ...) has only its states. Without --gold, states are chosen on raw pairs: those are best on which "
        "both directions agree most, beyond what they agree on sentences that are no translations; that is printed.",
        epilog="examples:\n  attncal align select MODEL --source dev.en --target dev.de --gold dev.align\n"
        "  attncal align select ENCODER --source text.en --target text.de --output FOLDER",
    )
    running = add_model_options(
        parser, "folder or Hub name of an encoder-decoder, of an adapter for one, or of an encoder"
    )
    add_longest_line(running)
    add_pair_files(parser)
    parser.add_argument(
        "--gold",
        metavar="FILE",
        help="links in Pharaoh format, counted from 0; without it, states are chosen by agreement, on at most 500 "
        "pairs",
    )
    add_folder_beside(parser, "alignment.json")
    parser.add_argument("--top", type=positive, default=10, help="rows to print")
    parser.add_argument("--lowercase", action="store_true", help="lower-case the text")
    parser.add_argument(
        "--weights",
        choices=("attention", "contribution", "uam", "states"),
        help="what to read; contributions need a calibrated model or adapter, the alignment module one with `uam`; "
        "without it, attention and states",
    )
    add_text_options(parser.add_argument_group("what the model wants beside its text"))
    parser.set_defaults(run=_run_select)


def _run_select(options: argparse.Namespace) -> None:
    check_readable(options.source, options.target, options.gold)
    folder = folder_beside(options.model, options.output, "alignment.json")

    from hf_attncal.alignment import select
    from hf_attncal.data.gold import gold_links
    from hf_attncal.files import read_pairs

    with user_errors():
        text = read_pairs(options.source, options.target)
        check_longest_lines(options, *text)
        gold = None if options.gold is None else gold_links(options.gold, list(zip(*text, strict=True)))
        model, tokenizer = _load(options)
        sides = [[line.lower() if options.lowercase else line for line in side] for side in text]
        given = {name: getattr(options, name) for name in TEXT_OPTIONS if getattr(options, name) is not None}
        ranked = select(model, tokenizer, *sides, gold, weights=options.weights, **given)
    for settings, score in ranked[: options.top]:
        print(f"{100 * (score if gold is None else score.aer):5.1f}  {json.dumps(settings.to_dict())}")
    ranked[0][0].save(folder)


def _load(options: argparse.Namespace):
    """Load a model to choose from, and its tokenizer.

    Raises:
        CommandError: there is no such checkpoint, it is of another kind, or the device cannot be used.
    """
    with load_errors(options.model):
        from hf_attncal.alignment.aligner import load_to_align

        device = choose_device(running_of(options))
        model, tokenizer, _ = load_to_align(
            options.model, dtype=options.dtype, trust_remote_code=options.trust_remote_code
        )
    tell_model(options.model, model)
    return model.to(device).eval(), tokenizer
