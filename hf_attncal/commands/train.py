"""`attncal train`: a model that translates or summarises from pairs of text, or a language model from text."""

import argparse
from typing import Any

from hf_attncal.errors import CommandError

from .training import (
    Stated,
    add_guide,
    add_output,
    add_running,
    add_start,
    add_switches,
    add_text,
    check_options,
    run_training,
    stated_settings,
    switches_of,
)

_SLOTS = 50  # for words of a source that are not in the vocabulary
_JOBS = ("translation", "summarization", "language")


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
        epilog="Several processes: `accelerate launch` or `torchrun` with training/train.py.\n\n"
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
        "it the `job` of --config, or a translation",
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
    stated = stated_settings(options)
    job = _job_of(options, stated)
    if job == "language":
        _train_language(options, stated)
    else:
        _train_pairs(options, job, stated)


def _job_of(options: argparse.Namespace, stated: Stated) -> str:
    """Return the job that the options ask for, or else the settings.

    Raises:
        CommandError: text of two jobs, or a file that does not say its job.
    """
    texts = {"--text": options.text, "--dev-text": options.dev_text, "--test-text": options.test_text}
    pairs = {"--source": options.source, "--dev-source": options.dev_source, "--test-source": options.test_source}
    plain, parallel = (next((name for name, named in files.items() if named), None) for files in (texts, pairs))
    if plain and parallel:
        raise CommandError(f"{plain} is for a language model, {parallel} for a model of pairs: give one of them.")
    job = (stated.file | stated.overrides).get("job")
    if plain or options.task or not (options.config or job):
        return "language" if plain else options.task or _JOBS[0]
    if job not in _JOBS:
        raise CommandError(
            f"`job` must be {', '.join(_JOBS[:-1])} or {_JOBS[-1]} here, got {job!r}. Add it to {options.config} "
            f"(`job: {_JOBS[0]}`), or to the command (`job={_JOBS[0]}`)."
        )
    return job


def _train_language(options: argparse.Namespace, stated: Stated) -> None:
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
    base = {"model": {"streams": options.streams}} if options.streams else {}
    run_training(options, "language", use="the Python example in {}/README.md", base=base, stated=stated)


def _with_slots(base: dict[str, Any], options: argparse.Namespace, stated: Stated) -> dict[str, Any]:
    """Add whole words and slots for other words, if a vocabulary is to be trained and the user says nothing else."""
    model, tokenizer = stated.section("model"), stated.section("tokenizer")
    starts = (options.tokenizer, options.init_from, tokenizer.get("pretrained"), model.get("init_from"))
    if any(starts) or tokenizer.get("kind", "words") != "words":
        return base
    slots = {"max_copied_tokens": model.get("max_copied_tokens", _SLOTS)}
    return base | {"model": base["model"] | slots, "tokenizer": {"kind": "words"}}


def _family_of(options: argparse.Namespace, switches: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that choose a family: those of --backbone and of options that only one family has.

    Raises:
        CommandError: options of two families, or a switch that the family does not take.
    """
    from hf_attncal.families import translators

    families = translators()
    settings, option = {}, ""
    if options.backbone:
        settings, option = {"backbone": options.backbone}, f"--backbone {options.backbone}"
    for family in families.values():
        for name in (name for name in family.options if getattr(options, name)):
            if options.backbone not in (None, family.name):
                raise CommandError(
                    f"--{name} is for {family.label}, --backbone says {options.backbone}. Leave one of them out."
                )
            settings, option = {"backbone": family.name, name: getattr(options, name)}, f"--{name}"
    if settings:
        family = families[settings["backbone"]]
        for switch in sorted(switches.keys() - set(family.switches)):
            takers = [other.label for other in families.values() if switch in other.switches]
            taken = f"only {', '.join(f'--{name}' for name in family.switches)}" if family.switches else "none"
            raise CommandError(
                f"--{switch} is for {' or '.join(takers)}, {option} for {family.label}, which takes {taken}. "
                "Leave one of them out."
            )
    return settings


def _train_pairs(options: argparse.Namespace, job: str, stated: Stated) -> None:
    switches = switches_of(options) | ({"copy": True} if options.copy else {})
    model = switches | _family_of(options, switches)
    if "guided" in model and job == "summarization":
        raise CommandError("--guided is for a translation, whose words have links; leave it out for summaries.")
    base = {"model": model} if model else {}
    if options.copy:
        base = _with_slots(base, options, stated)
    uses = {"translation": "attncal translate {} < source.txt", "summarization": "attncal summarize {} < texts.txt"}
    run_training(options, job, use=uses[job], base=base, stated=stated)
