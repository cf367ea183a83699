"""`attncal publish`: a model, adapter or aligner, a page, or a metric goes to the Hub."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_attncal.errors import user_errors

from .kinds import Folder

if TYPE_CHECKING:
    from hf_attncal.hub.publish import Publication

GROUPS = {"The card": ("license", "language", "dataset", "base_model")}


def publish(
    folder: Folder,
    repository: str,
    /,
    *,
    dry_run: bool = False,
    public: bool = False,
    space: bool = False,
    title: str | None = None,
    leave_out: Sequence[str] = (),
    try_loading: bool = True,
    trust_remote_code: bool = False,
    license: str | None = None,
    language: Sequence[str] = (),
    dataset: Sequence[str] = (),
    base_model: str | None = None,
) -> "Publication":
    """Publish a model, an adapter, an aligner, or a page on the Hugging Face Hub.

    The folder of a model, an adapter, an aligner or a tuned encoder goes up in one commit, with a complete card. Only
    the files that a model needs are sent. What a training leaves for itself stays behind; any other file, a secret, a
    path of a machine, your user name, a symbolic link or code of another repository is refused. The folder must load
    in a process without this package; code that is not the package's own is read and not run. Publishing the same
    folder again changes nothing, and an upload that was cut off goes on.

    Examples:
        attncal publish runs/gated owner/name --dry-run
        attncal publish runs/gated owner/name --license apache-2.0 --language de en --public
        attncal publish runs/adapter owner/name --base-model Helsinki-NLP/opus-mt-de-en
        attncal publish report.html owner/name --space

    Args:
        folder: what was saved or trained; with --space an .html page, or the folder of a metric for evaluate
        repository: OWNER/NAME on the Hub, made if it does not exist
        dry_run: check and list the files, without the network
        public: make a new repository public, not private
        space: publish a page, or a metric, as a static Space
        title: title of the Space; without it, its name
        leave_out: further files that stay behind, as NAME or *.txt
        try_loading: first load the folder in a process without this package
        trust_remote_code: load the folder though its code is not this version's of the package
        license: as the Hub writes it (apache-2.0); without it, that of the card
        language: codes of the languages of the text, source first (de en); without it, those of the card
        dataset: datasets of the Hub that it was trained and tested on; without it, those of the card
        base_model: name on the Hub of what an adapter or an encoder began as; without it, that of the card

    Returns:
        What was sent, or would be: `files` with their sizes, what each `says` of you, `left_out`, `missing` fields of
        the card, `url` and `commit`. Printed, it says all of that.

    Raises:
        CommandError: a file that must not be published, a folder that does not load, or an answer of the Hub.
    """
    from hf_attncal.hub import PublishError, publish_folder, publish_metric, publish_page

    common = {"private": not public, "dry_run": dry_run}
    with user_errors(PublishError):
        if space:
            publish_as = publish_metric if os.path.isdir(folder) else publish_page
            return publish_as(folder, repository, title=title or repository.partition("/")[2], **common)
        card = {"license": license, "languages": language, "datasets": dataset, "base_model": base_model}
        loading = {"try_loading": try_loading, "trust_remote_code": trust_remote_code}
        return publish_folder(folder, repository, **card, leave_out=leave_out, **loading, **common)
