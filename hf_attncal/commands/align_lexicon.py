"""`attncal align lexicon`: which words are linked, how often, and with what probability."""

from typing import TYPE_CHECKING, Annotated, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import at_least

from .kinds import Links, Output, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.linked_texts import Entry

GROUPS = {"What is written": ("lowercase", "least_count", "least_probability", "top")}


def lexicon(
    source: Text,
    target: Text,
    *,
    links: Links,
    words: Annotated[WordLimits | None, "PYTHON_ONLY"] = None,
    output: Output = None,
    format: Literal["tsv", "json"] = "tsv",
    lowercase: bool = False,
    least_count: int = 1,
    least_probability: float = 0.0,
    top: int | None = None,
    running: Running = Running(),
) -> "list[Entry] | None":
    """Count which words are linked, how often, and with what probability.

    Write a line for each two words that are linked, with the number of their links; p(target|source), the share of
    the links of the source word that lead to the target word; and p(source|target). Lines are sorted by source word,
    the most frequent pair first. Memory grows with the number of different pairs of words, not with the text. Words
    stay as they are: where a spreadsheet would take one such as `=1+1` for a formula, import its columns as text.

    Examples:
        attncal align lexicon --source text.en --target text.fr --links links.txt --output lexicon.tsv
        attncal align lexicon --source text.en --target text.fr --links links.txt --least-count 5 --top 3

    Args:
        source: source sentences, one a line
        target: target sentences, as many lines
        links: file with the links of each pair, `i-j` or `i-j:score`, counted from 0, as `attncal align run` writes
            them; - for standard input
        words: what parts the words that links count; without it, what is written beside them, or what they fit
        output: written as FILE.partial and renamed when it is complete; without it, standard output
        format: a table of columns parted by tabs, or a JSON object a line
        lowercase: lower-case the words, and count them together
        least_count: leave out pairs of words that have fewer links
        least_probability: leave out pairs of words of which either probability is lower
        top: most lines of a source word; without it, all
        running: longest_line and progress

    Returns:
        Without `output` the entries: `source`, `target`, `count`, and both probabilities.

    Raises:
        CommandError: a file cannot be read or written, or a line of it is wrong; the message says which.
    """
    at_least("--least-count", least_count, 1)
    at_least("--least-probability", least_probability, 0, 1)
    at_least("--top", top, 1)
    from hf_attncal.alignment.linked_texts import count_links, open_linked, write_lexicon
    from hf_attncal.io.streams import counted

    texts = open_linked(source, target, links, output, running, words)
    pairs = counted(texts.pairs, "counted", running.progress)
    chosen = {"least_count": least_count, "least_probability": least_probability, "top": top}
    with texts.errors():
        entries = count_links(pairs, texts.links, words=texts.parting, lowercase=lowercase, **chosen)
    return list(entries) if output is None else write_lexicon(entries, output, format)
