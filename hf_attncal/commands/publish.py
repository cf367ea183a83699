"""`attncal publish`: upload a model, an adapter or an aligner to the Hub."""

from typing import TYPE_CHECKING

from hf_attncal.io.errors import user_errors

from .kinds import Folder, Patterns, Values

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
    leave_out: Patterns = (),
    try_loading: bool = True,
) -> "Publication":
    """Publish a model, an adapter or an aligner on the Hugging Face Hub.

    Upload the folder of a model, an adapter, an aligner or a tuned encoder in one commit, with a complete card. Only
    the files that a model needs are sent; the others are listed. A token or an absolute path in the card or in a JSON
    file is refused. The folder must load in a process without this package. Publishing the same folder again changes
    nothing, and an interrupted upload can be continued.

    Examples:
        attncal publish runs/gated owner/name --dry-run
        attncal publish runs/gated owner/name license=apache-2.0 language=de --public
        attncal publish runs/adapter owner/name base_model=Helsinki-NLP/opus-mt-de-en

        >>> hf_attncal.publish("runs/gated", "owner/name", card={"license": "apache-2.0"}, dry_run=True).missing

    Args:
        folder: folder of the saved model, adapter or aligner
        repository: OWNER/NAME on the Hub, created if it does not exist
        dry_run: check and list the files, without the network
        public: make a new repository public [default: private]
        card: fields of the card, anywhere on the line: license=apache-2.0, language=de,en (source first),
            dataset=NAME, base_model=OWNER/NAME that an adapter or an encoder was trained from [default: the fields of
            the saved card]
        leave_out: names or patterns of further files that are not sent [default: none]
        try_loading: first load the folder in a process without this package

    Returns:
        The files sent, or to be sent: `files` with their sizes, `left_out`, `missing` fields of the card, `url` and
        `commit`. Printed, all of them.

    Raises:
        CommandError: a file that must not be published, a folder that does not load, or an error of the Hub.
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
