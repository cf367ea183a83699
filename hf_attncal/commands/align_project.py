"""`attncal align project`: tags, spans or inline markup of source sentences, carried over word links to the target."""

from typing import TYPE_CHECKING, Annotated, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError

from .kinds import Links, Output, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.label_projection import ProjectedLine

GROUPS = {"What to carry": ("tags", "spans", "markup", "untagged")}


def project(
    source: Text,
    target: Text,
    *,
    links: Links,
    words: Annotated[WordLimits | None, "PYTHON_ONLY"] = None,
    tags: Text | None = None,
    spans: Text | None = None,
    markup: bool = False,
    untagged: str | None = None,
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

    Args:
        source: source sentences, one a line; with --markup, with their markup
        target: target sentences, as many lines, without markup
        links: file with the links of each pair, `i-j` or `i-j:score`, counted from 0, as `attncal align run` writes
            them; - for standard input
        words: what parts the words that links count; without it, what is written beside them, or what they fit
        tags: tags of the source words, a sentence a line, parted by white space; without it, one of the others
        spans: the same in BIO: B-TYPE begins a span, I-TYPE goes on, O is outside; without it, one of the others
        markup: carry inline markup of the source (`<b>the old</b> house<br/>`); the target is written with it, escaped
        untagged: tag of a target word without links, with --tags; without it, `_`
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
    if untagged is not None and tags is None:
        raise CommandError("--untagged is the tag of a word without links: give --tags, or leave it out.")
    if untagged is not None and untagged.split() != [untagged]:
        raise CommandError(f"--untagged must be one word without white space, got {untagged!r}.")
    from hf_attncal.alignment.label_projection import project_labels, warned_of_lost, write_projected
    from hf_attncal.alignment.linked_texts import open_linked
    from hf_attncal.alignment.projection import parse_markup
    from hf_attncal.io.streams import counted

    plain = (lambda text: parse_markup(text).plain) if markup else str
    texts = open_linked(source, target, links, output, running, words, plain, **labels)
    carried = {name: texts.labels for name in labels} or {"markup": True}
    lines = project_labels(texts.pairs, texts.links, untagged=untagged or "_", words=texts.parting, **carried)
    lines = warned_of_lost(counted(lines, "projected", running.progress), "element" if markup else "span")
    with texts.errors():
        return list(lines) if output is None else write_projected(lines, output, format)
