"""Open an aligner by its name, align a text of any length with it, and warn of links that are probably bad.

Heavy modules are imported once a name is known to be good.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.data.languages import trial_source
from hf_attncal.data.linked_pairs import SeparatorWatch, write_separator
from hf_attncal.data.texts import PairText, Part
from hf_attncal.families import source_of
from hf_attncal.inference.opening import check_name, choose_device, load_errors, tell_model
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_choice, settings_by_name, until_failure
from hf_attncal.io.files import fill_folder, write_json
from hf_attncal.io.gate import job, note_inputs, run_record
from hf_attncal.io.messages import LOG
from hf_attncal.io.streams import (
    BATCHES_PER_WINDOW,
    Output,
    PairWindow,
    groups_by_size,
    json_line,
    line_error,
    output_lines,
    progress_bar,
    write_lines,
)
from hf_attncal.layouts import AUTO_ENCODER, CONFIG, DEFAULT_ENCODER, RUN

from .ready import nearest_ready

if TYPE_CHECKING:
    from .aligner import Sentence, WordAligner
    from .links import WordAlignment

ADAPTED = "an adaptation"  # writer in run.json of an adapted aligner


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# Parser and description of each key of --read: the fields of `Seq2SeqAttention` without the threshold.
READABLE: dict[str, tuple[Callable[[str], Any], str]] = {
    "layer": (int, "a number"),
    "heads": (_numbers, "numbers from 0, such as 0,3"),
    "shift": ({"true": True, "false": False}.__getitem__, "true or false"),
    "weights": (str, ""),
    "source_prefix": (str, ""),
}


# ---- aligners ----


def open_aligner(name: str, running: Running, tried: bool = True, raw_scores: bool = False, plain: bool = False):
    """Load a `WordAligner`.

    Args:
        name: Folder or Hub name.
        running: Device and other options of the run.
        tried: Align one pair to test the files. Default: True.
        raw_scores: Ignore a saved calibration. Default: False.
        plain: Load a statistical aligner as tables, which cannot be adapted or saved. Default: False.

    Raises:
        CommandError: a checkpoint that cannot be loaded or is of another kind.
    """
    aligner = _plain_aligner(name, running) if plain else None
    if aligner is None:
        with _aligner_errors(name):
            from .aligner import WordAligner, load_to_align

            device = choose_device(running)
            options: dict[str, Any] = {
                "dtype": running.dtype,
                "trust_remote_code": running.trust_remote_code,
                "languages": running.languages,
            }
            if raw_scores:  # a saved calibration may belong to another model, and is not even read
                model, *tokenizer_and_settings = load_to_align(name, **options)
                aligner = WordAligner(model.to(device), *tokenizer_and_settings)
            else:
                aligner = WordAligner.from_pretrained(name, device=device, **options)
        if tried:
            try_aligner(name, aligner)
    tell_model(name, aligner.source.model)
    return aligner


@contextmanager
def _aligner_errors(name: str) -> Iterator[None]:
    """Turn loading errors into CommandErrors as `load_errors` does, and suggest the nearest ready aligner."""
    try:
        with load_errors(name):
            yield
    except CommandError as error:
        missing = isinstance(error.__cause__, OSError) and not os.path.exists(name)
        if not missing or "Did you mean" in str(error) or not (suggestion := nearest_ready(name)):
            raise
        raise CommandError(f"{error}{suggestion}") from error.__cause__


def _plain_aligner(name: str, running: Running):
    """Load a statistical aligner without importing transformers; return None if that is impossible."""
    special = running.dtype or running.trust_remote_code or running.languages
    if special or not os.path.isfile(os.path.join(name, CONFIG)):
        return None
    from .statistical import plain_aligner

    return plain_aligner(name, choose_device(running))


def open_to_align(
    model,
    running: Running,
    *,
    read: Mapping[str, Any] | Sequence[str] | None = None,
    adapt: bool = False,
    encoder: Any | None = None,
    **checked: Any,
):
    """Load a `WordAligner`, change its settings, and check its options.

    Args:
        model: Folder or Hub name, or a loaded aligner, which is copied before it is changed.
        running: Device and other options of the run.
        read: Settings to change by name, or words `layer=8` of a command line. Default: None.
        adapt: Load an aligner that can adapt to the text. Default: False.
        encoder: Encoder that helps, see `open_encoder`. Default: None.
        checked: Options to check with `WordAligner.check`.

    Raises:
        CommandError: an aligner that cannot be loaded, or settings or options that do not fit it.
    """
    changes = changes_of(read)
    # The default reading may be impossible. So a model with other weights is tried after its settings are changed.
    named, other_weights = isinstance(model, str), "weights" in changes
    aligner = model
    if named:
        aligner = open_aligner(model, running, tried=not other_weights, plain=not other_weights and not adapt)
    try:
        if not named and (changes or encoder is not None):
            aligner = copy(aligner)
            aligner.source = copy(aligner.source)
        if changes:
            aligner.choose(**changes)
        if encoder is not None:
            aligner.use_encoder(open_encoder(encoder, running))
        aligner.check(**checked)
    except ValueError as error:
        name = model if named else "The model"
        raise CommandError(f"{name} cannot be used with these options: {error}") from error
    if named and other_weights:
        try_aligner(model, aligner)
    return aligner


def aligner_beside(aligner, running: Running, name: str | None, model: tuple[Any, Any], raw_scores: bool) -> Any:
    """Return the `WordAligner` of a text and its output from an encoder-decoder.

    Args:
        aligner: Folder or Hub name, or a loaded aligner; None to read the attention of the encoder-decoder.
        running: Device and other options of the run.
        name: Folder or Hub name of the encoder-decoder, where its attention settings are saved. Default: None.
        model: Encoder-decoder on its device, and its tokenizer.
        raw_scores: Ignore a saved calibration of the encoder-decoder.

    Raises:
        CommandError: an aligner that cannot be loaded, or a model that cannot align.
    """
    if aligner is not None:
        return aligner if hasattr(aligner, "align") else open_aligner(os.fspath(aligner), running, plain=True)
    from .aligner import WordAligner
    from .probabilities import saved_probabilities

    if name is None:
        return WordAligner(*model)
    with load_errors(name):
        probabilities = None if raw_scores else saved_probabilities(name)
        source = source_of(model[0].config)
        reader = WordAligner(*model, source and source.saved_settings(name), probabilities)
    try_aligner(name, reader)
    return reader


def try_aligner(name: str, aligner) -> None:
    """Align one pair, so that damaged files of `name` are not reported as a bad input line.

    Raises:
        CommandError: the pair cannot be aligned.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([(trial_source(aligner.tokenizer), "1")])


def changes_of(read: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name from a mapping, or from words `key=value` of a command line.

    Raises:
        CommandError: an unknown setting or a wrong value.
    """
    settings = settings_by_name(read)
    for name, word in settings.items():
        if name not in READABLE:
            raise CommandError(f"--read must be one of {', '.join(READABLE)}, got {name!r}. Example: --read layer=8.")
        parse, description = READABLE[name]
        try:
            settings[name] = word if isinstance(read, Mapping) else parse(word)
        except (ValueError, KeyError) as error:
            raise CommandError(f"--read {name} must be {description}, got {word!r}.") from error
    return settings


def save_aligner(aligner, folder: str | Path) -> None:
    """Save model and tokenizer of a `WordAligner` in a folder.

    Raises:
        CommandError: the folder holds another model, or the aligner was loaded from it.
    """

    def save(staged: Path) -> None:
        aligner.model.save_pretrained(staged)
        aligner.tokenizer.save_pretrained(staged)
        write_json(run_record(ADAPTED), staged / RUN)

    with job():
        note_inputs(aligner.model.name_or_path)
        fill_folder(folder, save, by=ADAPTED)


# ---- encoders ----


def name_of_encoder(encoder: Any) -> str:
    """Return the folder or Hub name of an encoder; raise CommandError if it does not exist."""
    if not isinstance(encoder, str | os.PathLike):
        raise CommandError(f"`encoder` must be a folder or a name on the Hub, got {type(encoder).__name__}.")
    check_encoder(encoder)
    return DEFAULT_ENCODER[0] if encoder == AUTO_ENCODER else os.fspath(encoder)


def check_encoder(encoder: Any) -> None:
    """Raise CommandError if the named encoder does not exist; loaded encoders are not checked."""
    if isinstance(encoder, str | os.PathLike):
        try:
            check_name(DEFAULT_ENCODER[0] if encoder == AUTO_ENCODER else os.fspath(encoder))
        except OSError as error:
            raise CommandError(str(error)) from error


def open_encoder(encoder: Any, running: Running, adapted: bool = True) -> Any:
    """Load an `EncoderPrior`.

    Args:
        encoder: Folder or Hub name, or "auto" for the default; a loaded one or None is returned unchanged.
        running: Device and other options of the run, except `dtype` and `revision`.
        adapted: See `EncoderPrior.from_pretrained`. Default: True.

    Raises:
        CommandError: an encoder that cannot be loaded or is of another kind.
    """
    if encoder is None or not isinstance(encoder, str | os.PathLike):
        return encoder
    name = name_of_encoder(encoder)
    with load_errors(name):
        from .encoder_prior import EncoderPrior

        return EncoderPrior.from_pretrained(
            name,
            device=choose_device(running),
            trust_remote_code=running.trust_remote_code,
            adapted=adapted,
            languages=running.languages,
        )


# ---- quality without annotated links ----

# Mean pair scores: below the first, AER was above 60 %; good models reach the second (docs/log.md).
LEAST_SCORE, GOOD_SCORE = 0.4, 0.6
# Source and target seem exchanged if the opposite order scores higher by this. On nine texts the right order scored
# higher by 0.14 (captions against debates) to 0.43 (everyday Japanese).
_MIN_EXCHANGE_GAIN = 0.1


@dataclass(frozen=True)
class Quality:
    """Quality of an aligner, estimated without annotated links.

    Args:
        pairs: Number of aligned pairs.
        mean_score: Mean of `WordAlignment.score`.
        null: Mean probability of a word to have no partner.
        agreement: Share of the links above 0.5 in either direction that are above 0.5 in both.
    """

    pairs: int
    mean_score: float
    null: float
    agreement: float


def estimate_quality(aligner: "WordAligner", pairs: "Iterable[tuple[Sentence, Sentence]]") -> Quality:
    """Estimate the quality of an aligner with two directions on unannotated pairs.

    The estimate detects a model that learned nothing; it does not rank good models.

    Raises:
        ValueError: no pair with words on both sides.
    """
    raw, pairs = copy(aligner), list(pairs)
    raw.probabilities = None  # they may lack a symmetrisation that is used here
    aligned = raw.align(pairs, symmetrize="harmonic")
    scores = [result.score for result in aligned if result.score is not None]
    aligned = [result for result in aligned if result.score is not None]
    if not scores:
        raise ValueError("`pairs` must have a pair with words on both sides, got none.")
    nulls = [null for result in aligned for null in (*(result.source_null or ()), *(result.target_null or ()))]
    both, either = (
        sum(len(result.links) for result in raw.align(pairs, symmetrize=method, threshold=0.5))
        for method in ("intersection", "union")
    )
    return Quality(len(scores), sum(scores) / len(scores), sum(nulls) / len(nulls), both / max(1, either))


def exchanged_scores(
    aligner: "WordAligner", pairs: "Iterable[tuple[Sentence, Sentence]]", **options
) -> tuple[float, float] | None:
    """Return the mean score of the pairs in both orders if the exchanged order scores clearly higher, else None.

    Args:
        aligner: Word aligner.
        pairs: Sentence pairs; None is returned if one cannot be aligned.
        options: Options of `WordAligner.align`.
    """
    raw, pairs, means = copy(aligner), list(pairs), []
    raw.probabilities = None

    def align(part: "Sequence[tuple[Sentence, Sentence]]") -> "Sequence[WordAlignment]":
        return raw.align(part, symmetrize="harmonic", **options)

    for sides in (pairs, [(target, source) for source, target in pairs]):
        aligned, failure = until_failure(align, sides)
        scores = [alignment.score for alignment in aligned if alignment.score is not None]
        if failure is not None or not scores:
            return None
        means.append(sum(scores) / len(scores))
    original, exchanged = means
    return (original, exchanged) if exchanged > original + _MIN_EXCHANGE_GAIN else None


# ---- while a text is aligned ----

_MIN_PAIRS_TO_JUDGE = 100  # for the warning of a low mean score
# The first pairs are also aligned with source and target exchanged, if there are enough of them.
_MAX_PAIRS_TO_EXCHANGE, _MIN_PAIRS_TO_EXCHANGE = 100, 20
# Share of pairs unlike the annotated ones: 30 to 46 % in similar text, at least 62 % in other text.
_MAX_UNLIKE = 0.6


class Judge:
    """Statistics of the alignments of a text, which warn of bad links at the end.

    Args:
        aligner: Word aligner.
        adapts: True if the aligner adapts to the text.
        shows_scores: True if probabilities of links are written or used to select links.
        options: `tokenize` and `words` of `WordAligner.align`.
    """

    def __init__(self, aligner: "WordAligner", adapts: bool, shows_scores: bool, **options):
        self.aligner, self.adapts, self.shows_scores, self.options = aligner, adapts, shows_scores, options
        self._two_ways = "harmonic" in getattr(aligner.source, "symmetrizations", ())
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list = []
        self._exchanged: tuple[float, float] | None = None

    def see(self, pairs: "Sequence[tuple[Sentence, Sentence]]") -> None:
        """Add pairs that are aligned next to the sample."""
        first = not self._sample
        self._sample += pairs[: _MAX_PAIRS_TO_EXCHANGE - len(self._sample)]
        if first and self.adapts:
            self._compare()  # before adaptation, after which both orders score well

    def add(self, alignments: "Sequence[WordAlignment]") -> None:
        """Add the scores of aligned pairs."""
        scores = [alignment.score for alignment in alignments if alignment.score is not None]
        self._scored, self._total = self._scored + len(scores), self._total + sum(scores)
        self._unlike += sum(alignment.shift == 1 for alignment in alignments)

    def warn(self) -> None:
        """Warn of bad links.

        Warns:
            UserWarning: probabilities too high for this text, source and target exchanged, or links probably bad.
        """
        if not self._scored:
            return
        enough = self._scored >= _MIN_PAIRS_TO_EXCHANGE
        if self.shows_scores and enough and self._unlike > _MAX_UNLIKE * self._scored:
            warnings.warn(
                f"{self._unlike / self._scored:.0%} of the pairs are unlike the annotated text of the calibration, so "
                "that probabilities of links may be too high. Annotate some dozens of pairs of this text and run "
                "`attncal align calibrate` again.",
                stacklevel=3,
            )
        mean = self._total / self._scored
        if mean < GOOD_SCORE and not self.adapts:
            self._compare()
        if self._exchanged:
            warnings.warn(
                "source and target are probably exchanged: the mean score of a pair is {:.2f}, and {:.2f} in the "
                "opposite order. Exchange --source and --target.".format(*self._exchanged),
                stacklevel=3,
            )
        elif self._scored >= _MIN_PAIRS_TO_JUDGE and mean < LEAST_SCORE and self._two_ways:
            warnings.warn(
                f"the links are probably bad: the mean score of a pair is {mean:.2f}, and a good aligner has 0.6 or "
                "more. Check that the lines are translations of each other; if they are, adapt the aligner (--adapt), "
                "or train it on this text as well (`attncal align train --source TRAIN THIS --target TRAIN THIS`).",
                stacklevel=3,
            )

    def _compare(self) -> None:
        """Compare the scores of the sample in both orders."""
        if len(self._sample) >= _MIN_PAIRS_TO_EXCHANGE and self._two_ways:
            self._exchanged = exchanged_scores(self.aligner, self._sample, **self.options)


# ---- format of links ----

LINK_FORMATS = ("pharaoh", "words", "opustrainer", "json", "html")
_WITH_OFFSETS = ("pharaoh", "json")


@dataclass(frozen=True)
class LinkStyle:
    """Format of the links of a pair.

    Args:
        format: One of `LINK_FORMATS`. Default: "pharaoh".
        scores: Append the score to each link. Default: False.
        offsets: Write character positions (pharaoh, json). Default: False.

    Raises:
        CommandError: an unknown format, or `offsets` with a format that has none.
    """

    format: str = "pharaoh"
    scores: bool = False
    offsets: bool = False

    def __post_init__(self):
        check_choice("--format", self.format, LINK_FORMATS)
        if self.offsets and self.format not in _WITH_OFFSETS:
            raise CommandError(f"--offsets needs --format pharaoh or json, got {self.format}.")

    @property
    def shows_scores(self) -> bool:
        """True if scores are written."""
        return self.scores or self.format == "json"

    @property
    def counts_words(self) -> bool:
        """True if the lines are in Pharaoh format, which other commands read."""
        return self.format == "pharaoh" and not self.offsets

    def line(self, number: int, alignment: "WordAlignment") -> str:
        """Return the output line of an alignment; `number` is the input line, from 1."""
        if self.format == "html":
            from .pictures import page_pair

            return page_pair(number, alignment)
        if self.format == "json":
            return json_line(alignment.to_dict())
        write = alignment.offsets if self.offsets else alignment.pharaoh
        columns = [(alignment.words if self.format == "words" else write)(scores=self.scores)]
        if self.format == "opustrainer":
            columns = [" ".join(alignment.source), " ".join(alignment.target), *columns]
        return "\t".join(columns)

    @contextmanager
    def document(self, target: Output, aligner: str) -> Iterator[None]:
        """Write the head and, if no error occurs, the foot of an HTML page around its pairs.

        Args:
            target: Output of the lines.
            aligner: Name of the aligner, for the heading.
        """
        if self.format != "html":
            yield
            return
        from .pictures import PAGE_FOOT, page_head

        write_lines(target, [page_head(aligner)])
        yield
        write_lines(target, [PAGE_FOOT])


# ---- a text of any length ----

# Default maximum of pairs per batch; typical batch size, with typical tokens per pair.
_MAX_BATCH_PAIRS, _BATCH_PAIRS, _TOKENS_PER_PAIR = 256, 64, 64
_PAIRS_TO_LEARN_FROM = 20_000
# Source characters times target characters, an upper bound of the links in memory before they are written.
_CELLS_AT_ONCE = 1 << 26


def lines_at_once(batch_size: int | None, adapt: bool = False) -> int:
    """Return the number of lines in a window: several batches to sort by length, or enough text to adapt to."""
    return _PAIRS_TO_LEARN_FROM if adapt else BATCHES_PER_WINDOW * (batch_size or _BATCH_PAIRS)


def batch_limits(batch_size: int | None) -> dict[str, int]:
    """Return `batch_size` and `batch_tokens` of `WordAligner.align`."""
    tokens = _TOKENS_PER_PAIR * max(batch_size or 0, _BATCH_PAIRS)
    return {"batch_size": batch_size or _MAX_BATCH_PAIRS, "batch_tokens": tokens}


def align_windows(
    aligner,
    windows: Iterable[PairWindow],
    *,
    adapt: bool = False,
    shows_scores: bool = False,
    progress: bool | None = None,
    before: int = 0,
    **options,
) -> "Iterator[Sequence[WordAlignment]]":
    """Yield the alignments of pairs in groups to write.

    Args:
        aligner: `WordAligner`.
        windows: Groups of pairs, each with the error of the line after it or None.
        adapt: Adapt the aligner to each window first. Default: False.
        shows_scores: True if probabilities of links are written or used to select links. Default: False.
        progress: Count lines on standard error. Default: None, if that is a terminal.
        before: Number of lines before the first window. Default: 0.
        options: Options of `WordAligner.align`.

    Raises:
        CommandError: a line that cannot be read or aligned, after all lines before it were yielded.

    Warns:
        UserWarning: see `Judge.warn`.
    """
    align = partial(aligner.align, **options)
    reading = {name: options.get(name) for name in ("tokenize", "words") if name in options}
    judge = Judge(aligner, adapt, shows_scores, **reading)
    first = before + 1
    with progress_bar("aligned", progress) as bar:
        for pairs, error in windows:
            judge.see(pairs)
            if adapt and pairs:
                _adapt(aligner, pairs, **reading)
            for group in groups_by_size(pairs, _CELLS_AT_ONCE):
                alignments, failure = until_failure(align, group)
                yield alignments
                judge.add(alignments)
                if failure is not None:
                    raise line_error(first + len(alignments), "cannot be aligned", failure) from failure
                bar.update(len(group))
                first += len(group)
            if error is not None:
                raise error
    judge.warn()


def _adapt(aligner, pairs: Sequence, **reading) -> None:
    """Adapt the aligner to pairs, and log how much it learned."""
    try:
        adapted = aligner.adapt(pairs, **reading)
    except ValueError as error:
        raise CommandError(f"--adapt cannot be used: {error}") from error
    result = f"learned from them with a weight of {adapted.weight:.2f}" if adapted.weight else "a known text"
    LOG.info("%.0f%% of the tokens of %d pairs are new: %s", 100 * adapted.unknown, adapted.pairs, result)


def align_text(
    aligner,
    text: PairText,
    output: str | os.PathLike[str] | None,
    style: LinkStyle,
    *,
    name: str,
    window: int,
    part: Part | None = None,
    **options,
) -> "list[WordAlignment] | None":
    """Align a text, and write the links or return the alignments.

    Args:
        aligner: `WordAligner`.
        text: Sentence pairs.
        output: Output file, or "-" for standard output; None to return the alignments.
        style: Format of the links.
        name: Name of the aligner, for the heading of a page.
        window: Number of lines per window.
        part: Lines to align. Default: None, all lines.
        options: Options of `align_windows`.

    Raises:
        CommandError: a file that cannot be read or written, or see `align_windows`.
    """
    shows_scores = style.shows_scores or options.get("least_probability") is not None
    options |= {"spans": style.offsets, "shows_scores": shows_scores}
    if output is None:
        with text.windows(window) as windows:
            return [alignment for group in align_windows(aligner, windows, **options) for alignment in group]
    before = 0 if part is None else part.lines.start
    watch = SeparatorWatch(options.get("words"))
    title = os.path.basename(os.path.normpath(name)) if os.path.isdir(name) else name  # without local folders
    writing, reading = output_lines(os.fspath(output)), text.windows(window, part)
    with writing as target, style.document(target, title), reading as windows:
        number = before + 1
        for group in align_windows(aligner, map(watch.window, windows), before=before, **options):
            write_lines(target, [style.line(number + place, alignment) for place, alignment in enumerate(group)])
            number += len(group)
    if style.counts_words:
        write_separator(output, watch.separator)
    return None


# ---- batches of columns ----


class AlignBatch:
    """Function that adds a column of links to a batch of columns. Each process loads the model once.

    Its pickle does not contain the model, so that the cache of `datasets` recognises it after a call.

    Args:
        model: Folder or Hub name for `WordAligner.from_pretrained`.
        source, target: Columns of the sentences, texts or lists of words; None, NaN and NA are empty sentences.
        links: Column of the links in Pharaoh format (`i-j i-j`). Default: "links".
        score: Column of the scores of the pairs. Default: None, no column.
        offsets: Write character positions, `start:end-start:end`. Default: False.
        device: Device. Default: None, the GPU of the process's rank if there is one, else the CPU.
        threads: Threads of PyTorch per process on a CPU if a rank is given. Default: 1.
        loading: Other options of `WordAligner.from_pretrained`. Default: None.
        aligning: Other options of `WordAligner.align`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        source: str = "source",
        target: str = "target",
        links: str = "links",
        score: str | None = None,
        offsets: bool = False,
        device: str | None = None,
        threads: int = 1,
        loading: Mapping[str, Any] | None = None,
        **aligning: Any,
    ):
        self.model, self.source, self.target, self.links, self.score = str(model), source, target, links, score
        self.offsets, self.device, self.threads = offsets, device, threads
        self.loading, self.aligning = dict(loading or {}), aligning
        self._aligner: WordAligner | None = None
        self._process: int | None = None  # id of the process that loaded the aligner

    def __call__(self, batch: Mapping[str, Sequence], rank: int | None = None) -> dict[str, Sequence]:
        """Return the batch with the columns of links and scores.

        Args:
            batch: Columns of equal length.
            rank: Rank of this process. Default: None, a single process.

        Raises:
            ValueError: a missing column, or a value that is no sentence; see also `WordAligner.align`.
        """
        if missing := [name for name in (self.source, self.target) if name not in batch]:
            raise ValueError(
                f"The batch has no column {missing[0]!r}, it has {sorted(batch)}: name `source`, `target`."
            )
        pairs = zip(*(_sentences(batch[name], name) for name in (self.source, self.target)), strict=True)
        alignments = self._loaded(rank).align(pairs, spans=self.offsets, **self.aligning)
        columns: dict[str, list] = {self.links: [a.offsets() if self.offsets else a.pharaoh() for a in alignments]}
        if self.score is not None:
            columns[self.score] = [alignment.score for alignment in alignments]
        return {**batch, **columns}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_aligner": None, "_process": None}

    def _loaded(self, rank: int | None) -> "WordAligner":
        if self._aligner is None or self._process != os.getpid():
            import torch

            from .aligner import WordAligner

            device = self.device
            if device is None and torch.cuda.is_available():
                device = f"cuda:{(rank or 0) % torch.cuda.device_count()}"
            if rank is not None and torch.device(device or "cpu").type == "cpu":
                torch.set_num_threads(self.threads)
            self._aligner = WordAligner.from_pretrained(self.model, device=device or "cpu", **self.loading)
            self._process = os.getpid()
        return self._aligner


def _sentences(column: Sequence, name: str) -> list[str | list[str]]:
    """Return the sentences of a column, for `WordAligner.align`."""
    found: list[str | list[str]] = []
    for row, value in enumerate(column):
        sentence = value.tolist() if hasattr(value, "tolist") else value  # of numpy: a list of words, a text, NaN
        if sentence is None or type(sentence).__name__ == "NAType" or sentence != sentence:
            sentence = ""
        words = sentence if isinstance(sentence, list | tuple) else [sentence]
        if not all(isinstance(word, str) for word in words):
            raise ValueError(
                f"Column {name!r} must have sentences, as text or lists of words, got {value!r} in row {row} of the "
                "batch."
            )
        found.append(sentence)
    return found
