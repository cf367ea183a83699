"""Publish a saved model, adapter, aligner or tuned encoder on the Hub, and refuse what should not leave the machine.

    from hf_attncal.hub import publish_folder

    publish_folder("runs/gated", "owner/name", license="apache-2.0", languages=["de", "en"])

Only kinds of files that a model needs go up. What a training leaves for itself stays behind, and any other file is
refused by name.
"""

import fnmatch
import getpass
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, HTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session, validate_repo_id

from hf_attncal.families import FAMILIES
from hf_attncal.layouts import (
    ADAPTER_CONFIG,
    CARD,
    CONFIG,
    RESULTS,
    TOKENIZER_CONFIG,
    WEIGHTS,
    Fate,
    fate_of,
    file_of,
    kind_of_folder,
)

from .folder import inspect_folder
from .isolated import load_in_fresh_process
from .published_card import CardFields, evaluation_files, pinned_revision, published_card

STALLED_AFTER = 100.0  # seconds without a byte; the client of the Hub itself would wait for ever
_ABSOLUTE = re.compile(
    r"(?<![\w.:/<])/(?:home|Users|root|tmp|mnt|var|opt|srv|data|scratch|work)/[^\s\"'`)<]+|\b[A-Z]:\\\S+"
)
_COMMON_USERS = ("root", "user", "admin", "runner", "ubuntu", "docker", "nobody", "jovyan")
_TEXT = (".json", ".md", ".py", ".jinja", ".html", ".yaml")


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
    """

    repository: str
    files: dict[str, int]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]
    commit: str | None = None
    changed: bool = False
    url: str | None = None

    def __str__(self) -> str:
        options = {"license": "--license", "language": "--language"}
        lines = [f"{size:>13,}  {name}" for name, size in self.files.items()]
        lines.append(f"{sum(self.files.values()):>13,}  bytes in {len(self.files)} files")
        if self.left_out:
            lines.append(f"left out: {', '.join(self.left_out)}")
        if self.missing:
            lines.append("the card does not say: " + ", ".join(f"{name} ({options[name]})" for name in self.missing))
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
        token: access token; None for the one that is logged in.
        endpoint: address of the Hub; None for the usual one.

    Raises:
        PublishError: the folder is incomplete, or holds what must not be published, or the Hub refused it.
    """
    folder = Path(folder)
    check_repository(repository)
    fields = CardFields(license, tuple(languages), tuple(datasets), base_model)
    files, left_out = _chosen(folder, leave_out)
    content: dict[str, Path | bytes] = {name: folder / name for name in files}
    if ADAPTER_CONFIG in content and base_model is not None:
        config = _read_json(folder / ADAPTER_CONFIG) | {"base_model_name_or_path": base_model}
        content[ADAPTER_CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    if CARD not in content:
        raise PublishError(
            f"{folder} has no {CARD}. Write one: hf_attncal.hub.write_model_card({str(folder)!r}, ...)."
        )
    card = (folder / CARD).read_text(encoding="utf-8")
    training = _read_json(folder / RESULTS) if RESULTS in content else {}
    content |= {name: text.encode() for name, text in evaluation_files(card, fields).items()}
    first = published_card(card, repository, None, fields, training)
    content[CARD] = first.encode()
    auto = _check_model(folder, content)
    check_private_facts(content, repository)
    if try_loading and auto is not None:
        _try(content, auto)
    sizes = {name: len(of) if isinstance(of, bytes) else of.stat().st_size for name, of in sorted(content.items())}
    missing = tuple(name for name in ("license", "language") if not re.search(rf"^{name}:", first, re.MULTILINE))
    found = Publication(repository, sizes, left_out, missing)
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
    return Publication(repository, sizes, left_out, missing, pinned, changed, url)


# ---- what is published ----


def _chosen(folder: Path, leave_out: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of the files that go up, and of what stays behind; refuse any other."""
    if not folder.is_dir():
        raise PublishError(f"{folder} is not a folder. Give the folder that `save_pretrained` or a training wrote.")
    files, left_out = [], []
    for path in sorted(folder.iterdir()):
        name = path.name
        fate = fate_of(name)
        if fate is Fate.STAYS or any(fnmatch.fnmatchcase(name, pattern) for pattern in leave_out):
            left_out.append(name)
        elif path.is_file() and fate is Fate.HUB:
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


def _check_model(folder: Path, content: dict[str, Path | bytes]) -> str | None:
    """Refuse a folder that does not load elsewhere; return the Auto class that loads it, None for an adapter."""
    if ADAPTER_CONFIG in content and CONFIG not in content:
        problems = inspect_folder(folder).problems
        base = json.loads(_bytes(content[ADAPTER_CONFIG])).get("base_model_name_or_path")
        if isinstance(content[ADAPTER_CONFIG], bytes) and re.fullmatch(r"[\w.-]+/[\w.-]+", str(base)):
            problems = tuple(problem for problem in problems if "base_model_name_or_path" not in problem)
        if problems:
            raise PublishError(
                f"{folder} does not load elsewhere: {'; '.join(problems)}. "
                "Name the base model: --base-model OWNER/NAME."
            )
        return None
    config = _read_json(folder / CONFIG)
    for auto, entry in (config.get("auto_map") or {}).items():
        if "--" in str(entry):
            raise PublishError(
                f"`auto_map` of config.json takes {auto} from another repository ({entry}), whose code could change. "
                "Load the model with this package and save it again."
            )
    if config.get("model_type") not in FAMILIES:
        if not {WEIGHTS, TOKENIZER_CONFIG} <= content.keys():
            raise PublishError(f"{folder} lacks {WEIGHTS} or the tokenizer. Save both with `save_pretrained`.")
        return "AutoModel"  # a tuned encoder, whose code is in transformers
    found = inspect_folder(folder)
    if found.problems:
        raise PublishError(f"{folder} does not load elsewhere: {'; '.join(found.problems)}. Save the model again.")
    return FAMILIES[found.model_type].auto_and_card(found.architecture)[0]


def check_private_facts(content: dict[str, Path | bytes], repository: str) -> None:
    """Refuse absolute paths, and the name of the user, in files that people read."""
    user = _user()
    named = None
    if user and user not in repository.split("/"):
        named = re.compile(rf"(?<![\w-]){re.escape(user)}(?![\w-])")
    for name, of in sorted(content.items(), reverse=True):  # a card repeats what results.json says
        file = file_of(name)
        if (file is not None and file.has_words) or Path(name).suffix not in _TEXT:
            continue
        text = _bytes(of).decode("utf-8", errors="replace")
        if path := _ABSOLUTE.search(text):
            raise PublishError(f"{name} holds the path {path[0]!r} of this machine. {_take_out(name)}")
        if named is not None and (place := named.search(text)):
            line = text.count("\n", 0, place.start()) + 1
            raise PublishError(f"{name} holds the user name {user!r} in line {line}. {_take_out(name)}")


def _take_out(name: str) -> str:
    other = f", or leave the file out (`--leave-out {name}`)" if name not in (CARD, CONFIG) else ""
    return f"Take it out{other}, and publish again."


def _user() -> str | None:
    """Return the login name, unless it is a common one that says nothing."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None
    return None if len(name) < 4 or name.lower() in _COMMON_USERS else name


def _try(content: dict[str, Path | bytes], auto: str) -> None:
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
    content: dict[str, Path | bytes],
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
    except HTTPError as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedies = {
            401: "Log in with `hf auth login`.",
            403: "Your token may not write there: take one with the right to write.",
            409: "Someone else is writing to it: run the command again.",
            412: "Someone else has written to it: run the command again.",
            413: "A file is too large for the Hub.",
            507: "The disk of the Hub is full: try again later.",
        }
        remedy = remedies.get(status, "Run the same command again: it goes on with what is missing.")
        said = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise PublishError(f"{repository} is not published: {said}. {remedy}") from error
    except ValueError as error:  # a card or an object that the Hub refuses
        raise PublishError(f"{repository} is not published: {' '.join(str(error).split())}") from error
    except (RuntimeError, OSError) as error:  # an upload that broke, a file that cannot be read
        cause = error.__cause__ or error
        said = (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
        raise PublishError(
            f"{repository} is not published: {said}. Run the same command again: it goes on with what is missing."
        ) from error
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


def _bytes(of: Path | bytes) -> bytes:
    return of if isinstance(of, bytes) else of.read_bytes()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PublishError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise PublishError(f"{path} is not a JSON object.")
    return found
