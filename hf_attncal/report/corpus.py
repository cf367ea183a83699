"""Text that a model is analysed on: sentence pairs, with gold links and tags of words if there are any.

A sentence has one tag for each of its words, and words are what `str.split()` returns.
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
    """Return the tags of each text, one for each of its words.

    Raises:
        ValueError: another number of sentences, or of tags than a sentence has words; the message names its line.
    """
    if len(tags) != len(texts):
        raise ValueError(
            f"`tags` must have a line for each of {len(texts)} sentences, in the same order, got {len(tags)} lines."
        )
    for number, (text, of_text) in enumerate(zip(texts, tags, strict=True), start=1):
        words = text.split()
        if isinstance(of_text, str) or len(of_text) != len(words):
            got = f"the text {of_text!r}" if isinstance(of_text, str) else len(of_text)
            raise ValueError(
                f"line {number}: `tags` must be one for each of its {len(words)} words, got {got}: words are what "
                "white space separates, so tag the text as it is, without splitting its words further."
            )
    return [tuple(of_text) for of_text in tags]


@dataclass(frozen=True)
class Corpus:
    """The text that a model is analysed on.

    Args:
        sources: texts.
        targets: their references, or what the model wrote; empty if they are not known yet.
        are_output: whether the model wrote the targets.
        gold: annotated links of each pair.
        tags: parts of speech of the words of the targets, as `tags_of` takes them.
        start: line of the first pair, from 0, in the files that were read.
        files: name -> file that was read. A pipe is not among them: it is read once.
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
        """Read text, links in Pharaoh format (`i-j` sure, `ipj` possible, from 0) and tags, from files or lines.

        Raises:
            ValueError: a file cannot be read or has another number of lines, links point outside of their sentences,
                or gold links or tags come without the target that they belong to.
        """
        named = {"source": source, "target": target, "gold": gold, "tags": tags}
        files = {
            name: Path(text)
            for name, text in named.items()
            if isinstance(text, str | os.PathLike) and os.path.isfile(text)
        }
        if target is None:
            if gold is not None or tags is not None:
                raise ValueError("gold links and tags need the target text that they belong to: give --target too.")
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
        """Return a corpus of sources alone, or of pairs (source, target); a corpus stays as it is.

        Raises:
            ValueError: there is neither a text nor a pair of two texts.
        """
        if isinstance(texts, Corpus):
            return texts
        rows = [(row,) if isinstance(row, str) else tuple(row) for row in texts]
        sides = {len(row) for row in rows}
        if sides not in ({1}, {2}) or not all(isinstance(text, str) for row in rows for text in row):
            raise ValueError(
                "`pairs` must be sources, or pairs (source, target), of text and not a mixture, got "
                f"{rows[:1] or 'none'}."
            )
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
        def chosen(column: Sequence[Item]) -> list[Item]:
            return [column[row] for row in rows]

        return replace(
            self,
            sources=chosen(self.sources),
            targets=chosen(self.targets) if self.targets else (),
            gold=None if self.gold is None else chosen(self.gold),
            tags=None if self.tags is None else chosen(self.tags),
        )

    def written_by(self, model, tokenizer, batch_size: int) -> "Corpus":
        """Return this corpus with what a model writes for the sources, by 4 beams, as targets.

        Raises:
            ValueError: a source has more tokens than the model has positions; the message names its line.
        """
        with self.naming_lines():
            targets = translate_texts(model, tokenizer, list(self.sources), batch_size=batch_size)
        return replace(self, targets=targets, are_output=True)

    def check(self, measured: int = 0) -> None:
        """Raise ValueError if the text, targets included, is too little to be analysed.

        Args:
            measured: number of pairs on which faithfulness is measured: with some, a source word must have another one
                that can replace it.
        """
        if not self.with_words(1).sources:
            raise ValueError(
                f"the text must have a pair with words on both sides, got none among {len(self.sources)} pairs."
            )
        if measured and len({word for source in self.sources for word in source.split()}) < 2:
            raise ValueError(
                "the source text must have at least two different words, so that one can replace the other, got 1. "
                "Give more text, or leave faithfulness out (`measured=0`)."
            )

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Raise ValueError, naming the line, for a source or pair with more tokens than the model has positions."""
        try:
            yield
        except (LineTooLongError, PairTooLongError) as error:
            side = getattr(error, "side", "source")
            raise ValueError(
                f"line {self.start + error.index + 1} has {error.tokens} {side} tokens, the model takes at most "
                f"{error.limit}. Split it, or leave it out, in all files."
            ) from error
