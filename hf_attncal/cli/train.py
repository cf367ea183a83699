"""`attncal train`: a translation model from parallel text."""

import argparse

from .training import CALIBRATIONS, add_output, add_running, add_text, run_training


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
    add_text(parser, "dev", "test")
    model = add_output(parser, "translation")
    model.add_argument(
        "--calibration",
        choices=CALIBRATIONS,
        help="of the cross-attention, by what the model really uses; without it gated, or what --config says",
    )
    model.add_argument("--leaky", action="store_true", help="attention may look at nothing")
    model.add_argument("--gumbel", action="store_true", help="attention chooses one token")
    model.add_argument(
        "--tokenizer", metavar="NAME", help="fast tokenizer of a folder or Hub name; without it, one is trained"
    )
    model.add_argument("--init-from", metavar="MODEL", help="model to go on from; without it, from nothing")
    add_running(parser)
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    from hf_attncal.training.translation import TranslationConfig, train_translation

    switches = {name: True for name in ("leaky", "gumbel") if getattr(options, name)}
    if options.calibration:
        switches["calibration"] = None if options.calibration == "none" else options.calibration
    results = run_training(options, train_translation, TranslationConfig, base={"model": switches})
    if results is not None:
        print(f"Translate with it: attncal translate {options.output or 'FOLDER'} < source.txt")
