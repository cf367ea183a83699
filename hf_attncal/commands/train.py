"""`attncal train`: a model that translates or summarises from pairs of text, or a language model from text."""

from functools import partial
from typing import TYPE_CHECKING

from hf_attncal.inference.running import Spoken

from .kinds import File, Files, ModelFolder, Setting

if TYPE_CHECKING:
    from hf_attncal.training.asked import Trained

_USES = {
    "translation": "attncal translate {} < source.txt",
    "summarization": "attncal summarize {} < texts.txt",
    "language": "the Python example in {}/README.md",
}


def train(
    *settings: Setting,
    model: str | None = None,
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
    """Train a model that translates or summarises, or a language model.

    Train a vocabulary and a model whose size and number of steps fit the text, and measure BLEU (of summaries ROUGE,
    of a language model perplexity) on dev and test text. The folder is a checkpoint for `attncal translate` or
    `attncal summarize`, with a card. Files may end in .gz, .xz or .zst. Several processes: `accelerate launch` or
    `torchrun` with training/train.py.

    The names of --model are joined by +, in any order. Which model: marian, bart, ssru (Marian with a recurrent
    decoder), luong (recurrent), or discrete_transformer, with one or two streams discrete-1 or discrete-2. How its
    cross-attention is calibrated: fixed, annealed, gated, or none. What else it can do: leaky (look at nothing),
    gumbel (choose one token), copy (words of the source), guided (one head learns word links, of --links or else of
    an aligner that counts). What it is for: translator, or summarizer, which truncates long sources.

    Examples:
        attncal train --source train.en --target train.de --output model --dry-run
        attncal train --source train.en --target train.de --output model --minutes 30
        attncal train --source train.en --target train.de --output model --model marian+gated+leaky
        attncal train --source train.en --target train.de --output model --links train.align
        attncal train --source texts.txt --target summaries.txt --output model --model summarizer+copy
        attncal train --source train.txt --output model --model discrete-2
        attncal train --source train.en --target train.de --output model training.seed=2 card.license=mit

    Args:
        settings: any other setting; configs/reference_translation.yaml, _summarization and _language explain them
        model: names joined by +, such as luong+copy; without it marian, for summaries luong, for one text discrete-1
        source: source sentences, one a line; without --target, the text of a language model
        target: target sentences, as many lines; without it, the text is that of a language model
        dev: SOURCE TARGET, and links in Pharaoh format of a guided model; without it, 500 pairs of the text
        test: the same for a last score; without it, there is none
        links: links of the training pairs in Pharaoh format, for a guided model; without it, those of counts
        output: folder of the model and its checkpoints; without it, that of --config
        config: small or base, or a YAML file of settings, before which all others go; without it, small
        minutes: time budget, for fewer steps if need be; without it, no limit
        dry_run: say what would be trained, no more
        resume: go on from the last checkpoint in the folder; resume=changed: with other settings or data, too
        running: the languages of the text, for a card and for a tokenizer of many

    Returns:
        The `folder`, and its `scores`, the content of results.json; of a dry run the settings.

    Raises:
        CommandError: files, names or settings that do not fit, or a folder with another run.
    """
    from hf_attncal.training.asked import Asked, model_chosen

    asked = Asked("train", settings, source, target, dev, test, links, output, config, minutes)
    asked.speak(running)
    job, base = model_chosen(model, asked)
    return asked.run(job, partial(_job, job), base, use=_USES[job], dry_run=dry_run, resume=resume)


def _job(name: str) -> type:
    """Import the class of a job, and what makes the links of a guided one."""
    if name == "language":
        from hf_attncal.training.language import LanguageJob

        return LanguageJob
    import hf_attncal.alignment.counting  # noqa: F401

    if name == "summarization":
        from hf_attncal.training.summarization import SummarizationJob

        return SummarizationJob
    from hf_attncal.training.seq2seq import TranslationJob

    return TranslationJob
