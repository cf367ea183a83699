"""`attncal train`: train a translation model, a summariser or a language model from text."""

from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.inference.running import TextLanguages

from .kinds import File, Files, ModelFolder, Names, Preset, Setting

if TYPE_CHECKING:
    from hf_attncal.training.request import TrainingResult

_USES = {
    "translation": "attncal translate {} < source.txt",
    "summarization": "attncal summarize {} < texts.txt",
    "language": "the Python example in {}/README.md",
}


def train(
    *settings: Setting,
    model: Names | None = None,
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
    """Train a translation model, a summariser or a language model.

    Train a vocabulary and a model whose size and number of steps fit the text, and measure BLEU (of summaries ROUGE,
    of a language model perplexity) on dev and test text. The folder is a checkpoint for `attncal translate` or
    `attncal summarize`, with a card. Files may end with .gz. For several processes, use `accelerate
    launch` or `torchrun` with training/train.py.

    The names of --model are joined by +, in any order. Backbone: marian, bart, ssru (Marian with a recurrent decoder),
    luong (recurrent), or discrete_transformer, with one or two streams discrete-1 or discrete-2. Calibration of its
    cross-attention: fixed, annealed, gated, or none. Extensions: leaky (attention may go to no token), gumbel (a
    single source token per step), output_gate (scales what heads read), copy (copies source words), guided (one head
    learns word links: those of --links, or of a statistical aligner). Task: translator, or summarizer, which truncates
    long sources.

    Examples:
        attncal train --source train.en --target train.de --output model --dry-run
        attncal train --source train.en --target train.de --output model --minutes 30
        attncal train --source train.en --target train.de --output model --model marian+gated+leaky
        attncal train --source train.en --target train.de --output model --links train.align
        attncal train --source texts.txt --target summaries.txt --output model --model summarizer+copy
        attncal train --source train.txt --output model --model discrete-2
        attncal train --source train.en --target train.de --output model training.seed=2 card.license=mit

        >>> hf_attncal.train(source="train.en", target="train.de", output="model", model="gated", minutes=30).scores

    Args:
        settings: further settings as KEY=VALUE; configs/reference_translation.yaml, _summarization and _language
            explain all
        model: names joined by +, such as luong+copy [default: marian; for summaries luong, for one text discrete-1]
        source: source sentences, one per line; without --target, the text of a language model [default: the text of
            --config]
        target: target sentences, one per line [default: the text of --config, or none for a language model]
        dev: SOURCE TARGET, and for a guided model links in Pharaoh format [default: 500 pairs of the text]
        test: test set in the form of --dev, scored once at the end [default: none]
        links: links of the training pairs in Pharaoh format, for a guided model [default: from a statistical
            aligner]
        output: folder of the model and its checkpoints [default: the folder of --config]
        config: small or base, or a YAML file of settings; other options override it [default: small]
        minutes: time budget in minutes, which may reduce the number of steps [default: no limit]
        dry_run: print the settings and train nothing
        resume: continue from the last checkpoint in the folder, with the same settings and data
        running: languages of the text, for the card and for a multilingual tokenizer

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the settings.

    Raises:
        CommandError: files, names or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.training.request import TrainingRequest, model_settings

    request = TrainingRequest("train", settings, source, target, dev, test, links, output, config, minutes)
    request.set_languages(running)
    job, base = model_settings(model, request)
    return request.run(job, partial(_job, job), base, use=_USES[job], dry_run=dry_run, resume=resume)


def _job(name: str) -> type:
    """Import the class of a job, and the aligner that makes the links of a guided model."""
    if name == "language":
        from hf_attncal.training.language import LanguageJob

        return LanguageJob
    import hf_attncal.alignment.counting  # noqa: F401

    if name == "summarization":
        from hf_attncal.training.summarization import SummarizationJob

        return SummarizationJob
    from hf_attncal.training.translation import TranslationJob

    return TranslationJob
