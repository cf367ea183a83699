"""Publish a saved model, adapter, aligner or tuned encoder on the Hub, and refuse what should not leave the machine.

    from hf_attncal.hub import publish_folder

    publish_folder("runs/gated", "owner/name", license="apache-2.0", languages=["de", "en"])

Only kinds of files that a model needs go up. What a training leaves for itself stays behind, and any other file is
refused by name. Every text in what goes up is read (`contents.py`) and judged (`disclosure.py`). Code is run only if
it is the package's own.
"""

import fnmatch
import getpass
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, HTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session, validate_repo_id
from jinja2 import TemplateError

from hf_attncal.data.protobuf import without_names_of_text
from hf_attncal.families import FAMILIES
from hf_attncal.inference.names import is_hub_name
from hf_attncal.inference.seals import sealed
from hf_attncal.io.errors import UnreadableError
from hf_attncal.layouts import (
    ADAPTER_CONFIG,
    CARD,
    CONFIG,
    RESULTS,
    TOKENIZER_CONFIG,
    WEIGHTS,
    Fate,
    check_one_model,
    fate_of,
    file_of,
    kind_of_folder,
)

from .contents import Content, bytes_of, digest, texts_of, utf8_text
from .disclosure import is_environment, leak_in, said_by
from .folder import HubFolder, inspect_folder
from .isolated import load_in_fresh_process
from .published_card import CardFields, evaluation_files, pinned_revision, published_card

STALLED_AFTER = 100.0  # seconds without a byte; the client of the Hub itself would wait for ever
_COMMON_USERS = ("root", "user", "admin", "runner", "ubuntu", "docker", "nobody", "jovyan")


class PublishError(ValueError):
    """Error that kept a folder from being published; its message says what to do."""


@dataclass(frozen=True)
class Publication:
    """A publication, or what a dry run would publish.

    Args:
        repository: `owner/name`, for a Space `spaces/owner/name`.
        files: path in the repository -> bytes.
        left_out: names in the folder that stay behind.
        missing: fields of the card that are not known.
        commit: commit that holds everything; None for a dry run.
        changed: whether anything was new.
        url: address of the repository; None for a dry run.
        says: path in the repository -> what the file says of its author, the text and the machine; only where it does.
    """

    repository: str
    files: dict[str, int]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    commit: str | None = None
    changed: bool = False
    url: str | None = None
    says: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        says = {name: f"  says: {words}" for name, words in self.says.items()}
        lines = [f"{size:>13,}  {name}{says.get(name, '')}" for name, size in self.files.items()]
        lines.append(f"{sum(self.files.values()):>13,}  bytes in {len(self.files)} files")
        if self.left_out:
            lines.append(f"left out: {', '.join(self.left_out)}")
        if self.missing:
            lines.append("the card does not say: " + ", ".join(f"{name} ({name}=...)" for name in self.missing))
        if self.commit is None:
            return "\n".join([*lines, f"{self.repository} would hold these files. Nothing was sent."])
        holds = "holds them" if self.changed else "held them already"
        return "\n".join([*lines, f"{self.url} {holds}: commit {self.commit}"])


def publish_folder(
    folder: str | Path,
    repository: str,
    *,
    license: str | None = None,
    languages: Sequence[str] = (),
    datasets: Sequence[str] = (),
    base_model: str | None = None,
    leave_out: Sequence[str] = (),
    private: bool = True,
    dry_run: bool = False,
    try_loading: bool = True,
    trust_remote_code: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> Publication:
    """Publish the folder of a model, an adapter, an aligner or a tuned encoder on the Hub, in one commit.

    A second commit only writes the first one's hash into the example of the card. Publishing the same folder again
    changes nothing, and a publication that was cut off ends the same when it is repeated.

    Args:
        folder: what `save_pretrained` or a training has written, with its card.
        repository: `owner/name`; it is made if it does not exist.
        license, languages, datasets, base_model: see `CardFields`. `base_model` also replaces the folder of the base
            model in an adapter.
        leave_out: names or patterns of further files that stay behind.
        private: whether a new repository is private; an existing one stays as it is.
        dry_run: check everything, without the network.
        try_loading: load the folder in a process without this package; adapters are not tried.
        trust_remote_code: load it though it brings code that is not this version's of the package.
        token: access token; None for the one that is logged in.
        endpoint: address of the Hub; None for the usual one.

    Raises:
        PublishError: the folder is incomplete, or holds what must not be published, or the Hub refused it.
    """
    folder = Path(folder)
    check_repository(repository)
    fields = CardFields(license, tuple(languages), tuple(datasets), base_model)
    files, left_out = _chosen(folder, leave_out)
    content: dict[str, Content] = {name: folder / name for name in files}
    if ADAPTER_CONFIG in content and base_model is not None:
        config = _read_json(folder / ADAPTER_CONFIG) | {"base_model_name_or_path": base_model}
        content[ADAPTER_CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    for name in files:
        if name.endswith((".spm", ".model")):
            with told_as(name):
                content[name] = without_names_of_text(bytes_of(folder / name))
    if CARD not in content:
        raise PublishError(
            f"{folder} has no {CARD}. Write one: hf_attncal.hub.write_model_card({str(folder)!r}, ...)."
        )
    with told_as(CARD):
        list(texts_of(CARD, folder / CARD))  # it can be read
    card = utf8_text(folder / CARD)
    training = _read_json(folder / RESULTS) if RESULTS in content else {}
    try:
        content |= {name: text.encode() for name, text in evaluation_files(card, fields).items()}
        first = published_card(card, repository, None, fields, training)
    except (TypeError, ValueError, AttributeError, LookupError, TemplateError) as error:
        both = f"{CARD} and {RESULTS}" if training else CARD
        raise PublishError(f"{both} in {folder} are not as they were written ({error}): write them anew.") from error
    content[CARD] = first.encode()
    is_adapter = ADAPTER_CONFIG in content and CONFIG not in content
    if is_adapter:
        _check_adapter(folder, content)
    says = check_contents(content, repository)
    auto = None if is_adapter else _check_model(folder, content)
    _check_seals(content)
    if try_loading and auto is not None:
        if not trust_remote_code:
            _check_code(folder, content)
        _try(content, auto)
    sizes = {name: len(of) if isinstance(of, bytes) else of.stat().st_size for name, of in sorted(content.items())}
    missing = tuple(name for name in ("license", "language") if not re.search(rf"^{name}:", first, re.MULTILINE))
    found = Publication(repository, sizes, left_out, missing, says=says)
    if dry_run:
        return found
    with one_message(repository):
        api = HfApi(endpoint=endpoint, token=token)
        url = str(api.create_repo(repository, private=private, exist_ok=True))
        before = _remote(api, repository)
        old_card = before.pop(CARD, None)
        pinned = None if old_card is None else pinned_revision(old_card)
        content[CARD] = published_card(card, repository, pinned, fields, training).encode()
        gone = [name for name in before if name not in content and fate_of(name) is Fate.HUB]
        head = api.model_info(repository).sha
        commit = commit_files(api, repository, content, gone, f"Publish {repository.partition('/')[2]}", parent=head)
        changed = commit != head
        if changed or pinned is None:
            pinned = commit
            content = {CARD: published_card(card, repository, pinned, fields, training).encode()}
            commit_files(api, repository, content, [], f"Pin the example of the card to {pinned[:7]}")
    return replace(found, commit=pinned, changed=changed, url=url)


# ---- what is published ----


def _chosen(folder: Path, leave_out: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of the files that go up, and of what stays behind; refuse any other."""
    if not folder.is_dir():
        raise PublishError(f"{folder} is not a folder. Give the folder that `save_pretrained` or a training wrote.")
    try:
        check_one_model(folder)
    except ValueError as error:
        raise PublishError(str(error)) from error
    files, left_out = [], []
    for path in sorted(folder.iterdir()):
        name = path.name
        fate = fate_of(name)
        if fate is Fate.STAYS or any(fnmatch.fnmatchcase(name, pattern) for pattern in leave_out):
            left_out.append(name)
            continue
        refuse_link(path)
        if path.is_file() and fate is Fate.HUB:
            files.append(name)
        elif path.is_dir() and (kind := kind_of_folder(path)) is not None:
            raise PublishError(
                f"{path} holds a {kind} of its own. Publish it by itself, or leave it out (`--leave-out {name}`)."
            )
        elif file_of(name, "pickle") is not None:
            raise PublishError(
                f"{path} may run code when it is loaded: only safetensors are published. Save the model with "
                f"`save_pretrained`, or leave the file out (`--leave-out {name}`)."
            )
        else:
            raise PublishError(
                f"{path} is no part of a model (text of a training?). Move it, or leave it out (`--leave-out {name}`)."
            )
    return files, tuple(left_out)


def refuse_link(path: Path) -> None:
    """Raise PublishError for a symbolic link: what it leads to would go up."""
    if path.is_symlink():
        raise PublishError(
            f"{path} is a symbolic link to {os.readlink(path)}, which would go up in its place. Put a copy there"
            f"{_or_leave(path.name)}."
        )


def _check_adapter(folder: Path, content: Mapping[str, Content]) -> None:
    """Refuse an adapter whose base model is not on the Hub."""
    problems = _inspected(folder).problems
    base = json.loads(bytes_of(content[ADAPTER_CONFIG])).get("base_model_name_or_path")
    if isinstance(content[ADAPTER_CONFIG], bytes) and "/" in str(base) and is_hub_name(base):
        problems = tuple(problem for problem in problems if "base_model_name_or_path" not in problem)
    if problems:
        raise PublishError(
            f"{folder} does not load elsewhere: {'; '.join(problems)}. Name the base model: base_model=OWNER/NAME."
        )


def _check_seals(content: Mapping[str, Content]) -> None:
    """Refuse what was learned for another model, or changed since."""
    for name, of in content.items():
        if isinstance(of, Path) and (file := file_of(name)) is not None and file.learned_by:
            try:
                with sealed(of):
                    pass
            except ValueError as error:
                raise PublishError(f"{str(error).rstrip('.')}{_or_leave(name)}.") from error


def _check_model(folder: Path, content: Mapping[str, Content]) -> str:
    """Refuse a folder that does not load elsewhere; return the Auto class that loads it."""
    config = _read_json(folder / CONFIG)
    if not isinstance(config.get("model_type"), str):
        raise PublishError(f"`model_type` in {folder / CONFIG} must be a name, got {config.get('model_type')!r}.")
    if config.get("model_type") not in FAMILIES:
        if not {WEIGHTS, TOKENIZER_CONFIG} <= content.keys():
            raise PublishError(f"{folder} lacks {WEIGHTS} or the tokenizer. Save both with `save_pretrained`.")
        return "AutoModel"  # a tuned encoder, whose code is in transformers
    found = _inspected(folder)
    if found.problems:
        raise PublishError(f"{folder} does not load elsewhere: {'; '.join(found.problems)}. Save the model again.")
    return FAMILIES[found.model_type].auto_and_card(found.architecture)[0]


def _inspected(folder: Path) -> HubFolder:
    try:
        return inspect_folder(folder)
    except ValueError as error:
        raise PublishError(str(error)) from error


def check_contents(content: Mapping[str, Content], repository: str) -> dict[str, str]:
    """Refuse secrets, places of a machine, the name of the user and foreign code; return what each file says else.

    Raises:
        PublishError: something must not go up, or a file cannot be read; the message names the place.
    """
    user = _user()
    user = None if user in repository.split("/") else user
    says = {}
    for name, of in sorted(content.items(), reverse=True):  # a card repeats what results.json says
        if name.endswith(".py") and (name, digest(bytes_of(of))) in own_code():
            continue
        said: dict[str, list[str]] = {}
        lines = []
        with told_as(name):
            for text in texts_of(name, of):
                if leak := leak_in(text, user, content.keys()):
                    raise PublishError(f"{name} holds {leak.what} in {text.place}. {leak.remedy}{_or_leave(name)}.")
                for label, words in said_by(text).items():
                    if words not in said.setdefault(label, []):
                        said[label].append(words)
                if text.place.startswith("line "):
                    lines.append(text.text)
        if is_environment(lines):
            raise PublishError(f"{name} sets variables of an environment. Take it out{_or_leave(name)}.")
        if said:
            says[name] = "; ".join(_in_short(label, words) for label, words in sorted(said.items()))
    return says


@contextmanager
def told_as(name: str) -> Iterator[None]:
    """Turn the error of a file that cannot be read into one that names it."""
    try:
        yield
    except UnreadableError as error:
        raise PublishError(f"{name} {error}{_or_leave(name)}.") from error


def _or_leave(name: str) -> str:
    return "" if name in (CARD, CONFIG, "index.html") else f", or leave the file out (`--leave-out {name}`)"


def _in_short(label: str, words: Sequence[str]) -> str:
    first = " ".join(words[0].split())
    others = f" and {len(words) - 1} more" if len(words) > 1 else ""
    return f"{label} {first if len(first) <= 60 else first[:57] + '...'}{others}"


@cache
def own_code() -> Mapping[tuple[str, str], str]:
    """Return the code that models of this package, and of those that add families, are saved with.

    It may run unasked, since it is installed: (name, SHA-256) -> text.
    """
    folders = set()
    for family in FAMILIES.values():
        for module in family.whole_modules:
            package, *rooms, _ = module.split(".")
            spec = find_spec(package)  # of a whole package: that of a module in it imports the package
            folders |= {Path(place, *rooms) for place in (spec and spec.submodule_search_locations) or ()}
    files = [path for folder in sorted(folders) for path in folder.glob("*.py")]
    return {(path.name, digest(path.read_bytes())): path.read_text(encoding="utf-8") for path in files}


def _check_code(folder: Path, content: Mapping[str, Content]) -> None:
    """Refuse to run code that is not this package's own."""
    own = {name: text for (name, _), text in own_code().items()}
    for name, of in sorted(content.items()):
        if not name.endswith(".py") or (name, digest(bytes_of(of))) in own_code():
            continue
        where = "is no file of this version of hf_attncal"
        if name in own:
            pairs = zip_longest(utf8_text(of).splitlines(), own[name].splitlines())
            line = next((number for number, (a, b) in enumerate(pairs, start=1) if a != b), 1)
            where = f"is not as this version of hf_attncal saves it (from line {line} on)"
        raise PublishError(
            f"{folder / name} {where}, so it was read and not run. Load the model with this package and save it "
            "again; or read the code, and pass --trust-remote-code to run it, or --no-try-loading not to try."
        )


def _user() -> str | None:
    """Return the login name, unless it is a common one that says nothing."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
    return None if len(name) < 4 or name.lower() in _COMMON_USERS else name


def _try(content: dict[str, Content], auto: str) -> None:
    """Load what goes up in a process without this package."""
    with tempfile.TemporaryDirectory() as place:
        for name, of in content.items():
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            if isinstance(of, bytes):
                path.write_bytes(of)
            else:
                os.symlink(of.resolve(), path)
        try:
            load_in_fresh_process(place, auto)
        except RuntimeError as error:
            last = str(error).strip().splitlines()[-1]
            raise PublishError(f"the folder does not load without this package: {last}") from error


# ---- the Hub ----


def _remote(api: HfApi, repository: str) -> dict[str, str]:
    """Return the names of the files in the repository, with the text of its card."""
    names = dict.fromkeys(api.list_repo_files(repository), "")
    if CARD in names:
        with tempfile.TemporaryDirectory() as place:
            path = api.hf_hub_download(repository, CARD, local_dir=place)
            names[CARD] = Path(path).read_text(encoding="utf-8")
    return names


def commit_files(
    api: HfApi,
    repository: str,
    content: dict[str, Content],
    gone: Sequence[str],
    message: str,
    repo_type: str = "model",
    parent: str | None = None,
) -> str:
    """Make one commit on top of `parent` and return its hash, or the newest one's if there was nothing to change."""
    operations: list[Any] = [CommitOperationDelete(name) for name in gone]
    operations += [CommitOperationAdd(name, of if isinstance(of, bytes) else str(of)) for name, of in content.items()]
    return api.create_commit(
        repository, operations, commit_message=message, repo_type=repo_type, parent_commit=parent
    ).oid


@contextmanager
def one_message(repository: str) -> Iterator[None]:
    """Turn what the Hub and the network answer, or do not, into one message."""
    session = get_session()
    waits, session.timeout = session.timeout, STALLED_AFTER
    try:
        yield
    except RepositoryNotFoundError as error:
        raise PublishError(
            f"{repository} was not found, or your token may not write there. Log in with `hf auth login`."
        ) from error
    except (HTTPError, RuntimeError, OSError) as error:  # or an upload that broke, a file that cannot be read
        remedies = {
            401: "Log in with `hf auth login`.",
            403: "Your token may not write there: take one with the right to write.",
            409: "Someone else is writing to it: run the command again.",
            412: "Someone else has written to it: run the command again.",
            413: "A file is too large for the Hub.",
            507: "The disk of the Hub is full: try again later.",
        }
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedy = remedies.get(status, "Run the same command again: it goes on with what is missing.")
        cause = error if isinstance(error, HTTPError) else error.__cause__ or error
        said = (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
        raise PublishError(f"{repository} is not published: {said}. {remedy}") from error
    except ValueError as error:  # a card or an object that the Hub refuses
        raise PublishError(f"{repository} is not published: {' '.join(str(error).split())}") from error
    finally:
        session.timeout = waits


# ---- small parts ----


def check_repository(repository: str) -> None:
    try:
        validate_repo_id(repository)
        if repository.count("/") != 1:
            raise HFValidationError("it needs an owner")
    except HFValidationError as error:
        raise PublishError(f"`repository` must be OWNER/NAME, got {repository!r}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PublishError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise PublishError(f"{path} is not a JSON object.")
    return found
