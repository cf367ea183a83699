"""Get tags of words, such as parts of speech, from a file or from an installed tagger. Nothing is downloaded.

A sentence has one tag for each of its words, and words are what `str.split()` gives.
"""

from collections.abc import Callable, Sequence

from hf_attncal.io.files import Text, lines_of, text_name

Tagger = Callable[[str], Sequence[str]]
_SPACY = "spacy:"


def tags_of(texts: Sequence[str], tags: Sequence[Sequence[str]] | Tagger) -> list[tuple[str, ...]]:
    """Return the tags of each text, one for each of its words.

    Args:
        texts: sentences.
        tags: those of every sentence, or what makes them of one.

    Raises:
        ValueError: another number of sentences, or of tags than a sentence has words; the message names its line.
    """
    given = [tags(text) for text in texts] if callable(tags) else tags
    if len(given) != len(texts):
        raise ValueError(
            f"`tags` must have a line for each of {len(texts)} sentences, in the same order, got {len(given)} lines."
        )
    for number, (text, of_text) in enumerate(zip(texts, given, strict=True), start=1):
        words = text.split()
        if isinstance(of_text, str) or len(of_text) != len(words):
            got = f"the text {of_text!r}" if isinstance(of_text, str) else len(of_text)
            raise ValueError(
                f"line {number}: `tags` must be one for each of its {len(words)} words, got {got}: words are what "
                "white space separates, so tag the text as it is, without splitting its words further."
            )
    return [tuple(of_text) for of_text in given]


def read_tags(text: Text) -> list[tuple[str, ...]]:
    """Read the tags of a file or of its lines: one sentence a line, one tag a word, separated by white space.

    Raises:
        ValueError: see `read_lines`.
    """
    return [tuple(line.split()) for line in lines_of(text)]


def load_tags(name: Text, texts: Sequence[str]) -> list[tuple[str, ...]] | Tagger:
    """Return the tags of texts: of a file, of its lines, or by `spacy:NAME`, an installed pipeline of spaCy.

    Returns:
        The tags of each text; of a pipeline, what makes them.

    Raises:
        ValueError: see `read_tags` and `tags_of`, the message names the file; spaCy or the pipeline is not installed.
    """
    if is_tagger_name(name):
        return spacy_tagger(str(name).removeprefix(_SPACY))
    tags = read_tags(name)
    try:
        return tags_of(texts, tags)
    except ValueError as error:
        raise ValueError(f"{text_name(name, 'the tags')}: {error}") from error


def is_tagger_name(name: object) -> bool:
    """Return whether a user names a tagger and not a file of tags."""
    return isinstance(name, str) and name.startswith(_SPACY)


def spacy_tagger(name: str) -> Tagger:
    """Return a tagger by a pipeline of spaCy (universal parts of speech), which keeps the words as they are.

    Raises:
        ValueError: spaCy or the pipeline is not installed; of a text, that the pipeline gave a word no tag.
    """
    try:
        import spacy
    except ImportError as error:
        raise ValueError(
            f"`{_SPACY}{name}` needs spaCy, which is not installed: pip install spacy, or give a file of tags."
        ) from error
    try:
        pipeline = spacy.load(name)
    except OSError as error:
        raise ValueError(
            f"spaCy has no pipeline {name!r} installed, and none is fetched unasked: python -m spacy download {name}, "
            "or give a file of tags."
        ) from error

    def tag(text: str) -> tuple[str, ...]:
        words = text.split()
        found = tuple(token.pos_ for token in pipeline(spacy.tokens.Doc(pipeline.vocab, words=words)))
        if not all(found):
            raise ValueError(f"the pipeline {name!r} of spaCy gives no parts of speech: name one with a tagger.")
        return found

    return tag
