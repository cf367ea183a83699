"""`attncal demo`: the main job on a small scale."""

import argparse

from hf_attncal.data.streams import check_folder

from .common import positive


def add_demo(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `demo`."""
    parser = commands.add_parser(
        "demo",
        help="train a small calibrated model on synthetic English-German and look inside it",
        description="Train a small gated model on a synthetic English-German language in a few minutes on two cores; "
        "print BLEU before and after and the alignment error of attention and of contributions; write a heat map and "
        "a folder for the Hub; load that folder in a process without this package and translate with it.",
        epilog="example:\n  attncal demo --output demo",
    )
    parser.add_argument("--output", default="demo", metavar="FOLDER", help="where the heat map and the model go")
    parser.add_argument("--steps", type=positive, default=1000, help="optimiser steps")
    parser.add_argument("--seed", type=int, default=1, help="seed of the model and of the order of the training data")
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> None:
    check_folder(options.output)

    from hf_attncal.files import writing
    from hf_attncal.report.demonstration import run_demo

    with writing(options.output):
        run_demo(options.output, steps=options.steps, seed=options.seed)
