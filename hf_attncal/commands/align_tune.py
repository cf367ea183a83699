"""`attncal align tune`: an encoder whose states align better, from parallel text."""

import os
from typing import TYPE_CHECKING, Any

from .kinds import File, Files, Model, ModelFolder, Setting

if TYPE_CHECKING:
    from hf_attncal.training.asked import Trained


def tune_encoder(
    model: Model,
    /,
    *settings: Setting,
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
) -> "Trained":
    """Tune an encoder so that its states align words.

    Tune the states of an encoder (BERT, XLM-R, ...; the encoder of Marian, M2M100, NLLB, mBART, ...) on parallel text.
    The folder is a checkpoint of the same kind for `attncal align run`; a decoder in it has not learned along, and
    translates worse.

    The layer is that of alignment.json, or else the top one of an encoder-decoder's encoder, two thirds up of an
    encoder alone; `states.layer=8` names another. Where the tokenizer wants to know the languages (M2M100, NLLB,
    mBART): `states.source_language=en_XX states.target_language=de_DE`. The threshold is chosen in the end.

    Examples:
        attncal align tune MODEL --source train.en --target train.de --output tuned
        attncal align tune MODEL --source train.en --target train.de --output tuned --links self states.layer=8

    Args:
        model: an encoder or an encoder-decoder
        settings: any other setting; configs/reference_encoder.yaml explains them
        source: source sentences, one a line; without it, those of the configuration
        target: target sentences, as many lines; without it, those of the configuration
        dev: SOURCE TARGET LINKS, with links in Pharaoh format; without it, the threshold is chosen by agreement
        test: the same for a last score; without it, there is none
        links: counts (of an aligner that counts), self (those of the states), or a file of links; without it, counts
        output: folder of the encoder and its checkpoints; without it, that of --config
        config: small, or a YAML file of settings, before which all others go; without it, small
        minutes: time budget, for fewer steps if need be; without it, no limit
        dry_run: say what would be trained and how long, no more
        resume: go on from the last checkpoint in the folder; resume=changed: with other settings or data, too

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the plan.

    Raises:
        CommandError: files or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.training.asked import Asked

    whose, links = ({"links": links}, None) if links in ("counts", "self") else ({}, links)
    asked = Asked("tune_encoder", settings, source, target, dev, test, links, output, config, minutes)
    base = {"model": {"checkpoint": os.fspath(model)}, "tuning": whose}
    use = "attncal align run {} --source source.txt --target target.txt"
    return asked.run("encoder", base, use=use, dry_run=dry_run, resume=resume, scores=_scores)


def _scores(results: dict[str, Any]) -> list[str]:
    lines = []
    for when in ("before", "after"):
        for split in (name for name in ("dev", "test") if name in results[when]):
            score, states = results[when][split], results[when]["states"]
            how = f"layer {states['layer']} above {states['threshold']}"
            lines.append(f"{split}, {when}: AER {100 * score['aer']:.1f} with {how}  {score['signature']}")
    return lines
