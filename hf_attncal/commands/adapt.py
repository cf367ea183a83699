"""`attncal adapt`: an adapter for a finished translation model."""

import os
from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.inference.running import TextLanguages
from hf_attncal.io.errors import CommandError

from .kinds import File, Files, Model, ModelFolder, Names, Preset, Setting

if TYPE_CHECKING:
    from hf_attncal.training.request import TrainingResult


def adapt(
    model: Model,
    /,
    *settings: Setting,
    calibration: Names | None = None,
    observe: bool = False,
    source: Files | None = None,
    target: Files | None = None,
    dev: Files | None = None,
    test: Files | None = None,
    links: File | None = None,
    output: ModelFolder | None = None,
    config: Preset | None = None,
    minutes: float | None = None,
    dry_run: bool = False,
    resume: bool = False,
    running: TextLanguages = TextLanguages(),
) -> "TrainingResult":
    """Train an adapter that calibrates the attention of a finished model.

    Add calibrated or leaky cross-attention to a translation model (Marian, BART, mBART, Pegasus, M2M100, NLLB), or
    teach one of its heads word links; the model itself stays unchanged. BLEU on dev and test text is measured with and
    without the adapter. For several processes, see training/train.py.

    The names of --calibration are joined by +, in any order: fixed, annealed or gated, or none; leaky (attention may
    go to no token); output_gate (scales what heads read); guided (one head learns word links: those of --links, or of
    a statistical aligner). Each name changes one setting only.

    Examples:
        attncal adapt model --source train.en --target train.de --output adapter
        attncal adapt model --source train.en --target train.de --output adapter --calibration fixed
        attncal adapt model --source train.en --target train.de --output adapter --calibration none+leaky
        attncal adapt model --source train.en --target train.de --output adapter --links train.align
        attncal adapt model --source train.en --target train.de --output observer --observe

        >>> hf_attncal.adapt("model", source="train.en", target="train.de", output="adapter").scores

    Args:
        model: folder or Hub name of the model to adapt
        settings: further settings as KEY=VALUE; configs/reference_adapter.yaml explains all
        calibration: names joined by +, such as gated+leaky [default: gated; for a guided adapter none]
        observe: train an observer: a head beside the attention that learns word links in seconds, and that the model
            does not use. The model writes the same to the bit; the links are better than a head of the model has
        source: source sentences, one per line [default: the text of --config]
        target: target sentences, one per line [default: the text of --config]
        dev: SOURCE TARGET, and for a guided adapter links in Pharaoh format [default: 500 pairs of the text]
        test: test set in the form of --dev, scored once at the end [default: none]
        links: links of the training pairs in Pharaoh format, for a guided adapter [default: from a statistical
            aligner]
        output: folder of the adapter and its checkpoints [default: the folder of --config]
        config: small, base or probe, or a YAML file of settings; other options override it [default: small]
        minutes: time budget in minutes, which may reduce the number of steps [default: no limit]
        dry_run: print the settings and train nothing
        resume: continue from the last checkpoint in the folder, with the same settings and data
        running: languages of the text, for a multilingual model

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the settings.

    Raises:
        CommandError: files, names or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.training.request import TrainingRequest, adapter_settings

    request = TrainingRequest("adapt", settings, source, target, dev, test, links, output, config, minutes)
    request.set_languages(running)
    base = {"model": {"checkpoint": os.fspath(model)}, "adapter": adapter_settings(calibration, request)}
    use = "attncal translate {} < source.txt"
    if observe:
        if calibration is not None:
            raise CommandError(
                "--observe and --calibration do not go together: an observer calibrates nothing. Leave one out."
            )
        used, training = {"output_dir", "seed", "use_cpu"}, request.overrides.get("training") or {}
        unused = [f"training.{key}" for key in training if key not in used]
        if minutes is not None or "minutes" in request.overrides:
            unused.append("--minutes")
        if unused:
            raise CommandError(
                f"{', '.join(unused)} cannot go with --observe: an observer learns a fixed number of steps without a "
                "Trainer. Leave it out."
            )
        base["adapter"] = {"observe": True, "guided": True, "leaky": True, "calibration": None}
        base["data"] = {"held_out_pairs": 0}
        use = "attncal translate {} source.txt --alignments links.align"
    return request.run("adapter", partial(_job, observe), base, use=use, dry_run=dry_run, resume=resume)


def _job(observe: bool) -> type:
    import hf_attncal.alignment.counting  # noqa: F401 - makes the links of a guided adapter
    from hf_attncal.training.adapter import AdapterJob, ObserverJob

    return ObserverJob if observe else AdapterJob
