"""`attncal align train`: a word aligner from parallel text."""

from typing import TYPE_CHECKING, Any

from .kinds import Encoder, File, Files, ModelFolder, Setting

if TYPE_CHECKING:
    from hf_attncal.training.request import TrainingResult


def train_aligner(
    *settings: Setting,
    source: Files | None = None,
    target: Files | None = None,
    dev: Files | None = None,
    test: Files | None = None,
    links: File | None = None,
    output: ModelFolder | None = None,
    config: str | None = None,
    encoder: Encoder = None,
    minutes: float | None = None,
    dry_run: bool = False,
    resume: bool = False,
) -> "TrainingResult":
    """Train a word aligner from parallel text.

    Train a tokenizer unless one is given (`tokenizer.pretrained=NAME`) and a model (Mask-Align). From annotated dev
    text learn also which links to keep, and how probable each is. The folder is a checkpoint for `attncal align run`.
    Several processes: `accelerate launch` or `torchrun` with training/train.py.

    Raw text of any script is cut into words with `data.raw_text=true`, and then `attncal align run` cuts so, too.
    Words are looked up without regard to case, kinds of quotes and dashes, and width, but with `data.fold=false`.

    Examples:
        attncal align train --source train.en --target train.de --output aligner
        attncal align train --source train.en --target train.de --output aligner --config hmm
        attncal align train --source train.en --target train.de --output aligner --encoder auto
        attncal align train --source train.en --target train.de --output aligner --dev dev.en dev.de dev.align

        >>> hf_attncal.train_aligner(source="train.en", target="train.de", output="aligner").folder

    Args:
        settings: any other setting; configs/reference_aligner.yaml explains them
        source: source sentences, one a line; without it, those of the configuration
        target: target sentences, as many lines; without it, those of the configuration
        dev: SOURCE TARGET LINKS, with links in Pharaoh format (`p`, `?`: possible); without it, a rule chooses links
        test: the same for a last score; without it, there is none
        links: links of the training pairs in Pharaoh format, from any other aligner; without it, those of counts
        output: folder of the aligner and its checkpoints; without it, that of --config
        config: hmm (counts alone, minutes), small (a network), or a YAML file; without it, the size of the text
            decides
        encoder: a multilingual encoder that helps the counts: a folder or Hub name, or auto for
            intfloat/multilingual-e5-small; without it, none. What is trained works without it
        minutes: time budget, for fewer steps if need be; without it, no limit
        dry_run: say what would be trained, no more
        resume: go on from the last checkpoint in the folder; resume=changed: with other settings or data, too

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the settings.

    Raises:
        CommandError: files or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.alignment.aligner_opening import name_of_encoder
    from hf_attncal.training.request import TrainingRequest

    request = TrainingRequest(
        "train_aligner", settings, source, target, dev, test, links, output, config, minutes, default=None
    )
    use = "attncal align run {} --source source.txt --target target.txt"
    base = {} if encoder is None else {"counts": {"encoder": name_of_encoder(encoder)}}
    return request.run("aligner", _job, base, use=use, dry_run=dry_run, resume=resume, scores=_scores)


def _job() -> type:
    from hf_attncal.alignment.aligner_job import AlignerJob

    return AlignerJob


def _scores(results: dict[str, Any]) -> list[str]:
    lines = []
    for name in (split for split in ("dev", "test") if split in results):
        score = results[name]
        how = f" with {score['symmetrization']} above {score['threshold']}" if name == "dev" else ""
        lines.append(f"{name}: AER {100 * score['aer']:.1f}{how}  {score['signature']}")
    return lines
