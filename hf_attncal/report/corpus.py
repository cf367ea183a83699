"""Text of an analysis: sentence pairs, with optional gold links and one tag per target word.

Words are separated by white space.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from hf_attncal.data.linked_pairs import gold_links
from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.inference.generation import LineTooLongError
from hf_attncal.inference.reading import PairTooLongError
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.files import Text, lines_of, read_pairs, text_name

Item = TypeVar("Item")


def tags_of(texts: Sequence[str], tags: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the tags of each text, one per word.

    Raises:
        ValueError: numbers of sentences or words differ; the message names the line.
    """
    if len(tags) != len(texts):
        raise ValueError(f"`tags` must have {len(texts)} lines, one per sentence, got {len(tags)}.")
    for number, (text, of_text) in enumerate(zip(texts, tags, strict=True), start=1):
        words = text.split()
        if isinstance(of_text, str) or len(of_text) != len(words):
            got = f"the text {of_text!r}" if isinstance(of_text, str) else len(of_text)
            raise ValueError(
                f"line {number}: `tags` must have {len(words)} tags, one per word, got {got}. Words are separated by "
                "white space: tag them without splitting them further."
            )
    return [tuple(of_text) for of_text in tags]


@dataclass(frozen=True)
class Corpus:
    """Text of an analysis.

    Args:
        sources: source sentences.
        targets: references, or translations of the model; empty before translation.
        are_output: True if the targets are translations of the model.
        gold: annotated links per pair. Default: none.
        tags: tags of the target words, such as parts of speech (see `tags_of`). Default: none.
        start: line of the first pair in the files, counted from 0.
        files: name -> file read; pipes are left out, because they can be read only once.
    """

    sources: Sequence[str]
    targets: Sequence[str] = ()
    are_output: bool = False
    gold: Sequence[GoldAlignment] | None = None
    tags: Sequence[Sequence[str]] | None = None
    start: int = 0
    files: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def read(
        cls, source: Text, target: Text | None = None, gold: Text | None = None, tags: Text | None = None
    ) -> "Corpus":
        """Read text, links in Pharaoh format (`i-j` sure, `ipj` possible, counted from 0) and tags.

        Raises:
            ValueError: a file cannot be read, numbers of lines differ, links point outside of their sentences, or
                gold links or tags are given without a target.
        """
        named = {"source": source, "target": target, "gold": gold, "tags": tags}
        files = {
            name: Path(text)
            for name, text in named.items()
            if isinstance(text, str | os.PathLike) and os.path.isfile(text)
        }
        if target is None:
            if gold is not None or tags is not None:
                raise ValueError("--gold and --tags need the target text. Give --target.")
            return cls(lines_of(source), files=files)
        sources, targets = read_pairs(source, target)
        links = None if gold is None else gold_links(gold, list(zip(sources, targets, strict=True)))
        tagged = None
        if tags is not None:
            try:
                tagged = tags_of(targets, [line.split() for line in lines_of(tags)])
            except ValueError as error:
                raise ValueError(f"{text_name(tags, 'the tags')}: {error}") from error
        return cls(sources, targets, gold=links, tags=tagged, files=files)

    @classmethod
    def of(cls, texts: "Corpus | Iterable[str] | Iterable[tuple[str, str]]") -> "Corpus":
        """Return a corpus of sources or of pairs (source, target); a corpus is returned unchanged.

        Raises:
            ValueError: the rows are neither texts nor pairs of texts.
        """
        if isinstance(texts, Corpus):
            return texts
        rows = [(row,) if isinstance(row, str) else tuple(row) for row in texts]
        sides = {len(row) for row in rows}
        if sides not in ({1}, {2}) or not all(isinstance(text, str) for row in rows for text in row):
            raise ValueError(f"`pairs` must be all sources, or all pairs (source, target), got {rows[:1] or 'none'}.")
        return cls([row[0] for row in rows], [row[1] for row in rows] if sides == {2} else ())

    def first(self, count: int) -> "Corpus":
        """Return the first `count` pairs."""
        return self._rows(range(min(count, len(self.sources))))

    def rest(self, count: int) -> "Corpus":
        """Return all pairs but the first `count`."""
        return replace(self._rows(range(count, len(self.sources))), start=self.start + count)

    def with_words(self, count: int) -> "Corpus":
        """Return the first `count` pairs that have words on both sides."""
        pairs = zip(self.sources, self.targets, strict=True)
        return self._rows([row for row, pair in enumerate(pairs) if all(side.strip() for side in pair)][:count])

    def _rows(self, rows: Sequence[int]) -> "Corpus":
        def selected(column: Sequence[Item]) -> list[Item]:
            return [column[row] for row in rows]

        return replace(
            self,
            sources=selected(self.sources),
            targets=selected(self.targets) if self.targets else (),
            gold=None if self.gold is None else selected(self.gold),
            tags=None if self.tags is None else selected(self.tags),
        )

    def translated_by(self, model, tokenizer, batch_size: int) -> "Corpus":
        """Return this corpus with translations of a model (4 beams) as targets.

        Raises:
            ValueError: a source is too long for the model; the message names its line.
        """
        with self.naming_lines():
            targets = translate_texts(model, tokenizer, list(self.sources), batch_size=batch_size)
        return replace(self, targets=targets, are_output=True)

    def check(self, measured: int = 0) -> None:
        """Raise ValueError if there is too little text, or no gold link, to analyse.

        Args:
            measured: number of pairs on which faithfulness is measured; more than 0 needs two different source words,
                one to replace the other. Default: 0.
        """
        if not self.with_words(1).sources:
            raise ValueError(
                f"the text must have a pair with words on both sides, got none among {len(self.sources)} pairs."
            )
        if self.gold is not None and not any(pair.possible for pair in self.gold):
            raise ValueError(
                f"the gold alignment must link at least one word, got no link for {len(self.gold)} pairs. Give the "
                "lines of these pairs, or no gold alignment."
            )
        if measured and len({word for source in self.sources for word in source.split()}) < 2:
            raise ValueError(
                "the source text must have at least two different words to measure faithfulness, got 1. Give more "
                "text, or `measured=0`."
            )

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Re-raise errors about texts that are too long as ValueError with the line."""
        try:
            yield
        except (LineTooLongError, PairTooLongError) as error:
            side = getattr(error, "side", "source")
            raise ValueError(
                f"line {self.start + error.index + 1} has {error.tokens} {side} tokens, the model takes at most "
                f"{error.limit}. Split the line, or leave it out, in all files."
            ) from error
