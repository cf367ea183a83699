"""From the name of a checkpoint to a `WordAligner`, and what is said where that fails.

What is heavy is imported once a name is known to be good.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_attncal.data.languages import trial_source
from hf_attncal.families import source_of
from hf_attncal.inference.opening import check_name, choose_device, load_errors, tell_model
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, settings_by_name
from hf_attncal.io.files import fill_folder, write_json
from hf_attncal.io.gate import job, note_inputs, run_record
from hf_attncal.layouts import AUTO_ENCODER, CONFIG, DEFAULT_ENCODER, RUN

if TYPE_CHECKING:
    from .aligner import WordAligner

ADAPTED = "an adaptation"  # mark of a folder that an adapted aligner was saved in


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# What can be read of a model, as words of a command line: the fields of `Seq2SeqAttention` without its threshold.
READABLE: dict[str, tuple[Callable[[str], Any], str]] = {
    "layer": (int, "a number"),
    "heads": (_numbers, "numbers from 0, such as 0,3"),
    "shift": ({"true": True, "false": False}.__getitem__, "true or false"),
    "weights": (str, ""),
    "source_prefix": (str, ""),
}


# ---- aligners ----


def open_aligner(name: str, running: Running, tried: bool = True, raw_scores: bool = False, plain: bool = False):
    """Load a `WordAligner` as it was saved.

    Args:
        name: folder or Hub name.
        running: how it runs.
        tried: align one pair to try it out; else the caller does, once it has changed the aligner.
        raw_scores: leave scores as the model has them, even if it was calibrated.
        plain: the model will not be adapted or saved, so the tables of one that counts are enough.

    Raises:
        CommandError: the checkpoint cannot be loaded or is of another kind.
    """
    aligner = _plain_aligner(name, running) if plain else None
    if aligner is None:
        with load_errors(name):
            from .aligner import WordAligner, load_to_align

            device = choose_device(running)
            options: dict[str, Any] = {
                "dtype": running.dtype,
                "trust_remote_code": running.trust_remote_code,
                "languages": running.languages,
            }
            if raw_scores:  # the probabilities beside it may be those of another model
                model, *others = load_to_align(name, **options)
                aligner = WordAligner(model.to(device), *others)
            else:
                aligner = WordAligner.from_pretrained(name, device=device, **options)
        if tried:
            try_aligner(name, aligner)
    tell_model(name, aligner.source.model)
    return aligner


def _plain_aligner(name: str, running: Running):
    """Load an aligner that counts without importing transformers; return None if that cannot be done."""
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
    """Load a `WordAligner`, and make it ready to align a text.

    Args:
        model: folder or Hub name; or an aligner, which stays as it is unless it adapts.
        running: how it runs.
        read: settings to change, by name, or as words of a command line, `layer=8`.
        adapt: it will learn from the text.
        encoder: what helps, as of `open_encoder`.
        checked: options of `WordAligner.check` that it has to suit.

    Raises:
        CommandError: it cannot be loaded, or the settings or options do not suit it.
    """
    changes = changes_of(read)
    # What is read by default need not be possible, and options that do not suit shall not be blamed on the first line.
    named, other = isinstance(model, str), "weights" in changes
    aligner = open_aligner(model, running, tried=not other, plain=not other and not adapt) if named else model
    try:
        if not named and (changes or encoder is not None):
            aligner = copy(aligner)
            aligner.source = copy(aligner.source)
        if changes:
            aligner.choose(**changes)
        if encoder is not None:
            aligner.believe(open_encoder(encoder, running))
        aligner.check(**checked)
    except ValueError as error:
        name = model if named else "The model"
        raise CommandError(f"{name} cannot be used with these options: {error}") from error
    if named and other:
        try_aligner(model, aligner)
    return aligner


def aligner_beside(aligner, running: Running, name: str | None, model: tuple[Any, Any], raw_scores: bool) -> Any:
    """Return the `WordAligner` that links a text with what a model makes of it.

    Args:
        aligner: folder or Hub name of one, or one that is loaded; None for one that reads the model itself.
        running: how it runs.
        name: folder or Hub name that the model was loaded from, beside which what is read of it lies; None for none.
        model: an encoder-decoder, on its device, and its tokenizer.
        raw_scores: of the model itself: as for `open_aligner`.

    Raises:
        CommandError: it cannot be loaded, or the model cannot align.
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
    """Align one pair, so that damaged files of `name` are not blamed on the first line of the input.

    Raises:
        CommandError: that fails.
    """
    from hf_attncal.inference.files import blamed

    calibrated = "" if aligner.probabilities is None else "link_probabilities.json, "
    with load_errors(name), blamed(f"{calibrated}config.json, alignment.json or tokenizer_config.json in {name}"):
        aligner.align([(trial_source(aligner.tokenizer), "1")])


def changes_of(read: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """Return settings by name, from such a mapping or from words `key=value` of a command line.

    Raises:
        CommandError: there is no such setting, or its value cannot be understood.
    """
    settings = settings_by_name(read)
    for name, word in settings.items():
        if name not in READABLE:
            raise CommandError(f"--read has no {name!r}, it has {', '.join(READABLE)}: write layer=8, for example.")
        parse, kind = READABLE[name]
        try:
            settings[name] = word if isinstance(read, Mapping) else parse(word)
        except (ValueError, KeyError) as error:
            raise CommandError(f"--read {name} must be {kind}, got {word!r}.") from error
    return settings


def save_aligner(aligner, folder: str | Path) -> None:
    """Save model and tokenizer of a `WordAligner` in a folder, each file whole.

    Raises:
        CommandError: the folder holds another model, or is the one that the aligner was loaded from.
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
    """Return the folder or Hub name of an encoder, for "auto" the default; raise CommandError if there is none."""
    if not isinstance(encoder, str | os.PathLike):
        raise CommandError(f"`encoder` must be a folder or a name on the Hub, got {type(encoder).__name__}.")
    check_encoder(encoder)
    return DEFAULT_ENCODER[0] if encoder == AUTO_ENCODER else os.fspath(encoder)


def check_encoder(encoder: Any) -> None:
    """Raise CommandError for the name of an encoder by which there is nothing, before anything is loaded."""
    if isinstance(encoder, str | os.PathLike):
        try:
            check_name(DEFAULT_ENCODER[0] if encoder == AUTO_ENCODER else os.fspath(encoder))
        except OSError as error:
            raise CommandError(str(error)) from error


def open_encoder(encoder: Any, running: Running, adapted: bool = True) -> Any:
    """Load an `EncoderPrior` that will help an aligner.

    Args:
        encoder: folder or Hub name, "auto" for the default; or a loaded one; None for none. Each is returned as it is.
        running: how it runs; `dtype` and `revision` are the aligner's.
        adapted: as of `EncoderPrior.from_pretrained`.

    Raises:
        CommandError: it cannot be loaded or is of another kind.
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


# ---- batches of columns ----


class AlignBatch:
    """A function from columns to columns, the links of each pair among them. Each process loads the model once.

    It can be pickled, before and after it was called: the model stays behind, so that what caches by the pickle
    (`datasets`) finds the same.

    Args:
        model: folder or Hub name of what `WordAligner.from_pretrained` loads.
        source, target: columns of the sentences, as text or as lists of words; None, and NaN or NA as pandas has
            them for what is missing, are empty sentences.
        links: column of the links, as text in Pharaoh format (`i-j i-j`).
        score: column of the scores of the pairs; None: no such column.
        offsets: write the characters of words, `start:end-start:end`, in place of their numbers.
        device: None for the GPU of the process's rank if there are some, or else the CPU.
        threads: of PyTorch on a CPU, where a rank is given: processes that share cores have one each.
        loading: what else `WordAligner.from_pretrained` takes (`dtype`, `revision`, ...).
        aligning: what else `WordAligner.align` takes (`tokenize`, `threshold`, `batch_tokens`, ...).
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
        self._process: int | None = None  # that loaded it

    def __call__(self, batch: Mapping[str, Sequence], rank: int | None = None) -> dict[str, Sequence]:
        """Return the columns, and those of the links.

        Args:
            batch: columns of one length.
            rank: of this process among those that share the work; None where there is but one.

        Raises:
            ValueError: a column is not there, or has something else than sentences (with the row); see also
                `WordAligner.align`.
        """
        if missing := [name for name in (self.source, self.target) if name not in batch]:
            raise ValueError(
                f"The batch has no column {missing[0]!r}, it has {sorted(batch)}: name `source`, `target`."
            )
        pairs = zip(*(_sentences(batch[name], name) for name in (self.source, self.target)), strict=True)
        found = self._loaded(rank).align(pairs, spans=self.offsets, **self.aligning)
        links = [one.offsets() if self.offsets else one.pharaoh() for one in found]
        columns: dict[str, list[Any]] = {self.links: links}
        if self.score is not None:
            columns[self.score] = [one.score for one in found]
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
