"""`attncal align project` and `align lexicon`: labels carried over word links, and the words that are linked."""

from typing import TYPE_CHECKING, Annotated, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range
from hf_attncal.io.streams import counted

from .kinds import Links, Output, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.label_projection import ProjectedLine
    from hf_attncal.alignment.linked_texts import Entry


def project(
    source: Text,
    target: Text,
    *,
    links: Links,
    words: Annotated[WordLimits | None, "PYTHON_ONLY"] = None,
    tags: Text | None = None,
    spans: Text | None = None,
    markup: bool = False,
    output: Output = None,
    format: Literal["text", "json"] = "text",
    running: Running = Running(),
) -> "list[ProjectedLine] | None":
    """Carry tags, named entities or markup of the source over to the target.

    Carry labels of source words over word links to the words of the target: a tag for each word, spans such as named
    entities, or inline markup. One line out for each line in. A target word belongs to the label that has most of its
    links, or of their scores where links have them; if several have as many, to the label of the first source word,
    but for a span that would have none. A span or an element stays one piece, where most of its links are. Words are
    what white space parts, and tags such as `<p>` and `<br>`. A warning counts what found no place.

    Examples:
        attncal align project --source text.en --target text.fr --links links.txt --spans entities.en
        attncal align project --source marked.en --target text.fr --links links.txt --markup --output marked.fr

        >>> hf_attncal.project(["a house"], ["une maison"], links=["0-0 1-1"], tags=["DET NOUN"])

    Args:
        source: source sentences, one a line; with --markup, with their markup
        target: target sentences, as many lines, without markup
        links: file with the links of each pair, `i-j` or `i-j:score`, counted from 0, as `attncal align run` writes
            them; - for standard input
        words: what parts the words that links count; without it, what is written beside them, or what they fit
        tags: tags of the source words, a sentence a line, parted by white space; a target word without links gets
            `_`; without it, one of the others
        spans: the same in BIO: B-TYPE begins a span, I-TYPE goes on, O is outside; without it, one of the others
        markup: carry inline markup of the source (`<b>the old</b> house<br/>`); the target is written with it, escaped
        output: written as FILE.partial and renamed when it is complete; without it, standard output
        format: the labels alone, or a JSON object a line that also says what had no place
        running: longest_line and progress

    Returns:
        Without `output` a list with the labels of each target sentence: the `text` that is written, `details`, and
        what was `lost`.

    Raises:
        CommandError: not one of `tags`, `spans` and `markup`, or a line of a file that is wrong.
    """
    labels = {name: text for name, text in (("tags", tags), ("spans", spans)) if text is not None}
    given = [*labels, *(["markup"] if markup else [])]
    if len(given) != 1:
        told = " and ".join(f"--{name}" for name in given) or "none of them"
        raise CommandError(f"Give one of --tags, --spans and --markup, got {told}.")
    from hf_attncal.alignment.label_projection import project_labels, warned_of_lost, write_projected
    from hf_attncal.alignment.linked_texts import open_linked
    from hf_attncal.alignment.projection import parse_markup

    plain = (lambda text: parse_markup(text).plain) if markup else str
    texts = open_linked(source, target, links, output, running, words, plain, **labels)
    lines = project_labels(
        texts.pairs,
        texts.links,
        tags=None if tags is None else texts.labels,
        spans=None if spans is None else texts.labels,
        markup=markup,
        words=texts.parting,
    )
    lines = warned_of_lost(counted(lines, "projected", running.progress), "element" if markup else "span")
    with texts.errors():
        if output is None:
            return list(lines)
        write_projected(lines, output, format)
    return None


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

        >>> hf_attncal.lexicon(["a house"], ["une maison"], links=["0-0 1-1"])

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
        top: most lines of a source word; without it, all
        running: longest_line and progress

    Returns:
        Without `output` the entries: `source`, `target`, `count`, and both probabilities.

    Raises:
        CommandError: a file cannot be read or written, or a line of it is wrong; the message says which.
    """
    check_range("--least-count", least_count, 1)
    check_range("--top", top, 1)
    from hf_attncal.alignment.linked_texts import count_links, open_linked, write_lexicon

    texts = open_linked(source, target, links, output, running, words)
    pairs = counted(texts.pairs, "counted", running.progress)
    with texts.errors():
        entries = count_links(
            pairs, texts.links, words=texts.parting, lowercase=lowercase, least_count=least_count, top=top
        )
    if output is None:
        return list(entries)
    write_lexicon(entries, output, format)
    return None
