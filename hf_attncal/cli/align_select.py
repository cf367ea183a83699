"""`attncal align select`: which attention of an encoder-decoder, or which states of an encoder, align best."""

import argparse
import json
import warnings
from dataclasses import replace

from .align_run import TEXT_OPTIONS, add_text_options
from .common import (
    CommandError,
    add_folder_beside,
    add_longest_line,
    add_model_options,
    add_pair_files,
    check_longest_lines,
    check_readable,
    choose_device,
    folder_beside,
    load_errors,
    positive,
    tell_model,
)

# By agreement: encoders that have learned nothing, or lines that do not belong together, stay below it.
_LEAST_AGREEMENT = 0.05


def add_select(actions: argparse._SubParsersAction) -> None:
    """Add the action `select`."""
    parser = actions.add_parser(
        "select",
        help="find the attention of an encoder-decoder, or the states of an encoder, that align best",
        description="Try every layer of a Marian- or BART-style checkpoint, with all heads, single heads and sets of "
        "heads, by the step that predicts a token (Naive-Att) and by the one that reads it (Shift-Att), and the "
        "states of every layer of its encoder with several thresholds, on annotated pairs; print the best with their "
        "AER and write the first to alignment.json, which `attncal align run` reads. Of an encoder alone (BERT, "
        "XLM-R, ...) the states are tried. Without --gold, states are chosen on raw pairs: those are best on which "
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
    folder = folder_beside(options, "alignment.json")

    from hf_attncal.alignment import (
        WordAligner,
        select_attention,
        select_states,
        select_states_by_agreement,
    )
    from hf_attncal.alignment.encoder import STATES, EncoderStates, changed
    from hf_attncal.alignment.gold import Gold, gold_links, tune_threshold
    from hf_attncal.files import read_pairs

    try:
        text = read_pairs(options.source, options.target)
        check_longest_lines(options, *text)
        gold = None if options.gold is None else gold_links(options.gold, list(zip(*text, strict=True)))
        model, tokenizer = _load(options)
        if gold is None and model.config.is_encoder_decoder and options.weights != STATES:
            raise CommandError(
                "Attention is chosen on annotated pairs: give them with --gold, or --weights states, which raw pairs "
                "will do for."
            )
        sides = [[line.lower() if options.lowercase else line for line in side] for side in text]
        ranked = []
        if options.weights not in (None, STATES) or (options.weights is None and model.config.is_encoder_decoder):
            if not model.config.is_encoder_decoder:
                raise CommandError(f"{options.model} is an encoder: it has states, and no {options.weights}.")
            prefix = {} if options.source_prefix is None else {"source_prefix": options.source_prefix}
            ranked += select_attention(
                model, tokenizer, *sides, gold, weights=options.weights or "attention", **prefix
            )
        if options.weights in (None, STATES):
            given = {name: getattr(options, name) for name in TEXT_OPTIONS if getattr(options, name) is not None}
            try:
                settings = changed(EncoderStates.default_of(model), given)
                select = select_states_by_agreement if gold is None else select_states
                ranked += select(model, tokenizer, *sides, *([] if gold is None else [gold]), settings)
            except ValueError as error:
                if not ranked:
                    raise
                warnings.warn(f"states are not tried: {error}", stacklevel=2)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if gold is not None:
        ranked.sort(key=lambda entry: entry[1].aer)  # attention first among equals
        best = ranked[0][0]
        if best.threshold is None:
            annotated = Gold(list(zip(*sides, strict=True)), gold)
            threshold, score = tune_threshold(WordAligner(model, tokenizer, best), annotated)
            if threshold is not None:
                ranked.insert(0, (replace(best, threshold=threshold), score))
    elif ranked[0][1] < _LEAST_AGREEMENT:
        warnings.warn(
            f"the two directions agree on {100 * ranked[0][1]:.1f} % of the words beyond chance, which is next to "
            "nothing: links will be bad. Either these states do not align (an encoder of one language; `attncal align "
            "tune` teaches it), or the lines do not belong together.",
            stacklevel=2,
        )
    for settings, score in ranked[: options.top]:
        print(f"{100 * (score if gold is None else score.aer):5.1f}  {json.dumps(settings.to_dict())}")
    ranked[0][0].save(folder)


def _load(options: argparse.Namespace):
    """Model and tokenizer of an encoder, or of an encoder-decoder.

    Raises:
        CommandError: there is no such checkpoint, it is of another kind, or the device cannot be used.
    """
    from .generation import load_model

    name = options.model
    with load_errors(name):
        from hf_attncal.alignment.aligner import source_of
        from hf_attncal.alignment.encoder import EncoderSource
        from hf_attncal.inference.loading import load_config

        more = {"trust_remote_code": options.trust_remote_code}
        source = source_of(load_config(name, **more), name)
        encoder = None
        if source is EncoderSource:
            encoder, tokenizer, _ = source.load(name, dtype=options.dtype, **more)
    if encoder is None:
        return load_model(options)
    tell_model(name, encoder)
    return encoder.to(choose_device(options)).eval(), tokenizer
