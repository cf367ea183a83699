"""`attncal align project`, `lexicon` and `compare`: carry labels over links, count linked words, compare aligners."""

from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors
from hf_attncal.io.streams import counted, output_lines, write_lines

from .kinds import Linked, Links, Output, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.linked_texts import AlignerComparison, Entry
    from hf_attncal.alignment.projection import ProjectedLine


def project(
    source: Text,
    target: Text,
    *,
    links: Links,
    words: WordLimits | None = None,
    tags: Text | None = None,
    spans: Text | None = None,
    markup: bool = False,
    output: Output = None,
    running: Linked = Running(),
) -> "list[ProjectedLine] | None":
    """Carry tags, named entities or markup of the source over to the target.

    Carry labels of source words over word links to the target words: a tag per word, spans such as named entities, or
    inline markup. A target word gets the label with most of its links, weighted by their scores if they have some. In
    a tie the label of the first source word wins, unless another span would be left without a word. A span or element
    stays in one piece, where most of its links are. Words are separated by white space, and by tags such as `<p>` and
    `<br>`. A warning counts the labels without a place.

    Examples:
        attncal align project --source text.en --target text.fr --links links.txt --spans entities.en
        attncal align project --source marked.en --target text.fr --links links.txt --markup --output marked.fr

        >>> hf_attncal.project(["a house"], ["une maison"], links=["0-0 1-1"], tags=["DET NOUN"])

    Args:
        source: source sentences, one per line; with their markup if --markup is set
        target: target sentences, one per line, without markup
        links: links of each pair, `i-j` or `i-j:score`, counted from 0, as `attncal align run` writes them; - for
            standard input
        words: word separator of the links: white-space is any Unicode white space; spaces is only spaces and tabs
            [default: the one that fits the links]
        tags: tags of the source words, one sentence per line, separated by white space; a target word without links
            gets `_` [default: none]
        spans: tags in BIO: B-TYPE begins a span, I-TYPE continues it, O is outside [default: none]
        markup: carry inline markup of the source (`<b>the old</b> house<br/>`); the rest of the target is escaped
        output: file for the labels, written as FILE.partial and renamed when complete [default: standard output]
        running: longest_line and progress

    Returns:
        A list with the labels of each target sentence if there is no `output`: the written `text`, and the counts
        of `lost` labels.

    Raises:
        CommandError: not exactly one of `tags`, `spans` and `markup`, or a malformed line of a file.
    """
    labels = {name: text for name, text in (("tags", tags), ("spans", spans)) if text is not None}
    kinds = [*labels, *(["markup"] if markup else [])]
    if len(kinds) != 1:
        options = " and ".join(f"--{name}" for name in kinds) or "none of them"
        raise CommandError(f"Give one of --tags, --spans and --markup, got {options}.")
    from hf_attncal.alignment.linked_texts import open_linked
    from hf_attncal.alignment.projection import parse_markup, project_labels, warned_of_lost

    plain = (lambda text: parse_markup(text).plain) if markup else str
    texts = open_linked(source, target, links, output, running.longest_line, words, plain, **labels)
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
        with output_lines(f"{output}") as file:
            write_lines(file, (line.text for line in lines))
    return None


def lexicon(
    source: Text,
    target: Text,
    *,
    links: Links,
    words: WordLimits | None = None,
    output: Output = None,
    lowercase: bool = False,
    least_count: int = 1,
    top: int | None = None,
    running: Linked = Running(),
) -> "list[Entry] | None":
    """Count which words are linked, how often, and with what probability.

    Write one line per pair of linked words: both words, the number of their links, p(target|source), the share of the
    source word's links that go to the target word, and p(source|target). Lines are sorted by source word, the most
    frequent pair first. Memory grows with the number of different word pairs, not with the text. Words such as `=1+1`
    are written unchanged: import the columns of a spreadsheet as text.

    Examples:
        attncal align lexicon --source text.en --target text.fr --links links.txt --output lexicon.tsv
        attncal align lexicon --source text.en --target text.fr --links links.txt --least-count 5 --top 3

        >>> hf_attncal.lexicon(["a house"], ["une maison"], links=["0-0 1-1"])

    Args:
        source: source sentences, one per line
        target: target sentences, one per line
        links: links of each pair, `i-j` or `i-j:score`, counted from 0, as `attncal align run` writes them; - for
            standard input
        words: word separator of the links: white-space is any Unicode white space; spaces is only spaces and tabs
            [default: the one that fits the links]
        output: file for the lexicon, written as FILE.partial and renamed when complete [default: standard output]
        lowercase: lower-case the words before counting
        least_count: minimum number of links of a word pair
        top: maximum number of lines per source word [default: all]
        running: longest_line and progress

    Returns:
        The entries if there is no `output`: `source`, `target`, `count`, and both probabilities.

    Raises:
        CommandError: a file that cannot be read or written, or a malformed line, which the message names.
    """
    check_range("--least-count", least_count, 1)
    check_range("--top", top, 1)
    from hf_attncal.alignment.linked_texts import count_links, open_linked, write_lexicon

    texts = open_linked(source, target, links, output, running.longest_line, words)
    pairs = counted(texts.pairs, "counted", running.progress)
    with texts.errors():
        entries = count_links(
            pairs, texts.links, words=texts.parting, lowercase=lowercase, least_count=least_count, top=top
        )
    if output is None:
        return list(entries)
    write_lexicon(entries, output)
    return None


def compare(*hypotheses: Text, source: Text, target: Text, words: WordLimits | None = None) -> "AlignerComparison":
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
