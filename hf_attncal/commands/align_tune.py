"""`attncal align tune`: an encoder whose states align better, from parallel text."""

import argparse

from .common import TEXT_OPTIONS, add_text_options
from .training import add_links, add_output, add_running, add_text, check_options, run_training


def add_align_tune(actions: argparse._SubParsersAction) -> None:
    """Add the action `tune`."""
    parser = actions.add_parser(
        "tune",
        help="tune an encoder so that its states align words",
        description="Tune the states of an encoder (BERT, XLM-R, ...; the encoder of Marian, M2M100, NLLB, mBART, "
        "...) on parallel text: on the links of an aligner that counts, which is trained first, or on those that the "
        "states have themselves (self-training). The layer is that of alignment.json, or else the top one of an "
        "encoder-decoder's encoder, two thirds up of an encoder alone; the threshold is chosen in the end. The folder "
        "is a checkpoint of the same kind for `attncal align run`; a decoder in it has not learned along, and "
        "translates worse.",
        epilog="example:\n  attncal align tune MODEL --source train.en --target train.de --output tuned",
    )
    parser.add_argument("model", metavar="MODEL", help="folder or Hub name of an encoder or an encoder-decoder")
    text = add_text(parser, dev="the threshold is chosen by agreement", test="there is no last score")
    learned = parser.add_argument_group("what is learned")
    learned.add_argument(
        "--links", choices=("counts", "self"), help="whose links; without it, those of an aligner that counts"
    )
    add_links(text, learned, "--links")
    learned.add_argument(
        "--layer", type=int, help="which states; 0 is what enters the first layer; without it, see above"
    )
    add_text_options(parser.add_argument_group("what the model wants beside its text"))
    add_output(parser, "encoder")
    add_running(parser, "encoder")
    parser.set_defaults(run=_run_tune)


def _run_tune(options: argparse.Namespace) -> None:
    check_options(options)
    names = ("layer", *TEXT_OPTIONS)
    base = {
        "model": {"checkpoint": options.model},
        "states": {name: getattr(options, name) for name in names if getattr(options, name) is not None},
        "tuning": {} if options.links is None else {"links": options.links},
    }
    use = "attncal align run {} --source source.txt --target target.txt"
    results = run_training(options, "encoder", use=use, base=base)
    for when in ("before", "after") if results is not None else ():
        for split in ("dev", "test"):
            if split in results[when]:
                score, states = results[when][split], results[when]["states"]
                how = f"layer {states['layer']} above {states['threshold']}"
                print(f"{split}, {when}: AER {100 * score['aer']:.1f} with {how}  {score['signature']}")
