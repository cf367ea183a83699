"""`attncal align compare`: which of several word alignments of a text is better, where nobody annotated it."""

from typing import TYPE_CHECKING, Annotated, Literal

from hf_attncal.io.errors import CommandError, user_errors

from .kinds import Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.comparison import AlignerComparison


def compare(
    *hypotheses: Text,
    source: Text,
    target: Text,
    words: Annotated[WordLimits | None, "PYTHON_ONLY"] = None,
    lowercase: bool = False,
    format: Literal["text", "json"] = "text",
) -> "AlignerComparison":
    """Compare word alignments of a text that nobody annotated.

    Compare the links of two or more aligners on the same text, without a gold alignment: how many words they link, how
    far they agree with the first (F1 of the links), and how well their lexicons predict pairs that were held out, in
    nats a word. At most 2000 pairs, and at most a tenth of the text, are held out. Where there are gold links,
    `attncal score` says more.

    Examples:
        attncal align compare ours.links eflomal.links --source text.en --target text.fr

        >>> print(hf_attncal.compare("a.links", "b.links", source="text.en", target="text.fr"))

    Args:
        hypotheses: links of each sentence pair, `i-j` counted from 0, two files or more; one may be - for standard
            input; scores (i-j:0.93) are ignored
        source: tokenised source sentences, one a line
        target: tokenised target sentences, as many lines
        words: what parts the words that links count; without it, what is written beside them, or what they fit
        lowercase: count words that differ in capitals alone as one
        format: a table with rounded numbers, or JSON with all digits

    Returns:
        `rows`: name of a hypothesis -> its `links`, `source_linked`, `target_linked`, `agreement`, `same_lines`,
        `nats` and `nats_to_first`. Printed, it is the table or JSON.

    Raises:
        CommandError: fewer than two alignments, or a file that is wrong; the message says which.
    """
    from hf_attncal.alignment.comparison import compare_texts
    from hf_attncal.data.texts import read_scored
    from hf_attncal.io.files import check_readable
    from hf_attncal.io.streams import files_among

    files = files_among(*hypotheses)
    if len(hypotheses) < 2:
        raise CommandError(f"HYP must be two files of links or more, got {files[0] if files else 'one'} alone.")
    if len(set(files)) < len(files):
        raise CommandError(f"HYP must be different files, got {' '.join(files)}.")
    named = {f"hypothesis {number}": text for number, text in enumerate(hypotheses, start=1)}
    texts = read_scored({"source": source, "target": target, **named}, "sentence pair")
    check_readable(*files_among(source, target, *hypotheses))
    with user_errors():
        return compare_texts(texts, words=words, lowercase=lowercase, form=format)
