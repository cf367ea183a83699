"""Publish a saved model, adapter, aligner or tuned encoder on the Hub.

    from hf_attncal.hub import publish_folder

    publish_folder("runs/gated", "owner/name", license="apache-2.0", languages=["de", "en"])

Only files that `layouts.py` allows are sent, and code only if it is the package's own. Everything else is listed and
not sent. The text of all sent files is searched for tokens and absolute paths.
"""

import fnmatch
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, HTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session, validate_repo_id
from jinja2 import TemplateError
from safetensors import SafetensorError, safe_open

from hf_attncal.data.spm import without_file_names
from hf_attncal.families import FAMILIES
from hf_attncal.inference.seals import sealed
from hf_attncal.io.errors import UnreadableError
from hf_attncal.layouts import (
    ADAPTER_CONFIG,
    CARD,
    CONFIG,
    GENERATION_CONFIG,
    RESULTS,
    TOKENIZER_CONFIG,
    WEIGHTS,
    Fate,
    check_one_model,
    fate_of,
    file_of,
)

from .hub_folder import inspect_folder
from .isolated import load_in_fresh_process
from .published_card import CardFields, pinned_revision, published_card

_TENSOR = re.compile(r"[A-Za-z_][\w.]*")  # name of a parameter
STALLED_AFTER = 100.0  # seconds without a byte; the Hub's client has no timeout
Content = Path | bytes
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|sk-(?=[\w-]*\d)[\w-]{20,}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|(?:npm_|pypi-)[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{4,})|-----BEGIN [A-Z0-9 ]*PRIVATE KEY"
)
_PATH = re.compile(
    r"(?<![\w.\-/:<)])/(?:home|Users|root|tmp|var|mnt|media|opt|srv|data|scratch|work|workspaces?|gpfs|lustre|Volumes"
    r"|private|etc|fsx|nfs|kaggle|proc)/[^\s\"'`)<]+|(?<![\w/.])~/\w[^\s\"'`]*|\bfile:/+\w[^\s\"'`]*"
    r"|(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}\w[^\s\"'`]*"
)
_WHOLE_PATH = re.compile(r"/[\w.][^/\n]*(?:/[^/\n]+)+")
_FOREIGN_CLASS = re.compile(r"[\w.-]+/[\w.-]+--[\w./-]+")


class PublishError(ValueError):
    """Error that prevents the publication of a folder; its message has the remedy."""


@dataclass(frozen=True)
class Publication:
    """Result of a publication, or the plan of a dry run.

    Args:
        repository: name on the Hub, `owner/name`.
        files: path in the repository -> bytes.
        left_out: names in the folder that are not sent.
        missing: fields of the card without a value.
        commit: commit with all files; None for a dry run.
        changed: True if a file was new or changed.
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
        lines = [f"{size:>13,}  {name}" for name, size in self.files.items()]
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
    folder: str | os.PathLike[str],
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
    changes nothing, and an interrupted publication can be repeated.

    Args:
        folder: folder written by `save_pretrained` or a training, with its card.
        repository: name on the Hub, `owner/name`; a missing repository is created.
        license, languages, datasets, base_model: see `CardFields`. `base_model` also replaces the folder of the base
            model in an adapter.
        leave_out: names or patterns of further files not to send.
        private: True to make a new repository private; an existing repository is not changed.
        dry_run: True to check everything without the network.
        try_loading: True to load the folder in a process without this package; adapters are not loaded.
        token: access token. Default: None, the token of `hf auth login`.
        endpoint: address of the Hub. Default: None, the public Hub.

    Raises:
        PublishError: the folder is incomplete or has content that must not be published, or the Hub refused it.
    """
    folder = Path(folder)
    _check_repository(repository)
    fields = CardFields(license, tuple(languages), tuple(datasets), base_model)
    content, left_out = _allowed(folder, leave_out)
    _prepare(content, base_model)
    card, training = _text(content[CARD], CARD), _object(content, RESULTS)
    try:
        first = published_card(card, repository, None, fields, training)
    except (TypeError, ValueError, AttributeError, LookupError, TemplateError) as error:
        both = f"{CARD} and {RESULTS}" if training else CARD
        raise PublishError(f"{both} in {folder} are not as they were written ({error}). Write them again.") from error
    content[CARD] = first.encode()
    auto = _check_model(folder, content)
    _check_contents(content)
    if try_loading and auto is not None:
        _try(content, auto)
    sizes = {name: len(of) if isinstance(of, bytes) else of.stat().st_size for name, of in sorted(content.items())}
    missing = tuple(name for name in ("license", "language") if not re.search(rf"^{name}:", first, re.MULTILINE))
    publication = Publication(repository, sizes, left_out, missing)
    if dry_run:
        return publication
    with _one_message(repository):
        api = HfApi(endpoint=endpoint, token=token)
        url = str(api.create_repo(repository, private=private, exist_ok=True))
        before = _remote(api, repository)
        old_card = before.pop(CARD, None)
        pinned = None if old_card is None else pinned_revision(old_card)
        content[CARD] = published_card(card, repository, pinned, fields, training).encode()
        gone = [name for name in before if name not in content and fate_of(name) is Fate.HUB]
        head = api.model_info(repository).sha
        commit = _commit(api, repository, content, gone, f"Publish {repository.partition('/')[2]}", head)
        changed = commit != head
        if changed or pinned is None:
            pinned = commit
            content = {CARD: published_card(card, repository, pinned, fields, training).encode()}
            _commit(api, repository, content, [], f"Pin the example of the card to {pinned[:7]}")
    return replace(publication, commit=pinned, changed=changed, url=url)


# ---- what is published ----


def _allowed(folder: Path, leave_out: Sequence[str]) -> tuple[dict[str, Content], tuple[str, ...]]:
    """Return the files to send, by name, and the names of all others."""
    if not folder.is_dir():
        raise PublishError(f"{folder} is not a folder. Give the folder that `save_pretrained` or a training wrote.")
    try:
        check_one_model(folder)
    except ValueError as error:
        raise PublishError(str(error)) from error
    names = sorted(os.listdir(folder))
    sent = {name: folder / name for name in names if fate_of(name) is Fate.HUB and (folder / name).is_file()}
    sent = {name: path for name, path in sent.items() if not any(fnmatch.fnmatchcase(name, one) for one in leave_out)}
    sent = {name: path for name, path in sent.items() if path.suffix != ".py" or path.read_bytes() in own_code()}
    for path in sent.values():
        if path.is_symlink():
            raise PublishError(f"{path} is a symbolic link to {os.readlink(path)}. Put a copy there.")
    if CARD not in sent:
        raise PublishError(f"{folder} has no {CARD}. Write one with hf_attncal.hub.write_model_card.")
    return dict(sent), tuple(name for name in names if name not in sent)


@cache
def own_code() -> frozenset[bytes]:
    """Return the content of the model source files of this package."""
    return frozenset(path.read_bytes() for path in Path(__file__).parents[1].glob("models/*.py"))


def _prepare(content: dict[str, Content], base_model: str | None) -> None:
    """Set the base model of an adapter, and remove file names from SentencePiece models."""
    if ADAPTER_CONFIG in content and base_model is not None:
        config = _object(content, ADAPTER_CONFIG) | {"base_model_name_or_path": base_model}
        content[ADAPTER_CONFIG] = (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
    for name in content:
        if name.endswith((".spm", ".model")):
            try:
                content[name] = without_file_names(_bytes(content[name]))
            except UnreadableError as error:
                raise PublishError(f"{name} {error}.") from error


def _check_model(folder: Path, content: Mapping[str, Content]) -> str | None:
    """Raise an error for a folder that does not load elsewhere; return its Auto class, None for an adapter."""
    config = _object(content, CONFIG)
    if CONFIG in content and config.get("model_type") not in FAMILIES:
        if not isinstance(config.get("model_type"), str):
            raise PublishError(f"`model_type` in {folder / CONFIG} must be a name, got {config.get('model_type')!r}.")
        if not {WEIGHTS, TOKENIZER_CONFIG} <= content.keys():
            raise PublishError(f"{folder} lacks {WEIGHTS} or the tokenizer. Save both with `save_pretrained`.")
        return "AutoModel"  # a tuned encoder, whose code is in transformers
    try:
        inspected = inspect_folder(folder)
    except ValueError as error:
        raise PublishError(str(error)) from error
    problems, remedy = list(inspected.problems), "Save the model again."
    if ADAPTER_CONFIG in content:
        remedy = "Name the base model: base_model=OWNER/NAME."
        base = str(_object(content, ADAPTER_CONFIG).get("base_model_name_or_path"))
        if isinstance(content[ADAPTER_CONFIG], bytes) and _is_repository(base):
            problems = [problem for problem in problems if "base_model_name_or_path" not in problem]
    problems += [f"{name} is not this version's" for name in inspected.code_files if name not in content]
    if problems:
        raise PublishError(f"{folder} does not load elsewhere: {'; '.join(problems)}. {remedy}")
    if ADAPTER_CONFIG in content:
        return None
    return FAMILIES[inspected.model_type].auto_and_card(inspected.architecture)[0]


def _try(content: Mapping[str, Content], auto: str) -> None:
    """Load the published files in a process without this package."""
    with tempfile.TemporaryDirectory() as place:
        for name, file in content.items():
            path = Path(place, name)
            path.parent.mkdir(exist_ok=True)
            if isinstance(file, bytes):
                path.write_bytes(file)
            else:
                os.symlink(file.resolve(), path)
        try:
            load_in_fresh_process(place, auto)
        except RuntimeError as error:
            last_line = str(error).strip().splitlines()[-1]
            raise PublishError(f"the folder does not load without this package: {last_line}") from error


# ---- what must not be published ----


def _check_contents(content: Mapping[str, Content]) -> None:
    """Refuse access tokens, absolute paths, foreign code, and files learned for another model."""
    for name, content_of_file in sorted(content.items(), reverse=True):  # results.json before the card that repeats it
        file = file_of(name)
        if isinstance(content_of_file, Path) and file is not None and file.learned_by:
            try:
                with sealed(content_of_file):
                    pass
            except ValueError as error:
                raise PublishError(f"{str(error).rstrip('.')}, or leave the file out (--leave-out {name}).") from error
        if name.endswith(".safetensors") and isinstance(content_of_file, Path):
            _check_tensors(name, content_of_file)
        elif not name.endswith((".py", ".spm", ".model", ".png")):
            _check_text(name, content_of_file, has_words=file is not None and file.has_words)
    _check_code_names(content)


def _check_text(name: str, content: Content, has_words: bool) -> None:
    """Refuse access tokens, and absolute paths unless the file has a vocabulary, where any word may look like one."""
    text = _text(content, name)
    values = list(_strings(_json(text, name))) if name.endswith(".json") else []
    for value in (text, *values):
        if match := _TOKEN.search(value):
            raise PublishError(f"{name} holds what looks like a token ({match[0][:7]}...). Take it out and revoke it.")
        match = None if has_words else _PATH.search(value)
        if match is None and not has_words and value is not text:
            match = _WHOLE_PATH.fullmatch(value)
        if match is not None:
            raise PublishError(f"{name} holds the path {match[0][:200]!r} of a machine. Take it out.")


def _check_tensors(name: str, path: Path) -> None:
    """Raise an error for weights with metadata or names that transformers and PEFT do not write; they may be text."""
    try:
        with safe_open(path, "numpy") as file:
            metadata, tensors = file.metadata() or {}, list(file.keys())
    except (SafetensorError, OSError) as error:
        raise PublishError(f"{name} is damaged ({error}). Save the model again.") from error
    wrong = [f"`{key}`" for key, value in metadata.items() if (key, value) != ("format", "pt")]
    wrong += [f"a tensor {tensor[:60]!r}" for tensor in tensors if not _TENSOR.fullmatch(tensor)]
    if wrong:
        raise PublishError(f"{name} holds {wrong[0]}, which `save_pretrained` does not write. Save the model again.")


def _check_code_names(content: Mapping[str, Content]) -> None:
    """Raise an error for configurations that load code from another repository."""
    for name in (CONFIG, TOKENIZER_CONFIG, ADAPTER_CONFIG, GENERATION_CONFIG):
        config = _object(content, name)
        foreign = [value for value in _strings(config) if _FOREIGN_CLASS.fullmatch(value)]
        kernels = [str(value) for key, value in config.items() if key.endswith("_implementation")]
        foreign += [kernel for kernel in kernels if "/" in kernel]
        library = (config.get("auto_mapping") or {}).get("parent_library", "transformers")
        if library.partition(".")[0] not in ("transformers", "peft", "hf_attncal", "transformers_modules"):
            foreign.append(library)
        if foreign:
            raise PublishError(f"{name} loads code that is not in the folder ({foreign[0][:100]}). Save it again.")


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _strings(part)


# ---- the Hub ----


def _remote(api: HfApi, repository: str) -> dict[str, str]:
    """Map each file in the repository to an empty string, and the card to its text."""
    names = dict.fromkeys(api.list_repo_files(repository), "")
    if CARD in names:
        with tempfile.TemporaryDirectory() as place:
            path = api.hf_hub_download(repository, CARD, local_dir=place)
            names[CARD] = Path(path).read_text(encoding="utf-8")
    return names


def _commit(
    api: HfApi,
    repository: str,
    content: Mapping[str, Content],
    deleted: Sequence[str],
    message: str,
    parent: str | None = None,
) -> str:
    """Upload and delete files in one commit. Return its hash, or the hash of the last commit if nothing changes.

    Args:
        api: client of the Hub.
        repository: `owner/name`.
        content: files to upload, by their name in the repository.
        deleted: names of files to delete.
        message: message of the commit.
        parent: commit that must still be the last one, else the Hub refuses. Default: None, not checked.
    """
    operations: list[Any] = [CommitOperationDelete(name) for name in deleted]
    operations += [
        CommitOperationAdd(name, file if isinstance(file, bytes) else str(file)) for name, file in content.items()
    ]
    return api.create_commit(repository, operations, commit_message=message, parent_commit=parent).oid


@contextmanager
def _one_message(repository: str) -> Iterator[None]:
    """Re-raise errors of the Hub and the network as one message."""
    session = get_session()
    waits, session.timeout = session.timeout, STALLED_AFTER
    try:
        yield
    except RepositoryNotFoundError as error:
        raise PublishError(
            f"{repository} was not found, or your token may not write there. Log in with `hf auth login`."
        ) from error
    except (HTTPError, RuntimeError, OSError) as error:  # also a broken upload or an unreadable file
        remedies = {
            401: "Log in with `hf auth login`.",
            403: "Your token may not write there: use a token with write access.",
            409: "Someone else is writing to it: run the command again.",
            412: "Someone else has written to it: run the command again.",
            413: "A file is too large for the Hub.",
            507: "The disk of the Hub is full: try again later.",
        }
        status = getattr(getattr(error, "response", None), "status_code", 0)
        remedy = remedies.get(status, "Run the same command again; it sends only the missing files.")
        cause = error if isinstance(error, HTTPError) else error.__cause__ or error
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0].rstrip(".")
        raise PublishError(f"{repository} is not published: {reason}. {remedy}") from error
    except ValueError as error:  # a card or an object that the Hub refuses
        raise PublishError(f"{repository} is not published: {' '.join(str(error).split())}") from error
    finally:
        session.timeout = waits


# ---- small parts ----


def _check_repository(repository: str) -> None:
    if not _is_repository(repository):
        raise PublishError(f"`repository` must be a Hub name, OWNER/NAME, got {repository!r}.")


def _is_repository(name: str) -> bool:
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name.count("/") == 1


def _bytes(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _text(content: Content, name: str) -> str:
    try:
        return _bytes(content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PublishError(f"{name} is not in UTF-8 (byte {error.start}): save it in UTF-8.") from error


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PublishError(f"{name} is not valid JSON: {error}.") from error


def _object(content: Mapping[str, Content], name: str) -> dict[str, Any]:
    """Return the JSON object in a file, {} if the file is not sent."""
    values = _json(_text(content[name], name), name) if name in content else {}
    if not isinstance(values, dict):
        raise PublishError(f"{name} must hold a JSON object.")
    return values
