"""`attncal train`: a translation model from parallel text."""

import argparse

from .training import (
    add_output,
    add_running,
    add_start,
    add_switches,
    add_text,
    check_options,
    run_training,
    switches_of,
)


def add_train(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `train`."""
    parser = commands.add_parser(
        "train",
        help="train a translation model from parallel text",
        description="Train a translation model (Marian) from parallel text: a vocabulary, a model whose size and "
        "number of steps fit the text, and BLEU on dev and test text. Without dev text, 500 pairs of the text are "
        "held out for it. The folder is a checkpoint for `attncal translate`.",
        epilog="Several processes: `accelerate launch` or `torchrun` with training/train_translation.py.\n\n"
        "examples:\n"
        "  attncal train --source train.en --target train.de --output model --dry-run\n"
        "  attncal train --source train.en --target train.de --output model --minutes 30",
    )
    add_text(parser, dev="500 pairs of the text", test="there is no last score")
    model = add_output(parser, "translation")
    add_switches(model, "none", ("gumbel", "attention chooses one token"))
    add_start(model, "model")
    add_running(parser, "translation")
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    check_options(options)

    from hf_attncal.training.translation import TranslationConfig, train_translation

    base = {"model": switches_of(options)}
    run_training(options, train_translation, TranslationConfig, use="attncal translate {} < source.txt", base=base)
