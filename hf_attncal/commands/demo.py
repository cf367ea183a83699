"""`attncal demo`: what the package does, on a small scale."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hf_attncal.io.errors import at_least

from .kinds import NewFolder

if TYPE_CHECKING:
    from hf_attncal.report.demonstration import DemoResults

_DEMO = "a demonstration"  # mark of its model's folder


def demo(*, output: NewFolder = "demo", steps: Annotated[int, "PYTHON_ONLY"] = 1000) -> "DemoResults":
    """Align and check four translations at once, then train a small calibrated model and look inside it.

    First, in seconds, the German-English aligner that comes with the package aligns four translations, and says what
    three of them left out, made up or changed. Then a small gated model is trained on a synthetic English-German
    language, in a few minutes on two cores. Printed are BLEU before and after, and the alignment error of attention
    and of contributions. A heat map and a folder for the Hub are written, and that folder is loaded in a process
    without this package and translates.

    Examples:
        attncal demo --output demo

    Args:
        output: folder for the pictures, the page of the check, the results and the model
        steps: optimiser steps

    Returns:
        What was measured, as in results.json.

    Raises:
        CommandError: the folder cannot be made, or `steps` is below 1.
    """
    at_least("--steps", steps, 1)
    from hf_attncal.io.extras import need
    from hf_attncal.io.files import write_json, writing
    from hf_attncal.io.gate import hold, mark
    from hf_attncal.layouts import RUN

    need("train")
    need("plot")
    with writing(output):
        model = Path(output) / "model"
        hold(model, _DEMO)
        write_json(mark(_DEMO), model / RUN)
        print("---- Align and check, with the aligner that comes with the package ----\n", flush=True)
        from hf_attncal.report.demo_page import show_ready

        show_ready(Path(output))
        print("\n---- Train a small calibrated model: two to three minutes on two cores ----\n", flush=True)
        from hf_attncal.report.demonstration import run_demo

        return run_demo(output, steps=steps)
