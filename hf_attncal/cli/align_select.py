"""`attncal align select`: which attention of an encoder-decoder aligns best."""

import argparse
import json
from pathlib import Path

from .common import CommandError, add_model_options, check_readable, positive


def add_select(actions: argparse._SubParsersAction) -> None:
    """Add the action `select`."""
    parser = actions.add_parser(
        "select",
        help="find the attention of an encoder-decoder that aligns best",
        description="Try every layer of a Marian- or BART-style checkpoint, with all heads, single heads and sets of "
        "heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att), on annotated "
        "pairs; print the best and write them to alignment.json, which `attncal align run` reads.",
        epilog="example:\n  attncal align select MODEL --source dev.en --target dev.de --gold dev.align",
    )
    add_model_options(parser, "folder or Hub name of an encoder-decoder, or of an adapter")
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="source sentences, one a line; plain, .gz, .xz or .zst"
    )
    parser.add_argument("--target", required=True, metavar="FILE", help="target sentences, as many lines")
    parser.add_argument("--gold", required=True, metavar="FILE", help="links in Pharaoh format, counted from 0")
    parser.add_argument(
        "--output", metavar="FOLDER", help="where alignment.json goes; without it, MODEL if that is a folder"
    )
    parser.add_argument("--top", type=positive, default=10, help="rows to print")
    parser.add_argument("--lowercase", action="store_true", help="lower-case the text")
    parser.add_argument(
        "--weights",
        choices=("attention", "contribution", "uam"),
        default="attention",
        help="what to read; contributions need a calibrated model or adapter, the alignment module one with `uam`",
    )
    parser.set_defaults(run=_run_select)


def _run_select(options: argparse.Namespace) -> None:
    check_readable(options.source, options.target, options.gold)
    output = options.output or options.model
    if not Path(output).is_dir():
        raise CommandError(f"{output} is no folder: name one for alignment.json with --output.")

    from hf_attncal.alignment import parse_alignments, select_attention
    from hf_attncal.data.text import read_lines, read_pairs

    from .generation import load_model

    try:
        text, gold = read_pairs(options.source, options.target), parse_alignments(read_lines(options.gold))
        if len(gold) != len(text[0]):
            raise CommandError(f"{options.gold} has {len(gold)} lines of links for {len(text[0])} sentence pairs.")
        model, tokenizer = load_model(options)
        sides = [[line.lower() if options.lowercase else line for line in side] for side in text]
        ranked = select_attention(model, tokenizer, *sides, gold, weights=options.weights)
    except ValueError as error:
        raise CommandError(str(error)) from error
    for settings, score in ranked[: options.top]:
        print(f"{100 * score.aer:5.1f}  {json.dumps(settings.to_dict())}")
    ranked[0][0].save(output)
