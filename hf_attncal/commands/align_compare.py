"""`attncal align compare`: compare several word alignments of a text without gold links."""

from typing import TYPE_CHECKING

from hf_attncal.io.errors import CommandError, user_errors

from .kinds import Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.linked_texts import AlignerComparison


def compare(
    *hypotheses: Text,
    source: Text,
    target: Text,
    words: WordLimits | None = None,
) -> "AlignerComparison":
    """Compare word alignments of a text that nobody annotated.

    Compare the links of two or more aligners on the same text, without gold links: the share of linked words, and
    the agreement with the first aligner (F1 of the links). With gold links, use `attncal score`.

    Examples:
        attncal align compare ours.links eflomal.links --source text.en --target text.fr

        >>> print(hf_attncal.compare("a.links", "b.links", source="text.en", target="text.fr"))

    Args:
        hypotheses: two or more files of links, `i-j` counted from 0; one may be - for standard input; scores
            (i-j:0.93) are ignored
        source: tokenised source sentences, one per line
        target: tokenised target sentences, one per line
        words: word separator of the links: white-space is any Unicode white space; spaces is only spaces and tabs
            [default: the one that fits the links]

    Returns:
        `rows`: name of a hypothesis -> its `links`, `source_linked`, `target_linked`, `agreement`. It
        prints as the table.

    Raises:
        CommandError: fewer than two alignments, or a malformed file, which the message names.
    """
    from hf_attncal.alignment.linked_texts import compare_texts
    from hf_attncal.data.texts import read_scored
    from hf_attncal.io.files import check_readable
    from hf_attncal.io.streams import files_among

    files = files_among(*hypotheses)
    if len(hypotheses) < 2:
        raise CommandError(
            f"HYP must be at least two files of links, got only {files[0] if files else 'one'}. Add another one."
        )
    if len(set(files)) < len(files):
        raise CommandError(f"HYP must be different files, got {' '.join(files)}.")
    named = {f"hypothesis {number}": text for number, text in enumerate(hypotheses, start=1)}
    texts = read_scored({"source": source, "target": target, **named}, "sentence pair")
    check_readable(*files_among(source, target, *hypotheses))
    with user_errors():
        return compare_texts(texts, words=words)
