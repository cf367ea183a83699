"""`attncal publish`: a model, an adapter or an aligner goes to the Hub."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_attncal.io.errors import user_errors

from .kinds import Folder, Values

if TYPE_CHECKING:
    from hf_attncal.hub.publication import Publication


def publish(
    folder: Folder,
    repository: str,
    /,
    *,
    dry_run: bool = False,
    public: bool = False,
    card: Values = None,
    leave_out: Sequence[str] = (),
    try_loading: bool = True,
) -> "Publication":
    """Publish a model, an adapter or an aligner on the Hugging Face Hub.

    The folder of a model, an adapter, an aligner or a tuned encoder goes up in one commit, with a complete card. Only
    the files that a model needs are sent; all others are listed and stay behind. A token or an absolute path in the
    card or in a JSON file is refused. The folder must load in a process without this package. Publishing the same
    folder again changes nothing, and an upload that was cut off goes on.

    Examples:
        attncal publish runs/gated owner/name --dry-run
        attncal publish runs/gated owner/name license=apache-2.0 language=de --public
        attncal publish runs/adapter owner/name base_model=Helsinki-NLP/opus-mt-de-en

    Args:
        folder: what was saved or trained
        repository: OWNER/NAME on the Hub, made if it does not exist
        dry_run: check and list the files, without the network
        public: make a new repository public, not private
        card: fields of the card, anywhere on the line: license=apache-2.0, language=de,en (source first),
            dataset=NAME, base_model=OWNER/NAME of what an adapter or an encoder began as; without one, as the card
            has it
        leave_out: names or patterns of further files that stay behind
        try_loading: first load the folder in a process without this package

    Returns:
        What was sent, or would be: `files` with their sizes, `left_out`, `missing` fields of
        the card, `url` and `commit`. Printed, it says all of that.

    Raises:
        CommandError: a file that must not be published, a folder that does not load, or an answer of the Hub.
    """
    from hf_attncal.hub.publication import PublishError, publish_folder
    from hf_attncal.hub.published_card import CardFields

    with user_errors(PublishError):
        return publish_folder(
            folder,
            repository,
            **vars(CardFields.read(card)),
            leave_out=leave_out,
            private=not public,
            dry_run=dry_run,
            try_loading=try_loading,
        )
