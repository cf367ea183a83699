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

    The first step is a statistical aligner, which counts the words that occur together; it takes minutes. If the text
    has 50,000 pairs or more, its links then guide the training of a network (Mask-Align), on a GPU if there is one.
    With --dev, the link threshold is chosen by AER, and the probability of a link is learned. `attncal align run`
    aligns with the folder. After `attncal check learn`, `attncal check` can use it as well.

    Words are separated by white space. `data.raw_text=true` is for text that is not tokenised: it is split into words,
    and so is the text of `attncal align run`. Case, width and the kinds of quotes and dashes are ignored unless
    `data.fold=false`. `tokenizer.pretrained=NAME` uses a tokenizer in place of a trained one. To use several
    processes, start training/train.py of the repository with `accelerate launch` or `torchrun`.

    Examples:
        attncal align train --source train.en --target train.de --output aligner
        attncal align train --source train.en --target train.de --output aligner --config hmm
        attncal align train --source train.en --target train.de --output aligner --encoder auto
        attncal align train --source train.en --target train.de --output aligner --dev dev.en dev.de dev.align

        >>> hf_attncal.train_aligner(source="train.en", target="train.de", output="aligner").folder

    Args:
        settings: further settings as KEY=VALUE, such as data.raw_text=true; configs/reference_aligner.yaml in the
            repository explains all
        source: source sentences, one per line [default: in --config]
        target: target sentences, one per line [default: in --config]
        dev: SOURCE TARGET LINKS: two texts and their annotated links in Pharaoh format, where `p` or `?` marks a
            possible link [default: none]
        test: test set in the form of --dev, scored once at the end [default: none]
        links: links of the training pairs in Pharaoh format, which the network learns from [default: links of the
            statistical aligner]
        output: folder of the aligner and its checkpoints [default: in --config]
        config: hmm (only the statistical aligner), small (also a network), or a YAML file [default: hmm below 50,000
            pairs, else small]
        encoder: multilingual encoder that helps the counts: folder or Hub name, or auto for
            intfloat/multilingual-e5-small; only used in training [default: none]
        minutes: time budget; fewer steps are done if needed [default: no limit]
        dry_run: print the plan and train nothing
        resume: continue from the last checkpoint in the folder, with the same settings and data

    Returns:
        The `folder`, and its `scores`, the content of results.json; for a dry run the settings.

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
        rule = f" with {score['symmetrization']} above {score['threshold']}" if name == "dev" else ""
        lines.append(f"{name}: AER {100 * score['aer']:.1f}{rule}  {score['signature']}")
    return lines
