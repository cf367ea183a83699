"""From sentence pairs to word links: the `WordAligner`, over any source of weights.

Words are what `str.split()` gives: any run of white space (tabs, no-break and ideographic spaces too) parts two words.
With `words="spaces"` only spaces and tabs of ASCII do, for those who split lines at these.
Raw text is cut into words before it is aligned (`data.segmentation`), and links are told of those words or of these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hf_attncal.data.languages import set_languages
from hf_attncal.data.segmentation import Segments, segment, white_space_words, without_spaces
from hf_attncal.data.words import SEPARATORS, split_words
from hf_attncal.families import source_of
from hf_attncal.io.encoding import check_line
from hf_attncal.io.errors import ITEMS_AT_ONCE, piecewise

from .count_learner import PASSES, Adaptation, adapt_counts
from .links import SYMMETRIZATIONS
from .merging import Pair, WordAlignment, merge, of_raw_words, unaligned
from .probabilities import LinkProbabilities, saved_probabilities
from .ready import ready_or_named
from .sources import WeightSource, check_threshold

Sentence = str | Sequence[str]
# Pairs of words of a sentence pair, and about how many bytes each takes: two lines of 10,000 letters are fewer.
MOST_CELLS, _BYTES_OF_CELL = 3 * 10**7, 60


class WordAligner:
    """Aligns the words of sentence pairs.

    Args:
        model: a word aligner of ours, or an encoder-decoder of transformers; it is put into evaluation mode.
        tokenizer: its tokenizer; a word aligner needs a fast one.
        settings: the attention of an encoder-decoder that is read, a `Seq2SeqAttention`. Default: that of its layers.
        probabilities: what makes scores probabilities; None: they are as the model has them.
        encoder: an `EncoderPrior`, for a word aligner or attention; None for none.

    Attributes:
        source: reads the model; another `WeightSource` may be put in its place.
        probabilities: as given; None may be put in its place.

    Raises:
        ValueError: a slow tokenizer with Mask-Align, `settings` with Mask-Align, a recurrent model without attention,
            or a model of another kind.
    """

    def __init__(
        self,
        model,
        tokenizer,
        settings: Any | None = None,
        probabilities: LinkProbabilities | None = None,
        encoder: Any | None = None,
    ):
        self.source = _source_of(model.config, "The model")(model.eval(), tokenizer, settings)
        self.probabilities = probabilities
        if encoder is not None:
            self.believe(encoder)

    def __repr__(self) -> str:
        shown = {
            "name": getattr(self.model.config, "name_or_path", None) or None,
            "symmetrize": self.source.symmetrization,
            "threshold": self.source.threshold,
            "settings": self.settings,
            "calibrated": self.probabilities is not None or None,
            "device": str(self.model.device),
        }
        settings = (f"{name}={value!r}" for name, value in shown.items() if value is not None)
        return f"WordAligner({', '.join((type(self.model).__name__, *settings))})"

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        settings: Any | None = None,
        encoder: Any | None = None,
        languages: str | Sequence[str] | None = None,
    ) -> "WordAligner":
        """Load a checkpoint with its tokenizer, and what `attncal align calibrate` saved with it.

        Args:
            name: "deen" or "ende", an aligner of the package (`alignment.ready`); or folder or Hub name of a word
                aligner, of any encoder-decoder (Marian, BART, ours, ...), or an adapter for one.
            device: None for a GPU if there is one.
            dtype: None for the one that the checkpoint is saved in.
            trust_remote_code: run the model code that comes with the checkpoint.
            revision: branch, tag or commit on the Hub.
            settings: as of the class; None for those that lie beside the checkpoint (`attncal align select`).
            encoder: as of the class.
            languages: as for `data.languages.set_languages`, for a translation model of many languages.

        Raises:
            OSError: there is no such checkpoint.
            ValueError: it is of another kind, or see the class.
        """
        name = ready_or_named(name)
        model, tokenizer, saved = load_to_align(
            name, dtype=dtype, trust_remote_code=trust_remote_code, revision=revision, languages=languages
        )
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.to(device), tokenizer, settings or saved, saved_probabilities(name, revision), encoder)

    @property
    def model(self):
        """The model that the source reads."""
        return self.source.model

    @property
    def tokenizer(self):
        """The tokenizer of that model."""
        return self.source.tokenizer

    @property
    def settings(self):
        """`Seq2SeqAttention` of an encoder-decoder; None for the default, and for other models."""
        return self.source.settings

    def believe(self, encoder: Any | None) -> None:
        """Let an `EncoderPrior` help, or none; links of counts are then made with what it says of each pair.

        Raises:
            ValueError: the model is read by a source that no encoder can help.
        """
        if encoder is not None and not self.source.may_have_prior:
            raise ValueError(f"`encoder` cannot help {self.source.kind}: leave it out.")
        self.source.prior = encoder
        if encoder is not None:
            self.probabilities = None  # of scores without it

    def choose(self, **changes) -> None:
        """Change single settings, by name; the others stay.

        Args:
            changes: fields of the settings.

        Raises:
            ValueError: there is no such setting, or its value is wrong.
        """
        self.source.choose(**changes)

    def check(
        self,
        *,
        threshold: float | None = None,
        symmetrize: str | None = None,
        least_probability: float | None = None,
    ) -> None:
        """Refuse options that are out of range or do not suit the model, before anything is aligned.

        Args:
            threshold, symmetrize, least_probability: see `align`.

        Raises:
            ValueError: which, and why.
        """
        if threshold is not None:
            check_threshold(threshold)
        if symmetrize is not None and symmetrize not in SYMMETRIZATIONS:
            raise ValueError(f"`symmetrize` must be one of {SYMMETRIZATIONS}, got {symmetrize!r}.")
        kind, symmetrizations = self.source.kind, self.source.symmetrizations
        if symmetrize is not None and symmetrize not in symmetrizations:
            names, why = " or ".join(map(repr, symmetrizations)), self.source.why_no_other
            raise ValueError(f"`symmetrize` must be {names} for {kind}, {why}, got {symmetrize!r}.")
        if self.source.settings is not None:
            self.source.check_settings()
        if self.probabilities is not None:
            settings = None if self.settings is None else self.settings.to_dict()
            self.probabilities.check(symmetrize or self.source.symmetrization, settings)
        if least_probability is not None:
            if not 0 <= least_probability <= 1:
                raise ValueError(f"`least_probability` must be from 0 to 1, got {least_probability}.")
            if self.probabilities is None:
                raise ValueError(
                    "`least_probability` needs scores that are probabilities, and the model's are not: calibrate it "
                    "on annotated pairs (`attncal align calibrate`)."
                )

    @torch.no_grad()
    def align(
        self,
        pairs: Iterable[tuple[Sentence, Sentence]],
        *,
        threshold: float | None = None,
        symmetrize: str | None = None,
        least_probability: float | None = None,
        batch_size: int = 256,
        batch_tokens: int = 4096,
        tokenize: bool | None = None,
        spans: bool = False,
        words: str = SEPARATORS[0],
    ) -> list[WordAlignment]:
        """Align sentence pairs, in batches by length; the results come in the order of the pairs.

        Mask-Align: how subwords and directions become links is in `merge`. A side of more tokens than the model has
        positions is read in overlapping windows (see `windows.py`); nothing is cut.

        An encoder-decoder has one direction: each target word is linked to the source word that it attends to most, or
        with a `threshold` to all above it.

        Args:
            pairs: (source, target), each a text or a list of words.
            threshold: a link must score above this, as the model has scores, calibrated or not; None for the model's
                own, or the best word of an encoder-decoder.
            symmetrize: one of `SYMMETRIZATIONS`; None for the model's own. An encoder-decoder only has "forward".
            least_probability: of the links that these two give, leave out those that are less likely to be right; None
                for none. Needs `probabilities`.
            batch_size: most pairs (or windows) in a batch.
            batch_tokens: most tokens in a batch, both sides and padding included; a pair over it goes alone. An
                encoder-decoder goes by `batch_size` only.
            tokenize: cut raw text into words first (`data.segmentation.segment`); links are between the words that
                white space parts all the same, unless `spans` are asked for. None: if the model learned from such.
            spans: the alignments have the characters of their words; those of a list as if joined by spaces.
            words: what parts the words of a text: any white space, or only "spaces", so that a no-break space is a
                character like others (`data.words.split_words`).

        Raises:
            ValueError: a setting out of range; a word that is empty or has white space in it; a pair of more than
                `MOST_CELLS` pairs of words; weights that are not finite; with an encoder-decoder, a side of more
                tokens than it has positions.
        """
        for name, value in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
            if value < 1:
                raise ValueError(f"`{name}` must be >= 1, got {value}.")
        if words not in SEPARATORS:
            raise ValueError(f"`words` must be one of {SEPARATORS}, got {words!r}.")
        read = self._read(pairs, tokenize, words, spans)
        self.check(threshold=threshold, symmetrize=symmetrize, least_probability=least_probability)
        for source, target in read.cut:
            check_cells(len(source), len(target))
        unknown: Sequence[float | None] = [None] * len(read.cut)
        if self.probabilities is not None and self.probabilities.unknown is not None:
            unknown = self.source.unknown_shares(read.solid) or unknown
        found = self._linked(read, threshold, symmetrize, batch_size, batch_tokens)
        if spans:
            found = [
                replace(one, source_spans=source.spans, target_spans=target.spans)
                for one, (source, target) in zip(found, read.segments, strict=True)
            ]
        elif read.segments:
            found = [
                of_raw_words(one, raw, *segments)
                for one, raw, segments in zip(found, read.raw, read.segments, strict=True)
            ]
        if self.probabilities is None:
            return found
        applied = partial(self.probabilities.applied, least=least_probability)
        return [applied(one, unknown=share) for one, share in zip(found, unknown, strict=True)]

    def _linked(
        self, read: "_ReadPairs", threshold: float | None, symmetrize: str | None, batch_size: int, batch_tokens: int
    ) -> list[WordAlignment]:
        """Return the alignments of the words that the model reads, with scores as it has them."""
        method, limit = symmetrize or self.source.symmetrization, threshold
        linked: dict[int, WordAlignment] = {}
        for indices, weights in self.source.weights(read.solid, batch_size, batch_tokens):
            if threshold is None:
                limit = self.source.threshold  # known once the text is met
            linked |= zip(indices, merge(weights, [read.cut[n] for n in indices], method, limit), strict=True)
        limit = self.source.threshold if threshold is None else threshold
        return [
            linked[n] if n in linked else unaligned(pair, self.source.has_null, method, limit)
            for n, pair in enumerate(read.cut)
        ]

    def _read(
        self, pairs: Iterable[tuple[Sentence, Sentence]], tokenize: bool | None, words: str, spans: bool = False
    ) -> "_ReadPairs":
        """Cut pairs into words; arguments as of `align`."""
        tokenize = self.source.tokenize if tokenize is None else tokenize
        cut = partial(segment if tokenize else white_space_words, separator=words)
        raw: list[Pair] = []
        segments: list[tuple[Segments, Segments]] = []
        for number, pair in enumerate(pairs):
            source, target = _words(pair, number, words)
            raw.append((source, target))
            if tokenize or spans:
                first, second = (cut(side if isinstance(side, str) else " ".join(side)) for side in pair)
                segments.append((first, second))
        read = [(source.words, target.words) for source, target in segments] if tokenize or spans else raw
        solid_words = read
        if words != SEPARATORS[0]:
            solid_words = [
                (tuple(map(without_spaces, source)), tuple(map(without_spaces, target))) for source, target in read
            ]
        return _ReadPairs(raw, segments, read, solid_words)

    def unknown_shares(
        self, pairs: Iterable[tuple[Sentence, Sentence]], *, tokenize: bool | None = None, words: str = SEPARATORS[0]
    ) -> list[float] | None:
        """Return for each pair the share of its tokens that were never counted with one of the other side.

        None for models that do not count.

        Args:
            pairs, tokenize, words: as of `align`.
        """
        return self.source.unknown_shares(self._read(pairs, tokenize, words).solid)

    def adapt(
        self,
        pairs: Iterable[tuple[Sentence, Sentence]],
        *,
        weight: float | None = None,
        passes: int = PASSES,
        tokenize: bool | None = None,
        words: str = SEPARATORS[0],
    ) -> Adaptation:
        """Learn from the text that is to be aligned, without links: for a text of another kind than the training's.

        The counts are changed in memory, and go on from there with the next call; save them with
        `model.save_pretrained` and `tokenizer.save_pretrained`.

        Args:
            pairs, tokenize, words: as of `align`. A stream is best adapted to in windows of some 20,000 pairs.
            weight: what a link of this text counts, from 0 to 1; None: the more, the less of its pair is known, and
                nothing in a pair of the training's domain.
            passes: times that the text is read.

        Raises:
            ValueError: a model that does not count, an encoder that helps, or a setting out of range.
        """
        if self.source.prior is not None:
            raise ValueError(
                "an aligner cannot adapt to a text while an encoder helps it: align with the encoder alone, or count "
                "the text with it (`attncal align quick --encoder`)."
            )
        if not self.source.counts:
            raise ValueError(
                f"only an aligner that counts can adapt to a text: the model is {self.source.kind}. Train one "
                "(`attncal align train --config hmm`)."
            )
        tokens = [side.ids for side in self.source.tokens_of(self._read(pairs, tokenize, words).solid)]
        adapted = adapt_counts(self.model, tokens[::2], tokens[1::2], weight, passes)
        if adapted.weight:
            self.model.config.name_or_path = ""  # it is not what lies there any more, nor is what lies beside that
            if self.probabilities is not None:
                self.probabilities = self.probabilities.of_another_text()  # scores of what was read promise more
        return adapted

    def stream(
        self, pairs: Iterable[tuple[Sentence, Sentence]], *, window: int = ITEMS_AT_ONCE, **options
    ) -> Iterator[WordAlignment]:
        """Align pairs as they arrive, `window` of them at once.

        Args:
            options: of `align`.

        Raises:
            LineError: a pair that `align` fails on, when all pairs before it have been given.
        """
        return piecewise(partial(self.align, **options), pairs, window)


class _ReadPairs(NamedTuple):
    """Sentence pairs as words: those that white space parts, those that are aligned, and as the model reads these.

    `segments` are those of both sides of each pair where text was cut at other places, or spans were asked for.
    """

    raw: list[Pair]
    segments: list[tuple[Segments, Segments]]
    cut: list[Pair]
    solid: list[Pair]


def check_cells(source: int, target: int) -> None:
    """Raise ValueError for a pair of so many words that the memory and time to align it are out of proportion."""
    if source * target > MOST_CELLS:
        raise ValueError(
            f"{source:,} and {target:,} words are {source * target:.1e} pairs of words, which take about "
            f"{_BYTES_OF_CELL * source * target / 1e9:,.0f} GB; at most {MOST_CELLS:.0e} are aligned. Split the line."
        )


def load_to_align(
    name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    languages: str | Sequence[str] | None = None,
    saved: bool = True,
) -> tuple:
    """Load a model, its tokenizer, and the settings beside it or None.

    Args:
        saved: read the settings; else they are to be written anew, and may be those of another model.
        dtype, trust_remote_code, revision, languages: of `from_pretrained`.
    """
    from hf_attncal.inference.loading import load_config  # which an aligner that counts has no need of

    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": revision}
    source = _source_of(load_config(name, **options), name)
    model, tokenizer = source.load(name, dtype=dtype, **options)
    if languages is not None:
        set_languages(model, tokenizer, languages)
    return model, tokenizer, source.saved_settings(name, revision) if saved else None


def _source_of(config, name: str | Path) -> type[WeightSource]:
    """Return the class that reads a model of that configuration; raise ValueError about `name` if nothing does."""
    source = source_of(config)
    if source is None:
        raise ValueError(
            f"{name} is of type {config.model_type!r}. Alignment needs a word aligner or an encoder-decoder (Marian, "
            "BART, ... or one of ours); an encoder (BERT, XLM-R, ...) helps counts: `attncal align quick --encoder`."
        )
    return source


def _words(pair: tuple[Sentence, Sentence], number: int, parted: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of both sides of the pair with this number; `parted` as `words` of `align`."""
    if isinstance(pair, str) or len(pair) != 2:
        raise ValueError(f"`pairs[{number}]` must be a source and a target, got {pair!r}.")
    for side, sentence in enumerate(pair):
        check_line(sentence, number + 1, "`pairs`")
        words = tuple(split_words(sentence, parted) if isinstance(sentence, str) else sentence)
        for word in words:
            if split_words(word, parted) != [word]:
                raise ValueError(
                    f"`pairs[{number}][{side}]` has the word {word!r}. A word of a list must not be empty or hold "
                    "white space: split it, or give the sentence as one text."
                )
        yield words
