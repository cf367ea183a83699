"""`attncal publish`: a model, adapter or aligner, a page, or a metric goes to the Hub."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_attncal.io.errors import user_errors

from .kinds import Folder, Values

if TYPE_CHECKING:
    from hf_attncal.hub.publish import Publication


def publish(
    folder: Folder,
    repository: str,
    /,
    *,
    dry_run: bool = False,
    public: bool = False,
    space: bool = False,
    card: Values = None,
    leave_out: Sequence[str] = (),
    try_loading: bool = True,
    trust_remote_code: bool = False,
) -> "Publication":
    """Publish a model, an adapter, an aligner, or a page on the Hugging Face Hub.

    The folder of a model, an adapter, an aligner or a tuned encoder goes up in one commit, with a complete card. Only
    the files that a model needs are sent. What a training leaves for itself stays behind; any other file, a secret, a
    path of a machine, your user name, a symbolic link or code of another repository is refused. The folder must load
    in a process without this package; code that is not the package's own is read and not run. Publishing the same
    folder again changes nothing, and an upload that was cut off goes on.

    Examples:
        attncal publish runs/gated owner/name --dry-run
        attncal publish runs/gated owner/name license=apache-2.0 language=de --public
        attncal publish runs/adapter owner/name base_model=Helsinki-NLP/opus-mt-de-en
        attncal publish report.html owner/name --space

    Args:
        folder: what was saved or trained; with --space an .html page, or the folder of a metric for evaluate
        repository: OWNER/NAME on the Hub, made if it does not exist
        dry_run: check and list the files, without the network
        public: make a new repository public, not private
        space: publish a page, or a metric, as a static Space
        card: fields of the card, anywhere on the line: license=apache-2.0, language=de,en (source first),
            dataset=NAME, base_model=OWNER/NAME of what an adapter or an encoder began as; title=TEXT of a Space;
            without one, as the card has it
        leave_out: names or patterns of further files that stay behind
        try_loading: first load the folder in a process without this package
        trust_remote_code: load the folder though its code is not this version's of the package

    Returns:
        What was sent, or would be: `files` with their sizes, what each `says` of you, `left_out`, `missing` fields of
        the card, `url` and `commit`. Printed, it says all of that.

    Raises:
        CommandError: a file that must not be published, a folder that does not load, or an answer of the Hub.
    """
    from hf_attncal.hub import CardFields, PublishError, publish_folder, publish_metric, publish_page

    common = {"private": not public, "dry_run": dry_run}
    with user_errors(PublishError):
        said = CardFields.read(card, page=space)
        if space:
            publish_as = publish_metric if os.path.isdir(folder) else publish_page
            return publish_as(folder, repository, title=said.title or repository.partition("/")[2], **common)
        fields = {"license": said.license, "languages": said.languages}
        fields |= {"datasets": said.datasets, "base_model": said.base_model}
        loading = {"try_loading": try_loading, "trust_remote_code": trust_remote_code}
        return publish_folder(folder, repository, **fields, leave_out=leave_out, **loading, **common)
