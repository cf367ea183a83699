"""Align the words of sentence pairs: the `WordAligner`, over any source of weights.

Words are separated by any Unicode white space, as in `str.split()`, or with `words="spaces"` only by ASCII spaces and
tabs. Raw text is split into words before it is aligned (`data.segmentation`); links are between words of either kind.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hf_attncal.data.languages import set_languages
from hf_attncal.data.segmentation import Segments, segment, white_space_words, without_spaces
from hf_attncal.data.words import SEPARATORS, check_cells, split_words
from hf_attncal.families import source_of
from hf_attncal.io.errors import ITEMS_AT_ONCE, piecewise
from hf_attncal.io.files import check_line

from .links import SYMMETRIZATIONS, Pair, WordAlignment, merge, of_raw_words, unaligned
from .probabilities import LinkProbabilities, saved_probabilities
from .ready import ready_or_named
from .sources import ADAPTATION_PASSES, Adaptation, WeightSource, check_threshold

Sentence = str | Sequence[str]


class WordAligner:
    """Word aligner of sentence pairs.

    Args:
        model: Word aligner of this package, or encoder-decoder of transformers; it is put into evaluation mode.
        tokenizer: Tokenizer of the model; a word aligner needs a fast one.
        settings: `Seq2SeqAttention` to read from an encoder-decoder. Default: None, see `Seq2SeqAttention.default_of`.
        probabilities: Rules that turn scores into probabilities. Default: None, the model's scores.
        encoder: `EncoderPrior` that helps. Default: None.

    Attributes:
        source: `WeightSource` that reads the model; may be replaced.
        probabilities: Rules that turn scores into probabilities; may be set to None.

    Raises:
        ValueError: a slow tokenizer or `settings` with a word aligner, a recurrent model without attention, or a model
            of another kind.
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
            self.use_encoder(encoder)

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
        """Load a checkpoint with its tokenizer, and the settings and calibration saved with it.

        Args:
            name: "deen" or "ende", an aligner of the package (`alignment.ready`); or folder or Hub name of a word
                aligner, an encoder-decoder (Marian, BART, ...) or an adapter for one.
            device: Device. Default: None, a GPU if there is one.
            dtype: Type of the weights. Default: None, as saved.
            trust_remote_code: Run the model code that comes with the checkpoint. Default: False.
            revision: Branch, tag or commit on the Hub. Default: None.
            settings: `Seq2SeqAttention` to read. Default: None, as saved (`attncal align select`).
            encoder: `EncoderPrior` that helps. Default: None.
            languages: Languages of a multilingual translation model, see `data.languages.set_languages`. Default:
                None.

        Raises:
            OSError: a missing checkpoint.
            ValueError: a checkpoint of another kind, or see the class.
        """
        name = ready_or_named(name)
        model, tokenizer, saved = load_to_align(
            name, dtype=dtype, trust_remote_code=trust_remote_code, revision=revision, languages=languages
        )
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(model.to(device), tokenizer, settings or saved, saved_probabilities(name, revision), encoder)

    @property
    def model(self):
        """Model that the weights come from."""
        return self.source.model

    @property
    def tokenizer(self):
        """Tokenizer of the model."""
        return self.source.tokenizer

    @property
    def settings(self):
        """`Seq2SeqAttention` of an encoder-decoder; None for the default and for other models."""
        return self.source.settings

    def use_encoder(self, encoder: Any | None) -> None:
        """Use an `EncoderPrior` from now on; None to stop using one.

        Raises:
            ValueError: a model that no encoder can help.
        """
        if encoder is not None and not self.source.accepts_encoder:
            raise ValueError(f"`encoder` cannot help {self.source.kind}. Leave it out.")
        self.source.prior = encoder
        if encoder is not None:
            self.probabilities = None  # they were learned from scores without an encoder

    def choose(self, **changes) -> None:
        """Change some settings by name.

        Args:
            changes: Fields of `Seq2SeqAttention`.

        Raises:
            ValueError: an unknown setting or a wrong value.
        """
        self.source.choose(**changes)

    def check(
        self, *, threshold: float | None = None, symmetrize: str | None = None, least_probability: float | None = None
    ) -> None:
        """Check options of `align` before anything is aligned.

        Args:
            threshold, symmetrize, least_probability: See `align`.

        Raises:
            ValueError: an option out of range, or one that does not fit the model.
        """
        if threshold is not None:
            check_threshold(threshold)
        if symmetrize is not None and symmetrize not in SYMMETRIZATIONS:
            raise ValueError(f"`symmetrize` must be one of {SYMMETRIZATIONS}, got {symmetrize!r}.")
        kind, symmetrizations = self.source.kind, self.source.symmetrizations
        if symmetrize is not None and symmetrize not in symmetrizations:
            names, reason = " or ".join(map(repr, symmetrizations)), self.source.why_no_other
            raise ValueError(f"`symmetrize` must be {names} for {kind}, {reason}, got {symmetrize!r}.")
        if self.source.settings is not None:
            self.source.check_settings()
        if self.probabilities is not None:
            settings = None if self.settings is None else self.settings.to_dict()
            self.probabilities.check(symmetrize or self.source.symmetrization, settings)
        if least_probability is not None:
            if not 0 <= least_probability <= 1:
                raise ValueError(f"`least_probability` must be from 0 to 1, got {least_probability}.")
            if self.probabilities is None and not (self.source.counts and self.source.prior is not None):
                raise ValueError(
                    "`least_probability` needs a calibrated aligner, or a statistical one with an encoder. Calibrate "
                    "it on annotated pairs (`attncal align calibrate`)."
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
        """Align sentence pairs in batches by length; return the alignments in the order of the pairs.

        `merge` turns the weights of a word aligner into links; a side with more tokens than positions is read in
        overlapping windows. An encoder-decoder has one direction: each target word is linked to the source word that
        it attends to most, or with a `threshold` to all source words above it.

        Args:
            pairs: (source, target), each a text or a list of words.
            threshold: Exclusive minimum score of a link before calibration. Default: None, the model's threshold, or
                the best word of an encoder-decoder.
            symmetrize: One of `SYMMETRIZATIONS`; "forward" for an encoder-decoder. Default: None, the model's.
            least_probability: Minimum probability of a link; needs `probabilities`, or counts with an encoder, whose
                scores are probabilities. Default: None.
            batch_size: Maximum number of pairs or windows per batch. Default: 256.
            batch_tokens: Maximum number of tokens per batch, including padding; a larger pair is its own batch. Not
                for an encoder-decoder. Default: 4096.
            tokenize: Split raw text into words first (`data.segmentation.segment`). Links are still between words
                separated by white space, unless `spans` is set. Default: None, as in training.
            spans: Add the character positions of the words; lists of words are joined by spaces. Default: False.
            words: Word separator: any white space, or only "spaces" (`data.words.split_words`).

        Raises:
            ValueError: a setting out of range; an empty word or a word with white space; a pair with more than
                `data.words.MOST_CELLS` pairs of words; weights that are not finite; a side with more tokens than an
                encoder-decoder has positions.
        """
        for name, value in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
            if value < 1:
                raise ValueError(f"`{name}` must be >= 1, got {value}.")
        if words not in SEPARATORS:
            raise ValueError(f"`words` must be one of {SEPARATORS}, got {words!r}.")
        text = self._split(pairs, tokenize, words, spans)
        self.check(threshold=threshold, symmetrize=symmetrize, least_probability=least_probability)
        for source, target in text.words:
            check_cells(len(source), len(target))
        unknown: Sequence[float | None] = [None] * len(text.words)
        if self.probabilities is not None and self.probabilities.unknown is not None:
            unknown = self.source.unknown_shares(text.solid) or unknown
        alignments = self._align_words(text, threshold, symmetrize, batch_size, batch_tokens)
        if spans:
            alignments = [
                replace(alignment, source_spans=source.spans, target_spans=target.spans)
                for alignment, (source, target) in zip(alignments, text.segments, strict=True)
            ]
        elif text.segments:
            alignments = [
                of_raw_words(alignment, *segments)
                for alignment, segments in zip(alignments, text.segments, strict=True)
            ]
        if self.probabilities is None:
            return alignments if least_probability is None else [a.at_least(least_probability) for a in alignments]
        applied = partial(self.probabilities.applied, least=least_probability)
        return [applied(alignment, unknown=share) for alignment, share in zip(alignments, unknown, strict=True)]

    def _align_words(
        self, text: "_SplitPairs", threshold: float | None, symmetrize: str | None, batch_size: int, batch_tokens: int
    ) -> list[WordAlignment]:
        """Return the alignments of the model's words with the model's scores."""
        method, limit = symmetrize or self.source.symmetrization, threshold
        alignments: dict[int, WordAlignment] = {}
        for indices, weights in self.source.weights(text.solid, batch_size, batch_tokens):
            if threshold is None:
                limit = self.source.threshold  # an encoder lowers it once it has read the text
            alignments |= zip(indices, merge(weights, [text.words[n] for n in indices], method, limit), strict=True)
        limit = self.source.threshold if threshold is None else threshold
        return [
            alignments[n] if n in alignments else unaligned(pair, self.source.has_null, method, limit)
            for n, pair in enumerate(text.words)
        ]

    def _split(
        self, pairs: Iterable[tuple[Sentence, Sentence]], tokenize: bool | None, words: str, spans: bool = False
    ) -> "_SplitPairs":
        """Split pairs into words; see `align` for the arguments."""
        tokenize = self.source.tokenize if tokenize is None else tokenize
        splits = [
            partial(segment, separator=words, cut=cut) if tokenize else partial(white_space_words, separator=words)
            for cut in self.source.cuts
        ]
        raw: list[Pair] = []
        segments: list[tuple[Segments, Segments]] = []
        for number, pair in enumerate(pairs):
            source, target = _words(pair, number, words)
            raw.append((source, target))
            if tokenize or spans:
                first, second = (side if isinstance(side, str) else " ".join(side) for side in pair)
                segments.append((splits[0](first), splits[1](second)))
        split_pairs = [(source.words, target.words) for source, target in segments] if tokenize or spans else raw
        solid_pairs = split_pairs
        if words != SEPARATORS[0]:
            solid_pairs = [
                (tuple(map(without_spaces, source)), tuple(map(without_spaces, target)))
                for source, target in split_pairs
            ]
        return _SplitPairs(segments, split_pairs, solid_pairs)

    def unknown_shares(
        self, pairs: Iterable[tuple[Sentence, Sentence]], *, tokenize: bool | None = None, words: str = SEPARATORS[0]
    ) -> list[float] | None:
        """Return the share of unknown tokens in each pair; None for an aligner without counts.

        A token is unknown if the aligner has never counted it together with any token of the other side of this pair.

        Args:
            pairs, tokenize, words: See `align`.
        """
        return self.source.unknown_shares(self._split(pairs, tokenize, words).solid)

    def adapt(
        self,
        pairs: Iterable[tuple[Sentence, Sentence]],
        *,
        weight: float | None = None,
        passes: int = ADAPTATION_PASSES,
        tokenize: bool | None = None,
        words: str = SEPARATORS[0],
    ) -> Adaptation:
        """Adapt a statistical aligner to a text without annotation: for a text unlike the training text.

        The counts change in memory, and further calls add to them. Save them with `model.save_pretrained` and
        `tokenizer.save_pretrained`.

        Args:
            pairs, tokenize, words: See `align`. Split a stream into windows of about 20,000 pairs.
            weight: Weight of a link of this text, from 0 to 1. Default: None, from 0 for pairs like the training text
                to 1 for pairs with mostly unknown tokens.
            passes: Number of passes over the text. Default: 4.

        Raises:
            ValueError: a model without counts, an aligner with an encoder, or a setting out of range.
        """
        if self.source.prior is not None:
            raise ValueError(
                "an aligner with an encoder cannot adapt to a text. Use the encoder only, or count the text with it "
                "(`attncal align quick --encoder`)."
            )
        adapted = self.source.adapt(self._split(pairs, tokenize, words).solid, weight, passes)
        if adapted.weight:
            self.model.config.name_or_path = ""  # the model differs from its folder, and from the files there
            if self.probabilities is not None:
                self.probabilities = self.probabilities.of_another_text()  # scores of a counted text are higher
        return adapted

    def stream(
        self, pairs: Iterable[tuple[Sentence, Sentence]], *, window: int = ITEMS_AT_ONCE, **options
    ) -> Iterator[WordAlignment]:
        """Yield the alignments of pairs as they arrive.

        Args:
            pairs: See `align`.
            window: Number of pairs that are aligned together.
            options: Other options of `align`.

        Raises:
            LineError: a pair that cannot be aligned, after all pairs before it were yielded.
        """
        return piecewise(partial(self.align, **options), pairs, window)


class _SplitPairs(NamedTuple):
    """Sentence pairs split into words.

    Args:
        segments: Segments of both sides of each pair; empty unless text is tokenised or spans are needed.
        words: Words that are aligned.
        solid: The same words without white space inside, as the model reads them.
    """

    segments: list[tuple[Segments, Segments]]
    words: list[Pair]
    solid: list[Pair]


def load_to_align(
    name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    languages: str | Sequence[str] | None = None,
    saved: bool = True,
) -> tuple:
    """Load a model, its tokenizer, and the settings saved with it or None.

    Args:
        saved: Load the settings; False before new ones are written, as the old ones may belong to another model.
        dtype, trust_remote_code, revision, languages: See `WordAligner.from_pretrained`.
    """
    from hf_attncal.inference.loading import load_config  # imports transformers, which tables do not need

    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": revision}
    source = _source_of(load_config(name, **options), name)
    model, tokenizer = source.load(name, dtype=dtype, **options)
    if languages is not None:
        set_languages(model, tokenizer, languages)
    return model, tokenizer, source.saved_settings(name, revision) if saved else None


def _source_of(config, name: str | Path) -> type[WeightSource]:
    """Return the source class of a configuration; raise ValueError if there is none."""
    source = source_of(config)
    if source is None:
        raise ValueError(
            f"{name} is of type {config.model_type!r}, and must be a word aligner or an encoder-decoder (such as "
            "Marian or BART). Use an encoder (BERT, XLM-R, ...) with `attncal align quick --encoder`."
        )
    return source


def _words(pair: tuple[Sentence, Sentence], number: int, parted: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of both sides of a pair; `parted` is the word separator."""
    if isinstance(pair, str) or len(pair) != 2:
        raise ValueError(f"`pairs[{number}]` must be a source and a target, got {pair!r}.")
    for side, sentence in enumerate(pair):
        check_line(sentence, number + 1, "`pairs`")
        words = tuple(split_words(sentence, parted) if isinstance(sentence, str) else sentence)
        for word in words:
            if split_words(word, parted) != [word]:
                raise ValueError(
                    f"`pairs[{number}][{side}]` must have words without white space that are not empty, got {word!r}. "
                    "Split it, or give the sentence as one text."
                )
        yield words
