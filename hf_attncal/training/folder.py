"""Output folder of a run: locked by one run at a time, described by `run.json`, with files that are always complete.

`run.json` records all that the run depends on before it starts; `--resume` compares with it. Larger files are written
in `unfinished/`, synced and then renamed, so a file under its own name is complete even after a kill or a power
failure. A run is finished once `run.json` has `finished: true`, which is written last.
"""

import hashlib
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

from hf_attncal.inference.files import file_beside
from hf_attncal.inference.seals import base_of
from hf_attncal.io.files import fill_folder, json_text, sha256, write_json
from hf_attncal.io.gate import job, note_inputs, read_run_record, run_record, saving_into
from hf_attncal.layouts import (
    ADAPTER_CONFIG,
    CONFIG,
    RESULTS,
    RUN,
    TOKENIZER_CONFIG,
    UNFINISHED,
    files,
    kind_of_folder,
)
from hf_attncal.metrics import records

from .checkpoints import last_checkpoints
from .settings import Settings
from .token_batches import TokenBatchArguments

# Beginnings of the names of training arguments that do not change the result: paths, logging, workers.
_NEUTRAL_ARGUMENTS = re.compile(
    "output_dir|log|disable_tqdm|report_to|run_name|project|save_total_limit|use_cpu|debug|"
    "dataloader_(num_workers|pin_memory|persistent|prefetch|multiprocessing)|local_rank|ddp_(timeout|backend)|do_|"
    "resume_from_checkpoint|skip_memory_metrics"
)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Run:
    """A run that holds its output folder.

    Args:
        args: arguments of the Trainer.
        checkpoint: checkpoint to resume from; None starts a new training.
        results: results of a finished run; None for an unfinished one.
        started: start in this process, by `time.monotonic`.
        ends: end of the time budget, by `time.monotonic`; None for no budget.
    """

    args: TokenBatchArguments
    checkpoint: Path | None = None
    results: dict[str, Any] | None = None
    started: float = field(default_factory=time.monotonic)
    ends: float | None = None

    @property
    def folder(self) -> Path:
        """Output folder."""
        return Path(self.args.output_dir or "")


@contextmanager
def claimed(config: Settings, args: TokenBatchArguments, resume: bool, started: float) -> Iterator[Run]:
    """Lock the output folder for this run in the block; the first process decides for all.

    After an error no unfinished files are left, and a run without a checkpoint frees its folder.

    Raises:
        ValueError: the folder is in use, or holds another run or model, or a run with other settings or data.
    """
    folder, first = Path(args.output_dir or ""), args.process_index == 0
    with job(), ExitStack() as stack:
        claim = partial(_claim, folder, stack, config, args, resume)
        ends = None if config.minutes is None else started + 60 * config.minutes
        run = Run(args, *in_first_process(first, claim), started=started, ends=ends)
        try:
            yield run
        except BaseException:
            if first and run.results is None and not last_checkpoints(folder):
                _release(folder, config.job)
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
    folder: Path, stack: ExitStack, config: Settings, args: TokenBatchArguments, resume: bool
) -> tuple[Path | None, dict[str, Any] | None]:
    """Lock the folder, check its content and write `run.json`; return checkpoint and results of the `Run`."""
    note_inputs(*config.data.files().values(), *config.starts().values())
    stack.enter_context(saving_into(folder, config.job, "`training.output_dir`"))
    stack.callback(shutil.rmtree, folder / UNFINISHED, ignore_errors=True)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)  # left by a killed process
    checkpoint, earlier_file = next(iter(last_checkpoints(folder, 1)), None), run_in(folder, resume)
    now, earlier = identity(config, args), _read(folder) if earlier_file else {}
    finished = bool(earlier) and earlier["finished"] and (folder / RESULTS).is_file()
    if checkpoint or finished:
        if different := next(_differences(earlier["run"], now), None):
            key, was, new = different
            raise ValueError(
                f"`{key}` is {_shortened(new)}, but the run in {folder} began with {_shortened(was)}. Resume with the "
                "old value, or name another folder."
            )
        if finished:
            results = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
            print(f"{folder}: the run is finished ({results['steps']} steps). Nothing to train.")
            return checkpoint, results
        if args.save_only_model:
            raise ValueError(
                f"`training.save_only_model` must be false to resume {checkpoint}, got true: the optimiser state is "
                "not saved. Name another folder."
            )
    for path in {*folder.glob("checkpoint-*")} - {*last_checkpoints(folder)}:  # left by a killed process
        shutil.rmtree(path)
    state = run_record(config.job, run=now, software=records.software(), finished=False)
    fill(folder, lambda staged: (staged / RUN).write_text(json_text(state), encoding="utf-8"))
    return checkpoint, None


def _release(folder: Path, by: str) -> None:
    """Free a folder without a checkpoint for another run; its mark stays while it holds a tokenizer or counts."""
    (folder / RUN).unlink(missing_ok=True)
    if kind_of_folder(folder) is not None:
        write_json(run_record(by), folder / RUN)


def run_in(folder: Path, resume: bool) -> str:
    """Return the name of a file or folder left by an earlier run, or "".

    Raises:
        ValueError: there is one, and `resume` is False.
    """
    names = sorted(path.name for path in folder.glob("*"))
    left = [name for name in names if name in (RUN, RESULTS) or re.fullmatch(r"checkpoint-\d+|.*\.safetensors", name)]
    if left == [RUN] and read_run_record(folder).keys() == run_record("").keys():  # released
        left = []
    if left and not resume:
        raise ValueError(
            f"{folder} holds another run ({left[0]}). Pass --resume to continue it, or name another folder."
        )
    return next(iter(left), "")


def _read(folder: Path) -> dict[str, Any]:
    run = dict(read_run_record(folder))
    if not {"run", "finished"} <= run.keys():
        raise ValueError(f"{folder / RUN} is missing or damaged, so the run cannot be resumed. Name another folder.")
    return run


# ---- identity of a run ----


def identity(config: Settings, args: TokenBatchArguments) -> dict[str, Any]:
    """Return all that decides the result of a run as plain data: processes, settings, SHA-256 of text and models.

    A model or tokenizer is identified by `revision_of`.
    """
    plain = config.published()
    plain.pop("card")  # text about the model
    files, file_hashes = config.data.files(), config.data.hashes()
    hashes = {
        name: f"sha256:{file_hashes[name]}" if file_hashes[name] else f"no file {path}" for name, path in files.items()
    }
    for split, key, names in config.data.named_files():
        plain["data"][split][key] = [hashes[name] for name in names]
    for (section, key), named in config.starts().items():
        plain[section][key] = revision_of(named, plain[section].get("revision"))
    plain["training"] = {key: value for key, value in args.to_dict().items() if not _NEUTRAL_ARGUMENTS.match(key)}
    return json.loads(json.dumps({"processes": args.world_size, **plain}, default=str))


def _differences(earlier: dict[str, Any], now: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield `section.key`, old value and new value of every setting that differs."""
    for key in now | earlier:
        was, new, name = earlier.get(key), now.get(key), f"{section}{key}"
        if isinstance(was, dict) and isinstance(new, dict):
            yield from _differences(was, new, f"{name}.")
        # Another version of transformers may have other training arguments.
        elif was != new and (section != "training." or (key in earlier and key in now)):
            yield name, was, new


def _shortened(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 100 else f"{text[:97]}..."


# ---- complete files ----


# Fill the folder of a run with the files that a function writes; weights and then results come last.
fill = partial(fill_folder, last=("*.safetensors", RESULTS))


def finish(run: Run, results: dict[str, Any], save: Callable[[Path], None]) -> dict[str, Any]:
    """Fill the output folder with the final model and `results.json`, mark the run as finished, return the results.

    Args:
        run: run that holds the folder.
        results: content of `results.json`.
        save: function that writes the model into a folder.
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


# ---- identity of a model ----


def revision_of(name: str, revision: str | None = None) -> str:
    """Return the identity of a model, an adapter or a tokenizer.

    Returns:
        For a folder, the SHA-256 of its files that loading reads. For a Hub name, `name@commit`, or the name if the
        commit is unknown. For an adapter, ` on ` and the identity of its base model follow.
    """
    if Path(name).is_dir():
        paths = {path for file in files() if file.is_read for path in Path(name).glob(file.name)}
        identity = _sha256_of(sorted(filter(Path.is_file, paths)))
    else:
        commit = _commit(name, revision)
        identity = f"{name}@{commit}" if commit else name
    base = base_of(file_beside(name, ADAPTER_CONFIG, revision))
    return identity if base is None else f"{identity} on {revision_of(*base)}"


def _commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a model in the Hub's cache, or None if it is not known."""
    paths = (file_beside(name, file, revision) for file in (CONFIG, TOKENIZER_CONFIG, ADAPTER_CONFIG))
    from transformers.utils.hub import extract_commit_hash  # takes seconds to import

    return next((extract_commit_hash(str(path), None) for path in paths if path is not None), None)


def _sha256_of(paths: list[Path]) -> str:
    """Hash the names and contents of files."""
    named = "".join(f"{path.name} {sha256(path)}\n" for path in paths)
    return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"
