"""`attncal demo`: a small tour of the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hf_attncal.io.errors import check_range

from .kinds import NewFolder

if TYPE_CHECKING:
    from hf_attncal.report.demonstration import DemoResults

_DEMO = "a demonstration"  # mark of the model's folder


def demo(*, output: NewFolder = "demo", steps: Annotated[int, "PYTHON_ONLY"] = 1000) -> "DemoResults":
    """Align and check four translations, then train a small calibrated model and inspect its attention.

    The German-English aligner of the package first aligns four translations, in seconds, and reports the omissions,
    additions and changes in three of them. Then a small gated model is trained on a synthetic English-German language,
    in a few minutes on two cores. The demo prints BLEU before and after, and the alignment error of attention and of
    contributions. It writes a heat map and a folder for the Hub, and translates with that folder in a process without
    this package.

    Examples:
        attncal demo --output demo

        >>> hf_attncal.demo(output="demo", steps=200)["bleu"]

    Args:
        output: folder for the pictures, the page of the check, the results and the model
        steps: number of optimiser steps

    Returns:
        The measurements, as in results.json.

    Raises:
        CommandError: the folder cannot be made, or `steps` is below 1.
    """
    check_range("--steps", steps, 1)
    from hf_attncal.io.extras import need
    from hf_attncal.io.files import write_json, writing
    from hf_attncal.io.gate import claim_folder, run_record
    from hf_attncal.layouts import RUN

    need("train")
    need("plot")
    with writing(output):
        model = Path(output) / "model"
        claim_folder(model, _DEMO)
        write_json(run_record(_DEMO), model / RUN)
        print("---- Align and check, with the aligner that comes with the package ----\n", flush=True)
        from hf_attncal.report.demo_page import show_ready

        show_ready(Path(output))
        print("\n---- Train a small calibrated model: two to three minutes on two cores ----\n", flush=True)
        from hf_attncal.report.demonstration import run_demo

        return run_demo(output, steps=steps)
