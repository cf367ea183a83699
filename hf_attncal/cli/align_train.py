"""`attncal align train`: a word aligner from parallel text."""

import argparse

from .common import CommandError, check_folder, check_readable, positive
from .messages import job_progress


def add_train(actions: argparse._SubParsersAction) -> None:
    """Add the action `train`."""
    parser = actions.add_parser(
        "train",
        help="train a word aligner from parallel text",
        description="Train a word aligner (Mask-Align) from parallel text: a tokenizer unless one is given, a model, "
        "and, with annotated dev links, the symmetrisation and the threshold. The folder is a checkpoint for "
        "`attncal align run`.",
        epilog="Several processes: `accelerate launch` or `torchrun` with training/train_aligner.py, which takes a "
        "configuration file with every setting.\n\nexamples:\n"
        "  attncal align train --source train.en --target train.de --output aligner\n"
        "  attncal align train --source train.en --target train.de --output aligner --size hmm",
    )
    text = parser.add_argument_group("text")
    text.add_argument("--source", required=True, nargs="+", metavar="FILE", help="source sentences; .gz and .xz too")
    text.add_argument("--target", required=True, nargs="+", metavar="FILE", help="target sentences, as many lines")
    text.add_argument(
        "--guide",
        metavar="FILE",
        help="links of these pairs in Pharaoh format, from any other aligner; without it, those of counts",
    )
    text.add_argument("--lowercase", action="store_true", help="lower-case the text, and what is aligned later")
    dev = parser.add_argument_group(
        "annotated pairs to choose the threshold with, all three; without them, the defaults"
    )
    dev.add_argument("--dev-source", metavar="FILE", help="source sentences")
    dev.add_argument("--dev-target", metavar="FILE", help="target sentences, as many lines")
    dev.add_argument(
        "--dev-gold", metavar="FILE", help="links in Pharaoh format, counted from 0; `p` or `?`: possible"
    )
    model = parser.add_argument_group("model")
    model.add_argument("--output", required=True, metavar="FOLDER", help="where the model and its checkpoints go")
    model.add_argument(
        "--size",
        choices=("hmm", "small", "base"),
        default="small",
        help="hmm: counts alone, in minutes; small: a network guided by them, on a CPU; base: one for a GPU",
    )
    model.add_argument(
        "--tokenizer", metavar="NAME", help="fast tokenizer of a folder or Hub name; without it, one is trained"
    )
    model.add_argument("--init-from", metavar="MODEL", help="trained aligner to go on from; without it, from nothing")
    running = parser.add_argument_group("running")
    length = running.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=float, help="passes over the text; without it, what the size is made for")
    length.add_argument("--steps", type=positive, help="optimiser steps; without it, --epochs")
    running.add_argument("--seed", type=int, default=1, help="of the model and of the order of the text")
    running.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    running.add_argument("--allow-changes", action="store_true", help="--resume with other settings or data")
    running.add_argument(
        "settings", nargs="*", metavar="section.key=value", help="any other setting of configs/reference_aligner.yaml"
    )
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    dev = (options.dev_source, options.dev_target, options.dev_gold)
    if any(dev) and not all(dev):
        raise CommandError("--dev-source, --dev-target and --dev-gold belong together: give all three or none.")
    check_readable(*options.source, *options.target, options.guide, *dev)
    check_folder(options.output)

    from hf_attncal.training.settings import apply_overrides
    from hf_attncal.training.word_alignment import AlignerConfig, train_aligner

    train = {"source": options.source, "target": options.target}
    values = {
        "data": {"lowercase": options.lowercase, "train": train | ({"guide": options.guide} if options.guide else {})},
        "model": {"size": options.size},
        "training": {"output_dir": options.output, "seed": options.seed},
    }
    if all(dev):
        values["data"]["dev"] = dict(zip(("source", "target", "gold"), dev, strict=True))
    if options.tokenizer:
        values["tokenizer"] = {"pretrained": options.tokenizer}
    if options.init_from:
        values["model"]["init_from"] = options.init_from
    if options.epochs is not None:
        values["training"]["num_train_epochs"] = options.epochs
    if options.steps is not None:
        values["training"]["max_steps"] = options.steps
    try:
        config = AlignerConfig.make(apply_overrides(values, options.settings))
        with job_progress():
            results = train_aligner(config, resume=options.resume, allow_changes=options.allow_changes)
    except ValueError as error:
        raise CommandError(str(error)) from error
    print(f"{options.output}: {results['steps']} steps in {results['wall_seconds'] / 60:.1f} minutes")
    if "dev" in results:
        found = results["dev"]
        how = f"{found['symmetrization']} above {found['threshold']}"
        print(f"dev: AER {100 * found['aer']:.1f} with {how}  {found['signature']}")
