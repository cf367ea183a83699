"""`attncal adapt`: an adapter for a finished translation model."""

import os
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Spoken

from .kinds import File, Files, Model, ModelFolder, Setting

if TYPE_CHECKING:
    from hf_attncal.training.asked import Trained


def adapt(
    model: Model,
    /,
    *settings: Setting,
    calibration: str | None = None,
    source: Files | None = None,
    target: Files | None = None,
    dev: Files | None = None,
    test: Files | None = None,
    links: File | None = None,
    output: ModelFolder | None = None,
    config: str | None = None,
    minutes: float | None = None,
    dry_run: bool = False,
    resume: bool = False,
    running: Spoken = Spoken(),
) -> "Trained":
    """Train an adapter that calibrates the attention of a finished model.

    Give a finished translation model (Marian, BART, mBART, Pegasus, M2M100, NLLB) calibrated or leaky cross-attention,
    or teach one of its heads word links; the model itself stays as it is. BLEU on dev and test text is measured with
    and without the adapter. Several processes, and what to compare an adapter with: training/train.py.

    The names of --calibration are joined by +, in any order: fixed, annealed or gated, or none of them; leaky (look at
    nothing); guided (one head learns word links, of --links or else of an aligner that counts). Each sets one thing,
    and leaves the rest as it is without it.

    Examples:
        attncal adapt model --source train.en --target train.de --output adapter
        attncal adapt model --source train.en --target train.de --output adapter --calibration fixed
        attncal adapt model --source train.en --target train.de --output adapter --calibration none+leaky
        attncal adapt model --source train.en --target train.de --output adapter --links train.align

    Args:
        model: the model to adapt
        settings: any other setting; configs/reference_adapter.yaml explains them
        calibration: names joined by +, such as gated+leaky; without it gated, of a guided adapter none
        source: source sentences, one a line; without it, those of the configuration
        target: target sentences, as many lines; without it, those of the configuration
        dev: SOURCE TARGET, and links in Pharaoh format of a guided adapter; without it, 500 pairs of the text
        test: the same for a last score; without it, there is none
        links: links of the training pairs in Pharaoh format, for a guided adapter; without it, those of counts
        output: folder of the adapter and its checkpoints; without it, that of --config
        config: small, base or probe, or a YAML file of settings, before which all others go; without it, small
        minutes: time budget, for fewer steps if need be; without it, no limit
        dry_run: say what would be trained, no more
        resume: go on from the last checkpoint in the folder; resume=changed: with other settings or data, too
        running: the languages of the text, for a model of many

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the settings.

    Raises:
        CommandError: files, names or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.training.asked import Asked, adapter_chosen

    asked = Asked("adapt", settings, source, target, dev, test, links, output, config, minutes)
    asked.speak(running)
    base = {"model": {"checkpoint": os.fspath(model)}, "adapter": adapter_chosen(calibration, asked)}
    return asked.run("adapter", _job, base, use="attncal translate {} < source.txt", dry_run=dry_run, resume=resume)


def _job() -> type:
    import hf_attncal.alignment.counting  # noqa: F401 - makes the links of a guided adapter
    from hf_attncal.training.adapter import AdapterJob

    return AdapterJob
