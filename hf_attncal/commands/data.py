"""`attncal data`: parallel text as files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hf_attncal.io.errors import CommandError

from .kinds import Folder, NewFolder

if TYPE_CHECKING:
    from hf_attncal.data.fetching import FetchedText

GROUPS = {"A dataset of the Hub": ("fields", "config", "split")}


def fetch_data(
    name: str,
    /,
    *,
    output: NewFolder,
    source: Folder | None = None,
    fields: tuple[str, str] | None = None,
    config: str | None = None,
    split: str = "train",
) -> "FetchedText":
    """Fetch parallel text: a published corpus, or a dataset of the Hub.

    The text is written as files, one sentence a line. Of a dataset of the Hub, two fields become the two files
    SPLIT.FIELD. A corpus that the experiments use (multi30k, wpt03-enfr) becomes the files that its configurations
    name.

    Examples:
        attncal data bentrevett/multi30k --fields en de --output data/captions
        attncal data multi30k --output data/multi30k

    Args:
        name: id of a dataset of the Hub, a folder that `datasets` can load, multi30k or wpt03-enfr
        output: folder for the files; none is overwritten
        source: folder that has the published files of a corpus already; without it, they are fetched
        fields: the fields of source and target; a dot leads into a nested one (translation.en translation.de);
            of a dataset of the Hub, not without them
        config: which configuration of the dataset; without it, the only one
        split: which split of the dataset

    Returns:
        The files that were written with their numbers of lines, and how many pairs were left out because a side is
        empty or has a line break.

    Raises:
        CommandError: the text cannot be had, or a file is there already.
    """
    from hf_attncal.data.fetching import fetch_corpus, fetch_hub_dataset
    from hf_attncal.data.published import CORPORA

    name, known = str(name), ", ".join(CORPORA)
    if name in CORPORA:
        if fields or config:
            raise CommandError(f"--fields and --config belong to a dataset of the Hub; {name} needs neither.")
        if source is not None and not os.path.isdir(source):
            raise CommandError(f"--source {source} is not a folder. Name the folder with the published files.")
        return fetch_corpus(name, Path(output), None if source is None else Path(source))
    if name == "stack-language":
        raise CommandError(f"{name} is an experiment: in a clone, `python experiments/stack_sequences.py` writes it.")
    if "/" not in name:
        raise CommandError(f"{name} is not one of {known}; a dataset of the Hub has an id such as OWNER/NAME.")
    if not fields:
        raise CommandError(f"--fields is missing: which fields of {name} hold source and target?")
    if source is not None:
        raise CommandError(f"--source belongs to {known}; for a local dataset, give its folder as NAME.")
    return fetch_hub_dataset(name, Path(output), fields, config, split)
