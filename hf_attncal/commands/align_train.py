"""`attncal align train`: a word aligner from parallel text."""

import argparse

from .training import add_links, add_output, add_running, add_start, add_text, check_options, run_training


def add_align_train(actions: argparse._SubParsersAction) -> None:
    """Add the action `train`."""
    parser = actions.add_parser(
        "train",
        help="train a word aligner from parallel text",
        description="Train a word aligner (Mask-Align) from parallel text: a tokenizer unless one is given, a model, "
        "and, with annotated dev links, the symmetrisation, the threshold, and what makes scores of links the "
        "probabilities that they are right. The folder is a checkpoint for `attncal align run`.",
        epilog="Presets: hmm, counts alone, in minutes; small, a network guided by them, on a CPU; base, the same for "
        "a GPU. Several processes: `accelerate launch` or `torchrun` with training/train.py.\n\nexamples:\n"
        "  attncal align train --source train.en --target train.de --output aligner\n"
        "  attncal align train --source train.en --target train.de --output aligner --preset hmm",
    )
    text = add_text(parser, dev="the default rule makes the links", test="there is no last score")
    text.add_argument(
        "--tokenize",
        action="store_true",
        default=None,
        help="the text is raw, of any script: cut it into words by Unicode's word boundaries; `attncal align run` "
        "then does so, too. Gold links are of the words that white space parts",
    )
    text.add_argument(
        "--fold",
        action=argparse.BooleanOptionalAction,
        help="look words up without regard to case, kinds of quotes and dashes, width, and white space inside a word; "
        "`attncal align run` then does so, too. Without it, unless --tokenizer or --init-from is given",
    )
    add_links(text, text, "those of counts")
    add_start(add_output(parser, "aligner"), "trained aligner")
    add_running(parser, "aligner")
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    check_options(options)
    use = "attncal align run {} --source source.txt --target target.txt"
    results = run_training(options, "aligner", use=use)
    for name in ("dev", "test") if results is not None else ():
        if name in results:
            found = results[name]
            how = f" with {found['symmetrization']} above {found['threshold']}" if name == "dev" else ""
            print(f"{name}: AER {100 * found['aer']:.1f}{how}  {found['signature']}")
