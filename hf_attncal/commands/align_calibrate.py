"""`attncal align calibrate`: scores of links become probabilities that the links are right."""

import argparse

from hf_attncal.alignment.opening import open_aligner
from hf_attncal.commands.common import running_of
from hf_attncal.data.streams import check_readable
from hf_attncal.errors import user_errors

from .common import (
    add_folder_beside,
    add_longest_line,
    add_model_options,
    add_pair_files,
    at_least,
    check_longest_lines,
    folder_beside,
    not_negative,
)
from .scoring import table


def add_calibrate(actions: argparse._SubParsersAction) -> None:
    """Add the action `calibrate`."""
    parser = actions.add_parser(
        "calibrate",
        help="make scores of links the probabilities that they are right",
        description="Learn from annotated pairs how likely a link is to be right, by its score (Platt scaling), and "
        "write it to link_probabilities.json, which `attncal align run` and `WordAligner` read: from then on scores "
        "are probabilities. Links stay the same. A link is right if it is a sure or a possible one. Printed is how "
        "far scores and probabilities are from what is right, the latter cross-validated; with a reliability diagram "
        "it goes into the model card, too.",
        epilog="example:\n  attncal align calibrate MODEL --source dev.en --target dev.de --gold dev.align",
    )
    running = add_model_options(parser, "folder or Hub name of a word aligner, an encoder-decoder or an adapter")
    add_longest_line(running)
    add_pair_files(parser)
    parser.add_argument(
        "--gold",
        required=True,
        metavar="FILE",
        help="their links in Pharaoh format, counted from 0, `p` or `?`: possible",
    )
    add_folder_beside(parser, "link_probabilities.json")
    parser.add_argument("--bins", type=at_least(1, 1000), default=10, help="bins of the calibration error")
    parser.add_argument(
        "--bootstrap",
        type=not_negative,
        default=1000,
        help="resamples of the sentence pairs for 95 %% intervals; 0 for none",
    )
    parser.set_defaults(run=_run_calibrate)


def _run_calibrate(options: argparse.Namespace) -> None:
    check_readable(options.source, options.target, options.gold)
    folder = folder_beside(options, "link_probabilities.json")
    aligner = open_aligner(options.model, running_of(options), raw_scores=True)

    from hf_attncal.alignment import Gold, calibrate

    with user_errors():
        gold = Gold.read(options.source, options.target, options.gold)
        check_longest_lines(options, *zip(*gold.pairs, strict=True))
        calibration = calibrate(aligner, gold, options.bins, options.bootstrap)
    print("\n".join(_table(calibration)))
    print(f"\nwrote {calibration.save(folder)}")


def _like(unknown: float | None) -> list[str]:
    """Return the line that says which text they hold for, if the model counts."""
    if unknown is None:
        return []
    return [
        f"They hold for pairs in which up to {unknown:.0%} of the tokens are new to the aligner; with more of them, a "
        "probability is at most the score."
    ]


def _table(calibration) -> list[str]:
    """Return the lines of a table of both scores, and what they were measured on."""
    after = calibration.after
    scores = {"scores of the model": calibration.before, "probabilities": after}

    def percent(value: float, interval: tuple[float, float] | None) -> str:
        ends = "" if interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in interval))
        return f"{100 * value:.1f}{ends}"

    columns = {
        "": list(scores),
        "mean": [f"{score.mean:.3f}" for score in scores.values()],
        "ECE": [percent(score.ece, score.interval) for score in scores.values()],
        "equal width": [percent(score.ece_equal_width, None) for score in scores.values()],
        "Brier": [f"{score.brier:.4f}" for score in scores.values()],
    }
    return [
        *table(columns),
        "",
        f"Measured on {calibration.measured_on}: {after.count} links, {100 * after.right:.1f} % right.",
        *_like(calibration.probabilities.unknown),
        "ECE: expected calibration error in per cent" + (", 95 % intervals over pairs." if after.interval else "."),
        after.signature,
    ]
