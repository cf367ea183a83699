"""`attncal adapt`: an adapter for a finished translation model."""

import argparse

from .training import CALIBRATIONS, add_output, add_running, add_text, run_training


def add_adapt(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `adapt`."""
    parser = commands.add_parser(
        "adapt",
        help="train an adapter that calibrates the attention of a finished model",
        description="Train an adapter that gives a finished translation model (Marian, BART, mBART, Pegasus, M2M100, "
        "NLLB) calibrated or leaky cross-attention; the model itself stays as it is. BLEU on dev and test text is "
        "measured with and without it. Without dev text, 500 pairs of the text are held out for it.",
        epilog="Several processes, and what to compare an adapter with: training/train_adapter.py.\n\nexamples:\n"
        "  attncal adapt model --source train.en --target train.de --output adapter\n"
        "  attncal adapt model --source train.en --target train.de --output adapter --calibration fixed",
    )
    parser.add_argument("base", metavar="BASE", help="the model to adapt: a folder, or owner/name on the Hub")
    add_text(parser, "dev", "test")
    model = add_output(parser, "adapter")
    model.add_argument(
        "--calibration",
        choices=CALIBRATIONS,
        help="of the cross-attention, by what the model really uses; without it gated, or what --config says",
    )
    model.add_argument("--leaky", action="store_true", help="attention may look at nothing")
    add_running(parser)
    parser.set_defaults(run=_run_adapt)


def _run_adapt(options: argparse.Namespace) -> None:
    from hf_attncal.training.adapter import AdapterConfig, train_adapter

    switches = {"leaky": True} if options.leaky else {}
    if options.calibration:
        switches["calibration"] = None if options.calibration == "none" else options.calibration
    base = {"model": {"checkpoint": options.base}, "adapter": switches}
    results = run_training(options, train_adapter, AdapterConfig, base=base)
    if results is not None:
        print(f"Translate with it: attncal translate {options.output or 'FOLDER'} < source.txt")
