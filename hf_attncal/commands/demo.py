"""`attncal demo`: the main job on a small scale."""

from pathlib import Path
from typing import TYPE_CHECKING

from hf_attncal.errors import at_least

from .kinds import NewFolder

if TYPE_CHECKING:
    from hf_attncal.report.demonstration import DemoResults

_DEMO = "a demonstration"  # mark of its model's folder


def demo(*, output: NewFolder = "demo", steps: int = 1000) -> "DemoResults":
    """Train a small calibrated model on synthetic English-German and look inside it.

    Train a small gated model on a synthetic English-German language, in a few minutes on two cores. Print BLEU before
    and after, and the alignment error of attention and of contributions. Write a heat map and a folder for the Hub,
    then load that folder in a process without this package and translate with it.

    Examples:
        attncal demo --output demo

    Args:
        output: folder for the heat map, the results and the model
        steps: optimiser steps

    Returns:
        What was measured, as in results.json.

    Raises:
        CommandError: the folder cannot be made, or `steps` is below 1.
    """
    at_least("--steps", steps, 1)
    from hf_attncal.files import write_json, writing
    from hf_attncal.gate import hold, mark
    from hf_attncal.layouts import RUN
    from hf_attncal.report.demonstration import run_demo

    with writing(output):
        model = Path(output) / "model"
        hold(model, _DEMO)
        write_json(mark(_DEMO), model / RUN)
        return run_demo(output, steps=steps)
