"""Publish a page, or the folder of a metric for `evaluate`, as a static Space of the Hub."""

import ast
import html
import json
from pathlib import Path

from huggingface_hub import HfApi

from hf_attncal.layouts import CARD

from .contents import Content, utf8_text
from .publish import (
    Publication,
    PublishError,
    check_contents,
    check_repository,
    commit_files,
    one_message,
    refuse_link,
)

_METRIC_PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<h1>{title}</h1>
<pre>{call}</pre>
<p style="white-space: pre-line">{about}</p></html>
"""


def publish_page(
    page: str | Path,
    repository: str,
    *,
    title: str,
    private: bool = True,
    dry_run: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> Publication:
    """Publish a page of `attncal analyze`, `check` or `align run --format html` as a static Space.

    Args:
        page: file of the page.
        repository: `owner/name` of the Space; it is made if it does not exist.
        title: title of the Space.
        private, dry_run, token, endpoint: as for `publish`.

    Raises:
        PublishError: the page holds what must not be published, or the Hub refused it.
    """
    page = Path(page)
    if not page.is_file() or page.suffix.lower() not in (".html", ".htm"):
        raise PublishError(f"{page} is not a page. Give the .html file that `attncal analyze` or `check` has written.")
    content: dict[str, Content] = {"index.html": page, CARD: _card(title).encode()}
    return _publish_space(content, repository, title, private, dry_run, HfApi(endpoint=endpoint, token=token))


def publish_metric(
    folder: str | Path,
    repository: str,
    *,
    title: str,
    private: bool = True,
    dry_run: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> Publication:
    """Publish a metric as the static Space that `evaluate.load("owner/name")` reads.

    Its script goes up under the name of the Space, since `evaluate` looks for that. A page shows what it is for.

    Args:
        folder: holds a script of its own name, as `hf_attncal.alignment.AER_METRIC` does (`aer/aer.py`).
        repository: `owner/name` of the Space; it is made if it does not exist.
        title: title of the Space.
        private, dry_run, token, endpoint: as for `publish`.

    Raises:
        PublishError: `folder` has no such script, or the script holds what must not be published, or the Hub refused
            it.
    """
    script = Path(folder, f"{Path(folder).name}.py")
    if not script.is_file():
        raise PublishError(f"{folder} is not the folder of a metric: it has no {script.name}. Give a folder with one.")
    check_repository(repository)
    content: dict[str, Content] = {f"{repository.partition('/')[2]}.py": script}
    check_contents(content, repository)
    about = ast.get_docstring(ast.parse(utf8_text(script))) or ""
    call = f'evaluate.load("{repository}")'
    card = f"{_card(title, ('evaluate', 'metric'))}\n# {title}\n\n```python\n{call}\n```\n\n{about}\n"
    page = _METRIC_PAGE.format(title=html.escape(title), call=html.escape(call), about=html.escape(about))
    content |= {"index.html": page.encode(), CARD: card.encode()}
    return _publish_space(content, repository, title, private, dry_run, HfApi(endpoint=endpoint, token=token))


def _card(title: str, tags: tuple[str, ...] = ()) -> str:
    told = {"title": title, "sdk": "static", "pinned": False} | ({"tags": tags} if tags else {})
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in told.items()]
    return f"---\n{''.join(lines)}---\n"


def _publish_space(
    content: dict[str, Content], repository: str, title: str, private: bool, dry_run: bool, api: HfApi
) -> Publication:
    """Publish the files of a static Space in one commit."""
    check_repository(repository)
    for of in content.values():
        if isinstance(of, Path):
            refuse_link(of)
    says = check_contents(content, repository)
    sizes = {name: len(of) if isinstance(of, bytes) else of.stat().st_size for name, of in content.items()}
    name = f"spaces/{repository}"
    if dry_run:
        return Publication(name, sizes, (), (), says=says)
    with one_message(repository):
        url = str(api.create_repo(repository, repo_type="space", space_sdk="static", private=private, exist_ok=True))
        head = api.space_info(repository).sha
        commit = commit_files(api, repository, content, [], f"Publish {title}", "space")
    return Publication(name, sizes, (), (), commit, commit != head, url, says)
