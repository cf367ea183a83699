"""Outputs that would write over what must stay: every option that names one, of every command, by the signatures.

Over each file of each kind of folder (`layouts.LAYOUTS`), by several of its names; over each input; two outputs of one
name; a folder that another process saves into; and an adapter beside a whole model. Nothing may change.
"""

import inspect
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from fuzz import Answer, here, wrong_ending
from outcomes import Outcome, Result

from hf_attncal.commands.app import functions
from hf_attncal.commands.guarded import kind_of
from hf_attncal.commands.kinds import Kind
from hf_attncal.io.gate import alone
from hf_attncal.layouts import COUNTS, LAYOUTS, LOCK, UNFINISHED

OVER_MODEL, OVER_INPUT = "an output over a file of a model", "an output over an input"
TWICE, WRITERS, TWO_MODELS = "two outputs of one name", "two writers of a folder", "two models in a folder"
MODEL = ("config.json", "model.safetensors", "tokenizer_config.json", "tokenizer.json")
# What a word of the command line may be, where a command needs one; no model is loaded before the gate.
VALUES = {"FILE": "text", "FOLDER": "new", "MODEL": "model", "LINKS": "links", "WORD": "some/name"}
_WORD = Kind("WORD")


def run(folder: Path, *, full: bool, seed: int | None = None) -> list[Outcome]:
    """All of them; without `full`, some of each kind, drawn by the seed."""
    seed = int(os.environ.get("ATTNCAL_FAULTS_SEED", "0")) if seed is None else seed
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    outcomes = []
    with chdir(folder):
        for name in ("text", "other", "links"):
            Path(name).write_text("0-0\n" if name == "links" else "a b\n")
        _make("model", MODEL)
        for cases in (_over_models(), _over_inputs(), _twice(), _writers(), _two_models()):
            tried = list(cases)
            if not full:
                tried = [tried[place] for place in sorted(rng.sample(range(len(tried)), min(len(tried), 25)))]
            outcomes += [case() for case in tried]
    return outcomes


# ---- commands ----


@cache
def parameters(command: str) -> dict[str, tuple[inspect.Parameter, Any]]:
    """The parameters of a command that name something, and their kinds."""
    described = inspect.signature(resolve_name(functions()[command])).parameters
    kinds = {name: (parameter, kind_of(parameter.annotation)) for name, parameter in described.items()}
    needed = {name for name, parameter in described.items() if parameter.default is parameter.empty}
    return {name: (parameter, kind or _WORD) for name, (parameter, kind) in kinds.items() if kind or name in needed}


def line(command: str, **given: str) -> list[str]:
    """A command line with all that the command needs, and these options."""
    words = command.split()
    for name, (parameter, kind) in parameters(command).items():
        value = given.pop(name, None)
        needed = parameter.default is parameter.empty and "=" not in kind.shown
        placed = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)
        if value is None and (needed or (given and name in ("source", "target") and kind.shown == "FILE")):
            value = VALUES[kind.shown]
        if value is not None:
            words += [value] if placed else [f"--{name.replace('_', '-')}", value]
    return words


def written() -> Iterator[tuple[str, str, Any]]:
    """Each option that names an output: the command, the option and its kind."""
    for command in functions():
        for name, (_, kind) in parameters(command).items():
            if kind.written:
                yield command, name, kind


# ---- files of models ----


def _make(folder: str, names: tuple[str, ...]) -> None:
    for name in names:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"model_type": "marian"}' if name.endswith(".json") else "kept\n")


def names_of(kind: str) -> tuple[str, ...]:
    """A file for each row of a kind of folder, with a model around it where none is one by itself."""
    inside = {COUNTS: "config.json", "checkpoint-*": "trainer_state.json", UNFINISHED: "filled/x", ".cache": "x"}
    inside["__pycache__"] = "x.pyc"
    names = []
    for file in LAYOUTS[kind].files:
        name = file.name.replace("*", "1") if file.name != LOCK else "tokenizer.model"  # a lock is always empty
        names.append(f"{name}/{inside[file.name]}" if file.name in inside else name)
    return tuple(names) if LAYOUTS[kind].marks and kind != "run" else (*names, *MODEL)


def spellings(path: str, link: str) -> Iterator[str]:
    """Names of a file or folder that is there."""
    parent, name = os.path.split(path)
    yield path
    yield os.path.join("model", "..", path)
    yield os.path.abspath(path)
    if not os.path.lexists(link):
        os.symlink(os.path.abspath(path), link)
    yield link
    yield os.path.join(parent, name.upper()) if os.path.isfile(path) else f"{path}/"


def _over_models() -> Iterator[Callable[[], Outcome]]:
    for kind in LAYOUTS:
        names = names_of(kind)
        _make(f"a {kind}", names)
        for command, option, how in written():
            if how.written in ("file", "place"):
                for name in names:
                    for place, path in enumerate(spellings(f"a {kind}/{name}", f"{kind} {name.replace('/', ' ')}")):
                        if how.written == "file" or place < 4:
                            yield _kept(OVER_MODEL, command, {option: path}, f"a {kind}", path)
            if how.written != "file":
                for path in spellings(f"a {kind}", f"{kind} folder"):
                    # A run's own folder is looked into by the training alone, which first reads what it is given.
                    named = path if (kind, how.written) != ("run", "model") else ""
                    yield _kept(OVER_MODEL, command, {option: path}, f"a {kind}", named)
    os.link("model/model.safetensors", "hard")
    os.link("model/model.safetensors", "new.partial")
    for command, option, how in written():
        if how.written == "file" and "model" in line(command, **{option: "hard"}):  # it reads one
            for path in ("hard", "new"):
                yield _kept(OVER_MODEL, command, {option: path}, "model", path)


def _kept(kind: str, command: str, given: dict[str, str], watched: str, *named: str) -> Callable[[], Outcome]:
    """One command: it must be refused by a line with all that is named in it, and change nothing."""

    def tried() -> Outcome:
        words = line(command, **given)
        before = content(Path(watched))
        answer = here(words)
        result: tuple[Result, str] = "refused", ""
        if content(Path(watched)) != before:
            result = "lost", "something has changed"
        elif answer.status is None or "Traceback" in answer.err:
            result = "hung" if answer.status is None else "traceback", answer.err
        elif wrong := _wrong(answer, named):
            result = "wrong", wrong
        return Outcome(kind, " ".join(words), *result)

    return tried


def _wrong(answer: Answer, named: tuple[str, ...]) -> str:
    wrong = wrong_ending("", answer)
    missing = [name for name in named if name.rstrip("/") not in answer.err]
    return wrong or (f"{missing} not in: {answer.err}" if missing else "")


def content(path: Path) -> dict[str, bytes | None]:
    """All that is there now."""
    found = [path, *path.rglob("*")]
    return {str(entry): entry.read_bytes() if entry.is_file() else None for entry in found if entry.name != LOCK}


# ---- inputs, and one another ----


def _over_inputs() -> Iterator[Callable[[], Outcome]]:
    for command, option, how in written():
        for name, (_, kind) in parameters(command).items():
            if how.written == "file" and not kind.written and kind.shown in ("FILE", "LINKS"):
                source = f"read {command} {name}"
                Path(source).write_text("0-0\n")
                os.link(source, f"{source} {option} hard")
                for path in [*[*spellings(source, f"{source} {option} link")][:4], f"{source} {option} hard"]:
                    yield _kept(OVER_INPUT, command, {option: path, name: source}, source, path, source)


def _twice() -> Iterator[Callable[[], Outcome]]:
    for command in functions():
        options = [name for of, name, how in written() if of == command and how.written != "place"]
        for first, second in itertools.pairwise(options):
            for path in ("once", "./once", "ONCE", "once.partial"):
                yield _kept(TWICE, command, {first: "once", second: path}, "model", path)


def _writers() -> Iterator[Callable[[], Outcome]]:
    for command, option, how in written():
        if how.written in ("beside", "model"):
            yield _in_use(command, option)


def _in_use(command: str, option: str) -> Callable[[], Outcome]:
    def tried() -> Outcome:
        os.makedirs("held", exist_ok=True)
        adapts = ["--adapt"] if option == "save_adapted" else []
        words = [*line(command, **{option: "held"}), *adapts]
        with alone(Path("held") / LOCK):
            answer = here(words)
        wrong = _wrong(answer, ("held",) if how_early(command) else ()) or ("" if not content_of_held() else "written")
        return Outcome(WRITERS, " ".join(words), "refused" if not wrong else "lost", wrong)

    return tried


def how_early(command: str) -> bool:
    """Whether the folder is asked for before the model here, which is none, is loaded."""
    return command.startswith("align") and command not in ("align train", "align tune")


def content_of_held() -> list[str]:
    """What was written although the folder was in use."""
    return [name for name in os.listdir("held") if name != LOCK]


# ---- two models ----


def _two_models() -> Iterator[Callable[[], Outcome]]:
    _make("both", (*MODEL, "adapter_config.json", "adapter_model.safetensors", "README.md"))
    for command in functions():
        for name, (_, kind) in parameters(command).items():
            if kind.shown == "MODEL":
                yield _kept(TWO_MODELS, command, {name: "both"}, "both", "adapter_config.json", "model.safetensors")
