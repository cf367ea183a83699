"""`attncal adapt`: an adapter for a finished translation model."""

import argparse

from .training import (
    add_guide,
    add_output,
    add_running,
    add_switches,
    add_text,
    check_options,
    run_training,
    switches_of,
)


def add_adapt(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `adapt`."""
    parser = commands.add_parser(
        "adapt",
        help="train an adapter that calibrates the attention of a finished model",
        description="Train an adapter that gives a finished translation model (Marian, BART, mBART, Pegasus, M2M100, "
        "NLLB) calibrated or leaky cross-attention, or teaches one head word links; the model itself stays as it is. "
        "BLEU on dev and test text is measured with and without it. Without dev text, 500 pairs of the text are held "
        "out for it.",
        epilog="Several processes, and what to compare an adapter with: training/train.py.\n\nexamples:\n"
        "  attncal adapt model --source train.en --target train.de --output adapter\n"
        "  attncal adapt model --source train.en --target train.de --output adapter --calibration fixed\n"
        "  attncal adapt model --source train.en --target train.de --output adapter --guided",
    )
    parser.add_argument("base", metavar="MODEL", help="the model to adapt: a folder, or owner/name on the Hub")
    text = add_text(parser, dev="500 pairs of the text", test="there is no last score")
    model = add_output(parser, "adapter")
    add_switches(model, "gated (with --guided, none)")
    add_guide(text, model)
    add_running(parser, "adapter")
    parser.set_defaults(run=_run_adapt)


def _run_adapt(options: argparse.Namespace) -> None:
    check_options(options, optional=("gold",))
    base = {"model": {"checkpoint": options.base}, "adapter": switches_of(options)}
    run_training(options, "adapter", use="attncal translate {} < source.txt", base=base)
