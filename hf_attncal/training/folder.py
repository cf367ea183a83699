"""Output folder of a run: one run uses it at a time, `run.json` says which, and its files are always whole.

`run.json` states from the first second what the run depends on; `--resume` compares. Whatever is more than a few
bytes is written in `unfinished/`, brought to the disk and renamed, so a process may be killed at any system call, or
the power fail: what has its own name is whole. A run is finished when `run.json` says so, which is written last.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list

from hf_attncal.inference.seals import revision_of
from hf_attncal.io.files import fill_folder, json_text, write_json
from hf_attncal.io.gate import job, note_inputs, read_run_record, run_record, saving_into
from hf_attncal.layouts import RESULTS, RUN, UNFINISHED, kind_of_folder
from hf_attncal.metrics import records

from .checkpoints import last_checkpoints
from .settings import Settings
from .token_batches import TokenBatchArguments

# Training arguments that do not change a run: places, what is logged, workers. The beginnings of their names.
_FREE = re.compile(
    "output_dir|log|disable_tqdm|report_to|run_name|project|save_total_limit|use_cpu|debug|"
    "dataloader_(num_workers|pin_memory|persistent|prefetch|multiprocessing)|local_rank|ddp_(timeout|backend)|do_|"
    "resume_from_checkpoint|skip_memory_metrics"
)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Run:
    """A run that has its folder.

    Args:
        args: the Trainer's arguments.
        checkpoint: what to go on from; None to start.
        changes: settings that differ from those the run began with: `key`, `was`, `is`, and the checkpoint since when.
        results: results of a run that is finished; None for one that has something to do.
        started: when this process began with it, by `time.monotonic`.
        ends: when the time of `minutes` is over, by `time.monotonic`; None without.
    """

    args: TokenBatchArguments
    checkpoint: Path | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, Any] | None = None
    started: float = field(default_factory=time.monotonic)
    ends: float | None = None

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path(self.args.output_dir or "")


@contextmanager
def claimed(
    config: Settings, args: TokenBatchArguments, resume: bool, allow_changes: bool, started: float
) -> Iterator[Run]:
    """Claim the output folder for this run alone; the first process decides, and all follow.

    After an error nothing unfinished is left, and a run that has no checkpoint gives its folder back.

    Raises:
        ValueError: the folder is in use, holds another run or model, or one with other settings or data.
    """
    folder, first = Path(args.output_dir or ""), args.process_index == 0
    with job(), ExitStack() as stack:
        claim = partial(_claim, folder, stack, config, args, resume, allow_changes)
        ends = None if config.minutes is None else started + 60 * config.minutes
        run = Run(args, *in_first_process(first, claim), started=started, ends=ends)
        try:
            yield run
        except BaseException:
            if first and run.results is None and not last_checkpoints(folder):
                _give_back(folder, config.job)
            raise


def in_first_process(first: bool, function: Callable[[], Value]) -> Value:
    """Call a function in the first process, and return its result, or raise its error, in every process."""
    outcome: list[Any] = [None, None]
    if first:
        try:
            outcome[0] = function()
        except (ValueError, OSError) as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def _claim(
    folder: Path, stack: ExitStack, config: Settings, args: TokenBatchArguments, resume: bool, allow_changes: bool
) -> tuple[Path | None, list[dict[str, Any]], dict[str, Any] | None]:
    """Lock the folder, see what is in it, and write `run.json`; returns what a `Run` has besides its arguments."""
    note_inputs(*config.data.files().values(), *config.starts().values())
    stack.enter_context(saving_into(folder, config.job, "`training.output_dir`"))
    stack.callback(shutil.rmtree, folder / UNFINISHED, ignore_errors=True)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)  # of a process that was killed
    checkpoint, held = next(iter(last_checkpoints(folder, 1)), None), run_in(folder, resume)
    now, changes = identity(config, args), []
    then = _read(folder) if held else {}
    finished = bool(then) and then["finished"] and (folder / RESULTS).is_file()
    if checkpoint or finished:
        changes = then["changes"]
        different = list(_differences(then["run"], now))
        if different and not allow_changes:
            key, was, new = different[0]
            raise ValueError(
                f"`{key}` is {_shown(new)}, but the run in {folder} began with {_shown(was)}. Go on with what it "
                "began with, say `resume=changed` (to training/train.py --allow-changes), or name another folder."
            )
        if finished and not different:
            results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
            print(f"{folder}: the run is finished after {results['steps']} steps. There is nothing to train.")
            return checkpoint, changes, results
        if checkpoint is None:
            raise ValueError(
                f"`{different[0][0]}` is other than it was, and the finished run in {folder} has no checkpoint to go "
                "on from. Name another folder."
            )
        if args.save_only_model:
            raise ValueError(
                f"`training.save_only_model` must be false to go on from {checkpoint}, got true: the state of the "
                "optimiser is not saved. Name another folder."
            )
        changes += [{"from": checkpoint.name, "key": key, "was": was, "is": new} for key, was, new in different]
    for path in {*folder.glob("checkpoint-*")} - {*last_checkpoints(folder)}:  # of a process that was killed
        shutil.rmtree(path)
    state = run_record(config.job, run=now, software=records.software(), changes=changes, finished=False)
    fill(folder, lambda staged: (staged / RUN).write_text(json_text(state), encoding="utf-8"))
    return checkpoint, changes, None


def _give_back(folder: Path, by: str) -> None:
    """Let another run have a folder that has no checkpoint: its mark stays while it holds a tokenizer or counts."""
    (folder / RUN).unlink(missing_ok=True)
    if kind_of_folder(folder) is not None:
        write_json(run_record(by), folder / RUN)


def run_in(folder: Path, resume: bool) -> str:
    """Return the name of a file or folder that an earlier run has left, or "".

    Raises:
        ValueError: there is one, and the run is not to be resumed.
    """
    names = sorted(path.name for path in folder.glob("*"))
    left = [name for name in names if name in (RUN, RESULTS) or re.fullmatch(r"checkpoint-\d+|.*\.safetensors", name)]
    if left == [RUN] and read_run_record(folder).keys() == run_record("").keys():  # given back
        left = []
    if left and not resume:
        raise ValueError(
            f"{folder} holds another run ({left[0]}). Pass --resume to go on with it, or name another folder."
        )
    return next(iter(left), "")


def _read(folder: Path) -> dict[str, Any]:
    run = dict(read_run_record(folder))
    if not {"run", "changes", "finished"} <= run.keys():
        raise ValueError(
            f"{folder / RUN} is missing or damaged, so nothing says what was trained. Name another folder."
        )
    return run


# ---- what a run is ----


def identity(config: Settings, args: TokenBatchArguments) -> dict[str, Any]:
    """Return all that changes a run as plain data: processes, settings, and SHA-256 of its text and models.

    A model or tokenizer is identified by `revision_of`.
    """
    plain = config.published()
    plain.pop("card")  # words about the model
    files, known = config.data.files(), config.data.hashes()
    hashes = {name: f"sha256:{known[name]}" if known[name] else f"no file {path}" for name, path in files.items()}
    for split, key, names in config.data.named_files():
        plain["data"][split][key] = [hashes[name] for name in names]
    for (section, key), named in config.starts().items():
        plain[section][key] = revision_of(named, plain[section].get("revision"))
    plain["training"] = {key: value for key, value in args.to_dict().items() if not _FREE.match(key)}
    return json.loads(json.dumps({"processes": args.world_size, **plain}, default=str))


def _differences(then: dict[str, Any], now: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield `section.key`, the old value and the new one of every setting that differs."""
    for key in now | then:
        was, new, name = then.get(key), now.get(key), f"{section}{key}"
        if isinstance(was, dict) and isinstance(new, dict):
            yield from _differences(was, new, f"{name}.")
        # Another version of transformers may know other training arguments.
        elif was != new and (section != "training." or (key in then and key in now)):
            yield name, was, new


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 100 else f"{text[:97]}..."


# ---- whole files ----


# Put what a function writes into the folder of a run; weights and then results come last.
fill = partial(fill_folder, last=("*.safetensors", RESULTS))


def finish(run: Run, results: dict[str, Any], save: Callable[[Path], None]) -> dict[str, Any]:
    """Fill the output folder with the final model and `results.json`; then the run is finished.

    Args:
        run: the run that has the folder.
        results: content of `results.json`.
        save: writes the model into the folder that it gets.

    Returns:
        The results.
    """

    def save_all(staged: Path) -> None:
        save(staged)
        (staged / RESULTS).write_text(json_text(results), encoding="utf-8")

    if run.args.process_index == 0:
        folder = run.folder
        fill(folder, save_all)
        run_json = json_text(_read(folder) | {"finished": True})
        fill(folder, lambda staged: (staged / RUN).write_text(run_json, encoding="utf-8"))
    return results
