"""`attncal train`: a model that translates or summarises from pairs of text, or a language model from text."""

import argparse
from typing import Any

from .common import CommandError
from .training import (
    add_guide,
    add_output,
    add_running,
    add_start,
    add_switches,
    add_text,
    check_options,
    run_training,
    switches_of,
)

_SLOTS = 50  # for words of a source that are not in the vocabulary
_JOBS = ("translation", "summarization", "language")
# What the settings of a summarisation have, by section, and those of a translation do not.
OF_SUMMARIES = {"data": {"max_source_length"}, "evaluation": {"rouge_tokenize", "rouge_stemmer"}}


def add_train(commands: argparse._SubParsersAction) -> None:
    """Add the sub-command `train`."""
    from hf_attncal.families import default_of, translators

    translates, summarises = default_of(_JOBS[0]).name, default_of(_JOBS[1]).name
    parser = commands.add_parser(
        "train",
        help="train a model that translates or summarises, or a language model",
        description="Train a translation model (Marian) from parallel text: a vocabulary, a model whose size and "
        "number of steps fit the text, and BLEU on dev and test text. Without dev text, 500 pairs of the text are "
        "held out for it. The folder is a checkpoint for `attncal translate`. With --task summarization, train a "
        "recurrent model that writes summaries or headlines, with ROUGE. From --text, train a language model: a "
        "Discrete Transformer, whose every attention chooses one position, with perplexity.",
        epilog="Several processes: `accelerate launch` or `torchrun` with training/train_translation.py, "
        "train_summarization.py or train_language.py.\n\n"
        "examples:\n"
        "  attncal train --source train.en --target train.de --output model --dry-run\n"
        "  attncal train --source train.en --target train.de --output model --minutes 30\n"
        f"  attncal train --source train.en --target train.de --output model --backbone {summarises}\n"
        "  attncal train --source train.en --target train.de --output model --guided\n"
        "  attncal train --task summarization --source texts.txt --target summaries.txt --output model --copy\n"
        "  attncal train --text train.txt --output model\n"
        "  attncal train --text train.txt --output model tokenizer.kind=words data.end_of_sequence=false",
    )
    text = add_text(parser, dev="500 pairs of the text", test="there is no last score")
    text.add_argument(
        "--task",
        choices=_JOBS[:2],
        help="what target is to source: a translation, or a summary, for which long sources are truncated; without "
        "it what --config is for, or a translation",
    )
    language = parser.add_argument_group("text of a language model (without it, source and target)")
    language.add_argument("--text", nargs="+", metavar="FILE", help="sequences, one in a line; .gz, .xz and .zst too")
    language.add_argument("--dev-text", metavar="FILE", help="dev text; without it, 500 lines of the text")
    language.add_argument("--test-text", metavar="FILE", help="test text; without it, there is no last score")
    model = add_output(parser, *_JOBS)
    add_switches(model, "none", ("gumbel", "attention chooses one token"))
    model.add_argument(
        "--streams",
        type=int,
        choices=(1, 2),
        help="of a Discrete Transformer: one, or a syntactic and a semantic one; without it Marian to translate, 1 in "
        "a language model, or what --config says",
    )
    model.add_argument(
        "--copy",
        action="store_true",
        help="words may be copied from the source: the vocabulary that is trained is one of whole words, and each "
        f"source has {_SLOTS} slots for others (`model.max_copied_tokens`). With --tokenizer, --init-from or "
        "`tokenizer.kind=bpe` tokens are copied, without slots unless they are set",
    )
    model.add_argument(
        "--backbone",
        choices=tuple(translators()),
        help="what translates or summarises: a Transformer, or a recurrent model "
        f"({summarises}); without it {translates} to translate, {summarises} to summarise, or what --config says",
    )
    add_guide(text, model)
    add_start(model, "model")
    add_running(parser, *_JOBS)
    parser.set_defaults(run=_run_train)


def _run_train(options: argparse.Namespace) -> None:
    check_options(options, optional=("gold",))
    if _is_language(options):
        _train_language(options)
    else:
        _train_pairs(options)


def _is_language(options: argparse.Namespace) -> bool:
    """Whether the text that was given, or else that of --config, is that of a language model.

    Raises:
        CommandError: text of both kinds.
    """
    texts = {"--text": options.text, "--dev-text": options.dev_text, "--test-text": options.test_text}
    pairs = {"--source": options.source, "--dev-source": options.dev_source, "--test-source": options.test_source}
    plain, parallel = (next((name for name, given in found.items() if given), None) for found in (texts, pairs))
    if plain and parallel:
        raise CommandError(f"{plain} is for a language model, {parallel} for a model of pairs: give one of them.")
    if plain or parallel or not options.config:
        return plain is not None
    train = _section(_section(_stated(options), "data"), "train")
    return not {"text", "text_field"}.isdisjoint(train)


def _stated(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of --config, if there is one, and those that stand behind it on the command line.

    Raises:
        CommandError: they cannot be read.
    """
    from hf_attncal.training.settings import apply_overrides, read_settings

    try:
        return apply_overrides(read_settings(options.config) if options.config else {}, options.settings)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _section(values: dict[str, Any], name: str) -> dict[str, Any]:
    """A section of settings that are not checked yet; empty where it is none."""
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _is_summarization(options: argparse.Namespace) -> bool:
    """Whether --task says so, or without it the file of --config, by a key that no translation has.

    Raises:
        CommandError: the file cannot be read.
    """
    if options.task or not options.config:
        return options.task == "summarization"
    stated = _stated(options)
    return any(not keys.isdisjoint(_section(stated, name)) for name, keys in OF_SUMMARIES.items())


def _train_language(options: argparse.Namespace) -> None:
    for name in ("task", "backbone", "copy"):
        if getattr(options, name):
            raise CommandError(
                f"--{name} is for pairs of --source and --target, --text has none. Leave one of them out."
            )
    switches = switches_of(options)
    if switches:
        raise CommandError(
            f"--{next(iter(switches))} is for the cross-attention, which a language model does not have. Leave it out."
        )

    from hf_attncal.training.language import LanguageConfig, train_language

    base = {"model": {"streams": options.streams}} if options.streams else {}
    run_training(options, train_language, LanguageConfig, use="the Python example in {}/README.md", base=base)


def _with_slots(base: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Whole words and slots for others, where a vocabulary is to be trained and nobody says otherwise."""
    stated = _stated(options)
    model, tokenizer = _section(stated, "model"), _section(stated, "tokenizer")
    given = (options.tokenizer, options.init_from, tokenizer.get("pretrained"), model.get("init_from"))
    if any(given) or tokenizer.get("kind", "words") != "words":
        return base
    slots = {"max_copied_tokens": model.get("max_copied_tokens", _SLOTS)}
    return base | {"model": base["model"] | slots, "tokenizer": {"kind": "words"}}


def _family_of(options: argparse.Namespace, switches: dict[str, Any]) -> dict[str, Any]:
    """The settings that say which family is trained, of --backbone and the options that are for one family alone.

    Raises:
        CommandError: options of two families, or a switch that the family does not take.
    """
    from hf_attncal.families import translators

    families = translators()
    settings, given = {}, ""
    if options.backbone:
        settings, given = {"backbone": options.backbone}, f"--backbone {options.backbone}"
    for family in families.values():
        for name in (name for name in family.options if getattr(options, name)):
            if options.backbone not in (None, family.name):
                raise CommandError(
                    f"--{name} is for {family.label}, --backbone says {options.backbone}. Leave one of them out."
                )
            settings, given = {"backbone": family.name, name: getattr(options, name)}, f"--{name}"
    if settings:
        family = families[settings["backbone"]]
        for switch in sorted(switches.keys() - set(family.switches)):
            takers = [other.label for other in families.values() if switch in other.switches]
            taken = f"only {', '.join(f'--{name}' for name in family.switches)}" if family.switches else "none"
            raise CommandError(
                f"--{switch} is for {' or '.join(takers)}, {given} for {family.label}, which takes {taken}. "
                "Leave one of them out."
            )
    return settings


def _train_pairs(options: argparse.Namespace) -> None:
    switches = switches_of(options) | ({"copy": True} if options.copy else {})
    model = switches | _family_of(options, switches)
    if "guided" in model and _is_summarization(options):
        raise CommandError("--guided is for a translation, whose words have links; leave it out for summaries.")
    base = {"model": model} if model else {}
    if options.copy:
        base = _with_slots(base, options)
    if _is_summarization(options):
        from hf_attncal.training.summarization import SummarizationConfig, train_summarization

        use = "attncal summarize {} < texts.txt"
        run_training(options, train_summarization, SummarizationConfig, use=use, base=base)
    else:
        from hf_attncal.training.translation import TranslationConfig, train_translation

        use = "attncal translate {} < source.txt"
        run_training(options, train_translation, TranslationConfig, use=use, base=base)
