"""What every job does: the command line, the guard of the output folder, text, tokenizer, model, training, results."""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accelerate import PartialState
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, Trainer, set_seed

from hf_attncal.analysis.reliability import LEAST_SPREAD, WITHOUT_MASKS
from hf_attncal.data.corpora import all_lines, lowercased
from hf_attncal.data.tokenizer import SPECIAL_TOKENS, train_bpe_tokenizer, train_word_tokenizer
from hf_attncal.files import write_json, writing
from hf_attncal.inference.loading import model_config
from hf_attncal.metrics import records

from .averaging import average_checkpoints, last_checkpoints
from .folder import RESULTS, Run, check_free, claimed, fill, finish_run
from .interrupts import how_to_go_on, saved_on_interrupt
from .progress import bars_are_shown, shown_progress
from .settings import SPLITS, Settings, TextConfig, hints_of, merge_settings, read_settings
from .threads import ChooseThreads

# Nats of a target token. Between a pass and a pass without any perturbation lie some thousandths, which dropout draws.
_LEAST_GAIN = 0.01


def run_script(
    job: Callable[..., dict[str, Any]], config_class: type[Settings], description: str, arguments: list[str] | None
) -> dict[str, Any]:
    """The `main` of a training script: reads the command line and runs the job; returns what `results.json` holds."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, help="YAML file")
    parser.add_argument("--data", help="folder of the data files (data.root)")
    parser.add_argument("--results", help="write results.json to this file too")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    parser.add_argument("--allow-changes", action="store_true", help="--resume with other settings or data")
    parser.add_argument("--debug", action="store_true", help="show where in the code an error arose")
    parser.add_argument("settings", nargs="*", help="section.key=value")
    options = parser.parse_intermixed_args(arguments)
    values = read_settings(options.config, options.settings)
    if options.data:
        merge_settings(values, {"data": {"root": options.data}})
    config = config_class.make(values)
    command = ["python", *sys.argv] if arguments is None else [parser.prog, *arguments]
    results = run_job(job, config, command, resume=options.resume, allow_changes=options.allow_changes)
    if options.results and PartialState().is_main_process:
        write_json(results, options.results)
    return results


def run_job(
    job: Callable[..., dict[str, Any]], config: Settings, command: Sequence[str], **options: bool
) -> dict[str, Any]:
    """What the job returns; an interruption says how the run goes on.

    Args:
        job: takes the settings and `options`.
        config: of the run.
        command: that the user gave.
        options: of the job.

    Raises:
        KeyboardInterrupt: with that message.
    """
    try:
        return job(config, **options)
    except KeyboardInterrupt as error:
        if options.get("dry_run"):
            raise
        advice = how_to_go_on(config.training["output_dir"], command)
        raise KeyboardInterrupt(f"{str(error) or 'interrupted'}. {advice}") from None


@contextmanager
def start(config: Settings, resume: bool, allow_changes: bool, dry_run: bool = False) -> Iterator[Run]:
    """The run, once all is clear for it: the output folder is its own until the end of the block; the seed is set.

    Args:
        config: of the run.
        resume: go on from the last checkpoint of the output folder, if there is one.
        allow_changes: with settings or data other than those that the run began with.
        dry_run: nothing is to be trained; what is written goes to a temporary folder.

    Raises:
        ValueError: no text to train on, or an output folder that holds another run; see `folder.claimed`;
            a model to begin with that is not there.
        OSError: among others a full disk, with the output folder's name where the system names no file.
    """
    if config.data.train is None:
        raise ValueError("`data.train` must name the text to train on, got none.")
    if allow_changes and not resume:
        raise ValueError("--allow-changes goes with --resume: a run that starts has nothing to differ from.")
    if dry_run and resume:
        raise ValueError("--dry-run goes without --resume: it says what a run would be that begins.")
    config.check_starts()
    records.commit()  # of the code that the run begins with
    with ExitStack() as stack:
        if dry_run:
            check_free(Path(config.training["output_dir"]))
            args = config.arguments(output_dir=stack.enter_context(TemporaryDirectory()), disable_tqdm=True)
            run = Run(args, dry=True)
        else:
            args = config.arguments()
            stack.enter_context(writing(args.output_dir))
            run = stack.enter_context(claimed(config, args, resume, allow_changes))
        set_seed(args.seed)
        yield run


def read_text(data: TextConfig, splits: Iterable[str] = SPLITS) -> dict[str, Dataset]:
    """The text of the splits that the config names, in lower case if it says so."""
    text = {name: data.load(name) for name in splits if getattr(data, name)}
    return {name: lowercased(lines) for name, lines in text.items()} if data.lowercase else text


def held_out_rows(text: dict[str, Dataset], wanted: int) -> frozenset[int]:
    """Which `wanted` rows of train, at most a tenth, are to be dev: evenly spread; none where there is a dev."""
    size = len(text["train"])
    count = 0 if "dev" in text else min(wanted, size // 10)
    return frozenset(size * (2 * number + 1) // (2 * count) for number in range(count))


def hold_out(text: dict[str, Dataset], wanted: int) -> dict[str, Dataset]:
    """The text with the rows of `held_out_rows` as dev."""
    rows = held_out_rows(text, wanted)
    if not rows:
        return text
    train = text["train"]
    return text | {
        "train": train.select([row for row in range(len(train)) if row not in rows]),
        "dev": train.select(sorted(rows)),
    }


def build_tokenizer(
    config: Settings, run: Run, text: Dataset, special_tokens: list[str] = SPECIAL_TOKENS
) -> PreTrainedTokenizerBase:
    """The tokenizer of a run: the named one, that of `model.init_from`, or what is learned of the training text.

    It is learned by the first process and read from the output folder by every one; a run that goes on finds it
    there.

    Args:
        config: with the sections `tokenizer` and `model`.
        run: from `start`.
        text: of the training.
        special_tokens: of what is learned: a joint BPE, or words, which may be fewer than were asked for.

    Raises:
        ValueError: the text has fewer pieces than were asked for (not: than a preset has as its limit).
    """
    settings = config.tokenizer
    pretrained = settings.pretrained or config.model.get("init_from")
    if pretrained:
        return AutoTokenizer.from_pretrained(pretrained)
    args = run.args
    with args.main_process_first(local=False):
        if args.process_index == 0 and run.checkpoint is None:
            words = getattr(settings, "kind", "bpe") == "words"
            trained = (train_word_tokenizer if words else train_bpe_tokenizer)(
                all_lines(text),
                settings.vocab_size,
                show_progress=bars_are_shown(args),
                special_tokens=special_tokens,
            )
            asked = config.given.get("tokenizer", {}).get("vocab_size", 0)
            if len(trained) < asked and not words:
                raise ValueError(
                    f"`tokenizer.vocab_size` must be at most {len(trained)} for this text, in which no more pieces "
                    f"occur twice, got {settings.vocab_size}. Lower it, or give more text."
                )
            fill(Path(args.output_dir), save_parts(trained))
        return AutoTokenizer.from_pretrained(args.output_dir)


def build_model(
    model_class: type[PreTrainedModel], section: dict[str, Any], tokens: dict[str, Any]
) -> PreTrainedModel:
    """The model of a `model` section: freshly initialised, or loaded from its `init_from`.

    Keys of the section that are fields of the class's configuration go there; with `init_from` they change what was
    saved. `tokens` are the fields of a fresh one that belong to the tokenizer.

    Raises:
        ValueError: the configuration of `init_from` is one that no model can have, or asks for code of the Hub.
    """
    fields = {name: value for name, value in section.items() if name in hints_of(model_class.config_class)}
    kernel = {"attn_implementation": section.get("attn_implementation")}
    if section.get("init_from"):
        model_config(section["init_from"])  # refuses what the class would build, or run
        return model_class.from_pretrained(section["init_from"], **kernel, **fields)
    return model_class(model_class.config_class(**kernel, **tokens | fields))


def train(
    trainer: Trainer, config: Settings, reports: dict[str, Any], run: Run
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Train; the final model (the mean of the last `average_last` checkpoints), and how its results begin.

    That is: settings, software, hardware, data, sentence pairs (or sequences), numbers of parameters, steps, seconds
    and tokens.

    Args:
        trainer: a Trainer with `tokens_name` and `wall_seconds`.
        config: of the run.
        reports: what was kept of each text.
        run: from `start`.
    """
    args = trainer.args
    if args.process_index == 0:
        for name, report in reports.items():
            print(f"{name}: {report}")
    threads = ChooseThreads(args.threads)
    trainer.add_callback(threads)
    with shown_progress(trainer), saved_on_interrupt(trainer):
        trainer.train(resume_from_checkpoint=str(run.checkpoint) if run.checkpoint else None)
    trainer.accelerator.wait_for_everyone()  # the first process writes the checkpoints, all read them
    warn_of_idle_masks(trainer.state.log_history)
    seconds = trainer.wall_seconds
    speeds = [entry[trainer.tokens_name] for entry in trainer.state.log_history if trainer.tokens_name in entry]

    model = trainer.model
    # Accelerate leaves autocast around the forward of what it was given: of a whole model that is the one that
    # `generate` calls, of PEFT's it is not. Every model is scored in the precision of its weights.
    # (Its `unwrap_model` would take transformers' own decorators off, too.)
    vars(model).pop("forward", None)
    parameters = list(model.parameters())
    averaged = last_checkpoints(args.output_dir, config.average_last) if config.average_last > 1 else []
    weights = model.state_dict()
    for name, tensor in average_checkpoints(averaged).items() if averaged else ():
        weights[name].copy_(tensor)  # in place, which reaches tied weights too
    results = {
        **recorded(config, processes=args.world_size, bf16=args.bf16),
        config.data.units: {name: asdict(report) for name, report in reports.items()},
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
        **({"threads": threads.history} if threads.history else {}),
        **({trainer.tokens_name: sum(speeds) / len(speeds)} if speeds else {}),  # of logs, which may never be due
        "averaged_checkpoints": [path.name for path in averaged],
        **({"changed_on_resume": run.changes} if run.changes else {}),
    }
    return model.eval(), results


def recorded(config: Settings, **hardware_besides: Any) -> dict[str, Any]:
    """What the results of a run begin with, without the places of this machine; see `metrics.records.record`."""
    names, files = config.data.published_names(), config.data.files()
    return records.record(config.published(), {names[name]: path for name, path in files.items()}, **hardware_besides)


def warn_of_idle_masks(history: list[dict[str, float]]) -> None:
    """Say that a mask network has found nothing that the model cannot do without, so that contributions mean nothing.

    It learns where blurring the attention hurts. As long as attention has not found anything, blurring does not hurt,
    and the masks go to 1, where they have no gradient left to come back by. Two things show it: the perturbation is
    smaller than masks have to differ by (`LEAST_SPREAD`, of which its size is a bound); or it gains the mask network
    less than blurring nothing would, whose objective (Lu et al., eq. 4) is minus the loss of the translation.

    Args:
        history: what a Trainer logged.
    """
    last = next((entry for entry in reversed(history) if "mask_penalty" in entry), None)
    if last is None:
        return
    gain = -last["mask_loss"] - last["nmt_loss"]
    if last["mask_penalty"] < LEAST_SPREAD or gain < _LEAST_GAIN:
        warnings.warn(
            f"The mask network has learned nothing: with a mean mask of {last['mask_mean']:.4f}, blurring the "
            f"attention where it says makes its objective better by {gain:.3f} nats a target token, and less than "
            f"{_LEAST_GAIN} is noise. So contributions say nothing, and `attncal analyze` leaves them out. "
            f"{WITHOUT_MASKS}.",
            stacklevel=2,
        )


def finish(trainer: Trainer, results: dict[str, Any], save: Callable[[Path], dict[str, Any] | None]) -> dict[str, Any]:
    """Fill the output folder with what `save` writes into the one that it is given, and with `results.json`.

    Returns:
        What that file holds; what `save` returns belongs to it.
    """
    results["log_history"] = trainer.state.log_history

    def save_all(folder: Path) -> None:
        results.update(save(folder) or {})
        write_json(results, folder / RESULTS)

    if trainer.args.process_index == 0:
        finish_run(Path(trainer.args.output_dir), save_all)
    return results


def save_parts(*parts: PreTrainedModel | PreTrainedTokenizerBase) -> Callable[[Path], None]:
    """What saves the parts in a folder."""

    def save(folder: Path) -> None:
        for part in parts:
            part.save_pretrained(folder)

    return save
